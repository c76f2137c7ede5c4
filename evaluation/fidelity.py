"""How well a fitted surrogate predicts answers that it was not fitted to."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from piste._typing import FloatArray
from piste.surrogates.explain import HELD_OUT_LAW
from piste.surrogates.records import Explained, Failed

COLUMNS = (
    "text",
    "target",
    "surrogate",
    "mask_law",
    "mse",
    "r2",
    "r2_low",
    "r2_high",
    "ceiling",
    "spearman",
    "n_masks",
    "n_queries",
    "status",
)
ALL_MASKS = "all masks"
LOW_R2 = 0.5  # what leaves half of the variance unexplained does not describe the model
N_BOOTSTRAP = 1000
_ROUNDING = 1e-9  # relative: answers closer than that are the same
UNDEFINED = "undefined"
LOW = "low"


@dataclass(frozen=True)
class Fidelity:
    """Agreement of predictions with answers on some masks; NaN where it is undefined."""

    mse: float
    r2: float
    r2_low: float
    r2_high: float
    spearman: float


def measure_fidelity(
    answers: FloatArray, predicted: FloatArray, confidence: float, rng: np.random.Generator | None
) -> Fidelity:
    """Mean squared error, R2 and rank correlation of predictions.

    ``R2 = 1 - MSE / variance of the answers``: 1 is perfect, 0 is the mean of the answers, below is
    worse than that; undefined (NaN) where the answers do not vary. The interval is the bootstrap's
    percentile interval over masks.

    Parameters
    ----------
    answers, predicted
        Shape (n_masks,), float64, finite, in the same units.
    confidence
        Level of the interval, in (0, 1).
    rng
        Draws the bootstrap samples; None where the masks are all there are, so that nothing is sampled
        and the interval is the point.
    """
    if not len(answers):
        return Fidelity(np.nan, np.nan, np.nan, np.nan, np.nan)
    squared = (answers - predicted) ** 2
    mse = float(squared.mean())
    if not _varies(answers):
        return Fidelity(mse, np.nan, np.nan, np.nan, np.nan)
    r2 = 1 - mse / answers.var()
    low, high = (r2, r2) if rng is None else _interval(answers, squared, confidence, rng)
    return Fidelity(mse, r2, low, high, _spearman(answers, predicted))


def _interval(
    answers: FloatArray, squared: FloatArray, confidence: float, rng: np.random.Generator
) -> tuple[float, float]:
    samples = rng.integers(len(answers), size=(N_BOOTSTRAP, len(answers)))
    variance = answers[samples].var(axis=1)
    r2 = 1 - squared[samples].mean(axis=1)[variance > 0] / variance[variance > 0]
    tail = (1 - confidence) / 2
    low, high = np.quantile(r2, [tail, 1 - tail])
    return float(low), float(high)


def _spearman(answers: FloatArray, predicted: FloatArray) -> float:
    """Rank correlation; numbers that differ by rounding alone are ties."""
    size = _ROUNDING * max(np.abs(answers).max(), np.abs(predicted).max())
    ranks = [rankdata(np.round(numbers / size)) for numbers in (answers, predicted)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return np.nan
    return float(np.corrcoef(ranks)[0, 1])


def fidelity_table(outcomes: list[Explained | Failed], confidence: float, seed: int) -> pd.DataFrame:
    """Fidelity of every fit of every text, columns `COLUMNS`.

    Measured on fresh masks, disjoint from those of the fit; where every mask was asked there are none
    left, and the fit is measured on all of them. Failed texts have no rows. ``ceiling`` is the highest
    R2 to be expected of any surrogate on fresh masks, as the answers' own noise cannot be predicted:
    1 where repeats showed none, NaN where nothing is known of it (`noise_ceiling`).
    """
    rows = [
        row
        for outcome in outcomes
        if isinstance(outcome, Explained)
        for row in _text_rows(outcome, confidence, seed)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def noise_ceiling(answers: FloatArray, errors: FloatArray | None) -> float:
    """``1 - mean(errors^2) / variance of the answers``, in [0, 1]; NaN where either is not known.

    Parameters
    ----------
    answers
        Shape (n_masks,), float64.
    errors
        Shape (n_masks,): their standard errors; None where these are not known.

    >>> noise_ceiling(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.5]))
    0.75
    """
    if errors is None or len(answers) < 2 or not _varies(answers):
        return np.nan
    return float(np.clip(1 - np.mean(errors**2) / answers.var(ddof=1), 0.0, 1.0))


def _varies(answers: FloatArray) -> bool:
    return bool(answers.std() > _ROUNDING * (1 + abs(answers.mean())))


def _text_rows(explained: Explained, confidence: float, seed: int) -> list[dict[str, object]]:
    held_out = explained.held_out
    exhaustive = explained.exhaustive
    judged = explained.responses if held_out is None else held_out
    scores = explained.scores if held_out is None else explained.held_out_scores
    errors = explained.errors if held_out is None else explained.held_out_errors
    law = HELD_OUT_LAW
    if held_out is None:
        law = ALL_MASKS if exhaustive else f"fit ({explained.design})"
    finite = np.isfinite(scores).all(axis=1)
    rows: list[dict[str, object]] = []
    for name, surrogate in explained.fits.items():
        predicted = surrogate.predict(explained.masks_for(surrogate, judged.masks[finite]))
        predicted = predicted.reshape(-1, len(explained.targets))
        for output, target in enumerate(explained.targets):
            # The same resamples for every surrogate, so that their intervals can be compared.
            rng = None if exhaustive else np.random.default_rng([seed, output])
            answers = scores[finite, output]
            found = measure_fidelity(answers, predicted[:, output], confidence, rng)
            noise = None if errors is None else errors.values[finite, output]
            rows.append(
                {
                    "text": explained.text_id,
                    "target": target,
                    "surrogate": name,
                    "mask_law": law,
                    **found.__dict__,
                    "ceiling": noise_ceiling(answers, noise),
                    "n_masks": int(finite.sum()),
                    "n_queries": explained.n_queries,
                    "status": fidelity_status(found),
                }
            )
    return rows


def fidelity_status(found: Fidelity) -> str:
    """``ok``, or ``low`` or ``undefined`` R2."""
    if np.isnan(found.r2):
        return UNDEFINED
    return LOW if found.r2 < LOW_R2 else "ok"


def low_fidelity(table: pd.DataFrame) -> set[tuple[str, str, str]]:
    """(text, target, surrogate) of the fits that are not to be trusted."""
    low = table[table["status"] == LOW]
    return set(zip(low["text"], low["target"], low["surrogate"], strict=True))
