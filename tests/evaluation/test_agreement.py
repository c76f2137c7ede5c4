"""Tables of agreement: values by hand, inputs at the edge with their status, a study end to end."""

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError
from piste.evaluation.agreement import (
    COLUMNS,
    LEAST_TYPES,
    RANKING,
    SPANS,
    TOKENS,
    lexicon_agreement,
    method_agreement,
    rationale_agreement,
)
from piste.evaluation.rationales import Rationale
from piste.evaluation.summaries import summary

TEXT = "good bad film now"


def table(scores: Sequence[float], text: str = TEXT, **columns: Any) -> pd.DataFrame:
    words, end, rows = text.split(), 0, []
    for word, score in zip(words, scores, strict=True):
        start = text.index(word, end)
        end = start + len(word)
        rows.append((word, start, end, score))
    return pd.DataFrame(rows, columns=["token", "start", "end", "score"]).assign(**columns)


def by_metric(found: pd.DataFrame) -> dict[str, tuple[float, str]]:
    pairs = zip(found["value"].tolist(), found["status"], strict=True)
    return dict(zip(found["metric"], pairs, strict=True))


# Rationales -----------------------------------------------------------------------------------------

FIRST = Rationale("0", spans=((0, 4),), text=TEXT)
NONE = Rationale("0", spans=(), text=TEXT)
EVERY = Rationale("0", spans=((0, 17),), text=TEXT)
EXPECTED = tuple[tuple[float, str], tuple[float, str], tuple[float, str]]


def same(status: str) -> EXPECTED:
    return (nan, status), (nan, status), (nan, status)


RATIONALE_CASES: dict[str, tuple[pd.DataFrame, list[Rationale], dict[str, Any], EXPECTED]] = {
    # case: attributions, rationales, options, then ROC-AUC, token F1, IOU F1
    "right": (table([4, 1, 2, 3]), [FIRST], {}, ((1, "ok"), (1, "ok"), (1, "ok"))),
    "turned round": (table([-4, -1, -2, -3]), [FIRST], {}, ((0, "ok"), (0, "ok"), (0, "ok"))),
    "without signs": (
        table([-4, -1, -2, -3]),
        [FIRST],
        {"absolute": True},
        ((1, "ok"), (1, "ok"), (1, "ok")),
    ),
    "importance keeps its sign": (
        table([-4, -1, -2, -3], kind="importance"),
        [FIRST],
        {"absolute": True},
        ((0, "ok"), (0, "ok"), (0, "ok")),
    ),
    "no rationale": (table([4, 1, 2, 3]), [NONE], {}, same("undefined: no unit is marked")),
    "all rationale": (table([4, 1, 2, 3]), [EVERY], {}, same("undefined: every unit is marked")),
    "no rationale of this text": (
        table([4, 1, 2, 3]),
        [Rationale("1", spans=())],
        {},
        same("undefined: no rationale"),
    ),
    "one token": (
        table([1], "good"),
        [Rationale("0", flags=(True,))],
        {},
        same("undefined: every unit is marked"),
    ),
    # Ties at the top: the one marked unit is chosen or it is not; here a threshold chooses all four.
    "all-zero scores": (
        table([0, 0, 0, 0]),
        [FIRST],
        {"threshold": -1},
        ((0.5, "ok"), (0.4, "ok"), (0, "ok")),
    ),
    "nothing above the threshold": (
        table([4, 1, 2, 3]),
        [FIRST],
        {"threshold": 9},
        ((1, "ok"), (0, "ok"), (0, "ok")),
    ),
    "a missing score": (table([4, nan, 2, 3]), [FIRST], {}, same("undefined: 1 of 4 scores")),
    "flags of other units": (
        table([4, 1, 2, 3]),
        [Rationale("0", flags=(True,))],
        {},
        same("error: Got 1 flags for the 4 units"),
    ),
    "a span of another text": (
        table([4, 1, 2, 3]),
        [Rationale("0", spans=((0, 99),), text=TEXT)],
        {},
        same("error: Got the span (0, 99)"),
    ),
    "an empty text": (
        pd.DataFrame({"token": [""], "score": [nan], "status": ["error: Got an empty text"]}),
        [Rationale("0", spans=())],
        {},
        same("error: Got an empty text"),
    ),
    "repeated tokens": (
        table([1, 4, 2, 3], "good good good bad"),
        [Rationale("0", flags=(False, True, False, False))],
        {},
        ((1, "ok"), (1, "ok"), (1, "ok")),
    ),
}


