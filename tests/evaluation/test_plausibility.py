"""Agreement of scores with flags and of rankings with one another: by hand, scikit-learn, scipy, properties."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import f1_score, precision_score, recall_score

from piste._errors import InputError
from piste.evaluation import plausibility as p

FLAGS = st.lists(st.booleans(), min_size=2, max_size=12)
SIX = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]), min_size=6, max_size=6)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_ranking_by_hand() -> None:
    """Marked units at ranks 1 and 3 of 4: AP = (1 + 2/3) / 2, 3 of 4 pairs right."""
    flags, scores = np.array([True, False, True, False]), np.array([4.0, 3.0, 2.0, 1.0])
    found = p.ranking_agreement(flags, scores)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["roc_auc"] == pytest.approx(3 / 4)
    # Recall 0, 1/2, 1/2, 1, 1 with precision 1, 1, 1/2, 2/3, 1/2.
    assert found["auprc"] == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)


@pytest.mark.parametrize("flags", [[False, False], [True, True], []])
def test_one_class_has_no_ranking(flags: list[bool]) -> None:
    with pytest.raises(InputError, match="one class"):
        p.ranking_agreement(np.array(flags, dtype=bool), np.zeros(len(flags)))


@settings(max_examples=25, deadline=None)
@given(FLAGS, st.integers(0, 5))
def test_ranking_depends_on_the_order_alone(flags: list[bool], seed: int) -> None:
    assume(0 < sum(flags) < len(flags))
    scores, marked = generator(seed).normal(size=len(flags)), np.array(flags)
    one = p.ranking_agreement(marked, scores)
    assert one == pytest.approx(p.ranking_agreement(marked, np.exp(scores)))
    turned = p.ranking_agreement(~marked, -scores)
    assert turned["roc_auc"] == pytest.approx(one["roc_auc"])


@settings(max_examples=25, deadline=None)
@given(FLAGS, FLAGS)
def test_token_agreement_against_scikit_learn(flags: list[bool], chosen: list[bool]) -> None:
    size = min(len(flags), len(chosen))
    one, other = np.array(flags[:size]), np.array(chosen[:size])
    found = p.token_agreement(one, other)
    for name, reference in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert found[f"token_{name}"] == pytest.approx(reference(one, other, zero_division=0.0))


@pytest.mark.parametrize(
    ("human", "chosen", "expected"),
    [
        ([(0, 4)], [(0, 4)], (1, 1)),
        ([(0, 4)], [(0, 2)], (1, 1)),  # half of it
        ([(0, 5)], [(0, 2)], (0, 0)),
        ([(0, 2), (5, 7)], [(0, 2)], (1, 0.5)),
        ([(0, 2)], [(0, 2), (5, 7)], (0.5, 1)),
        ([(0, 4)], [(0, 2), (2, 4)], (1, 1)),  # two hits, one span: recall stays 1
        ([(0, 3), (3, 6)], [(0, 6)], (1, 1)),
        ([], [(0, 1)], (0, 0)),
        ([(0, 1)], [], (0, 0)),
        ([], [], (0, 0)),
        ([(0, 1)], [(1, 2)], (0, 0)),
    ],
)
def test_spans_by_hand(human: list[p.Run], chosen: list[p.Run], expected: tuple[float, float]) -> None:
    found = p.span_agreement(human, chosen)
    assert (found["iou_precision"], found["iou_recall"]) == expected
    assert 0 <= found["iou_f1"] <= 1


RUNS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=6)


@settings(max_examples=25, deadline=None)
@given(RUNS, RUNS)
def test_recall_never_exceeds_one_and_sides_swap(one: list[p.Run], other: list[p.Run]) -> None:
    human, chosen = ([(a, a + length) for a, length in each] for each in (one, other))
    found, turned = p.span_agreement(human, chosen), p.span_agreement(chosen, human)
    assert max(found.values()) <= 1
    assert found["iou_precision"] == turned["iou_recall"]


@settings(max_examples=25, deadline=None)
@given(SIX, SIX)
def test_rank_correlations_against_scipy(one: list[float], other: list[float]) -> None:
    first, second = np.array(one), np.array(other)
    found = p.rank_correlations(first, second)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(list(found.values())).all()
        return
    assert found["spearman"] == pytest.approx(spearmanr(first, second).statistic)
    assert found["kendall"] == pytest.approx(kendalltau(first, second).statistic)


@settings(max_examples=25, deadline=None)
@given(SIX, st.integers(1, 6), st.integers(0, 3))
def test_a_ranking_agrees_with_itself(scores: list[float], n_top: int, seed: int) -> None:
    array = np.array(scores)
    assert p.top_overlap(array, 2 * array, n_top, generator(seed)) == 1
    assert p.sign_agreement(array, 2 * array) == 1
    assert p.sign_agreement(array, -array) == np.mean(array == 0)
    assert p.top_units(array, n_top, generator(seed)).sum() == n_top
