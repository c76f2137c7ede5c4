from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError
from piste.evaluation.rationales import Rationale
from piste.evaluation.study import Study
from piste.evaluation.tasks import TASKS, _best_first, _candidates, _medians
from piste.surrogates.lime import Lime
from piste.surrogates.records import Options
from piste.surrogates.slalom import Slalom
from piste.surrogates.trees import Trees

WEIGHTS = {"good": 2.0, "fine": 1.0, "bad": -1.5, "dull": -1.0}
TEXTS = [
    "a good film with a fine plot and one dull actor",
    "bad plot but fine and good actors all over",
]


def additive(texts: Sequence[str]) -> list[float]:
    return [sum(WEIGHTS.get(word, 0.0) for word in text.split()) - 0.2 for text in texts]


@pytest.fixture(scope="module")
def study() -> Study:
    # 10 and 8 words: not all masks are asked of the first
    return piste.explain(
        piste.load_model(additive, kind="logit"),
        TEXTS,
        surrogates=("lime", "shap", "slalom"),
        budget=200,
    )


@pytest.mark.parametrize(
    ("task", "size", "tokens"), [("sufficient-set", 1, "good"), ("flip-set", 1, "good")]
)
def test_sets_are_the_smallest_and_verified(study: Study, task: str, size: int, tokens: str) -> None:
    found = study.attribution_for(task)
    assert list(found.sets["status"]) == ["verified", "verified"]
    first = found.sets.iloc[0]
    assert first["size"] == size
    assert tokens in first["tokens"]
    kept = [
        word
        for i, word in enumerate(TEXTS[0].split())
        if (i in first["units"]) == (task == "sufficient-set")
    ]
    assert first["score"] == pytest.approx(additive([" ".join(kept)])[0])
    assert (first["score"] >= 0) == (task == "sufficient-set")
    chosen = found.attributions[found.attributions["chosen"]]
    assert list(chosen[chosen["text_id"] == "0"]["unit"]) == first["units"]
    # No ranking does it with fewer.
    sizes = found.alternatives[found.alternatives["text"] == "0"].set_index("kind")["value"]
    assert sizes["(search)"] == sizes.min()
    assert found.ranking().iloc[0]["set size"] == found.ranking()["set size"].min()


def test_verification_asks_nothing_twice() -> None:
    asked: list[str] = []

    def counted(texts: Sequence[str]) -> list[float]:
        asked.extend(texts)
        return additive(texts)

    study = piste.explain(piste.load_model(counted, kind="logit"), TEXTS[0], budget=200)
    before = len(asked)
    study.attribution_for("flip-set")
    # Rankings of five kinds are bisected over 10 units, and the search is about few sets.
    assert len(asked) - before < 40
    assert set(asked[:before]).isdisjoint(asked[before:])


def test_verification_asks_once_for_all_targets() -> None:
    asked: list[str] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.column_stack([additive(texts), [0.5 - score for score in additive(texts)]])

    model = piste.load_model(counted, kind="logit")
    study = piste.explain(model, TEXTS[0], budget=60, target="all")
    study.attribution_for("flip-set")
    assert len(asked) == len(set(asked))


def test_without_a_model_sets_are_said_to_be_unverified(study: Study, tmp_path) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    study.save(tmp_path / "study")
    loaded = piste.load_study(tmp_path / "study")
    found = loaded.attribution_for("flip-set")
    assert set(found.sets["status"]) == {"unverified"}
    rankings = found.alternatives[found.alternatives["kind"] != "(search)"]
    assert rankings["value"].isna().all()
    assert (rankings["status"] == "undefined: needs model=").all()
    verified = loaded.attribution_for("flip-set", model=piste.load_model(additive, kind="logit"))
    assert set(verified.sets["status"]) == {"verified"}


def test_removal_effects_of_an_additive_model(study: Study) -> None:
    found = study.attribution_for("removal-effects")
    # Sums of LIME's coefficients and of SHAP's values are exact, and SLALOM's removals are not quite.
    assert set(found.attributions["kind"]) == {"coefficient"}
    assert "the best first: lime coefficient" in found.why
    errors = found.alternatives[found.alternatives["text"] == "0"].set_index(["surrogate", "kind"])[
        "value"
    ]
    # Sums of SHAP's values, and its predictions, are exact for an additive model: both say the same.
    assert errors["shap", "shapley"] < 1e-18
    assert errors["shap", "(prediction)"] == pytest.approx(errors["shap", "shapley"], abs=1e-18)
    assert errors["slalom", "value"] > errors["slalom", "(prediction)"]


def pooled_words(texts: Sequence[str]) -> list[float]:
    """A mean over words: the falls of single ones do not add up, as those of a sum do."""
    words = [text.split() for text in texts]
    return [sum(WEIGHTS.get(word, 0.1) for word in each) / max(len(each), 1) for each in words]


