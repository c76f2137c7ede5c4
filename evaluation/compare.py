"""Compare methods on the same documents: paired, with intervals, corrected for their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.checks import check_level, numbers
from piste.evaluation.paired import Test, bootstrap_median, check_test, paired_p, rank_biserial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["difference", "ratio"]

RANKING_COLUMNS = ("method", "n", "n_undefined", "median", "low", "high", "mean_rank")
PAIR_COLUMNS = (
    "better",
    "worse",
    "n",
    "effect",
    "low",
    "high",
    "rank_biserial",
    "p",
    "p_holm",
    "p_equivalent",
    "verdict",
)

DIFFERENT_QUESTIONS = (
    "metric",
    "setting",
    "space",
    "masking",
    "kind",
    "budget",
    "mask_law",
    "lexicon",
)
"""Columns whose values measure different things: a mean over them would mean nothing."""


@dataclass(frozen=True)
class Comparison:
    """Methods from best to worst, and every pair of them.

    Parameters
    ----------
    ranking
        One row per method, best median first, columns `RANKING_COLUMNS`: median over documents with
        its bootstrap interval, and the mean rank within documents (1 is best).
    pairs
        One row per pair, columns `PAIR_COLUMNS`: the median effect of the better over the worse method
        within documents (worse minus better values for a difference where lower is better, their ratio
        ``better / worse`` for scale ``ratio``), its interval, effect size, p values and a verdict:
        ``differs``, ``comparable`` (equivalent within the margin) or ``undecided``.
    value, unit, scale
        What was compared, what one document is, and whether effects are differences or ratios.
    n_units
        Documents on which every method is defined; the others are left out of everything but their
        count.
    n_left_out
        Documents left out since some method is undefined there.
    confidence
        Level of the intervals; verdicts are taken at one minus it.
    """

    ranking: pd.DataFrame
    pairs: pd.DataFrame
    value: str
    unit: str
    scale: Scale
    n_units: int
    n_left_out: int
    confidence: float

    def plot(self) -> "Figure":
        """Mean ranks on a line; a bar joins neighbours that no corrected test tells apart."""
        from piste.evaluation.plots import critical_difference

        return critical_difference(self)


def compare(  # noqa: PLR0913 - what is compared, and how
    table: pd.DataFrame,
    value: str,
    *,
    method: str | Sequence[str] = "surrogate",
    unit: str | Sequence[str] = "text",
    higher_is_better: bool = False,
    scale: Scale = "difference",
    test: Test = "wilcoxon",
    margin: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Rank methods by a number that each has for the same documents, and test every pair.

    A pair's effect is the median over documents of ``worse - better`` (``better - worse`` where higher
    is better), or of ``better / worse``; with a BCa bootstrap interval over documents, a paired test,
    Holm's correction over all pairs, and the matched rank-biserial correlation. With a margin two
    one-sided tests ask whether the effect lies within it (Schuirmann 1987); Holm's correction again.

    Parameters
    ----------
    table
        One row per document and method; several rows of a document, such as targets or seeds, are
        averaged first, since the document is the unit; not so different metrics, settings or other
        columns of `DIFFERENT_QUESTIONS`, which are refused. Undefined values (NaN) take their document
        out of the comparison, and are counted.
    value
        Its column that is compared.
    method, unit
        Columns that name a method and a document.
    higher_is_better
        Whether larger values are better.
    scale
        ``difference``, or ``ratio`` for positive numbers such as errors: then all is done in logarithms.
    test
        ``wilcoxon`` or ``sign-flip``; see `paired_p`.
    margin
        The largest effect that does not matter, declared beforehand: a difference, or a ratio above 1.
    confidence
        Level of the intervals, in (0, 1).
    seed
        Of the bootstrap and of random signs.

    Raises
    ------
    InputError
        If a column is missing or has no numbers, rows of one document and method answer different
        questions, there are fewer than two methods or common documents, a ratio meets a number that is
        not positive, the margin does not fit the scale, or an option cannot be used.

    References
    ----------
    Benavoli, Corani, Mangili 2016 (paired tests with Holm's correction in the place of Nemenyi's);
    Holm 1979; Schuirmann 1987, doi:10.1007/BF01068419.

    Examples
    --------
    >>> table = pd.DataFrame({"text": list("aabbccddeeff"), "surrogate": ["lime", "slalom"] * 6,
    ...                       "mse": [2, 1, 4, 2, 6, 3, 8, 4, 4, 2, 2, 1.0]})
    >>> compare(table, "mse", scale="ratio").pairs[["better", "worse", "effect"]].values.tolist()
    [['slalom', 'lime', 0.5]]
    """
    check_level(confidence, seed)
    check_test(test)
    wide, n_left_out, undefined = _common(table, value, _columns(method), _columns(unit))
    _check(wide, scale, margin)
    numbers = wide.apply(np.log) if scale == "ratio" else wide
    losses = -numbers if higher_is_better else numbers
    ranking = _ranking(wide, losses, undefined, confidence, seed)
    limit = np.log(margin) if margin is not None and scale == "ratio" else margin
    rows = [
        {"better": better, "worse": worse}
        | _effect((losses[worse] - losses[better]).to_numpy(), test, limit, confidence, seed)
        for better, worse in combinations(ranking["method"], 2)
    ]
    pairs = _with_verdicts(pd.DataFrame(rows), 1 - confidence)
    if scale == "ratio":
        pairs = _as_ratios(pairs, higher_is_better)
    return Comparison(
        ranking,
        pairs[list(PAIR_COLUMNS)],
        value,
        " × ".join(_columns(unit)),
        scale,
        len(wide),
        n_left_out,
        confidence,
    )


