"""Explain texts and hold what came out: tables, fitted surrogates, every answer, files."""

import io
import json
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from piste._errors import InputError, ModelError
from piste.evaluation.archive import pack, unpack
from piste.evaluation.attributions import attribution_table
from piste.evaluation.export import csv_text, json_text, meta_path, write_files
from piste.evaluation.fidelity import fidelity_table, low_fidelity
from piste.sampling.collect import Progress
from piste.sampling.masking import choose_masking
from piste.sampling.models import load_model
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Design, Text
from piste.sampling.segment import UnitChoice
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import (
    EPSILON,
    Explained,
    Failed,
    Options,
    explain_text,
    named_surrogates,
    with_fits,
)

SCHEMA_VERSION = 1


class PisteWarning(UserWarning):
    """Something about the result that a reader should know; the table and the meta file say it too."""


def explain(  # noqa: PLR0913 - the one place where every option of a run is named
    model: object,
    texts: Text | Sequence[Text],
    *,
    surrogates: str | Surrogate | Sequence[str | Surrogate] = ("slalom",),
    units: UnitChoice = "word",
    masking: str = "remove",
    design: str | Design = "auto",
    budget: int = 1000,
    target: int | str | None = None,
    space: str = "logit",
    tie_repeats: bool = False,
    context: str | None = None,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
    confidence: float = 0.95,
    text_ids: Sequence[str] | None = None,
) -> "Study":
    """Fit surrogates to a model around each text, and attribute its answers to the text's units.

    Parameters
    ----------
    model
        A loaded model, a URI such as ``builtin:sentiment`` or ``hf:PATH``, or any callable from
        ``list[str]`` to an array (n,), (n, 1) or (n, k).
    texts
        One text, a pair (premise, hypothesis), or a list of either.
    surrogates
        ``lime``, ``shap``, ``slalom`` or estimator objects; all are fitted to the same answers.
    units
        What is masked as a whole: ``word``, ``token`` (the model's own), ``sentence``, a function from a
        text to substrings or spans, or the spans ``[(start, end), ...]`` themselves.
    masking
        ``remove``, ``mask-token``, ``attention``, or a string to put in the place of each masked unit.
    design
        The law of the masks: ``auto`` or a name of `piste.sampling.designs.DESIGNS`, or a Design.
    budget
        Upper bound on distinct model queries per text, held-out masks included.
    target
        The predicted class by default; an index, a label, or ``all``.
    space
        ``logit`` (one-vs-rest log-odds), ``probability`` or ``raw``; a model whose numbers are neither
        log-odds nor probabilities is explained raw.
    tie_repeats
        Whether units of the same text share their parameters (SLALOM as published; LIME likewise).
    context
        A template around the explained text with one ``{text}``; never masked.
    batch_size
        The most texts in one call of the model.
    seed
        The only source of randomness; no global generator is read or changed.
    progress
        Called with (queries done, upper bound on queries).
    confidence
        Level of the intervals.
    text_ids
        Names of the texts in the tables; their positions by default.

    Raises
    ------
    InputError
        If an option cannot be used, or no text could be explained because of its content.
    ModelError
        If the model fails on every text. Where only some texts fail, their rows carry a status.

    Examples
    --------
    >>> study = explain(lambda texts: [float("good" in text) for text in texts], "a good film",
    ...                 surrogates="shap", space="raw")
    >>> study.attributions[["token", "score"]].values.tolist()
    [['a', 0.0], ['good', 1.0], ['film', 0.0]]
    """
    if not 0 < confidence < 1:
        raise InputError(
            f"Got confidence={confidence}; expected a number between 0 and 1, such as 0.95."
        )
    options = Options(
        named_surrogates(surrogates),
        units,
        masking,
        design,
        budget,
        target,
        space,
        tie_repeats,
        context,
        batch_size,
        seed,
    )
    box = load_model(model)
    choose_masking(masking, box)  # refuse before the first query
    listed = _listed(texts)
    names = _names(text_ids, len(listed))
    outcomes = []
    for index, (name, text) in enumerate(zip(names, listed, strict=True)):
        hook = None if progress is None else _shifted(progress, index, len(listed), budget)
        outcomes.append(explain_text(box, text, name, options, hook))
    _refuse_if_nothing_came_out(outcomes)
    study = Study(outcomes, options, box.fingerprint, confidence)
    study.warn()
    return study


