import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from piste._errors import InputError
from piste._typing import FloatArray
from piste.sampling.collect import collect
from piste.sampling.models import CallableModel
from piste.sampling.records import OutputKind
from piste.sampling.space import choose_targets, to_space

MASKED = ["a good film", "a good", "a film", "good film", "a", "good", "film", ""]


def column(*values: float) -> FloatArray:
    return np.array(values)[:, None]


def test_saturated_probabilities_stay_finite_and_are_counted() -> None:  # T07, R29, R30
    model = CallableModel(lambda texts: [float("good" in text) for text in texts])
    answers = collect(model, MASKED)
    for epsilon in (1e-6, 1e-3):
        scores, space, n_clipped, _ = to_space(answers.values, answers.kind, "logit", epsilon)
        assert space == "logit"
        assert n_clipped.tolist() == [8]
        good = np.array(["good" in text for text in MASKED])
        difference = scores[good, 0].min() - scores[~good, 0].max()
        assert difference == pytest.approx(2 * np.log((1 - epsilon) / epsilon), abs=1e-9)
        assert np.ptp(scores[good]) == np.ptp(scores[~good]) == 0


def test_clipping_is_counted_per_output() -> None:
    scores = to_space(np.array([[0.0, 0.5], [1.0, 1.0], [0.5, 0.2]]), "probability")
    assert scores.n_clipped.tolist() == [2, 1]
    assert scores.scores[2] == pytest.approx([0, np.log(0.25)])


def test_labels_are_not_normalised() -> None:  # T09, R48
    def score(texts: list[str]) -> list[list[float]]:
        return [[0.9 if word in text else 0.1 for word in ("you", "silly", "person")] for text in texts]

    answers = collect(CallableModel(score), ["you silly person", "silly person", "you person"])
    assert answers.values[0].sum() > 1
    np.testing.assert_array_equal(
        to_space(answers.values, answers.kind, "probability").scores, answers.values
    )
    expected = np.log(9) * np.array([[1, 1, 1], [-1, 1, 1], [1, -1, 1]])
    np.testing.assert_allclose(to_space(answers.values, answers.kind, "logit").scores, expected)


@pytest.mark.parametrize(
    ("kind", "space", "used", "expected"),
    [
        ("logit", "logit", "logit", 0.25),
        ("logit", "probability", "probability", 1 / (1 + np.exp(-0.25))),
        ("logit", "raw", "raw", 0.25),
        ("probability", "logit", "logit", np.log(1 / 3)),
        ("probability", "probability", "probability", 0.25),
        ("probability", "raw", "raw", 0.25),
        ("raw", "logit", "raw", 0.25),
        ("raw", "probability", "raw", 0.25),
        ("raw", "raw", "raw", 0.25),
        ("unknown", "logit", "logit", np.log(1 / 3)),
        ("unknown", "probability", "probability", 0.25),
        ("unknown", "raw", "raw", 0.25),
    ],
)
def test_every_kind_in_every_space(kind: str, space: str, used: str, expected: float) -> None:
    scores = to_space(column(0.25), kind, space)  # type: ignore[arg-type]
    assert scores.space == used
    assert scores.scores[0, 0] == pytest.approx(expected, rel=1e-15)
    assert scores.n_clipped.tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "space", "slope"),
    [
        ("probability", "logit", 1 / (0.25 * 0.75)),
        ("unknown", "logit", 1 / (0.25 * 0.75)),
        ("logit", "probability", np.exp(0.25) / (1 + np.exp(0.25)) ** 2),
        ("logit", "logit", 1.0),
        ("probability", "probability", 1.0),
        ("raw", "logit", 1.0),
    ],
)
def test_errors_follow_the_slope(kind: OutputKind, space: str, slope: float) -> None:
    found = to_space(column(0.25, np.nan), kind, space, errors=column(0.1, 0.1))
    assert found.errors is not None
    assert found.errors[0, 0] == pytest.approx(0.1 * slope, rel=1e-14)
    step = 1e-6
    ends = to_space(column(0.25 - step, 0.25 + step), kind, space).scores[:, 0]
    assert np.ptp(ends) / (2 * step) == pytest.approx(slope, rel=1e-8)
    assert to_space(column(0.25), kind, space).errors is None


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_undeclared_answers_outside_the_unit_interval_are_raw(value: float) -> None:
    scores = to_space(column(0.5, value, np.nan), "unknown")
    assert scores.space == "raw"
    np.testing.assert_array_equal(scores.scores, column(0.5, value, np.nan))


def test_non_finite_answers_stay_visible() -> None:
    scores = to_space(column(np.nan, np.inf, 0.5), "probability")
    assert np.isnan(scores.scores[:2]).all()
    assert scores.scores[2, 0] == 0
    assert scores.n_clipped.tolist() == [0]
    assert to_space(column(np.nan, 0.5), "unknown").space == "logit"
    assert to_space(column(np.nan), "unknown").space == "raw"


@given(arrays(np.float64, (4, 2), elements=st.floats(1e-5, 1 - 1e-5)))
def test_log_odds_and_back(probabilities: FloatArray) -> None:
    there = to_space(probabilities, "probability", "logit").scores
    back = to_space(there, "logit", "probability").scores
    np.testing.assert_allclose(back, probabilities, rtol=1e-13)


def test_unknown_space_and_epsilon() -> None:
    with pytest.raises(InputError, match="Got space='odds'; expected 'logit', 'probability', 'raw'"):
        to_space(column(0.5), "raw", "odds")
    with pytest.raises(InputError, match=r"Got epsilon=0.5; expected a number between 0 and 0\.5"):
        to_space(column(0.5), "raw", epsilon=0.5)


LABELS = ("north", "east", "2", "west")
SCORES = np.array([0.1, 0.2, 0.6, 0.1])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, [2]),
        (0, [0]),
        (np.int64(3), [3]),
        ("west", [3]),
        ("2", [2]),
        ("3", [3]),
        ("all", [0, 1, 2, 3]),
    ],
)
def test_targets(target: int | str | None, expected: list[int]) -> None:  # T10, R47
    assert choose_targets(SCORES, LABELS, target) == expected


def test_digits_name_a_label_before_they_are_an_index() -> None:
    assert choose_targets(SCORES, ("3", "2", "1", "0"), "3") == [0]
    assert choose_targets(SCORES, ("3", "2", "1", "0"), 3) == [3]


def test_default_target_of_one_column_and_of_no_prediction() -> None:
    assert choose_targets(np.array([-3.0]), ("output",), None) == [0]
    assert choose_targets(np.array([np.nan, -3.0]), ("a", "b"), None) == [1]
    assert choose_targets(np.array([np.nan, np.nan]), ("a", "b"), None) == [0]


@pytest.mark.parametrize("target", ["south", "4", "-1", 4, -1, True, 1.0])
def test_unknown_target_lists_all_names(target: int | str) -> None:  # T10
    message = "expected one of the outputs 0 'north', 1 'east', 2 '2', 3 'west', or 'all'"
    with pytest.raises(InputError, match=message):
        choose_targets(SCORES, LABELS, target)


def test_all_targets_cost_no_extra_queries() -> None:  # T10
    asked: list[str] = []

    def score(texts: list[str]) -> FloatArray:
        asked.extend(texts)
        return np.tile(SCORES, (len(texts), 1))

    answers = collect(CallableModel(score), ["w x y z", "w x", "w x y z"])
    assert choose_targets(answers.values[0], answers.labels, "all") == [0, 1, 2, 3]
    assert len(asked) == answers.n_queries == 2
