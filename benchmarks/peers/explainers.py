"""Every explainer behind one signature: (subject, text, n_queries, seed, batch_size) -> attributions.

``batch_size`` None leaves it to the package. The subject counts the queries.
"""

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
from subjects import Subject

import piste
from piste._typing import FloatArray
from piste.sampling.segment import segment

Explainer = Callable[[Subject, str, int, int, int | None], FloatArray]

WHOLE = 10**9  # a batch that holds everything: one call with all masked texts


def piste_with(surrogate: str) -> Explainer:
    """`piste.explain`, tables included."""

    def explain(
        subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
    ) -> FloatArray:
        study = piste.explain(
            subject.box,
            text,
            surrogates=surrogate,
            budget=n_queries,
            seed=seed,
            batch_size=batch_size or 64,
        )
        assert study.attributions is not None
        subject.n_queries += int(study.fidelity["n_queries"].iloc[0])
        return study.attributions["score"].to_numpy()

    return explain


def shap_with(kind: str) -> Explainer:
    """Shap's Partition or Permutation with its text masker."""

    def explain(
        subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
    ) -> FloatArray:
        import shap

        masker = shap.maskers.Text(subject.tokenizer or r"\W+")
        make = {"partition": shap.PartitionExplainer, "permutation": shap.PermutationExplainer}[kind]
        explainer = make(lambda texts: subject.texts(texts, WHOLE), masker, seed=seed)
        options = {} if batch_size is None else {"batch_size": batch_size}
        found = explainer([text], max_evals=n_queries, silent=True, **options)
        return np.asarray(found.values[0])

    return explain


def shap_pipeline(
    subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
) -> FloatArray:
    """Shap as its documentation shows it: given a transformers pipeline, which it asks text by text."""
    import shap
    from transformers import pipeline

    asked = pipeline(
        "text-classification", model=subject.module, tokenizer=subject.tokenizer, top_k=None
    )
    options = {} if batch_size is None else {"batch_size": batch_size}
    with counted(subject):
        found = shap.Explainer(asked, seed=seed)([text], max_evals=n_queries, silent=True, **options)
    return np.asarray(found.values[0])[:, 1]


def shap_kernel(
    subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
) -> FloatArray:
    """Shap's KernelExplainer, which takes no text: on masks."""
    import shap

    n_units = segment(text, "word").n_units
    np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generator
    explainer = shap.KernelExplainer(
        lambda masks: subject.masks(text, masks, batch_size or WHOLE), np.zeros((1, n_units))
    )
    return np.asarray(explainer.shap_values(np.ones(n_units), nsamples=n_queries, silent=True))


def lime_text(
    subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
) -> FloatArray:
    """Lime's LimeTextExplainer; its default is one call with every masked text."""
    from lime.lime_text import LimeTextExplainer

    def probabilities(texts: list[str]) -> FloatArray:
        p = 1 / (1 + np.exp(-subject.texts(texts, batch_size or WHOLE)))
        return np.column_stack([1 - p, p])

    explainer = LimeTextExplainer(random_state=seed)
    found = explainer.explain_instance(
        text, probabilities, num_features=len(text), num_samples=n_queries
    )
    return np.array([score for _, score in sorted(found.as_map()[1])])


def captum_with(kind: str) -> Explainer:
    """Captum's KernelShap or Lime (a LimeBase), which take no text: on masks."""

    def explain(
        subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
    ) -> FloatArray:
        import torch
        from captum import attr

        torch.manual_seed(seed)
        n_units = segment(text, "word").n_units

        def forward(masks: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(subject.masks(text, masks.numpy(), WHOLE))

        made = getattr(attr, kind)(forward)
        found = made.attribute(
            torch.ones(1, n_units),
            baselines=torch.zeros(1, n_units),
            n_samples=n_queries,
            perturbations_per_eval=batch_size or 1,
        )
        return np.asarray(found[0])

    return explain


def shapiq_with(kind: str) -> Explainer:
    """Shapiq's KernelSHAP or SVARM: on masks."""

    def explain(
        subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
    ) -> FloatArray:
        from shapiq import approximator

        n_units = segment(text, "word").n_units
        made = getattr(approximator, kind)(n=n_units, random_state=seed)
        found = made.approximate(
            n_queries, lambda masks: subject.masks(text, masks, batch_size or WHOLE)
        )
        return np.asarray(found.get_n_order_values(1))

    return explain


def slalom_with(strategy: str) -> Explainer:
    """slalom-explanations by SGD; its batches of 16 are fixed, and it must have BERT's own token ids."""

    def explain(
        subject: Subject, text: str, n_queries: int, seed: int, batch_size: int | None
    ) -> FloatArray:
        import torch
        from slalom_explanations.slalom_explainer import SLALOMLocalExplanantions

        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generators
        random.seed(seed)
        with counted(subject):
            explainer = SLALOMLocalExplanantions(
                subject.module,
                subject.tokenizer,
                n_samples=n_queries,
                device="cpu",
                modes=["value", "imp"],
                sampling_strategy=strategy,
            )
            found = explainer.tokenize_and_explain(text)
        return np.array([scores[0] for _, scores in found])

    return explain


EXPLAINERS: dict[str, Explainer] = {
    "piste slalom": piste_with("slalom"),
    "piste shap": piste_with("shap"),
    "piste lime": piste_with("lime"),
    "shap Partition": shap_with("partition"),
    "shap Permutation": shap_with("permutation"),
    "shap pipeline": shap_pipeline,
    "shap Kernel": shap_kernel,
    "lime": lime_text,
    "captum KernelShap": captum_with("KernelShap"),
    "captum Lime": captum_with("Lime"),
    "shapiq KernelSHAP": shapiq_with("KernelSHAP"),
    "shapiq SVARM": shapiq_with("SVARM"),
    "slalom-explanations short": slalom_with("short"),
    "slalom-explanations deletion": slalom_with("deletion"),
}


@contextlib.contextmanager
def counted(subject: Subject) -> Iterator[None]:
    """Count what a package asks of the torch module itself."""
    rows: list[int] = []
    hook = subject.module.register_forward_hook(lambda module, given, out: rows.append(len(out.logits)))
    try:
        yield
    finally:
        hook.remove()
    subject.n_queries += sum(rows)


def why_not(name: str, subject: Subject, batch: str) -> str:
    """Why an explainer cannot be run on a subject; empty if it can."""
    package = name.partition(" ")[0].replace("-", "_")
    if find_spec(package) is None:
        return f"{name.partition(' ')[0]} is not installed"
    if name == "shap pipeline" and subject.module is None:
        return "a pipeline takes torch models only"
    if package == "slalom_explanations" and subject.module is None:
        return "slalom-explanations takes torch models with BERT's token ids only"
    if package == "slalom_explanations" and batch == "best":
        return "slalom-explanations has no batch size to choose"
    return ""


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Progress bars and warnings of the packages kept off the terminal."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
