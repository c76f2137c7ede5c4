"""Stability: only what was perturbed is compared, by position in the text, and what is undefined says so."""

from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError
from piste.evaluation.rationales import Rationale
from piste.evaluation.stability import stability

Score = Callable[[str, int, int, int], float]
"""Of a word, its position, how many words there are, and the seed."""


def explainer(score: Score, spans: bool = True) -> Callable[[list[str], int], pd.DataFrame]:
    def explain(texts: list[str], seed: int) -> pd.DataFrame:
        rows = []
        for number, text in enumerate(texts):
            words, end = text.split(), 0
            for position, word in enumerate(words):
                start = text.index(word, end)
                end = start + len(word)
                given = score(word, position, len(words), seed)
                rows.append((str(number), word, start, end, given))
        table = pd.DataFrame(rows, columns=["text_id", "token", "start", "end", "score"])
        return table if spans else table.drop(columns=["start", "end"])

    return explain


def values(found: pd.DataFrame) -> dict[str, Any]:
    columns = (found["value"], found["n_others"], found["status"])
    return dict(zip(found["metric"], zip(*columns, strict=True), strict=True))


@pytest.mark.parametrize("spans", [True, False])
def test_units_are_matched_by_where_they_stand(spans: bool) -> None:
    """Scores by word never change; repeated words, of which one is removed, are told apart."""
    found = stability(explainer(lambda word, *_: len(word), spans), "so good, so very good")  # type: ignore[arg-type]
    assert found["value"].tolist() == [0, 0]
    assert found["n_others"].tolist() == [5, 5]


def test_seed_sensitivity_by_hand() -> None:
    """(3, 4) becomes (3, 4 + seed): 3 / 5 at the third other seed."""
    explain = explainer(lambda _, position, __, seed: [3.0, 4.0 + seed][position])
    found = values(stability(explain, "a b", n_seeds=3, n_removals=0))  # type: ignore[arg-type]
    assert found == {"seed sensitivity": (pytest.approx(0.6), 3, "ok")}


def test_removal_sensitivity_by_hand() -> None:
    """Every score is the number of words: 3 becomes 2 for the two units left, a third less."""
    found = values(stability(explainer(lambda _, __, n, ___: float(n)), "a b c", n_seeds=0))  # type: ignore[arg-type]
    assert found == {"removal sensitivity": (pytest.approx(1 / 3), 3, "ok")}


def test_rationales_are_not_removed() -> None:
    removed = []

    def explain(texts: list[str], seed: int) -> pd.DataFrame:
        removed.extend(texts)
        return explainer(lambda word, *_: float(len(word)))(texts, seed)

    human = [Rationale("0", spans=((2, 6),))]
    found = stability(explain, "a good film", n_seeds=0, rationales=human)  # type: ignore[arg-type]
    assert found["n_others"].tolist() == [2]
    assert all("good" in text for text in removed)


@pytest.mark.parametrize(
    ("text", "score", "seeds", "removals"),
    [
        ("a", 1.0, (0, 5, "ok"), (nan, 0, "undefined: no other")),
        ("a b", 0.0, (nan, 5, "undefined: the explanation is all zero"),
         (nan, 2, "undefined: the explanation is all zero")),
        ("a b", nan, (nan, 0, "undefined: 2 of 2 scores"), (nan, 0, "undefined: 2 of 2 scores")),
        ("a b c", 1.0, (0, 5, "ok"), (0, 3, "ok")),
        ("a a a", 1.0, (0, 5, "ok"), (0, 3, "ok")),
        ("!! ??", 1.0, (0, 5, "ok"), (0, 2, "ok")),
        ("a, b", -1.0, (0, 5, "ok"), (0, 2, "ok")),
        ("😀 b", 1e-300, (0, 5, "ok"), (0, 2, "ok")),
        ("w " * 40 + "w", 1.0, (0, 5, "ok"), (0, 5, "ok")),
        ("", 1.0, (nan, 0, "error: no attributions"), (nan, 0, "error: no attributions")),
    ],
)  # fmt: skip
def test_degenerate_inputs(
    text: str, score: float, seeds: tuple[float, int, str], removals: tuple[float, int, str]
) -> None:
    sound = ["x y", text]
    found = stability(explainer(lambda *_: score), sound)  # type: ignore[arg-type]
    own = values(found[found["text"] == "1"])
    for metric, expected in (("seed sensitivity", seeds), ("removal sensitivity", removals)):
        assert own[metric][0] == pytest.approx(expected[0], nan_ok=True)
        assert own[metric][1] == expected[1]
        assert own[metric][2].startswith(expected[2])


def test_a_target_that_changes_is_not_compared() -> None:
    def explain(texts: list[str], seed: int) -> pd.DataFrame:
        table = explainer(lambda *_: 1.0)(texts, seed)
        n_words = table.groupby("text_id")["token"].transform("size")
        return table.assign(target=np.where(n_words < 3, "short", "long"))

    found = values(stability(explain, "a b c"))  # type: ignore[arg-type]
    assert found["removal sensitivity"] == (
        pytest.approx(nan, nan_ok=True),
        0,
        "undefined: no other explanation with common units",
    )


def test_numbers_are_checked() -> None:
    with pytest.raises(InputError, match="at least 0"):
        stability(explainer(lambda *_: 1.0), "a", n_seeds=-1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="positions 0 to 0"):
        stability(lambda *_: pd.DataFrame({"text_id": ["x"], "token": ["a"], "score": [1.0]}), "a")


@pytest.mark.parametrize(
    ("explain", "options", "message"),
    [
        ("slalom", {}, "explain of type str; expected a function"),
        (
            lambda *_: [1.0],
            {},
            "Got a list from explain; expected its table: return study.attributions",
        ),
        (lambda *_: None, {}, "Got a NoneType from explain"),
        (explainer(lambda *_: 1.0), {"n_seeds": 1.5}, r"n_seeds=1\.5; expected a whole number"),
        (explainer(lambda *_: 1.0), {"seed": -1}, "seed=-1"),
    ],
)
def test_what_explains_nothing_is_refused(explain: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stability(explain, "a", **options)


def test_exact_explanations_do_not_depend_on_the_seed() -> None:
    """All masks of a short text are asked, so Shapley values are exact; fewer masks leave noise."""

    def model(texts: list[str]) -> list[float]:
        return [float(len(set(text.split())) ** 2) for text in texts]

    found = {
        budget: stability(
            lambda texts, seed, budget=budget: (
                piste.explain(  # type: ignore[misc]
                    model, texts, surrogates="shap", space="raw", seed=seed, budget=budget
                ).attributions
            ),
            "one of the good and the bad of it",
            n_seeds=2,
            n_removals=2,
        )["value"]
        for budget in (512, 60)
    }
    assert found[512][0] == pytest.approx(0, abs=1e-9)
    assert found[60][0] > 0.001
    assert (found[512][1:] > 0).all()
