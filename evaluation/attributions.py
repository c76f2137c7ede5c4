"""The attribution table: one row per text, target, surrogate, kind and unit."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy

import numpy as np
import pandas as pd

from piste.fitting.result import Status
from piste.sampling.records import Units
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
    blocks = [
        block
        for outcome in outcomes
        for block in (
            [_failed_row(outcome.message, text_id=outcome.text_id)]
            if isinstance(outcome, Failed)
            else _text_blocks(outcome, low_fidelity, confidence)
        )
    ]
    # One frame at the end: frames of single fits, put together, took longer than the fits.
    columns = {column: np.concatenate([block[column] for block in blocks]) for column in COLUMNS}
    return pd.DataFrame(columns | {column: _whole_numbers(columns[column]) for column in _WHOLE})


def _whole_numbers(values: np.ndarray) -> pd.arrays.IntegerArray:
    """Int64 with the missing ones of float64."""
    missing = np.isnan(values)
    return pd.arrays.IntegerArray(np.where(missing, 0, values).astype(np.int64), missing)


Block = Mapping[str, np.ndarray]
"""Some rows by column; whole numbers are float64, so that they can be missing."""


def _failed_row(message: str, **known: str) -> Block:
    row: dict[str, np.ndarray] = dict.fromkeys(COLUMNS, _repeated("", 1))
    row |= dict.fromkeys((*_WHOLE, *_REAL), np.array([np.nan]))
    known["status"] = f"error: {message}"
    return row | {column: _repeated(word, 1) for column, word in known.items()}


def _repeated(word: str, n_rows: int) -> np.ndarray:
    return np.full(n_rows, word, dtype=object)


def _text_blocks(
    explained: Explained, low_fidelity: set[tuple[str, str, str]], confidence: float
) -> Iterator[Block]:
    units = explained.units
    whole = (np.arange(units.n_units), units.segments, units.starts, units.ends)
    same: Block = {
        "text_id": _repeated(explained.text_id, units.n_units),
        "space": _repeated(explained.space, units.n_units),
        "token": np.array([*units.tokens, None], dtype=object)[:-1],
        **{column: values.astype(float) for column, values in zip(_WHOLE, whole, strict=True)},
    }
    for name, fitted in explained.fits.items():
        surrogate = copy(fitted)  # what it keeps for errors, megabytes of a long text, goes with it
        for kind in surrogate.kinds:
            numbers = _numbers(explained, surrogate, kind, confidence)
            statuses = _statuses(explained, surrogate, kind)
            for output, target in enumerate(explained.targets):
                flagged = (explained.text_id, target, name) in low_fidelity
                words = {"target": target, "surrogate": name, "kind": kind}
                yield {
                    **same,
                    **{column: _of_units(units, rows[output]) for column, rows in numbers.items()},
                    **{column: _repeated(word, units.n_units) for column, word in words.items()},
                    "status": _status(units, statuses[output], flagged),
                }
    for name, why in explained.failures.items():
        known = {"text_id": explained.text_id, "space": explained.space, "surrogate": name}
        yield _failed_row(why, **known)


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


def _of_units(units: Units, seen: np.ndarray) -> np.ndarray:
    """A number per unit, shape (n_units,); one that the model cannot see has no effect for certain."""
    values = np.zeros(units.n_units)
    values[units.seen] = seen
    return values


def _status(units: Units, seen: np.ndarray, flagged: bool) -> np.ndarray:
    """A status per unit, shape (n_units,); one that the model cannot see says so."""
    status = _repeated(UNSEEN, units.n_units)
    status[units.seen] = [_words(word, flagged) for word in seen]
    return status


def _words(status: object, flagged: bool) -> str:
    """A status with the fidelity flag where it applies."""
    if not flagged:
        return str(status)
    return LOW_FIDELITY if status == Status.OK else f"{status}; {LOW_FIDELITY}"