@pytest.mark.parametrize("metric", ["roc_auc", "token_f1", "iou_f1"])
@pytest.mark.parametrize("name", RATIONALE_CASES)
def test_rationales_at_the_edge(name: str, metric: str) -> None:
    attributions, rationales, options, expected = RATIONALE_CASES[name]
    found = rationale_agreement(attributions, rationales, **options)
    assert list(found.columns)[: len(COLUMNS)] == list(COLUMNS)
    assert found["metric"].tolist() == [*RANKING, *TOKENS, *SPANS]
    value, status = by_metric(found)[metric]
    wanted, start = expected[["roc_auc", "token_f1", "iou_f1"].index(metric)]
    assert value == pytest.approx(wanted, nan_ok=True)
    assert status.startswith(start)


@pytest.mark.parametrize("name", RATIONALE_CASES)
def test_all_metrics_of_a_document_are_defined_or_none(name: str) -> None:
    attributions, rationales, options, _ = RATIONALE_CASES[name]
    found = rationale_agreement(attributions, rationales, **options)
    assert found["value"].isna().nunique() == 1
    assert found["value"].dropna().between(0, 1).all()


def test_ties_at_the_edge_of_the_choice_say_so() -> None:
    found = by_metric(rationale_agreement(table([1, 1, 0, 0]), [FIRST]))
    assert {status for _, status in (found[name] for name in (*TOKENS, *SPANS))} == {"ties"}
    assert found["roc_auc"][0] == pytest.approx(2.5 / 3)
    assert found["roc_auc"][1] == "ok"
    seeds = [
        by_metric(rationale_agreement(table([1, 1, 0, 0]), [FIRST], seed=seed))["token_f1"][0]
        for seed in range(8)
    ]
    assert set(seeds) == {0, 1}


def test_single_class_documents_are_counted_not_averaged() -> None:
    both = pd.concat([table([4, 1, 2, 3], text_id=name) for name in "01"])
    human = [FIRST, Rationale("1", spans=(), text=TEXT)]
    counts = summary(rationale_agreement(both, human)).query("metric == 'auprc'")
    assert counts[["median", "n_texts", "n_undefined"]].to_numpy().tolist() == [[1, 1, 1]]


def test_tokens_are_found_in_the_rationales_text() -> None:
    tokens = table([4, 1, 2, 3])[["token", "score"]]
    assert by_metric(rationale_agreement(tokens, [FIRST]))["roc_auc"] == (1, "ok")
    bare = Rationale("0", spans=((0, 4),))
    assert by_metric(rationale_agreement(tokens, [bare], texts={"0": TEXT}))["roc_auc"] == (1, "ok")
    assert by_metric(rationale_agreement(table([4, 1, 2, 3]), [bare]))["roc_auc"] == (1, "ok")


def test_a_token_that_is_part_of_a_word_is_flagged() -> None:
    tokens = pd.DataFrame({"token": ["goo", "bad", "film"], "score": [1.0, 1.0, 0.0]})
    found = by_metric(rationale_agreement(tokens, [FIRST]))
    assert found["roc_auc"] == (0.75, "partial word")
    assert found["token_f1"][1] == "partial word; ties"


# Lexicons -------------------------------------------------------------------------------------------

WEIGHTS = {"good": 2.0, "bad": -3.0, "film": 0.1, "now": 0.0}
LEXICON_CASES: dict[str, tuple[pd.DataFrame, Any, dict[str, Any], float, str]] = {
    "same order": (table([9, -9, 1, 0]), WEIGHTS, {}, 1, "ok"),
    "turned round": (table([-9, 9, -1, 0]), WEIGHTS, {}, -1, "ok"),
    "importance has no direction": (table([2, 3, 1, 0], kind="importance"), WEIGHTS, {}, 1, "ok"),
    "value has": (table([2, 3, 1, 0], kind="value"), WEIGHTS, {}, -0.2, "ok"),
    "another target": (table([-9, 9, -1, 0], target="n"), WEIGHTS, {"favours": "p"}, 1, "ok"),
    "weights by target": (table([9, -9, 1, 0], target="p"), {"p": WEIGHTS}, {}, 1, "ok"),
    "no weights for the target": (
        table([9, -9, 1, 0], target="n"),
        {"p": WEIGHTS},
        {},
        nan,
        "undefined: no weights for target 'n'",
    ),
    "no word is known": (table([9, -9, 1, 0]), {"x": 1.0}, {}, nan, "undefined: 0 distinct words"),
    "an empty lexicon": (table([9, -9, 1, 0]), {}, {}, nan, "undefined: 0 distinct words"),
    "two words": (table([1, 2], "good bad"), WEIGHTS, {}, nan, "undefined: 2 distinct words"),
    "one token": (table([1], "good"), WEIGHTS, {}, nan, "undefined: 1 distinct words"),
    "repeated tokens are one type": (
        table([1, 2, 3], "good good good"),
        WEIGHTS,
        {},
        nan,
        "undefined: 1 distinct words",
    ),
    "and have their mean": (
        table([0, 8, -1, 3, 2], "good good bad film now"),
        WEIGHTS,
        {},
        1,
        "ok",
    ),
    "ties": (table([9, -9, 0, 0]), WEIGHTS, {}, 0.9486832980505138, "ok"),
    "all-zero scores": (table([0, 0, 0, 0]), WEIGHTS, {}, nan, "undefined: no variation"),
    "constant weights": (
        table([1, 2, 3, 4]),
        dict.fromkeys(WEIGHTS, 1.0),
        {},
        nan,
        "undefined: no variation",
    ),
    "a missing score": (table([9, nan, 1, 0]), WEIGHTS, {}, nan, "undefined: 1 of 4 scores"),
    "an empty text": (
        pd.DataFrame({"token": [""], "score": [nan], "status": ["error: Got an empty text"]}),
        WEIGHTS,
        {},
        nan,
        "error: Got an empty text",
    ),
    "capitals": (table([9, -9, 1, 0], "GOOD Bad film Now"), WEIGHTS, {}, 1, "ok"),
    "capitals that matter": (
        table([9, -9, 1, 0], "GOOD Bad film Now"),
        WEIGHTS,
        {"lowercase": False},
        nan,
        "undefined: 1 distinct words",
    ),
}


