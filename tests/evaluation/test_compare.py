from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.compare import Comparison, compare
from piste.evaluation.paired import bootstrap_median, paired_p, rank_biserial

RNG = np.random.default_rng(3)
DOCUMENTS = [f"d{i}" for i in range(40)]
A = np.exp(RNG.normal(size=40))
NUMBERS = {"a": A, "b": A * np.exp(RNG.normal(0.3, 0.2, 40)), "c": A * np.exp(RNG.normal(0, 0.02, 40))}


def table(numbers: dict[str, FloatArray] = NUMBERS) -> pd.DataFrame:
    return pd.concat(
        [
            pd.DataFrame({"text": DOCUMENTS[: len(values)], "surrogate": name, "mse": values})
            for name, values in numbers.items()
        ]
    )


def pair(comparison: Comparison, first: str, second: str) -> pd.Series:
    rows = comparison.pairs
    return rows[(rows["better"].isin((first, second))) & (rows["worse"].isin((first, second)))].iloc[0]


def test_differences_equal_scipy_and_statsmodels() -> None:
    found = compare(table(), "mse")
    raw = []
    for row in found.pairs.to_dict(orient="records"):
        gains = NUMBERS[row["worse"]] - NUMBERS[row["better"]]
        assert row["effect"] == pytest.approx(np.median(gains))
        expected = stats.wilcoxon(gains, zero_method="pratt").pvalue
        assert row["p"] == pytest.approx(expected)
        raw.append(expected)
    np.testing.assert_allclose(found.pairs["p_holm"], multipletests(raw, method="holm")[1])


def test_ratios_are_of_the_better_over_the_worse() -> None:
    found = compare(table(), "mse", scale="ratio")
    row = pair(found, "a", "b")
    assert (row["better"], row["worse"]) == ("a", "b")
    assert row["effect"] == pytest.approx(np.exp(np.median(np.log(NUMBERS["a"] / NUMBERS["b"]))))
    assert row["low"] < row["effect"] < row["high"] < 1
    assert row["verdict"] == "differs"


def test_a_higher_number_can_be_better() -> None:
    lower = compare(table(), "mse", scale="ratio")
    higher = compare(table(), "mse", scale="ratio", higher_is_better=True)
    assert list(higher.ranking["method"]) == list(lower.ranking["method"])[::-1]
    mirrored = pair(higher, "a", "b")
    assert (mirrored["better"], mirrored["worse"]) == ("b", "a")
    assert mirrored["effect"] == pytest.approx(1 / pair(lower, "a", "b")["effect"])
    assert mirrored["low"] > 1


def test_equivalence_is_two_one_sided_tests() -> None:
    found = compare(table(), "mse", scale="ratio", margin=1.1)
    gains = np.log(NUMBERS["c"]) - np.log(NUMBERS["a"])
    limit = np.log(1.1)
    one_sided = [
        stats.wilcoxon(gains + limit, alternative="greater").pvalue,
        stats.wilcoxon(gains - limit, alternative="less").pvalue,
    ]
    assert pair(found, "a", "c")["p_equivalent"] >= max(one_sided)  # Holm's correction only raises it
    assert pair(found, "a", "c")["verdict"] == "comparable"
    assert pair(found, "a", "b")["verdict"] == "differs"
    assert compare(table(), "mse").pairs["p_equivalent"].isna().all()


def test_documents_without_a_value_are_left_out_and_counted() -> None:
    holed = NUMBERS | {"b": np.where(np.arange(40) < 3, np.nan, NUMBERS["b"])}
    found = compare(table(holed), "mse")
    assert (found.n_units, found.n_left_out) == (37, 3)
    assert dict(zip(found.ranking["method"], found.ranking["n_undefined"], strict=True)) == {
        "a": 0,
        "b": 3,
        "c": 0,
    }
    whole = compare(table({name: values[3:] for name, values in NUMBERS.items()}), "mse")
    np.testing.assert_allclose(found.pairs["p"], whole.pairs["p"])


def test_several_rows_of_a_document_count_once() -> None:
    doubled = pd.concat([table(), table()])
    pd.testing.assert_frame_equal(compare(doubled, "mse").pairs, compare(table(), "mse").pairs)
    # An undefined target leaves its document's mean undefined.
    broken = pd.concat([table(), table().assign(mse=np.nan).head(1)])
    assert compare(broken, "mse").n_left_out == 1


def test_equal_methods_do_not_differ() -> None:
    found = compare(table({"a": A, "b": A}), "mse", margin=0.1)
    row = found.pairs.iloc[0]
    assert (row["effect"], row["rank_biserial"], row["p"]) == (0, 0, 1)
    assert row["verdict"] == "comparable"


