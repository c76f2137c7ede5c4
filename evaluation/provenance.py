"""Where a study's numbers come from, and what a reader of them should know."""

import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from piste._errors import PisteWarning
from piste.evaluation.spent import Spent
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import EPSILON
from piste.surrogates.records import Explained, Failed, Options
from piste.surrogates.slalom import Slalom

SCHEMA_VERSION = 1
LIBRARIES = (
    "piste",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "onnxruntime",
    "torch",
    "transformers",
)


def provenance(
    texts: Sequence[Mapping[str, Any]],
    options: Options,
    fingerprint: str,
    fidelity: pd.DataFrame,
    spent: Spent,
) -> dict[str, Any]:
    """Model, options, budget and money spent, fidelity and versions: what ``out.meta.json`` holds.

    ``texts`` are what `text_meta` says of each.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "model": fingerprint,
        "surrogates": described(options.surrogates),
        **options.plain(),
        "clip_epsilon": EPSILON,
        "n_queries": sum(text["n_queries"] for text in texts),
        **spent.plain(),
        "n_clipped": sum(text.get("n_clipped", 0) for text in texts),
        "texts": texts,
        "fidelity": fidelity.to_dict(orient="records"),
        "versions": versions(),
    }


def described(surrogates: Mapping[str, Surrogate]) -> dict[str, dict[str, object]]:
    """Each estimator's class and options."""
    return {
        name: {"estimator": type(surrogate).__name__, **_parameters(surrogate)}
        for name, surrogate in surrogates.items()
    }


def _parameters(surrogate: Surrogate) -> Mapping[str, object]:
    return {
        key: value if _is_plain(value) else repr(value) for key, value in surrogate.get_params().items()
    }


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def text_meta(outcome: Explained | Failed, confidence: float) -> dict[str, Any]:
    """What ``out.meta.json`` says of one text."""
    if isinstance(outcome, Failed):
        return {
            "text_id": outcome.text_id,
            "status": f"error: {outcome.message}",
            "n_queries": outcome.n_queries,
        }
    return {
        "text_id": outcome.text_id,
        "status": "ok",
        "n_units": outcome.units.n_units,
        "n_unseen": int((~outcome.units.seen).sum()),
        "design": outcome.design,
        "n_masks": len(outcome.responses.masks),
        "n_held_out": 0 if outcome.held_out is None else len(outcome.held_out.masks),
        "n_queries": outcome.n_queries,
        "stopped": outcome.stopped,
        "n_clipped": outcome.n_clipped,
        "n_non_finite": _n_non_finite(outcome),
        "noise_variance": None if outcome.noise_variance is None else outcome.noise_variance.tolist(),
        "output_kind": outcome.responses.kind,
        "space": outcome.space,
        "targets": list(outcome.targets),
        "base": {name: _base(outcome, fit) for name, fit in outcome.fits.items()},
        "additivity": {
            name: [asdict(each) for each in fit.additivity(confidence)]
            for name, fit in outcome.fits.items()
            if isinstance(fit, Slalom) and fit.heads == 1
        },
        "failures": dict(outcome.failures),
    }


def _base(explained: Explained, fit: Surrogate) -> list[float]:
    """The surrogate's prediction for the text without any of its units, one number per target."""
    nothing = np.zeros((1, explained.units.seen.sum()), dtype=np.bool_)
    return np.ravel(fit.predict(explained.masks_for(fit, nothing))).tolist()


def _n_non_finite(explained: Explained) -> int:
    scores = np.concatenate([explained.scores, explained.held_out_scores])
    return int((~np.isfinite(scores)).any(axis=1).sum())


def versions() -> dict[str, str]:
    """Of Python, piste and what it computes with."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def remarks(outcomes: Iterable[Explained | Failed]) -> "Remarks":
    """What a whole run has to say."""
    found = Remarks()
    for outcome in outcomes:
        found.add(outcome)
    return found


@dataclass
class Remarks:
    """What a run's warnings are made of, added up text by text."""

    n_texts: int = 0
    n_failed: int = 0
    n_unfitted: int = 0
    n_clipped: int = 0
    n_unseen: int = 0
    n_non_finite: int = 0
    first_failed: str = ""
    first_unfitted: str = ""
    example_non_finite: object = None
    spaces: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Explained | Failed) -> None:
        """Take in what there is to say of one text."""
        self.n_texts += 1
        if isinstance(outcome, Failed):
            self.n_failed += 1
            self.first_failed = self.first_failed or f"text {outcome.text_id}: {outcome.message}"
            return
        for name, message in outcome.failures.items():
            self.n_unfitted += 1
            self.first_unfitted = (
                self.first_unfitted or f"{name!r} for text {outcome.text_id}: {message}"
            )
        self.spaces[outcome.space] += 1
        self.n_clipped += outcome.n_clipped
        self.n_unseen += int((~outcome.units.seen).sum())
        n_non_finite = _n_non_finite(outcome)
        if n_non_finite and not self.n_non_finite:
            self.example_non_finite = outcome.responses.example_non_finite
        self.n_non_finite += n_non_finite

    def warn(self) -> None:
        """One warning for each matter, said of the line that wanted the run."""
        for line in self.lines():
            warnings.warn(line, PisteWarning, stacklevel=4)

    def lines(self) -> Iterator[str]:
        """One line a matter."""
        if self.n_failed:
            yield (
                f"{self.n_failed} of {self.n_texts} texts could not be explained; the first is "
                f"{self.first_failed} Their rows carry the reason."
            )
        if self.n_unfitted:
            yield (
                f"{self.n_unfitted} fits failed; the first is {self.first_unfitted} Their rows carry "
                "the reason."
            )
        if len(self.spaces) > 1:
            found = ", ".join(f"{space} for {count}" for space, count in self.spaces.items())
            yield (
                f"The model does not say what its numbers are, so it was guessed for each text: {found}. "
                "Declare them: load_model(function, kind='probability'), or 'logit' or 'raw'."
            )
        if self.n_clipped:
            yield (
                f"{self.n_clipped} probabilities closer to 0 or 1 than {EPSILON:g} were clipped there "
                "before they became log-odds. Use space='probability', or a model that returns logits."
            )
        if self.n_unseen:
            yield (
                f"{self.n_unseen} units lie beyond the model's window: it never sees them, so their "
                "scores are 0 and their status is 'unseen'."
            )
        if self.n_non_finite:
            yield (
                f"{self.n_non_finite} answers were NaN or infinite and were left out; one is for "
                f"{self.example_non_finite!r}."
            )