@pytest.mark.parametrize("name", LEXICON_CASES)
def test_lexicons_at_the_edge(name: str) -> None:
    attributions, weights, options, value, status = LEXICON_CASES[name]
    found = lexicon_agreement(attributions, weights, name="mine", **options)
    assert list(found.columns) == [*COLUMNS, "lexicon", "n_types"]
    assert found["value"].tolist() == [pytest.approx(value, nan_ok=True)]
    assert found["status"].item().startswith(status)
    assert found["lexicon"].item() == "mine"
    assert np.isnan(value) or found["n_types"].item() >= LEAST_TYPES


def predicted_classes() -> pd.DataFrame:
    """Scores that follow the weights of the words, for texts of two classes."""
    return pd.concat(
        [
            table([9, -9, 1, 0], target="pos", text_id="0"),
            table([-9, 9, -1, 0], target="neg", text_id="1"),
        ]
    )


def test_weights_by_word_of_two_targets_need_a_direction() -> None:
    mixed = predicted_classes()
    with pytest.raises(InputError, match=r"for targets 'neg', 'pos'; expected favours=.*by target"):
        lexicon_agreement(mixed, WEIGHTS)
    assert lexicon_agreement(mixed, WEIGHTS, favours="pos")["value"].tolist() == [1, 1]
    assert lexicon_agreement(mixed, WEIGHTS, favours="neg")["value"].tolist() == [-1, -1]
    turned = {word: -weight for word, weight in WEIGHTS.items()}
    by_target = lexicon_agreement(mixed, {"pos": WEIGHTS, "neg": turned})
    assert by_target["value"].tolist() == [1, 1]


def test_a_failed_text_is_no_second_target() -> None:
    failed = pd.DataFrame({"text_id": ["1"], "token": [""], "score": [nan], "status": ["error: no"]})
    found = lexicon_agreement(pd.concat([table([9, -9, 1, 0], target="pos"), failed]), WEIGHTS)
    assert found["value"].tolist() == pytest.approx([1, nan], nan_ok=True)


def test_a_direction_that_says_nothing_is_refused_or_undefined() -> None:
    with pytest.raises(InputError, match="favours='other' for targets 'neg', 'pos'"):
        lexicon_agreement(predicted_classes(), WEIGHTS, favours="other")
    with pytest.raises(InputError, match="favours='pos' with a lexicon by target"):
        lexicon_agreement(predicted_classes(), {"pos": WEIGHTS}, favours="pos")
    unknown = lexicon_agreement(table([9, -9, 1, 0]), WEIGHTS, favours="pos")
    assert unknown["status"].item().startswith("undefined: the target is not known")


# Methods --------------------------------------------------------------------------------------------


def two(one: Sequence[float], other: Sequence[float], kinds: str = "score score") -> pd.DataFrame:
    text = " ".join(TEXT.split()[: len(one)])
    frames = [
        table(scores, text, surrogate=name, kind=kind)
        for name, kind, scores in zip("ab", kinds.split(), (one, other), strict=True)
    ]
    return pd.concat(frames)


