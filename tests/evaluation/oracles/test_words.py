"""Oracles that are formulas: what they claim to be known, checked against the models themselves."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piste import InputError
from piste._typing import FloatArray
from piste.evaluation.oracles import Known, Oracle, linear_oracle, pair_oracle, slalom_oracle
from piste.evaluation.oracles.records import PAIRS, enumerated, enumerated_truth
from piste.sampling.models.protocol import BlackBox

TEXTS = ("good bad good film not", "a", "film not bad")
WORDS = ("good", "bad", "film", "not", "a")
NUMBERS = dict(zip(WORDS, (1.5, -2.0, 0.25, -0.5, 3.0), strict=True))
IMPORTANCES = dict(zip(WORDS, (0.5, -1.0, 0.0, 2.0, -0.25), strict=True))
PAIRED = {("not", "good"): -3.0, ("bad", "film"): 0.5, ("film", "not"): 1.25}

ORACLES: dict[str, Callable[[], Oracle]] = {
    "linear": lambda: linear_oracle(NUMBERS, 0.75, texts=TEXTS),
    "slalom": lambda: slalom_oracle(NUMBERS, IMPORTANCES, empty=0.3, texts=TEXTS),
    "background": lambda: slalom_oracle(NUMBERS, IMPORTANCES, (0.3, 1.0), texts=TEXTS),
    "pairs": lambda: pair_oracle(NUMBERS, PAIRED, texts=("good bad film not", "film", "not good")),
}


def answers(oracle: Oracle, *texts: str) -> FloatArray:
    return oracle.model.score(texts).values[:, 0]


def known(oracle: Oracle, surrogate: str, kind: str) -> tuple[FloatArray, ...]:
    (found,) = (each for each in oracle.truth if (each.surrogate, each.kind) == (surrogate, kind))
    return found.answers


@pytest.mark.parametrize("name", ORACLES)
def test_what_is_known_agrees_with_the_answers_to_every_mask(name: str) -> None:
    oracle = ORACLES[name]()
    for measured in enumerated_truth(oracle.model, oracle.texts):
        claimed = known(oracle, measured.surrogate, measured.kind)
        for found, expected in zip(claimed, measured.answers, strict=True):
            # Sums of 2^5 answers below 10.
            np.testing.assert_allclose(found, expected, atol=32 * 10 * 1e-15)


@pytest.mark.parametrize("name", ORACLES)
def test_equal_parameters_are_one_model_and_others_another(name: str) -> None:
    oracle, again = ORACLES[name](), ORACLES[name]()
    assert isinstance(oracle.model, BlackBox)
    assert oracle.model.fingerprint == again.model.fingerprint
    assert len({make().model.fingerprint for make in ORACLES.values()}) == len(ORACLES)
    np.testing.assert_array_equal(answers(oracle, *TEXTS), answers(again, *TEXTS))


def test_a_linear_model_adds_up() -> None:
    oracle = ORACLES["linear"]()
    found = answers(oracle, "", "unheard", "good", "good good a")
    np.testing.assert_array_equal(found, [0.75, 0.75, 2.25, 6.75])
    for effects in (known(oracle, "lime", "coefficient"), known(oracle, "shap", "shapley")):
        np.testing.assert_array_equal(effects[0], [1.5, -2.0, 1.5, 0.25, -0.5])


@pytest.mark.parametrize("name", ["slalom", "background"])
def test_a_slalom_takes_no_notice_of_order_or_unknown_words(name: str) -> None:
    oracle = ORACLES[name]()
    # Sums of three products, in another order.
    np.testing.assert_allclose(answers(oracle, "not a bad"), answers(oracle, "bad not x a"), rtol=1e-14)
    assert answers(oracle, "", "unheard of").tolist() == [0.3, 0.3]


def test_a_repeated_word_changes_nothing_without_a_background_and_pulls_with_one() -> None:
    plain, background = ORACLES["slalom"](), ORACLES["background"]()
    np.testing.assert_allclose(answers(plain, "a", "a a a", "a " * 30), 3.0, rtol=1e-15)
    assert (np.diff(answers(background, "a", "a a a", "a " * 30)) > 0.1).all()


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-20, 20))
def test_importances_are_known_up_to_a_constant(shift: float) -> None:
    oracle = slalom_oracle(NUMBERS, IMPORTANCES)
    moved = slalom_oracle(NUMBERS, {word: s + shift for word, s in IMPORTANCES.items()})
    for one, other in zip(oracle.truth, moved.truth, strict=True):
        # Adding the shift rounds importances by 20 eps = 4e-15, each weight by as much.
        np.testing.assert_allclose(one.answers[0], other.answers[0], rtol=1e-12, atol=1e-12)
    assert abs(known(oracle, "slalom", "importance")[0].mean()) < 1e-15


def test_pairs_count_once_and_in_either_order() -> None:
    oracle = pair_oracle(NUMBERS, PAIRED)
    swapped = pair_oracle(NUMBERS, {(b, a): weight for (a, b), weight in PAIRED.items()})
    assert oracle.model.fingerprint == swapped.model.fingerprint
    np.testing.assert_array_equal(answers(oracle, "not good", "good good not"), [-2.0, -2.0])
    pairs = known(oracle, "interactions", PAIRS)[0]
    assert sorted(pairs[pairs != 0].tolist()) == [-3.0, 0.5, 1.25]


def test_an_oracle_says_who_must_be_exact() -> None:
    assert ORACLES["linear"]().exact == {"lime", "shap", "interactions"}
    assert ORACLES["slalom"]().exact == {"slalom", "shap", "interactions"}
    assert ORACLES["pairs"]().exact == {"shap", "interactions"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: slalom_oracle(NUMBERS, {"good": 0.0}), "expected both for the same words"),
        (
            lambda: slalom_oracle(NUMBERS, IMPORTANCES, texts=["good x"]),
            r"\['x'\], which have no value",
        ),
        (lambda: pair_oracle(NUMBERS, {("a", "a"): 1.0}), "two different words each"),
        (lambda: pair_oracle(NUMBERS, {("a", "bad"): 1.0, ("bad", "a"): 1.0}), "each, once"),
        (lambda: pair_oracle(NUMBERS, {}, texts=["a a"]), "repeats a word"),
        (lambda: linear_oracle(NUMBERS, texts=[]), "without texts"),
        (lambda: linear_oracle(NUMBERS, texts=["a-b"]), r"Got \[1\] numbers for lime coefficient"),
        (lambda: Known("lime", "coefficient", (), "sometimes"), "Got exact='sometimes'"),  # type: ignore[arg-type]
        (lambda: enumerated(linear_oracle(NUMBERS).model, "a " * 13), "13 words; expected at most 12"),
    ],
)
def test_what_cannot_be_known_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
