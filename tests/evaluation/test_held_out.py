import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from piste._errors import InputError, PisteWarning
from piste.evaluation.held_out import fidelity_study
from piste.evaluation.judging import LAWS, judging_masks
from piste.surrogates import KernelShap, Slalom

TEXT = "a good film with a bad plot and fine but not very good actors"
TEXTS = [TEXT, TEXT.replace("good", "poor"), "the plot is good and the film is not bad at all I say"]
WEIGHTS = {"good": 2.0, "bad": -1.5, "not": -0.5, "fine": 1.0, "poor": -1.0}


class Additive:
    """Adds up words, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[float]:
        self.asked += texts
        return [sum(WEIGHTS.get(word, 0.1) for word in text.split()) for text in texts]


def test_an_additive_model_is_known_to_additive_surrogates_alone() -> None:
    study = fidelity_study(Additive(), TEXTS, surrogates=("lime", "shap"), budgets=80, space="raw")
    table = study.table
    shap = table[table["surrogate"] == "shap"]
    assert set(shap["mask_law"]) == {"deletions", "uniform-size", "short"}
    assert (shap["mse"] < 1e-20).all()  # exact up to rounding: 14 units from 80 answers
    # Baselines by their definitions: no change, and the best constant.
    for law in ("uniform-size", "short"):
        rows = table[table["mask_law"] == law].set_index("surrogate")
        np.testing.assert_allclose(rows.loc[["mean"], "r2"], 0, atol=1e-12)
        assert (rows.loc[["zero"], "mse"].to_numpy() > rows.loc[["mean"], "mse"].to_numpy()).all()


def test_the_judging_masks_are_asked_once_and_never_fitted_to() -> None:
    model = Additive()
    study = fidelity_study(model, TEXT, budgets=(40, 60), space="raw")
    assert len(model.asked) == len(set(model.asked))
    table = study.table
    assert set(table["budget"]) == {40, 60}
    for budget, rows in table.groupby("budget"):
        assert (rows["n_queries"] <= budget).all()
    judged = table[(table["surrogate"] == "lime") & (table["budget"] == 40)]["n_masks"].sum()
    fitted = table.groupby("budget")["n_queries"].max().sum()
    assert len(model.asked) <= judged + fitted
    # The same masks judge at every budget: the baseline does not depend on what fits may spend.
    zero = table[table["surrogate"] == "zero"].pivot_table(
        index=["mask_law", "n_removed"], columns="budget", values="mse", dropna=False
    )
    np.testing.assert_array_equal(zero[40], zero[60])


def test_deletions_remove_exactly_so_many_units() -> None:
    def n_missing(texts: Sequence[str]) -> list[float]:
        return [float(len(TEXT.split()) - len(text.split())) for text in texts]

    study = fidelity_study(n_missing, TEXT, surrogates="lime", budgets=30, space="raw")
    zero = study.table[(study.table["surrogate"] == "zero") & (study.table["mask_law"] == "deletions")]
    assert list(zero["n_removed"]) == list(range(1, 11))
    np.testing.assert_allclose(zero["mse"], zero["n_removed"].astype(float) ** 2)
    assert (zero["status"] == "undefined").all()  # the answers do not vary within a number removed
    # Of the 14 masks that remove one unit a fourth judges, so that the fits have the rest.
    assert zero["n_masks"].iloc[0] == 3


def test_r2_over_several_numbers_removed_is_pooled() -> None:
    study = fidelity_study(
        Additive(), TEXTS, surrogates="lime", budgets=40, space="raw", laws=["deletions"]
    )
    rows = study.table[study.table["text"] == "0"].set_index(["surrogate", "n_removed"])["mse"]
    expected = 1 - rows["lime"].mean() / rows["mean"].mean()
    pooled = study.per_text().query("text == '0' and surrogate == 'lime'")["r2"].item()
    assert pooled == pytest.approx(expected)


@pytest.mark.parametrize("n_units", [1, 2, 5, 9, 20, 60])
def test_a_law_judges_alike_whatever_else_is_asked(n_units: int) -> None:
    def of(laws: list[str]) -> dict[tuple[str, int | None], set[bytes]]:
        chosen = {law: LAWS[law] for law in laws}
        masks, judged = judging_masks(n_units, chosen, np.random.default_rng(4))
        assert len(np.unique(masks, axis=0)) == len(masks)
        assert not masks.all(axis=1).any()
        assert masks.any(axis=1).all()
        return {(j.law, j.n_removed): {row.tobytes() for row in masks[j.rows]} for j in judged}

    together = of(list(LAWS))
    for law in LAWS:
        for part, masks in of([law]).items():
            assert together[part] == masks
    if n_units == 60:
        # Sizes 1 to 59 have 100 masks among them, one or two each, in every law of uniform sizes.
        sizes = [
            int(np.frombuffer(row, dtype=np.bool_).sum()) for row in together["uniform-size", None]
        ]
        assert np.bincount(sizes, minlength=60)[1:].min() >= 1


def test_spaces_that_do_not_compare_are_said() -> None:
    def share(
        texts: Sequence[str],
    ) -> list[float]:  # within [0, 1] for the first text, beyond for the second
        return [len(text.split()) / 14 for text in texts]

    with pytest.warns(PisteWarning, match="logit and raw"):
        study = fidelity_study(share, [TEXT, f"{TEXT} {TEXT}"], surrogates="lime", budgets=40)
    assert set(study.table["space"]) == {"logit", "raw"}


def test_the_order_of_texts_and_repeats_change_nothing() -> None:
    first = fidelity_study(Additive(), TEXTS, budgets=50, space="raw", text_ids=["a", "b", "c"])
    again = fidelity_study(Additive(), TEXTS[::-1], budgets=50, space="raw", text_ids=["c", "b", "a"])
    columns = ["text", "surrogate", "mask_law", "n_removed"]
    pd.testing.assert_frame_equal(
        first.table.sort_values(columns, ignore_index=True),
        again.table.sort_values(columns, ignore_index=True),
    )


def test_methods_are_compared_paired_by_text() -> None:
    def pooled(texts: Sequence[str]) -> list[float]:
        return [np.tanh(sum(WEIGHTS.get(w, 0.1) for w in text.split())) for text in texts]

    study = fidelity_study(pooled, TEXTS, surrogates=("lime", "slalom"), budgets=(40, 80), space="raw")
    found = study.compare("uniform-size")
    assert found.n_units == 3
    assert set(found.ranking["method"]) == {"zero", "mean", "lime", "slalom"}
    assert set(study.tests()["mask_law"]) == {"deletions", "uniform-size", "short"}
    summary = study.summary().set_index(["budget", "mask_law", "surrogate"])
    assert summary.loc[(80, "short", "zero"), "ratio"] == 1
    per_text = study.per_text(80).query("mask_law == 'short' and surrogate == 'lime'")
    assert summary.loc[(80, "short", "lime"), "mse"] == per_text["mse"].median()
    curve = study.budget_curve(value="mse")
    assert list(curve[curve["surrogate"] == "lime"]["x"]) == [40, 80]
    assert list(study.deletion_curve()["x"].unique()) == list(range(1, 11))


def test_noise_of_the_model_is_the_ceiling() -> None:
    rng = np.random.default_rng(0)

    def noisy(texts: Sequence[str]) -> list[float]:
        return [len(text.split()) + rng.normal() for text in texts]

    study = fidelity_study(
        noisy,
        TEXT,
        surrogates="lime",
        budgets=(60, 90),
        space="raw",
        laws=["uniform-size"],
        noise_probe=40,
    )
    # 0 to 13 words of 14 are kept, uniformly: a variance of (14 ** 2 - 1) / 12 and 1 of noise. The noise is
    # estimated from 40 repeats, to a fifth or so.
    assert study.table["ceiling"].iloc[0] == pytest.approx(1 - 1 / (195 / 12 + 1), abs=0.03)
    assert study.table["ceiling"].nunique() == 1  # probed once, for both budgets
    assert (study.table.query("surrogate == 'lime'")["r2"] < 1).all()
    quiet = fidelity_study(Additive(), TEXT, surrogates="lime", budgets=60, space="raw")
    assert quiet.table["ceiling"].isna().all()


def test_files_hold_the_tables(tmp_path) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    study = fidelity_study(Additive(), TEXTS, budgets=50, space="raw")
    study.to_csv(tmp_path / "fidelity.csv")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "fidelity.csv",
        "fidelity.meta.json",
        "fidelity.summary.csv",
        "fidelity.tests.csv",
    ]
    meta = json.loads((tmp_path / "fidelity.meta.json").read_text(encoding="utf-8"))
    assert meta["budget"] == [50]
    assert meta["seed"] == 0
    assert len(pd.read_csv(tmp_path / "fidelity.csv")) == len(study.table)


def test_a_bad_text_does_not_spoil_the_others() -> None:
    study = fidelity_study(Additive(), [TEXT, "", 5], budgets=50, space="raw")  # type: ignore[list-item]
    assert set(study.failures) == {"1", "2"}
    failed = study.table[study.table["text"].isin(["1", "2"])]
    assert failed["status"].str.startswith("error: ").all()
    assert failed["mse"].isna().all()
    # Counted in every median that they are not in.
    assert (study.summary()["n"] == 3).all()
    assert (study.summary()["n_mse"] == 1).all()


@pytest.mark.parametrize("text", ["film", "good film", "a good film"])
def test_short_texts_say_that_no_mask_is_left(text: str) -> None:
    study = fidelity_study(Additive(), text, budgets=50, space="raw")
    empty = study.table[study.table["n_masks"] == 0]
    assert (empty["status"] == "no fresh masks").all()
    few = study.table[study.table["n_masks"] < 2]
    assert few["mse"].isna().all()
    assert set(few["status"]) <= {"no fresh masks", "too few fresh masks"}
    assert len(study.table)


def test_a_constant_model_has_no_r2() -> None:
    study = fidelity_study(lambda texts: [0.7] * len(texts), TEXTS, budgets=50, space="raw")
    assert (study.table["status"] == "undefined").all()
    assert (study.summary()["n_r2"] == 0).all()
    assert study.compare().pairs["verdict"].eq("undecided").all()


def test_unfitted_surrogates_are_counted_not_hidden() -> None:
    class Broken(Slalom):
        name = "broken"

        def fit(self, masks: object, scores: object, sample_weight: object = None) -> "Broken":
            raise ValueError("no")

    study = fidelity_study(
        Additive(), TEXT, surrogates=[Broken(), KernelShap()], budgets=50, space="raw"
    )
    broken = study.table[study.table["surrogate"] == "broken"]
    assert (broken["status"] == "error: no").all()
    assert broken["mse"].isna().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgets": 1}, "budgets=1; expected whole numbers of at least 2"),
        ({"budgets": ()}, "budgets="),
        ({"budgets": (10, 2.5)}, "budgets="),
        ({"laws": ("leverage",)}, f"expected some of {', '.join(map(repr, LAWS))}"),
        ({"laws": "short"}, "in a list"),
        ({"design": "optimal"}, "design='optimal' for a fidelity study"),
    ],
)
def test_wrong_options_are_refused_before_the_first_query(options: dict, message: str) -> None:  # type: ignore[type-arg]
    model = Additive()
    with pytest.raises(InputError, match=message):
        fidelity_study(model, TEXT, **options)
    assert model.asked == []
