"""The attribution table: one row per text, target, surrogate, kind and unit."""

from collections.abc import Iterable
from copy import copy

import numpy as np
import pandas as pd

from piste.fitting.result import Status
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import sufficient_budget
from piste.surrogates.records import Explained, Failed

COLUMNS = (
    "text_id",
    "unit",
    "segment",
    "token",
    "start",
    "end",
    "target",
    "surrogate",
    "kind",
    "score",
    "std_error",
    "ci_low",
    "ci_high",
    "space",
    "status",
)
_WHOLE = ("unit", "segment", "start", "end")
_REAL = ("score", "std_error", "ci_low", "ci_high")
UNSEEN = "unseen"
LOW_FIDELITY = "low fidelity"


def attribution_table(
    outcomes: Iterable[Explained | Failed], low_fidelity: set[tuple[str, str, str]], confidence: float
) -> pd.DataFrame:
    """Every attribution of every text as a tidy table, columns `COLUMNS`.

    Parameters
    ----------
    outcomes
        Texts in the caller's order. A text that failed gets one row with a status and no numbers, as
        does a surrogate that could not be fitted to a text.
    low_fidelity
        (text_id, target, surrogate) of the fits whose rows are flagged.
    confidence
        Level of the intervals, in (0, 1).
    """
    frames = []
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            frames.append(_failed_row(outcome.message, text_id=outcome.text_id))
        else:
            frames.append(_text_rows(outcome, low_fidelity, confidence))
    table = pd.concat(frames, ignore_index=True)[list(COLUMNS)]
    # A text's missing numbers must not decide the column types of all others.
    return table.astype(dict.fromkeys(_WHOLE, "Int64") | dict.fromkeys(_REAL, "float64"))


def _failed_row(message: str, **known: str) -> pd.DataFrame:
    row: dict[str, object] = dict.fromkeys(COLUMNS, "")
    row |= dict.fromkeys(_WHOLE, pd.NA) | dict.fromkeys(_REAL, np.nan)
    row |= known | {"status": f"error: {message}"}
    return pd.DataFrame({column: pd.array([value], dtype=object) for column, value in row.items()})


def _text_rows(
    explained: Explained, low_fidelity: set[tuple[str, str, str]], confidence: float
) -> pd.DataFrame:
    frames = []
    for name, fitted in explained.fits.items():
        surrogate = copy(fitted)  # what it keeps for errors, megabytes of a long text, goes with it
        for kind in surrogate.kinds:
            numbers = _numbers(explained, surrogate, kind, confidence)
            statuses = _statuses(explained, surrogate, kind)
            for output, target in enumerate(explained.targets):
                flagged = (explained.text_id, target, name) in low_fidelity
                own = {column: rows[output] for column, rows in numbers.items()}
                frames.append(
                    _unit_rows(explained, own, statuses[output], flagged).assign(
                        target=target, surrogate=name, kind=kind
                    )
                )
    frames += [_failed_row(why, surrogate=name) for name, why in explained.failures.items()]
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(text_id=explained.text_id, space=explained.space)


def _numbers(
    explained: Explained, surrogate: Surrogate, kind: str, confidence: float
) -> dict[str, np.ndarray]:
    """Scores with their errors and intervals by column, each of shape (n_targets, n_seen)."""
    low, high = surrogate.confidence_interval(kind, confidence)
    found = (surrogate.attributions(kind), surrogate.std_errors(kind), low, high)
    return {
        column: np.atleast_2d(explained.per_unit(surrogate, values))
        for column, values in zip(_REAL, found, strict=True)
    }


def _statuses(explained: Explained, surrogate: Surrogate, kind: str) -> np.ndarray:
    """Status texts, shape (n_targets, n_seen)."""
    words = np.array(surrogate.unit_status(kind), dtype=object)
    n_units = int(explained.units.seen.sum())
    if surrogate.min_queries(n_units) <= 2**n_units and not explained.exhaustive:
        budget = sufficient_budget(surrogate, n_units)
        words[words == Status.UNDERDETERMINED] = (
            f"{Status.UNDERDETERMINED}: design 'auto' with budget {budget} would do"
        )
    return np.atleast_2d(explained.per_unit(surrogate, words))


def _unit_rows(
    explained: Explained, numbers: dict[str, np.ndarray], statuses: np.ndarray, flagged: bool
) -> pd.DataFrame:
    """One row per unit; a unit that the model cannot see has no effect for certain, and says so."""
    units = explained.units
    status = np.full(units.n_units, UNSEEN, dtype=object)
    status[units.seen] = [_words(word, flagged) for word in statuses]
    real = {}
    for column, values in numbers.items():
        real[column] = np.zeros(units.n_units)
        real[column][units.seen] = values
    return pd.DataFrame(
        {
            "unit": np.arange(units.n_units),
            "segment": units.segments,
            "token": pd.array(units.tokens, dtype=object),
            "start": units.starts,
            "end": units.ends,
            **real,
            "status": status,
        }
    )


def _words(status: object, flagged: bool) -> str:
    """A status with the fidelity flag where it applies."""
    if not flagged:
        return str(status)
    return LOW_FIDELITY if status == Status.OK else f"{status}; {LOW_FIDELITY}"