def test_intervals_of_a_median_cover() -> None:
    inside = 0
    for seed in range(60):
        values = np.random.default_rng(seed).exponential(size=41)
        found = bootstrap_median(values, seed=seed)
        inside += found.low <= np.log(2) <= found.high
    # 95 % of 60 is 57 with a standard deviation of 1.7; three of them below, and the bootstrap's own error.
    assert inside >= 51


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (np.nan, np.nan, np.nan)),
        ([np.nan, np.inf], (np.nan, np.nan, np.nan)),
        ([2.0], (2.0, np.nan, np.nan)),
        ([2.0, 2.0, np.nan], (2.0, 2.0, 2.0)),
    ],
)
def test_medians_of_too_few_values(values: list[float], expected: tuple[float, ...]) -> None:
    np.testing.assert_equal(tuple(bootstrap_median(values)), expected)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_effect_size_changes_sign_with_the_differences(differences: list[float]) -> None:
    found = rank_biserial(differences)
    assert found == pytest.approx(-rank_biserial(-np.array(differences)))
    assert -1 <= found <= 1


def test_effect_size_is_that_of_wilcoxons_sums() -> None:
    differences = NUMBERS["b"] - NUMBERS["a"]
    below = stats.wilcoxon(differences).statistic  # the smaller of the two sums of ranks
    assert rank_biserial(differences) == pytest.approx(1 - 2 * below / (40 * 41 / 2))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(
    "values", [[1, 2, 3, -4, 5.0], [0, 1, 1, -1, 2, 2, 0, 3], [-1, -2, -2, 0.5, 0.5, 7]]
)
def test_few_documents_are_tested_exactly(values: list[float], alternative: Any) -> None:
    expected = stats.wilcoxon(
        values, zero_method="pratt", alternative=alternative, method=stats.PermutationMethod()
    )
    assert paired_p(values, alternative=alternative) == pytest.approx(expected.pvalue)


def test_sign_flips_are_counted_in_full() -> None:
    # Of 2 ** 6 patterns of signs only the two that leave all alike are as extreme.
    assert paired_p(np.arange(1.0, 7), "sign-flip") == 2 / 64
    assert paired_p(np.arange(1.0, 7), "sign-flip", alternative="greater") == 1 / 64
    assert paired_p(np.zeros(6), "sign-flip") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": "r2"}, "no column 'r2'.*expected one of 'text'"),
        ({"unit": "document"}, "no column 'document'"),
        ({"scale": "log"}, "scale='log'"),
        ({"margin": -1.0}, "margin=-1.0.*more than 0"),
        ({"scale": "ratio", "margin": 0.9}, "margin=0.9.*more than 1"),
        ({"test": "typo"}, "test='typo'.*expected one of 'wilcoxon', 'sign-flip'"),
        ({"confidence": 95}, "confidence=95.*between 0 and 1"),
        ({"confidence": "0.95"}, "confidence='0.95'"),
        ({"seed": -1}, "seed=-1.*at least 0"),
        ({"seed": None}, "seed=None"),
        ({"value": "surrogate", "method": "text"}, "'a' in column 'surrogate'.*expected numbers"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(table(), **({"value": "mse"} | options))


@pytest.mark.parametrize(
    "column", ["metric", "setting", "space", "masking", "kind", "budget", "mask_law", "lexicon"]
)
def test_rows_that_answer_different_questions_are_not_averaged(column: str) -> None:
    mixed = pd.concat([table().assign(**{column: "one"}), table().assign(**{column: "other"})])
    with pytest.raises(InputError, match=f"differ in '{column}'.*Filter.*Scorecard.compare"):
        compare(mixed, "mse")
    assert len(compare(mixed, "mse", method=["surrogate", column]).ranking) == 6
    assert compare(mixed, "mse", unit=["text", column]).n_units == 80
    # One document may be measured otherwise than another, as long as it is measured once.
    each = table().assign(**{column: np.tile(np.arange(40) % 2, 3)})
    assert compare(each, "mse").n_units == 40
    for averaged in ("target", "n_removed"):
        assert compare(mixed.rename(columns={column: averaged}), "mse").n_units == 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_median(A, 0), "confidence=0;"),
        (lambda: bootstrap_median(A, float("nan")), "confidence=nan"),
        (lambda: bootstrap_median(A, 0.95, -1), "seed=-1"),
        (lambda: bootstrap_median(["a", "b"]), "values that are no numbers"),
        (lambda: paired_p(A, "typo"), "test='typo'"),  # type: ignore[arg-type]
    ],
)
def test_options_of_one_sample_are_checked(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_too_little_to_compare_is_refused() -> None:
    with pytest.raises(InputError, match="1 methods"):
        compare(table({"a": A}), "mse")
    with pytest.raises(InputError, match="with 1 documents"):
        compare(table({"a": A[:1], "b": A[:1]}), "mse")
    with pytest.raises(InputError, match="0 or less for scale='ratio'"):
        compare(table({"a": A, "b": -A}), "mse", scale="ratio")