UP = [1.0, 2.0, 3.0, 4.0]
METHOD_CASES: dict[str, tuple[pd.DataFrame, list[float], list[str]]] = {
    # case: attributions; Spearman, Kendall, top overlap, sign agreement; their statuses
    "equal": (two(UP, UP), [1, 1, 1, 1], ["ok"] * 4),
    "opposite": (two(UP, [-1, -2, -3, -4]), [-1, -1, 0, 0], ["ok"] * 4),
    "by hand": (two(UP, [1.0, 3.0, 2.0, -4.0]), [-0.4, -1 / 3, 0, 0.75], ["ok"] * 4),
    "one constant": (
        two(UP, [2.0] * 4),
        [nan, nan, nan, 1],
        ["undefined: no variation"] * 2 + ["ties", "ok"],
    ),
    "both zero": (
        two([0.0] * 4, [0.0] * 4),
        [nan, nan, 1, 1],
        ["undefined: no variation"] * 2 + ["ties", "ok"],
    ),
    "one token": (two([1.0], [-2.0]), [nan, nan, 1, 0], ["undefined: no variation"] * 2 + ["ok"] * 2),
    "a missing score": (two(UP, [nan] * 4), [nan] * 4, ["undefined: 4 of 4 scores are not finite"] * 4),
    "importance against value": (
        two([1.0, 4.0, 3.0, 2.0], [-1, -4, 3, -2], "importance value"),
        [1, 1, 1, nan],
        ["ok"] * 3 + ["undefined: importances have no sign"],
    ),
    "two importances": (
        two(UP, UP, "importance importance"),
        [1, 1, 1, nan],
        ["ok"] * 3 + ["undefined: importances have no sign"],
    ),
    "ties below the top": (
        two([4.0, 1, 1, 0], [9.0, 2, 1, 0]),
        [0.9486832980505138, 0.9128709291752769, 1, 1],
        ["ok"] * 4,
    ),
    "rounding": (two([0.3, 1, 2, 3], [0.1 + 0.2, 1, 2, 3]), [1, 1, 1, 1], ["ok"] * 4),
}


@pytest.mark.parametrize("name", METHOD_CASES)
def test_methods_at_the_edge(name: str) -> None:
    attributions, values, statuses = METHOD_CASES[name]
    found = method_agreement(attributions)
    assert list(found.columns)[: len(COLUMNS)] == list(COLUMNS)
    known = [nan if np.isnan(value) else value for value in values]
    actual = found["value"].tolist()
    for position, (own, expected) in enumerate(zip(actual, known, strict=True)):
        if statuses[position] == "ties" and np.isnan(expected):
            assert own in (0, 1)  # chance decides, and the status says so
        else:
            assert own == pytest.approx(expected, nan_ok=True)
    assert found["status"].tolist() == statuses
    assert set(found["other_surrogate"]) == {"b"}


def test_units_and_targets_must_be_the_same() -> None:
    other = table([1, 2], "good film", surrogate="b")
    found = method_agreement(pd.concat([table(UP, surrogate="a"), other]))
    assert set(found["status"]) == {"undefined: different units"}
    targets = pd.concat([table(UP, surrogate="a", target="x"), table(UP, surrogate="b", target="y")])
    assert method_agreement(targets).empty


def test_every_pair_once_and_only_those_asked_for() -> None:
    three = pd.concat([table(UP, surrogate=name) for name in "abc"])
    pairs = method_agreement(three)[["surrogate", "other_surrogate"]].drop_duplicates()
    assert pairs.to_numpy().tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert len(method_agreement(three, surrogates=["a", "c"])) == 4
    with pytest.raises(InputError, match="some of the attributions'"):
        method_agreement(three, surrogates=["d"])
    with pytest.raises(InputError, match="shares of a text"):
        method_agreement(three, top=0)


# End to end -----------------------------------------------------------------------------------------


def test_a_study_against_people_words_and_itself() -> None:
    weights = {"good": 2.0, "awful": -2.5, "film": 0.25, "songs": 0.5}

    def model(texts: list[str]) -> list[float]:
        return [sum(weights.get(word, 0.0) for word in text.split()) for text in texts]

    texts = ["a good film with awful songs", "the film", ""]
    with pytest.warns(piste.PisteWarning):
        study = piste.explain(model, texts, surrogates=("lime", "shap"), space="raw", budget=100)
    found = lexicon_agreement(study.attributions, weights)
    assert found["value"].tolist()[:2] == pytest.approx([1, 1])
    assert found["status"].tolist()[2:4] == ["undefined: 1 distinct words with a weight"] * 2
    assert found["status"].str.startswith("error").tolist()[4:] == [True, True]
    pairs = method_agreement(study.attributions)
    first = pairs[pairs["text"] == "0"].set_index("metric")["value"]
    assert first["spearman"] == pytest.approx(1)
    human = [Rationale("0", spans=((2, 6),), text=texts[0]), Rationale("1", spans=(), text=texts[1])]
    counts = summary(rationale_agreement(study.attributions, human)).query("metric == 'token_f1'")
    assert counts["median"].tolist() == [1, 1]
    assert counts["n_undefined"].tolist() == [2, 2]