class Study:
    """Explained texts; every table is derived from the answers and costs no query.

    Attributes
    ----------
    attributions
        One row per text, target, surrogate, kind and unit; columns of `piste.evaluation.attributions`.
    fidelity
        One row per text, target and surrogate: agreement with the model on held-out masks.
    responses
        One row per text and mask: what was kept, what it was used for, what the model answered.
    """

    def __init__(
        self,
        outcomes: Sequence[Explained | Failed],
        options: Options,
        fingerprint: str,
        confidence: float,
    ) -> None:
        self.outcomes = list(outcomes)
        self.options = options
        self.fingerprint = fingerprint
        self.confidence = confidence

    @cached_property
    def fidelity(self) -> pd.DataFrame:
        """Held-out fidelity of every fit, columns of `piste.evaluation.fidelity`."""
        return fidelity_table(self.outcomes, self.confidence, self.options.seed)

    @cached_property
    def attributions(self) -> pd.DataFrame:
        """Every attribution, columns of `piste.evaluation.attributions`."""
        return attribution_table(self.outcomes, low_fidelity(self.fidelity))

    @cached_property
    def responses(self) -> pd.DataFrame:
        """Every mask and answer: text, use (fit or held-out), mask (1 keeps a unit), one column a label."""
        frames = []
        for explained in self._explained():
            for use, answers in (("fit", explained.responses), ("held-out", explained.held_out)):
                if answers is not None:
                    kept = ["".join("01"[unit] for unit in mask) for mask in answers.masks.astype(int)]
                    frame = pd.DataFrame(answers.values, columns=list(answers.labels))
                    frame.insert(0, "text", explained.text_id)
                    frame.insert(1, "use", use)
                    frame.insert(2, "mask", kept)
                    frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def surrogate(self, text: int | str, name: str) -> Surrogate:
        """The fitted estimator of one text, by position or text_id.

        Raises
        ------
        InputError
            If there is no such text or surrogate, or it could not be fitted.
        """
        outcome = self._outcome(text)
        if isinstance(outcome, Failed):
            raise InputError(f"Text {text!r} was not explained: {outcome.message}")
        if name in outcome.failures:
            raise InputError(f"{name!r} was not fitted to text {text!r}: {outcome.failures[name]}")
        if name not in outcome.fits:
            known = ", ".join(map(repr, outcome.fits))
            raise InputError(
                f"Got surrogate {name!r}; expected one of {known}. Use study.refit to add one."
            )
        return outcome.fits[name]

    def refit(self, surrogates: str | Surrogate | Sequence[str | Surrogate]) -> "Study":
        """The same answers with other surrogates fitted to them; costs no query."""
        chosen = named_surrogates(surrogates)
        outcomes = [
            outcome if isinstance(outcome, Failed) else with_fits(outcome, chosen)
            for outcome in self.outcomes
        ]
        options = replace(self.options, surrogates=chosen)
        return Study(outcomes, options, self.fingerprint, self.confidence)

    @property
    def meta(self) -> dict[str, object]:
        """Where the numbers come from: model, options, budget spent, fidelity, versions."""
        options = self.options
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.fingerprint,
            "surrogates": {
                name: {"estimator": type(s).__name__, **_parameters(s)}
                for name, s in options.surrogates.items()
            },
            "units": options.units if isinstance(options.units, str) else "custom",
            "masking": options.masking,
            "design": options.design if isinstance(options.design, str) else options.design.name,
            "budget": options.budget,
            "target": options.target,
            "space": options.space,
            "tie_repeats": options.tie_repeats,
            "context": options.context,
            "batch_size": options.batch_size,
            "seed": options.seed,
            "confidence": self.confidence,
            "clip_epsilon": EPSILON,
            "n_queries": sum(explained.n_queries for explained in self._explained()),
            "n_clipped": sum(explained.n_clipped for explained in self._explained()),
            "texts": [_text_meta(outcome) for outcome in self.outcomes],
            "fidelity": self.fidelity.to_dict(orient="records"),
            "versions": _versions(),
        }

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the attributions as CSV, and `meta` beside them as ``NAME.meta.json``.

        UTF-8, RFC 4180. When reading with pandas pass ``keep_default_na=False`` for the tokens' sake:
        a word such as "null" or "NA" would be read as missing otherwise.
        """
        path = Path(path)
        write_files(
            {
                path: csv_text(self.attributions).encode(),
                meta_path(path): json_text(self.meta).encode(),
            }
        )

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write attributions, fidelity and `meta` as one JSON file."""
        table = self.attributions.astype(object).where(self.attributions.notna(), None)
        content = {"meta": self.meta, "attributions": table.to_dict(orient="records")}
        write_files({Path(path): json_text(content).encode()})

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything, answers included, into one file for `piste.load_study`."""
        manifest, arrays = pack(self.outcomes, self.options)
        manifest |= {"model": self.fingerprint, "confidence": self.confidence}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, manifest=np.array(json.dumps(manifest)), **arrays)
        write_files({Path(path): buffer.getvalue()})

    def warn(self) -> None:
        """One warning for each thing that a reader of the numbers should know."""
        for message in _remarks(self.outcomes):
            warnings.warn(message, PisteWarning, stacklevel=3)

    def _explained(self) -> Iterable[Explained]:
        return (outcome for outcome in self.outcomes if isinstance(outcome, Explained))

    def _outcome(self, text: int | str) -> Explained | Failed:
        if isinstance(text, int) and -len(self.outcomes) <= text < len(self.outcomes):
            return self.outcomes[text]
        for outcome in self.outcomes:
            if outcome.text_id == text:
                return outcome
        raise InputError(
            f"Got text {text!r}; expected a position below {len(self.outcomes)} or a text_id."
        )


def load_study(path: str | PathLike[str]) -> Study:
    """Read a study that `Study.save` wrote; its surrogates are fitted again, which costs no query.

    Raises
    ------
    InputError
        If the file is missing or not a study of this version.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            arrays = dict(archive)
        manifest = json.loads(str(arrays.pop("manifest")))
        outcomes, options = unpack(manifest, arrays)
        return Study(outcomes, options, manifest["model"], manifest["confidence"])
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"Got {error} when reading {path}; expected a file written by study.save."
        ) from error