def _columns(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _common(
    table: pd.DataFrame, value: str, method: list[str], unit: list[str]
) -> tuple[pd.DataFrame, int, pd.Series]:
    """Documents by methods where every method is defined, how many are not, and how often each is not."""
    for column in (value, *method, *unit):
        if column not in table:
            known = ", ".join(map(repr, table.columns))
            raise InputError(f"Got no column {column!r} in the table; expected one of {known}.")
    _refuse_different_questions(table, value, [*method, *unit])
    named = table.assign(
        **{
            "(method)": table[method].astype(str).agg(" ".join, axis=1),
            "(value)": numbers(table, value),
        }
    )
    # An undefined row leaves the document's mean undefined: it must not vanish in an average.
    wide = named.pivot_table(
        index=unit,
        columns="(method)",
        values="(value)",
        aggfunc=lambda rows: rows.mean(skipna=False),
        dropna=False,
        observed=True,
    )
    wide = wide.dropna(axis=0, how="all")
    whole = wide.dropna(axis=0)
    if wide.shape[1] < 2 or len(whole) < 2:
        raise InputError(
            f"Got {wide.shape[1]} methods with {len(whole)} documents on which all are defined; expected "
            "at least two of each. Compare fewer methods, or more documents."
        )
    return whole, len(wide) - len(whole), wide.isna().sum()


def _refuse_different_questions(table: pd.DataFrame, value: str, named: list[str]) -> None:
    """An error where the rows of one document and method differ in what they measure."""
    told = [name for name in DIFFERENT_QUESTIONS if name in table and name not in (value, *named)]
    groups = table.groupby(named, sort=False, dropna=False, observed=True)
    mixed = [name for name in told if (groups[name].nunique(dropna=False) > 1).any()]
    if mixed:
        listed = ", ".join(map(repr, mixed))
        raise InputError(
            f"Got rows of one document and method that differ in {listed}; expected one value each, "
            f"since their mean means nothing. Filter the table to one, add it to method= ({named[0]!r}, "
            f"{mixed[0]!r}), or use Scorecard.compare or FidelityStudy.compare, which choose."
        )


def _check(wide: pd.DataFrame, scale: str, margin: float | None) -> None:
    if scale not in ("difference", "ratio"):
        raise InputError(f"Got scale={scale!r}; expected 'difference' or 'ratio'.")
    if scale == "ratio" and (wide <= 0).any(axis=None):
        raise InputError(
            "Got a value that is 0 or less for scale='ratio'; expected positive numbers. Use "
            "scale='difference'."
        )
    least = 1.0 if scale == "ratio" else 0.0
    if margin is not None and not margin > least:
        raise InputError(f"Got margin={margin!r} for scale={scale!r}; expected more than {least:g}.")


def _ranking(
    wide: pd.DataFrame, losses: pd.DataFrame, undefined: pd.Series, confidence: float, seed: int
) -> pd.DataFrame:
    """Methods by median loss; the mean rank decides where medians are equal."""
    mean_ranks = losses.rank(axis=1).mean()
    order = sorted(wide.columns, key=lambda name: (losses[name].median(), mean_ranks[name]))
    rows = [
        {
            "method": name,
            "n": len(wide),
            "n_undefined": int(undefined[name]),
            **bootstrap_median(wide[name], confidence, seed)._asdict(),
            "mean_rank": float(mean_ranks[name]),
        }
        for name in order
    ]
    return pd.DataFrame(rows, columns=list(RANKING_COLUMNS))


def _effect(
    gains: FloatArray, test: Test, limit: float | None, confidence: float, seed: int
) -> dict[str, float]:
    """What one method is ahead of another by, one gain per document."""
    ahead = bootstrap_median(gains, confidence, seed)
    equivalent = np.nan
    if limit is not None:
        above = paired_p(gains + limit, test, alternative="greater", seed=seed)
        below = paired_p(gains - limit, test, alternative="less", seed=seed)
        equivalent = max(above, below)
    return {
        "n": len(gains),
        "effect": ahead.median,
        "low": ahead.low,
        "high": ahead.high,
        "rank_biserial": rank_biserial(gains),
        "p": paired_p(gains, test, seed=seed),
        "p_equivalent": equivalent,
    }


def _with_verdicts(pairs: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Holm's correction over all pairs, of differences and of equivalences, and what follows."""
    from statsmodels.stats.multitest import multipletests

    pairs = pairs.assign(p_holm=multipletests(pairs["p"], method="holm")[1])
    tested = pairs["p_equivalent"].notna()
    if tested.any():
        pairs.loc[tested, "p_equivalent"] = multipletests(pairs["p_equivalent"][tested], method="holm")[
            1
        ]
    # A difference may be certain and yet too small to matter: then the methods are comparable.
    comparable, differs = pairs["p_equivalent"] < alpha, pairs["p_holm"] < alpha
    return pairs.assign(
        verdict=np.select([comparable, differs], ["comparable", "differs"], "undecided")
    )


def _as_ratios(pairs: pd.DataFrame, higher_is_better: bool) -> pd.DataFrame:
    """Gains in logarithms as ratios ``better / worse``."""
    sign = 1.0 if higher_is_better else -1.0
    ends = np.exp(sign * pairs[["low", "high"]].to_numpy())
    return pairs.assign(
        effect=np.exp(sign * pairs["effect"]), low=ends.min(axis=1), high=ends.max(axis=1)
    )
