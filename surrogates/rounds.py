"""When to stop asking: rounds of queries until the intervals are narrow enough."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from piste._errors import InputError
from piste._typing import FloatArray
from piste.surrogates.base import Surrogate
from piste.surrogates.trees import Trees

GROWTH = 2.0  # one round at most doubles the answers: an early interval is too rough to bet more on
LEAST_GROWTH = 1.15
OPTIMAL_GROWTH = 1.2


@dataclass(frozen=True)
class AutoBudget:
    """Ask in rounds until every attribution is known well enough, or a cap is met.

    Two rules. Without ``top_k``, stop when the half-width of every interval is at most ``tolerance``
    times the largest attribution of its surrogate. This is a fixed-width sequential interval: the
    decision looks at widths alone, not at where the estimates lie, and such intervals keep their level
    as the width shrinks (Chow & Robbins 1965, doi:10.1214/aoms/1177700156), so no look is charged for.
    With ``top_k``, stop when the k largest attributions (by magnitude) are apart from all others. That
    decision does look at the estimates, so look number j tests at level ``alpha / (j (j + 1))``, which
    sums to alpha over any number of looks.

    The intervals are of each surrogate's effect on the score: coefficient, Shapley value, removal. Those of
    `Trees` are the whole line: alone they are refused, and beside others they make it ask up to the cap.

    Parameters
    ----------
    tolerance
        Largest half-width relative to the largest magnitude, in (0, 1).
    top_k
        Settle the set of the k largest attributions instead.
    cap
        Upper bound on distinct model queries per text, held-out masks included.
    """

    tolerance: float = 0.1
    top_k: int | None = None
    cap: int = 5000

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1 or self.cap < 2 or (self.top_k is not None and self.top_k < 1):
            raise InputError(
                f"Got tolerance={self.tolerance}, top_k={self.top_k}, cap={self.cap}; expected a "
                "tolerance between 0 and 1, a cap of at least 2 and a top_k of at least 1."
            )


@dataclass(frozen=True)
class Verdict:
    """Whether to stop, why, and otherwise how many times as many answers it would take."""

    enough: bool
    reason: str
    growth: float


def check_rule(surrogates: Mapping[str, Surrogate], rule: AutoBudget) -> None:
    """Refuse, before a query, a rule that no number of answers could meet.

    Raises
    ------
    InputError
        If no surrogate has intervals that answers could make narrow: those of trees are the whole line.
    """
    if all(isinstance(surrogate, Trees) for surrogate in surrogates.values()):
        raise InputError(
            f"Got budget='auto' with {', '.join(map(repr, surrogates))} alone, which has no interval that "
            f"could become narrow: all {rule.cap} queries would be asked; expected 'lime', 'shap' or 'slalom' "
            "among the surrogates. Give a number as the budget, or refit to the answers of another."
        )


def judge(
    fits: Mapping[str, Surrogate], rule: AutoBudget | None, confidence: float, look: int
) -> Verdict:
    """Look number ``look`` (from 1) at the fits.

    Widths shrink with the square root of the number of answers, which is how the next round is sized.
    Without a rule nothing is ever enough, and rounds stay small: an optimal design learns from each.
    """
    if rule is None:
        return Verdict(enough=False, reason="", growth=OPTIMAL_GROWTH)
    if rule.top_k is not None:
        level = 1 - (1 - confidence) / (look * (look + 1))
        settled = all(_top_is_settled(fit, rule.top_k, level) for fit in fits.values())
        return Verdict(settled, f"the top {rule.top_k} units are settled", GROWTH)
    ratio = max(relative_width(fit, confidence) for fit in fits.values()) / rule.tolerance
    growth = float(np.clip(ratio**2, LEAST_GROWTH, GROWTH)) if np.isfinite(ratio) else GROWTH
    reason = f"every interval is within {rule.tolerance:g} of the largest effect"
    return Verdict(ratio <= 1, reason, growth)


def relative_width(fit: Surrogate, confidence: float) -> float:
    """Widest half-width over the largest magnitude, the worst over outputs; infinite where unknown."""
    low, high = _effects(fit, confidence)
    half = (high - low) / 2
    largest = np.abs(np.atleast_2d(fit.attributions(fit.effect))).max(axis=1)
    known = largest > 0
    if not known.any():
        return 0.0
    return float((half[known].max(axis=1) / largest[known]).max())


def _top_is_settled(fit: Surrogate, k: int, level: float) -> bool:
    """Whether the k largest magnitudes lie apart from the others for every output."""
    low, high = _effects(fit, level)
    floor = np.where(low * high > 0, np.minimum(np.abs(low), np.abs(high)), 0.0)
    ceiling = np.maximum(np.abs(low), np.abs(high))
    magnitude = np.abs(np.atleast_2d(fit.attributions(fit.effect)))
    order = np.argsort(-magnitude, axis=1, kind="stable")
    floors = np.take_along_axis(floor, order[:, :k], axis=1)
    ceilings = np.take_along_axis(ceiling, order[:, k:], axis=1)
    return bool(ceilings.shape[1] == 0 or (floors.min(axis=1) >= ceilings.max(axis=1)).all())


def _effects(fit: Surrogate, level: float) -> tuple[FloatArray, FloatArray]:
    low, high = fit.confidence_interval(fit.effect, level)
    return np.atleast_2d(low), np.atleast_2d(high)
