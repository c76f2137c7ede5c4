"""Where a study's numbers come from, and what a reader of them should know."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

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
    outcomes: Sequence[Explained | Failed],
    options: Options,
    fingerprint: str,
    fidelity: pd.DataFrame,
    spent: Spent,
) -> dict[str, Any]:
    """Model, options, budget and money spent, fidelity and versions: what ``out.meta.json`` holds."""
    explained = [outcome for outcome in outcomes if isinstance(outcome, Explained)]
    return {
        "schema_version": SCHEMA_VERSION,
        "model": fingerprint,
        "surrogates": described(options.surrogates),
        **options.plain(),
        "clip_epsilon": EPSILON,
        "n_queries": sum(outcome.n_queries for outcome in outcomes),
        **spent.plain(),
        "n_clipped": sum(text.n_clipped for text in explained),
        "texts": [_text_meta(outcome, options.confidence) for outcome in outcomes],
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


def _text_meta(outcome: Explained | Failed, confidence: float) -> dict[str, object]:
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


def remarks(outcomes: Sequence[Explained | Failed]) -> list[str]:
    """What a whole run has to say, one line a matter."""
    explained = [outcome for outcome in outcomes if isinstance(outcome, Explained)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    return [
        *_about_failures(failed, len(outcomes)),
        *_about_unfitted(explained),
        *_about_spaces(explained),
        *_about_clipping(explained),
        *_about_window(explained),
        *_about_non_finite(explained),
    ]


def _about_failures(failed: Sequence[Failed], n_texts: int) -> Iterator[str]:
    if failed:
        yield (
            f"{len(failed)} of {n_texts} texts could not be explained; the first is text "
            f"{failed[0].text_id}: {failed[0].message} Their rows carry the reason."
        )


def _about_unfitted(explained: Sequence[Explained]) -> Iterator[str]:
    failures = [(text.text_id, *failure) for text in explained for failure in text.failures.items()]
    if failures:
        text_id, name, message = failures[0]
        yield (
            f"{len(failures)} fits failed; the first is {name!r} for text {text_id}: {message} Their "
            "rows carry the reason."
        )


def _about_spaces(explained: Sequence[Explained]) -> Iterator[str]:
    spaces = Counter(text.space for text in explained)
    if len(spaces) > 1:
        found = ", ".join(f"{space} for {count}" for space, count in spaces.items())
        yield (
            f"The model does not say what its numbers are, so it was guessed for each text: {found}. "
            "Declare them: load_model(function, kind='probability'), or 'logit' or 'raw'."
        )


def _about_clipping(explained: Sequence[Explained]) -> Iterator[str]:
    n_clipped = sum(text.n_clipped for text in explained)
    if n_clipped:
        yield (
            f"{n_clipped} probabilities closer to 0 or 1 than {EPSILON:g} were clipped there before "
            "they became log-odds. Use space='probability', or a model that returns logits."
        )


def _about_window(explained: Sequence[Explained]) -> Iterator[str]:
    n_unseen = sum(int((~text.units.seen).sum()) for text in explained)
    if n_unseen:
        yield (
            f"{n_unseen} units lie beyond the model's window: it never sees them, so their scores are "
            "0 and their status is 'unseen'."
        )


def _about_non_finite(explained: Sequence[Explained]) -> Iterator[str]:
    broken = [text for text in explained if _n_non_finite(text)]
    if broken:
        yield (
            f"{sum(map(_n_non_finite, broken))} answers were NaN or infinite and were left out; one is "
            f"for {broken[0].responses.example_non_finite!r}."
        )