def test_the_kind_that_foretells_falls_best_is_served() -> None:
    pooled = piste.explain(
        piste.load_model(pooled_words, kind="logit"),
        TEXTS,
        surrogates=("lime", "shap", "slalom"),
        budget=200,
    )
    found = pooled.attribution_for("removal-effects")
    ranking = found.ranking()
    serving = ranking[
        ranking[["surrogate", "kind"]].apply(tuple, axis=1).isin(TASKS["removal-effects"].serves)
    ]
    best = serving.iloc[0]
    assert set(found.attributions["kind"]) == {best["kind"]} != {"removal"}
    assert set(found.attributions["surrogate"]) == {best["surrogate"]}
    assert f"the best first: {best['surrogate']} {best['kind']} {best['mse']:.3g}, " in found.why
    # What the surrogate itself expects stays to be seen: SLALOM is exact here, and its sums are not.
    errors = ranking.set_index(["surrogate", "kind"])["mse"]
    assert errors["slalom", "(prediction)"] < 0.01 * errors["slalom", "removal"]


def test_kinds_are_ordered_by_median_and_their_order_decides_ties() -> None:
    def ordered(*medians: float) -> list[str]:
        kinds = [("s", name) for name in "abc"]
        given = {kind: value for kind, value in zip(kinds, medians, strict=True) if value >= 0}
        return [name for _, name in _best_first(kinds, given, True)]

    assert ordered(3, 1, 2) == ["b", "c", "a"]
    assert ordered(1e-17, 1e-19, 2) == ["a", "b", "c"]
    assert ordered(np.nan, 2, 1) == ["c", "b", "a"]
    assert ordered(-1, 2, 1) == ["c", "b", "a"]  # not in the study
    assert ordered(np.nan, np.nan, np.nan) == ["a", "b", "c"]


def test_medians_are_of_the_texts_on_which_all_are_defined() -> None:
    serves = TASKS["removal-effects"].serves
    rows = [
        ("0", "slalom", "removal", 1),
        ("0", "lime", "coefficient", 2),
        ("1", "slalom", "removal", 9),
        ("1", "lime", "coefficient", np.nan),
    ]
    table = pd.DataFrame(rows, columns=["text", "surrogate", "kind", "value"]).assign(target="t")
    assert _medians(serves, table) == {("slalom", "removal"): 1, ("lime", "coefficient"): 2}
    apart = table[[True, False, False, True]]
    assert _medians(serves, apart)["slalom", "removal"] == 1


@pytest.mark.parametrize("max_calls", [-1, 2.5, True, "many"])
def test_calls_that_cannot_be_counted_are_refused(study: Study, max_calls: Any) -> None:
    with pytest.raises(InputError, match=f"max_calls={max_calls!r}; expected a whole number"):
        study.attribution_for("flip-set", max_calls=max_calls)


def test_fair_credit_adds_up(study: Study) -> None:
    found = study.attribution_for("fair-credit")
    assert set(found.attributions["surrogate"]) == {"shap"}
    gaps = found.alternatives.set_index(["surrogate", "kind"])["value"]
    assert (gaps.loc[("shap", "shapley")] < 1e-12).all()
    assert (gaps.loc[("slalom", "value")] > 0.01).all()


def test_human_attention_needs_rationales_and_is_judged_by_them(study: Study) -> None:
    with pytest.raises(InputError, match="rationales=read_rationales"):
        study.attribution_for("human-attention")
    marks = [Rationale("0", ((2, 6), (19, 23)), text=TEXTS[0]), Rationale("1", (), text=TEXTS[1])]
    found = study.attribution_for("human-attention", rationales=marks)
    shap = found.alternatives[found.alternatives["surrogate"] == "shap"].set_index("text")
    assert shap.loc["0", "value"] == 1  # good and fine are marked, and have the largest scores
    assert str(shap.loc["1", "status"]).startswith("undefined")
    row = found.ranking().query("surrogate == 'shap'")
    assert row[["n", "n_undefined"]].to_numpy().tolist() == [[2, 1]]


def test_class_words_are_judged_by_a_lexicon(study: Study) -> None:
    with pytest.raises(InputError, match="naive_bayes_log_odds"):
        study.attribution_for("class-words")
    lexicon = WEIGHTS | {"film": 0.0}
    found = study.attribution_for("class-words", lexicon=lexicon)
    shap = found.alternatives[found.alternatives["surrogate"] == "shap"]
    np.testing.assert_allclose(shap["value"], 1)


def test_words_for_the_predicted_class_need_a_direction() -> None:
    def two_classes(texts: Sequence[str]) -> list[list[float]]:
        return [[score, -score] for score in additive(texts)]

    model = piste.load_model(two_classes, kind="logit", labels=["pos", "neg"])
    texts = [TEXTS[0], "a bad film with a dull plot and one fine actor"]
    both = piste.explain(model, texts, surrogates="shap", budget=200)
    assert set(both.attributions["target"]) == {"pos", "neg"}
    lexicon = WEIGHTS | {"film": 0.0}
    with pytest.raises(InputError, match="favours="):
        both.attribution_for("class-words", lexicon=lexicon)
    found = both.attribution_for("class-words", lexicon=lexicon, favours="pos")
    np.testing.assert_allclose(found.alternatives["value"], 1)


