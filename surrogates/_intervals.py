"""Intervals and summaries, as every surrogate estimator offers them."""

from collections.abc import Mapping, Sequence

import numpy as np
from statsmodels.iolib.summary import Summary
from statsmodels.iolib.table import SimpleTable
from statsmodels.iolib.tableformatting import fmt_2cols, fmt_params

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.inference import Estimate


def check_covariance(covariance: str, known: Sequence[str]) -> None:
    """InputError naming the covariances that there are, unless it is one of them."""
    if covariance not in known:
        raise InputError(
            f"Got covariance {covariance!r}; expected one of {', '.join(map(repr, known))}."
        )


def readable(value: FloatArray | float) -> str:
    """One number per output, to four digits."""
    return ", ".join(f"{number:.4g}" for number in np.atleast_1d(value))


def row_names(names: Sequence[str] | None, n_units: int) -> list[str]:
    """What the rows of a summary are called: the names given, one per unit, or ``unit 0`` ...

    Raises
    ------
    InputError
        If there is not one name per unit.
    """
    if names is None:
        return [f"unit {unit}" for unit in range(n_units)]
    if len(names) != n_units:
        raise InputError(f"Got {len(names)} names; expected {n_units}, one per unit.")
    return list(names)


def interval(estimate: Estimate, level: float, *, single: bool) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends, shape (n_outputs, n_units), or (n_units,) of a single output."""
    low, high = estimate.interval(level)
    return (low[0], high[0]) if single else (low, high)


def summary_table(
    estimate: Estimate, level: float, *, title: str, facts: Mapping[str, object], names: Sequence[str]
) -> Summary:
    """A table per output in the style of statsmodels.

    Parameters
    ----------
    estimate
        Shape (n_outputs, n_numbers).
    level
        Of the intervals.
    title
        Over the whole.
    facts
        What is said about the fit above the tables.
    names
        One per number.
    """
    low, high = estimate.interval(level)
    tail = (1 - level) / 2
    header = ["", "estimate", "std err", "t", "P>|t|", f"[{tail:.4g}", f"{1 - tail:.4g}]"]
    summary = Summary()
    rows = [[f"{name}", str(fact)] for name, fact in facts.items()]
    half = (len(rows) + 1) // 2
    rows += [["", ""]] * (2 * half - len(rows))
    top = [left + right for left, right in zip(rows[:half], rows[half:], strict=True)]
    summary.tables.append(SimpleTable(top, title=title, txt_fmt=fmt_2cols))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = estimate.value / estimate.std_error
    columns = np.stack(
        [estimate.value, estimate.std_error, ratio, estimate.p_values(), low, high], axis=2
    )
    for output in columns:
        cells = [
            [name, *(f"{number:.3f}" if at == 3 else f"{number:.4g}" for at, number in enumerate(row))]
            for name, row in zip(names, output, strict=True)
        ]
        summary.tables.append(SimpleTable([header, *cells], txt_fmt=fmt_params))
    return summary
