"""What several measures refuse alike: levels, seeds, counts, columns and tables that are none."""

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste.surrogates.records import check_whole


def check_level(confidence: object, seed: object = 0) -> None:
    """Refuse a confidence outside (0, 1), and a seed that is no whole number of at least 0.

    >>> check_level(0.95, seed=0)
    """
    number = isinstance(confidence, int | float | np.integer | np.floating)
    if not number or not 0 < confidence < 1:  # type: ignore[operator]
        raise InputError(
            f"Got confidence={confidence!r}; expected a number between 0 and 1, such as 0.95."
        )
    check_whole("seed", seed)


def check_attributions(table: object) -> None:
    """Refuse what is no table of attributions, such as a path or the study itself."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            f"Got attributions of type {type(table).__name__}; expected a table: study.attributions, or "
            "read_attributions(path) for a file."
        )


def numbers(table: pd.DataFrame, column: str) -> "pd.Series[float]":
    """A column as float64, in which infinite is undefined too.

    Raises
    ------
    InputError
        If an entry is neither a number nor missing.

    >>> numbers(pd.DataFrame({"value": [1, None, float("inf")]}), "value").tolist()
    [1.0, nan, nan]
    """
    given = table[column]
    found = pd.to_numeric(given, errors="coerce").astype("float64")
    wrong = given.notna() & found.isna()
    if wrong.any():
        raise InputError(
            f"Got {given[wrong].iloc[0]!r} in column {column!r}; expected numbers. Choose a column of "
            "numbers, or turn it into them with pandas.to_numeric."
        )
    return found.replace([np.inf, -np.inf], np.nan)
