"""Medians over documents: undefined targets take their document with them, and what is no table is refused."""

from math import inf, nan
from typing import Any

import pandas as pd
import pytest

from piste._errors import InputError
from piste.evaluation.summaries import summary


def table(values: list[Any], texts: str) -> pd.DataFrame:
    return pd.DataFrame({"text": list(texts), "metric": "m", "value": values, "status": "ok"})


@pytest.mark.parametrize("missing", [nan, inf, -inf, None])
def test_a_document_with_an_undefined_target_is_undefined(missing: float | None) -> None:
    found = summary(table([1.0, missing, 4.0, 6.0, 7.0], "aabbc")).iloc[0]
    assert found[["median", "n_texts", "n_undefined", "n_flagged"]].tolist() == [6, 2, 1, 0]


def test_targets_are_averaged_first() -> None:
    assert summary(table([1.0, 2.0, 9.0], "aab"))["median"].tolist() == [(1.5 + 9) / 2]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (table([1.0], "a").drop(columns="value"), {}, "without 'value'"),
        (table(["high"], "a"), {}, "'high' in column 'value'"),
        (table([1.0], "a"), {"confidence": 1.5}, "confidence=1.5"),
        (table([1.0], "a"), {"seed": -3}, "seed=-3"),
    ],
)
def test_what_cannot_be_summed_up_is_refused(
    given: pd.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        summary(given, **options)
