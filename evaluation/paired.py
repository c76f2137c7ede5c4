"""One number per document: its median, whether it is centred at 0, how one-sided it is."""

import warnings
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.checks import check_level

N_BOOTSTRAP = 10_000
MOST_ENUMERATED = 13  # documents up to which every pattern of signs is looked at
_ROUNDING = 1e-9  # sums of ranks are multiples of 1/2

Test = Literal["wilcoxon", "sign-flip"]


class Interval(NamedTuple):
    """A median with the ends of its interval."""

    median: float
    low: float
    high: float


def bootstrap_median(values: ArrayLike, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Median of independent values with its bias-corrected and accelerated bootstrap interval.

    Parameters
    ----------
    values
        Shape (n,), one per document; NaN is left out.
    confidence
        Level, in (0, 1).
    seed
        Of the 10,000 resamples of documents.

    Returns
    -------
    Interval
        In the units of the values; the ends are the median where all values are equal, and NaN below
        two values.

    Raises
    ------
    InputError
        If the values are no numbers, or the level or the seed cannot be used.

    References
    ----------
    Efron 1987, doi:10.1080/01621459.1987.10478410.

    >>> bootstrap_median([3.0, 1.0, 2.0, 4.0, 5.0]).median
    3.0
    """
    check_level(confidence, seed)
    sample = _sample(values)
    sample = sample[np.isfinite(sample)]
    if sample.size < 2:
        only = float(sample[0]) if sample.size else np.nan
        return Interval(only, np.nan, np.nan)
    middle = float(np.median(sample))
    if np.ptp(sample) == 0:
        return Interval(middle, middle, middle)
    with warnings.catch_warnings():
        # The jackknife of a median can be flat; scipy says so and answers NaN, which is met below.
        warnings.simplefilter("ignore", category=stats.DegenerateDataWarning)
        warnings.simplefilter("ignore", category=RuntimeWarning)
        found = stats.bootstrap(
            (sample,),
            np.median,
            n_resamples=N_BOOTSTRAP,
            batch=max(1, 2_000_000 // sample.size),
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
    low, high = found.confidence_interval
    if not np.isfinite([low, high]).all():
        tail = (1 - confidence) / 2
        low, high = np.quantile(found.bootstrap_distribution, [tail, 1 - tail])
    return Interval(middle, float(low), float(high))


def _sample(values: ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Got values that are no numbers ({error}); expected one number each."
        ) from error


def check_test(test: object) -> None:
    """Refuse a test that there is none of."""
    if test not in get_args(Test):
        known = ", ".join(map(repr, get_args(Test)))
        raise InputError(f"Got test={test!r}; expected one of {known}.")


def median_curve(
    points: Iterable[tuple[object, object, ArrayLike]], confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Medians with intervals as `piste.evaluation.plots.curves` draws them: surrogate, x, y, low, high.

    Parameters
    ----------
    points
        (surrogate, x, values of the documents there).
    confidence, seed
        As for `bootstrap_median`.
    """
    rows = [(name, x, *bootstrap_median(values, confidence, seed)) for name, x, values in points]
    return pd.DataFrame(rows, columns=["surrogate", "x", "y", "low", "high"])


def rank_biserial(differences: ArrayLike) -> float:
    """Matched-pairs rank-biserial correlation ``(W+ - W-) / (W+ + W-)``, in [-1, 1].

    W+ and W- are the sums of the ranks of the absolute differences above and below 0; zero differences
    are left out, and without any other the correlation is 0.

    References
    ----------
    Kerby 2014, doi:10.2466/11.IT.3.1.

    >>> rank_biserial([3.0, 1.0, -2.0])
    0.3333333333333333
    """
    moved = np.asarray(differences, dtype=np.float64)
    moved = moved[moved != 0]
    if not moved.size:
        return 0.0
    ranks = stats.rankdata(np.abs(moved))
    return float((ranks * np.sign(moved)).sum() / ranks.sum())


def paired_p(
    differences: ArrayLike,
    test: Test = "wilcoxon",
    *,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
    seed: int = 0,
) -> float:
    """How likely differences as large are where they are centred at 0: a p value.

    ``wilcoxon`` ranks them (Pratt's treatment of zeros); ``sign-flip`` compares their mean with that
    under random signs, every pattern of signs where there are at most 10,000.

    Returns
    -------
    float
        In (0, 1]; 1 where every difference is 0.

    Raises
    ------
    InputError
        If there is no such test, or the differences are no numbers.

    References
    ----------
    Wilcoxon 1945, doi:10.2307/3001968; Pratt 1959, doi:10.1080/01621459.1959.10501526.

    >>> paired_p([1.0, 2.0, 3.0, 4.0, 5.0], "sign-flip")
    0.0625
    """
    check_test(test)
    sample = _sample(differences)
    if not sample.any():
        return 1.0
    if test == "wilcoxon" and sample.size <= MOST_ENUMERATED:
        return _enumerated_p(sample, alternative)
    if test == "wilcoxon":
        return float(stats.wilcoxon(sample, zero_method="pratt", alternative=alternative).pvalue)
    flipped = stats.permutation_test(
        (sample,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=9_999,
        alternative=alternative,
        rng=np.random.default_rng(seed),
    )
    return float(flipped.pvalue)


def _enumerated_p(sample: FloatArray, alternative: str) -> float:
    """Wilcoxon's test by every pattern of signs, exact with ties too.

    scipy enumerates these as well, but calls its statistic for each one: a second where this takes a
    millisecond.
    """
    ranks = stats.rankdata(np.abs(sample))[sample != 0]  # Pratt: zeros are ranked, then dropped
    patterns = (np.arange(1 << ranks.size)[:, None] >> np.arange(ranks.size)) & 1
    sums = patterns @ ranks
    found = ranks[sample[sample != 0] > 0].sum()
    above, below = (sums >= found - _ROUNDING).mean(), (sums <= found + _ROUNDING).mean()
    p = {"greater": above, "less": below}.get(alternative, 2 * min(above, below))
    return float(min(p, 1.0))
