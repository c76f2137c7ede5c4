"""Inputs at the edge: for each metric the value that is defined for them, and the status that says so."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf, nan

import pandas as pd
import pytest

from piste.evaluation.faithfulness import METRICS, faithfulness
from piste.evaluation.summaries import summary

Model = Callable[[list[str]], list[float]]
Expected = tuple[float, str]

EFFECTS = {"good": 0.1, "bad": -0.1}
HEADLINES = {
    "comprehensiveness": "aopc",
    "sufficiency": "aopc",
    "deletion": "most first",
    "insertion": "most first",
    "infidelity": "unscaled",
    "sensitivity-n": "mean",
}


def additive(texts: list[str]) -> list[float]:
    return [0.5 + sum(EFFECTS.get(word, 0.0) for word in text.split()) for text in texts]


def constant(texts: list[str]) -> list[float]:
    return [0.7 for _ in texts]


def broken_without_film(texts: list[str]) -> list[float]:
    return [p if "film" in text else nan for text, p in zip(texts, additive(texts), strict=True)]


def endless(texts: list[str]) -> list[float]:
    return [
        inf if text.strip() == "film" else p for text, p in zip(texts, additive(texts), strict=True)
    ]


def silent(texts: list[str]) -> list[float]:
    return [nan for _ in texts]


@dataclass(frozen=True)
class Case:
    """A model, a text with a score per token, and what each metric says, in the order of `HEADLINES`."""

    text: str
    scores: tuple[float, ...]
    expected: tuple[Expected, ...]
    model: Model = additive
    tokens: tuple[str, ...] = ()
    target: str = ""


def everywhere(status: str) -> tuple[Expected, ...]:
    return ((nan, status),) * len(HEADLINES)


NOT_FINITE = (nan, "undefined: the model gave numbers that are not finite")
CASES = {
    # Sums 3, 2, 1, 5, 4, 3, 6 against drops of 0.
    "constant model": Case(
        "good film today",
        (3, 2, 1),
        (
            (0, "constant model"),
            (0, "constant model"),
            (0.7, "constant model"),
            (0.7, "constant model"),
            (100 / 7, "constant model"),
            (nan, "undefined: no variation"),
        ),
        constant,
    ),
    "one token": Case(
        "good",
        (0.1,),
        (
            (0.1, "ok"),
            (0, "ok"),
            (0.55, "ok"),
            (0.55, "ok"),
            (0, "ok"),
            (nan, "undefined: one unit has no subsets"),
        ),
    ),
    # A rationale of 1, 1, 1, 1, 2 units; any order is right.
    "all-zero scores, repeated tokens": Case(
        "good good good",
        (0, 0, 0),
        (
            (0.12, "ties"),
            (0.18, "ties"),
            (0.65, "ties"),
            (0.65, "ties"),
            (0.24 / 7, "ok"),
            (nan, "undefined: no variation"),
        ),
    ),
    "ties": Case(
        "good bad good",
        (0.1, -0.1, 0.1),
        (
            (0.12, "ties"),
            (-0.02, "ties"),
            (1.45 / 3, "ties"),
            (1.85 / 3, "ties"),
            (0, "ok"),
            (1, "ok"),
        ),
    ),
    "fewer units than bins": Case(
        "good film",
        (0.1, 0),
        ((0.1, "ok"), (0, "ok"), (0.525, "ok"), (0.575, "ok"), (0, "ok"), (1, "ok")),
    ),
    # Equal words with unequal scores: single removals are off by .05, the whole is right.
    "repeated tokens": Case(
        "good good",
        (0.15, 0.05),
        (
            (0.1, "ok"),
            (0.1, "ok"),
            (0.6, "ok"),
            (0.6, "ok"),
            (0.005 / 3, "ok"),
            (nan, "undefined: no variation"),
        ),
    ),
    "scores turned round": Case(
        "good bad",
        (-0.1, 0.1),
        ((-0.1, "ok"), (0.1, "ok"), (0.55, "ok"), (0.45, "ok"), (0.08 / 3, "ok"), (-1, "ok")),
    ),
    "a missing score": Case(
        "good bad film", (0.1, nan, 0), everywhere("undefined: 1 of 3 scores are not finite")
    ),
    "infinite scores": Case(
        "good bad film", (inf, -inf, 0), everywhere("undefined: 2 of 3 scores are not finite")
    ),
    "answers that are no numbers": Case(
        "good film",
        (0.1, 0),
        ((0.1, "ok"), NOT_FINITE, NOT_FINITE, NOT_FINITE, NOT_FINITE, NOT_FINITE),
        broken_without_film,
    ),
    "infinite answers, so raw": Case(
        "good film",
        (0.1, 0),
        (NOT_FINITE, (0, "ok"), NOT_FINITE, (0.575, "ok"), NOT_FINITE, NOT_FINITE),
        endless,
    ),
    "no answer at all": Case("good film", (0.1, 0), (NOT_FINITE,) * 6, silent),
    "punctuation only": Case(
        "!!!",
        (0,),
        (
            (0, "constant model"),
            (0, "constant model"),
            (0.5, "constant model"),
            (0.5, "constant model"),
            (0, "constant model"),
            (nan, "undefined: one unit has no subsets"),
        ),
    ),
    "a token that is not there": Case(
        "good film",
        (0.1, 0),
        everywhere("error: In the attributions of text 'own': Got the token 'bad', not found"),
        tokens=("good", "bad"),
    ),
    "a target that is none": Case(
        "good film", (0.1, 0), everywhere("error: Got target='yes'; expected one of"), target="yes"
    ),
    "a blank text": Case(
        " ",
        (0.1,),
        everywhere("error: In the attributions of text 'own': Got an empty text"),
        tokens=("good",),
    ),
}


@cache
def measured(name: str) -> pd.DataFrame:
    """The case among a sound text, without which nothing at all could be measured."""
    case = CASES[name]
    tokens = case.tokens or tuple(case.text.split())
    sound = pd.DataFrame({"token": ["good", "film"], "score": [0.1, 0.0], "text_id": "sound"})
    own = pd.DataFrame({"token": tokens, "score": case.scores, "text_id": "own", "target": case.target})
    found = faithfulness(
        case.model,
        {"sound": "good film", "own": case.text},
        pd.concat([sound, own]),
        space="probability",
    )
    return found[found["text"] == "own"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", CASES)
def test_the_value_is_defined_and_the_status_says_why_not(name: str, metric: str) -> None:
    value, status = CASES[name].expected[list(HEADLINES).index(metric)]
    found = measured(name).query("metric == @metric and setting == @HEADLINES[@metric]")
    assert len(found) == 1
    assert found["value"].item() == pytest.approx(value, abs=1e-12, nan_ok=True)
    assert found["status"].item().startswith(status)


@pytest.mark.parametrize("name", CASES)
def test_what_is_undefined_is_counted(name: str) -> None:
    found = measured(name)
    counts = summary(found)
    assert (counts["n_undefined"] == counts["median"].isna()).all()
    assert (counts["n_texts"] + counts["n_undefined"] == 1).all()
    assert (found["value"].isna() == found["status"].str.contains("undefined|error")).all()


def test_saturated_probabilities_are_clipped_and_say_so() -> None:
    def certain(texts: list[str]) -> list[float]:
        return [float("good" in text) for text in texts]

    table = pd.DataFrame({"token": ["good", "film"], "score": [1.0, 0.0]})
    found = faithfulness(certain, "good film", table, metrics="comprehensiveness")
    assert found.query("space == 'logit'")["status"].unique().tolist() == ["clipped"]
    assert found.query("space == 'probability'")["status"].unique().tolist() == ["ok"]
    assert found.query("space == 'logit' and setting == 'aopc'")["value"].item() == pytest.approx(
        27.631, abs=1e-3
    )


def test_units_beyond_the_window_are_left_out() -> None:
    """The second of two words is never masked and never ranked."""

    class Windowed:
        fingerprint = "windowed"
        mask_token = None

        def score(self, inputs: list[str]) -> object:
            import numpy as np

            from piste.sampling.models.protocol import Scores

            seen = [text[:4] for text in inputs]
            return Scores(np.array(additive(seen))[:, None], ("p",), "probability")

        def token_spans(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text))]

        def seen_until(self, parts: list[str]) -> tuple[int, ...]:
            return tuple(min(4, len(part)) for part in parts)

    table = pd.DataFrame({"token": ["good", "bad"], "score": [0.1, 5.0]})
    found = faithfulness(Windowed(), "good bad", table, space="probability")
    assert set(found["n_units"]) == {1}
    assert found.query("metric == 'comprehensiveness'")["value"].tolist() == pytest.approx([0.1] * 6)
