"""How well scores of units find the units that people marked: ranking, chosen units, chosen spans.

Everything here is arrays; `piste.evaluation.agreement` makes tables of it.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import kendalltau, spearmanr

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.evaluation.erasure import comparable, first_units, relevance_order

IOU_HIT = 0.5  # ERASER's: a span counts as found if it shares half of what either covers

Run = tuple[int, int]
"""``(first, last + 1)``: units without a break."""


def single_class(flags: BoolArray) -> str:
    """Why a document cannot be scored: nothing, or everything, is marked; empty if it can.

    >>> single_class(np.array([False, False])), single_class(np.array([False, True]))
    ('no unit is marked', '')
    """
    if not flags.any():
        return "no unit is marked"
    return "every unit is marked" if flags.all() else ""


def ranking_agreement(flags: BoolArray, scores: FloatArray) -> dict[str, float]:
    """How well scores rank marked units above others, whatever the threshold; ties share a threshold.

    ``average_precision`` is the step-wise sum ``sum_k (R_k - R_{k-1}) P_k``; ``auprc`` the area under the
    precision-recall curve by trapezoids, as in ERASER's code; ``roc_auc`` the chance that a marked unit
    scores above another, ties counting half. All in [0, 1], higher is better.

    Parameters
    ----------
    flags
        Shape (n_units,), bool, of both classes (`single_class`).
    scores
        Shape (n_units,), float64, finite.

    Raises
    ------
    InputError
        If the flags are of one class.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429. scikit-learn counts.

    >>> ranking_agreement(np.array([True, False, False]), np.array([0.9, 0.1, 0.2]))["roc_auc"]
    1.0
    """
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score

    if why := single_class(flags):
        raise InputError(f"Got flags of one class ({why}); expected both. Leave such documents out.")
    ranks = comparable(scores)
    precision, recall, _ = precision_recall_curve(flags, ranks)
    return {
        "average_precision": float(average_precision_score(flags, ranks)),
        "auprc": float(auc(recall, precision)),
        "roc_auc": float(roc_auc_score(flags, ranks)),
    }


def top_units(scores: FloatArray, n_top: int, rng: np.random.Generator) -> BoolArray:
    """The units of the largest scores as flags; ties at the edge are decided at random.

    >>> top_units(np.array([0.1, 0.9, 0.5]), 2, np.random.default_rng(0)).tolist()
    [False, True, True]
    """
    order = relevance_order(scores, rng)
    chosen: BoolArray = first_units(order, np.array([n_top]))[0]
    return chosen


def token_agreement(flags: BoolArray, chosen: BoolArray) -> dict[str, float]:
    """Precision, recall and F1 of chosen units against marked ones.

    ``P = hits / chosen``, ``R = hits / marked``, ``F1 = 2 P R / (P + R)``; 0 where a division is by 0.

    Parameters
    ----------
    flags, chosen
        Shape (n_units,), bool.

    >>> token_agreement(np.array([True, True, False]), np.array([True, False, False]))
    {'token_precision': 1.0, 'token_recall': 0.5, 'token_f1': 0.6666666666666666}
    """
    hits = int((flags & chosen).sum())
    return _scores("token", _share(hits, int(chosen.sum())), _share(hits, int(flags.sum())))


def span_agreement(
    human: Sequence[Run], chosen: Sequence[Run], hit: float = IOU_HIT
) -> dict[str, float]:
    """Precision, recall and F1 of chosen spans against human ones, by overlap of units.

    A span is found if its intersection over union with some span of the other side is at least ``hit``:
    ``P`` is the share of the chosen spans that are found among the human ones, ``R`` that of the human
    spans found among the chosen ones. (ERASER's code divides the first count by the number of human spans
    and calls it recall, which can exceed 1.)

    Parameters
    ----------
    human, chosen
        Spans in units.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429.

    >>> span_agreement([(0, 4)], [(0, 2), (2, 4)])
    {'iou_precision': 1.0, 'iou_recall': 1.0, 'iou_f1': 1.0}
    """
    ious = np.array([[_iou(one, other) for other in chosen] for one in human])
    found = ious.reshape(len(human), len(chosen)) >= hit
    precision = _share(int(found.any(axis=0).sum()), len(chosen))
    return _scores("iou", precision, _share(int(found.any(axis=1).sum()), len(human)))


def _iou(one: Run, other: Run) -> float:
    shared = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    return shared / (one[1] - one[0] + other[1] - other[0] - shared)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _scores(name: str, precision: float, recall: float) -> dict[str, float]:
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {f"{name}_precision": precision, f"{name}_recall": recall, f"{name}_f1": f1}


def rank_correlations(one: FloatArray, other: FloatArray) -> dict[str, float]:
    """Spearman's rho and Kendall's tau-b of two rankings, in [-1, 1]; NaN where either is constant.

    Parameters
    ----------
    one, other
        Shape (n,), float64, finite; numbers that differ by rounding alone are ties.

    References
    ----------
    Kendall 1945, doi:10.1093/biomet/33.3.239.

    >>> rank_correlations(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))["spearman"]
    0.5
    """
    one, other = comparable(one), comparable(other)
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return {"spearman": np.nan, "kendall": np.nan}
    return {
        "spearman": float(spearmanr(one, other).statistic),
        "kendall": float(kendalltau(one, other, variant="b").statistic),
    }


def sign_agreement(one: FloatArray, other: FloatArray) -> float:
    """Share of units that both score above, both below or both at 0 (within rounding).

    >>> sign_agreement(np.array([1.0, -1.0, 0.0, 2.0]), np.array([3.0, 1.0, 0.0, 0.0]))
    0.5
    """
    return float(np.mean(np.sign(comparable(one)) == np.sign(comparable(other))))


def top_overlap(one: FloatArray, other: FloatArray, n_top: int, rng: np.random.Generator) -> float:
    """Share of the top units of one ranking that are on top of the other, ``|A & B| / n_top``.

    >>> top_overlap(np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0]), 2, np.random.default_rng(0))
    0.5
    """
    state = rng.bit_generator.state
    first = top_units(one, n_top, rng)
    rng.bit_generator.state = state  # the same order of ties, so that a ranking agrees with itself
    return float((first & top_units(other, n_top, rng)).sum() / n_top)
