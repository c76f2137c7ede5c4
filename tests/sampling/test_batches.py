"""Batches of similar lengths: every input once, within bounds, padded as it must be."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from piste._errors import ModelError
from piste.sampling.collect import collect
from piste.sampling.models import BlackBox, load_model
from piste.sampling.models._batches import CPU_TOKENS, Padding, Rows, length_sorted
from piste.sampling.models.protocol import Batching
from piste.sampling.records import Hidden, Query

TEXTS: list[Query] = [f"a {'good ' * (n % 9)}film {'bad ' * (n % 4)}" for n in range(40)]


@given(st.lists(st.integers(0, 40)), st.integers(1, 100), st.integers(1, 9))
def test_batches_hold_every_input_once_within_bounds(
    lengths: list[int], most_tokens: int, most_rows: int
) -> None:
    of = np.array(lengths, dtype=np.int64)
    batches = list(length_sorted(of, most_tokens=most_tokens, most_rows=most_rows))
    positions = np.concatenate([*batches, np.zeros(0, np.int64)])
    assert sorted(positions.tolist()) == list(range(len(of)))
    assert (np.diff(of[positions]) <= 0).all()
    for batch in batches:
        assert len(batch) <= most_rows
        assert len(batch) == 1 or of[batch].max() * len(batch) <= most_tokens


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6), st.booleans())
def test_arrays_hold_the_rows_and_padding(ids: list[list[int]], on_the_left: bool) -> None:
    padding = Padding(pad_id=77, pad_type_id=5, blank_id=8, on_the_left=on_the_left)
    told = padding.arrays(Rows(ids, None, [[1] * len(row) for row in ids]))
    marked = padding.arrays(Rows(ids, [[1] * len(row) for row in ids], None))
    np.testing.assert_array_equal(told["attention_mask"], marked["attention_mask"])
    assert "token_type_ids" not in marked
    for at, row in enumerate(ids):
        row = row or [8]
        attended = told["attention_mask"][at]
        expected = [1] * len(row) + [0] * (len(attended) - len(row))
        assert attended.tolist() == (expected[::-1] if on_the_left else expected)
        assert told["input_ids"][at][attended == 1].tolist() == row
        assert (told["input_ids"][at][attended == 0] == 77).all()
        assert (told["token_type_ids"][at][attended == 0] == 5).all()


@pytest.fixture(scope="module", params=["hf", "onnx"])
def model(request: pytest.FixtureRequest, tiny_bert_dir: Path, tiny_onnx_dir: Path) -> BlackBox:
    """One adapter after the other, of the same model."""
    return load_model(f"hf:{tiny_bert_dir}" if request.param == "hf" else f"onnx:{tiny_onnx_dir}")


def test_batches_of_a_model_are_its_answers(model: BlackBox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(model, Batching)
    monkeypatch.setattr(f"{type(model).__module__}.WINDOW", 30)
    queries = [*TEXTS, Hidden("a good film", ((0, 2, 6),))] * 2
    alone = np.concatenate([model.score([query]).values for query in queries[:41]])
    seen = []
    for positions, scores in model.score_batches(queries, 7):
        assert len(positions) == len(scores.values) <= 7
        np.testing.assert_allclose(scores.values, alone[positions % 41], atol=1e-5)
        seen += positions.tolist()
    assert sorted(seen) == list(range(len(queries)))
    np.testing.assert_allclose(model.score(queries[:41]).values, alone, atol=1e-5)


def test_collect_lets_the_model_make_its_batches(model: BlackBox) -> None:
    steps: list[int] = []
    answers = collect(model, TEXTS, batch_size=5, progress=lambda done, _: steps.append(done))
    assert answers.n_queries == steps[-1] == len(set(TEXTS))
    assert max(np.diff([0, *steps])) <= 5
    np.testing.assert_allclose(answers.values, model.score(TEXTS).values, atol=1e-5)


def test_a_batch_is_bounded_by_tokens(model: BlackBox) -> None:
    assert isinstance(model, Batching)
    long = ["film " * 20] * 100  # the window of the tiny model is 16 tokens
    sizes = [len(positions) for positions, _ in model.score_batches(long, 100)]
    assert max(sizes) == CPU_TOKENS // 16


def test_an_error_names_its_own_batch(model: BlackBox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("lost")

    monkeypatch.setattr(model, "_logits", fail)
    with pytest.raises(ModelError, match=r"raised OSError: lost .*a batch of 1 that starts with 'bad"):
        model.score(["bad"])