def _listed(texts: Text | Sequence[Text]) -> list[Text]:
    """Texts as a list; a str is one text and a tuple of two str one pair."""
    if isinstance(texts, str) or (isinstance(texts, tuple) and all(isinstance(t, str) for t in texts)):
        return [texts]
    listed = list(texts)
    if not listed:
        raise InputError("Got no texts; expected a text or a list of texts.")
    return [tuple(text) if isinstance(text, list) else text for text in listed]  # type: ignore[misc]


def _names(text_ids: Sequence[str] | None, n_texts: int) -> list[str]:
    if text_ids is None:
        return [str(index) for index in range(n_texts)]
    names = [str(name) for name in text_ids]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if len(names) != n_texts or repeated:
        raise InputError(
            f"Got {len(names)} text_ids for {n_texts} texts, repeated: {repeated[:3]}; expected one of its "
            "own for each text."
        )
    return names


def _shifted(progress: Progress, index: int, n_texts: int, budget: int) -> Progress:
    """Progress over all texts from that of one."""
    return lambda done, _: progress(index * budget + done, n_texts * budget)


def _refuse_if_nothing_came_out(outcomes: Sequence[Explained | Failed]) -> None:
    if any(isinstance(outcome, Explained) for outcome in outcomes):
        return
    first = outcomes[0]
    assert isinstance(first, Failed)
    more = (
        "" if len(outcomes) == 1 else f" (text {first.text_id}; none of {len(outcomes)} texts worked)"
    )
    raise first.error_type(first.message + more)


def _parameters(surrogate: Surrogate) -> Mapping[str, object]:
    return {
        key: value if _is_plain(value) else repr(value) for key, value in surrogate.get_params().items()
    }


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _text_meta(outcome: Explained | Failed) -> dict[str, object]:
    if isinstance(outcome, Failed):
        return {"text_id": outcome.text_id, "status": f"error: {outcome.message}"}
    return {
        "text_id": outcome.text_id,
        "status": "ok",
        "n_units": outcome.units.n_units,
        "n_unseen": int((~outcome.units.seen).sum()),
        "design": outcome.design,
        "n_masks": len(outcome.responses.masks),
        "n_held_out": 0 if outcome.held_out is None else len(outcome.held_out.masks),
        "n_queries": outcome.n_queries,
        "n_clipped": outcome.n_clipped,
        "n_non_finite": _n_non_finite(outcome),
        "output_kind": outcome.responses.kind,
        "space": outcome.space,
        "targets": list(outcome.targets),
        "base": {name: np.atleast_1d(fit.base_value_).tolist() for name, fit in outcome.fits.items()},
        "failures": dict(outcome.failures),
    }


def _n_non_finite(explained: Explained) -> int:
    scores = np.concatenate([explained.scores, explained.held_out_scores])
    return int((~np.isfinite(scores)).any(axis=1).sum())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in (
        "piste",
        "numpy",
        "scipy",
        "scikit-learn",
        "numba",
        "onnxruntime",
        "torch",
        "transformers",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _remarks(outcomes: Sequence[Explained | Failed]) -> list[str]:
    """What the whole run has to say, one sentence a matter."""
    explained = [outcome for outcome in outcomes if isinstance(outcome, Explained)]
    remarks = []
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if failed:
        remarks.append(
            f"{len(failed)} of {len(outcomes)} texts could not be explained; the first is text "
            f"{failed[0].text_id}: {failed[0].message} Their rows carry the reason."
        )
    n_clipped = sum(outcome.n_clipped for outcome in explained)
    if n_clipped:
        remarks.append(
            f"{n_clipped} probabilities closer to 0 or 1 than {EPSILON:g} were clipped there before they "
            "became log-odds. Use space='probability', or a model that returns logits."
        )
    n_unseen = sum(int((~outcome.units.seen).sum()) for outcome in explained)
    if n_unseen:
        remarks.append(
            f"{n_unseen} units lie beyond the model's window: it never sees them, so their scores are 0 "
            "and their status is 'unseen'."
        )
    broken = [outcome for outcome in explained if _n_non_finite(outcome)]
    if broken:
        remarks.append(
            f"{sum(map(_n_non_finite, broken))} answers were NaN or infinite and were left out; one is for "
            f"{broken[0].responses.example_non_finite!r}."
        )
    failures = [(o.text_id, n, m) for o in explained for n, m in o.failures.items()]
    if failures:
        remarks.append("Surrogate {1!r} could not be fitted to text {0}: {2}".format(*failures[0]))
    return remarks
