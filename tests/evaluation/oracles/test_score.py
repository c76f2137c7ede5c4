"""The table of errors against oracles: who must be exact is, and what is wrong is said to be."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from piste import InputError, ModelError
from piste.evaluation.oracles import (
    COLUMNS,
    ORACLES,
    Known,
    evaluate_oracles,
    linear_oracle,
    pair_oracle,
    score_oracle,
    slalom_oracle,
)
from piste.sampling.models.callable import CallableModel
from piste.surrogates import Lime, Slalom

WEIGHTS = {"a": 0.5, "gripping": 2.0, "film": -0.25}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return evaluate_oracles()


def test_every_built_in_oracle_is_met_by_those_who_must(table: pd.DataFrame) -> None:
    assert tuple(table.columns) == COLUMNS
    assert tuple(table["oracle"].unique()) == ORACLES
    must = table[table["must_pass"]]
    assert must["passed"].all()
    assert (must["error"] <= must["tolerance"]).all()
    assert set(ORACLES) == set(must["oracle"])
    assert table.loc[~table["must_pass"], ["passed", "tolerance"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("oracle", "surrogate", "kinds"),
    [
        ("linear", "lime", {"coefficient"}),
        ("linear", "shap", {"shapley"}),
        ("slalom", "slalom", {"value", "importance", "linear", "removal", "shapley", "pairs"}),
        (
            "slalom-background",
            "slalom",
            {"value", "importance", "linear", "removal", "shapley", "pairs"},
        ),
        ("pairs", "interactions", {"main", "total", "pairs"}),
        ("pairs", "shap", {"shapley"}),
    ],
)
def test_surrogates_of_the_right_form_are_exact_on_long_texts(
    table: pd.DataFrame, oracle: str, surrogate: str, kinds: set[str]
) -> None:
    rows = table[(table["oracle"] == oracle) & (table["surrogate"] == surrogate) & (table["text"] == 1)]
    assert set(rows["kind"]) == kinds
    assert (rows["n_masks"] < 2.0 ** rows["n_units"]).all()  # not because every mask was asked
    assert (rows["must_pass"] & rows["passed"]).all()
    assert (rows["error"] < 1e-9).all()


def test_shapley_values_are_exact_wherever_every_mask_is_asked(table: pd.DataFrame) -> None:
    shap = table[(table["surrogate"] == "shap") & (table["text"] == 0)]
    assert set(shap["oracle"]) == set(ORACLES) - {"lime-limit"}
    assert (shap["error"] < 1e-12).all()
    sampled = table.query("oracle == 'slalom' and surrogate == 'shap' and text == 1")
    assert not sampled["must_pass"].any()
    assert (sampled["error"] > 1e-3).all()


def test_the_same_seed_gives_the_same_table(table: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        evaluate_oracles(["pairs"]), table[table["oracle"] == "pairs"].reset_index(drop=True)
    )
    other = evaluate_oracles(["lime-limit"], seed=1)
    assert other["error"].item() != table.loc[table["oracle"] == "lime-limit", "error"].item()
    assert other["passed"].all()


def test_a_wrong_claim_fails() -> None:
    oracle = linear_oracle(WEIGHTS)
    wrong = replace(oracle, truth=(Known("lime", "coefficient", (np.ones(3),), "determined"),))
    (row,) = score_oracle(wrong, ["lime"]).to_dict("records")
    assert row["must_pass"]
    assert not row["passed"]
    assert row["error"] == pytest.approx(np.sqrt((0.5**2 + 1 + 1.25**2) / 3), rel=1e-12)


def test_errors_are_absolute_where_the_truth_is_nothing() -> None:
    oracle = linear_oracle(WEIGHTS)
    nothing = replace(oracle, truth=(Known("lime", "coefficient", (np.zeros(3),)),))
    assert score_oracle(nothing, ["lime"])["error"].item() == pytest.approx(np.sqrt(4.3125))


def test_nobody_must_be_exact_on_too_few_answers() -> None:
    words = {f"w{number}": float(number) for number in range(12)}
    joint = {("w1", "w2"): 1.0}
    few = score_oracle(pair_oracle(words, joint), ["interactions"], budget=40)
    assert not few["must_pass"].any()
    assert (few["status"] == "underdetermined").all()
    assert few["passed"].isna().all()
    enough = score_oracle(pair_oracle(words, joint), ["interactions"], budget=400)
    assert (enough["must_pass"] & enough["passed"]).all()


def test_estimators_stand_for_themselves() -> None:
    oracle = slalom_oracle(WEIGHTS, WEIGHTS)
    found = score_oracle(oracle, [Slalom(), Lime(), Slalom(background=False)])
    assert found["surrogate"].unique().tolist() == ["slalom", "slalom-2"]
    assert found["passed"].all()


def test_surrogates_of_which_nothing_is_known_have_no_rows() -> None:
    found = score_oracle(slalom_oracle(WEIGHTS, WEIGHTS), ["lime"])
    assert found.empty
    assert tuple(found.columns) == COLUMNS
    assert evaluate_oracles([]).empty


def test_refusals() -> None:
    with pytest.raises(InputError, match="Got oracle 'quadratic'; expected one of 'linear', 'slalom'"):
        evaluate_oracles(["quadratic"])
    with pytest.raises(InputError, match="Got surrogate 'line'"):
        evaluate_oracles(["linear"], ["line"])
    with pytest.raises(InputError, match="Got kind 'pairs' for 'lime'"):
        score_oracle(
            replace(linear_oracle(WEIGHTS), truth=(Known("lime", "pairs", (np.zeros(3),)),)), ["lime"]
        )
    broken = CallableModel(lambda texts: [np.nan for _ in texts], kind="logit")
    with pytest.raises(ModelError, match="Oracle 'linear', text 0: Got"):
        score_oracle(replace(linear_oracle(WEIGHTS), model=broken), ["lime"])