def test_every_task_says_what_it_is() -> None:
    for name, task in TASKS.items():
        assert task.name == name
        assert task.question.endswith("?")
        assert task.serves
        assert "Judged by" in task.why or "As for" in task.why


@pytest.mark.parametrize("task", ["sufficient-set", "flip-set"])
def test_sets_say_what_it_is_to_keep_a_prediction(task: str) -> None:
    def three(texts: Sequence[str]) -> list[list[float]]:
        return [[0.4, 0.3, 0.3] if "good" in text else [0.2, 0.4, 0.4] for text in texts]

    model = piste.load_model(three, kind="probability", labels=["a", "b", "c"])
    study = piste.explain(model, "a good film", space="probability", target="a", surrogates="shap")
    found = study.attribution_for(task)
    # The largest class is below even odds: halfway between the text and nothing is what counts.
    assert found.sets["threshold"].item() == pytest.approx((0.4 + 0.2) / 2)
    assert found.sets["tokens"].item() == ["good"]
    for words in (
        "even odds (log-odds 0, probability 1/2)",
        "halfway",
        "three or more exclusive classes",
    ):
        assert words in found.why


def test_what_cannot_serve_is_refused(study: Study) -> None:
    with pytest.raises(InputError, match="expected one of 'removal-effects'"):
        study.attribution_for("guess")
    lime = study.refit("lime").attribution_for("fair-credit")
    assert set(lime.attributions["surrogate"]) == {"lime"}
    with pytest.raises(InputError, match="without a surrogate for 'class-words'; expected 'slalom'"):
        study.refit("interactions").attribution_for("class-words", lexicon=WEIGHTS | {"film": 0.0})


@pytest.mark.parametrize("task", ["removal-effects", "fair-credit", "sufficient-set", "flip-set"])
def test_every_effect_can_serve(study: Study, task: str) -> None:
    refitted = study.refit([Trees(max_rounds=20), "interactions"])
    found = refitted.attribution_for(task)
    kinds = set(found.attributions[["surrogate", "kind"]].itertuples(index=False, name=None))
    if TASKS[task].by_measure:
        # An additive model: interactions are exact, and a few trees are not.
        assert kinds == {("interactions", "total")}
        assert all(
            name in found.why for name in ("interactions total", "trees shapley", "trees removal")
        )
        assert "interactions main" not in found.why
    else:
        assert kinds == {("trees", "shapley")}  # the first that was fitted
        assert set(found.sets["status"]) <= {"verified", "unverified"}


def test_further_fits_of_a_surrogate_count_as_it(study: Study) -> None:
    two = study.refit([Lime(kernel_width=0.3, n_features=1), Lime(kernel_width=None)])
    found = two.attribution_for("removal-effects")
    assert set(found.attributions["surrogate"]) == {"lime-2"}  # the first leaves most words out
    # Where the first could not be fitted, the other serves what names the surrogate.
    rows = [("lime-2", "coefficient"), ("slalom-2", "value"), ("slalom-2", "importance")]
    table = pd.DataFrame(rows, columns=["surrogate", "kind"])
    options = Options({"lime-2": Lime(), "slalom-2": Slalom()})
    found_kinds = _candidates(TASKS["human-attention"], table, options)
    assert found_kinds == [("slalom-2", "importance"), ("lime-2", "coefficient")]


@pytest.mark.parametrize(
    "text",
    [
        "film",
        "good",
        "bad",
        "good good good",
        "the the the the",
        "a film",
        "bad dull",
        "fine\tgood",
        "é",
        ".",
    ],
)
@pytest.mark.parametrize("task", ["sufficient-set", "flip-set", "removal-effects", "fair-credit"])
def test_degenerate_texts_are_defined(task: str, text: str) -> None:
    model = piste.load_model(additive, kind="logit")
    try:
        study = piste.explain(model, [text, TEXTS[0]], surrogates=("lime", "slalom"), budget=100)
    except InputError:
        pytest.skip("punctuation alone has no unit")
    found = study.attribution_for(task)
    undefined = found.alternatives[found.alternatives["value"].isna()]
    assert undefined["status"].str.startswith("undefined").all()
    assert (found.alternatives["text"] == "0").any() or study.attributions["status"][0].startswith(
        "error"
    )


def test_a_constant_model_has_undefined_measures_not_averages() -> None:
    study = piste.explain(
        lambda texts: [0.7] * len(texts), TEXTS, surrogates=("lime", "shap"), budget=100
    )
    gaps = study.attribution_for("fair-credit").alternatives
    assert gaps["value"].isna().all()
    assert (gaps["status"] == "undefined").all()
    assert study.attribution_for("fair-credit").ranking()["n_undefined"].eq(2).all()
    flips = study.attribution_for("flip-set")
    assert set(flips.sets["status"]) == {"not found"}
    assert isinstance(flips.alternatives, pd.DataFrame)
