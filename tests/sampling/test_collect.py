from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling.collect import Memory, collect, stderr_progress
from piste.sampling.models import BlackBox, CallableModel, Scores
from piste.sampling.records import Hidden, OutputKind, Query

WORDS = [f"w{number}" for number in range(12)]
MASKED = [
    " ".join(w for w, keep in zip(WORDS, mask, strict=True) if keep)
    for mask in product([0, 1], repeat=12)
]


class Recorder:
    """A model that remembers what it was asked, and answers with lengths."""

    fingerprint = "recorder"

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: list[list[Query]] = []
        self.fail_at = fail_at

    def score(self, inputs: Sequence[Query]) -> Scores:
        if len(self.batches) == self.fail_at:
            raise OSError("connection lost")
        self.batches.append(list(inputs))
        return Scores(np.array([[float(len(str(text)))] for text in inputs]), ("length",), "raw")

    @property
    def asked(self) -> list[Query]:
        return [query for batch in self.batches for query in batch]


def test_batches_and_budget() -> None:  # T13, R59, R35
    model = Recorder()
    queries = MASKED[:200] * 2
    answers = collect(model, queries, batch_size=16, max_queries=200)
    assert max(map(len, model.batches)) <= 16
    assert len(model.asked) == len(set(model.asked)) == answers.n_queries == 200


@pytest.mark.parametrize("budget", [0, -5, 11])
def test_insufficient_budget_asks_nothing(budget: int) -> None:  # T13, R34
    model = Recorder()
    message = f"Got a budget of {budget} queries for 12 distinct texts; expected at least 12"
    with pytest.raises(InputError, match=message):
        collect(model, WORDS, max_queries=budget)
    assert model.batches == []


def test_rows_come_in_the_order_of_the_queries() -> None:
    queries = ["aaa", "a", "aaaa", "a", "aa"]
    answers = collect(Recorder(), queries, batch_size=2)
    assert answers.values.ravel().tolist() == [3, 1, 4, 1, 2]
    assert (answers.labels, answers.kind, answers.n_queries) == (("length",), "raw", 4)
    assert answers.values.dtype == np.float64


def test_longest_first_and_stable() -> None:
    model = Recorder()
    pair, hidden = ("aaa", "aaa"), Hidden("aaaa", ((0, 0, 2),))
    collect(model, ["b", "a", "cc", pair, hidden, "bb"], batch_size=3)
    assert model.batches == [[pair, hidden, "cc"], ["bb", "b", "a"]]


def test_hidden_spans_make_distinct_queries() -> None:
    queries: list[Query] = [
        Hidden("ab", ((0, 0, 1),)),
        Hidden("ab", ((0, 1, 2),)),
        "ab",
        Hidden("ab", ((0, 0, 1),)),
    ]
    assert collect(Recorder(), queries).n_queries == 3


def test_known_answers_are_not_asked_again() -> None:
    memory = Memory()
    first = collect(Recorder(), ["a", "bb"], store=memory)
    model = Recorder()
    again = collect(model, ["bb", "a"], store=memory, max_queries=0)
    assert model.batches == []
    assert again.n_queries == 0
    np.testing.assert_array_equal(again.values, first.values[::-1])
    assert (again.labels, again.kind) == (first.labels, first.kind)


def test_an_error_later_loses_no_answer() -> None:
    memory = Memory()
    with pytest.raises(
        ModelError, match=r"raised OSError: connection lost .*starts with 'w6'"
    ) as caught:
        collect(Recorder(fail_at=2), WORDS, store=memory, batch_size=4)
    assert isinstance(caught.value.__cause__, OSError)
    model = Recorder()
    assert collect(model, WORDS, store=memory).n_queries == 4
    assert len(model.asked) == 4


def test_progress_changes_nothing() -> None:
    silent, shown = Recorder(), Recorder()
    steps: list[tuple[int, int]] = []
    without = collect(silent, WORDS, batch_size=5)
    with_hook = collect(
        shown, WORDS, batch_size=5, progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(5, 12), (10, 12), (12, 12)]
    assert shown.batches == silent.batches
    assert with_hook.values.tobytes() == without.values.tobytes()


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_progress_bar_goes_to_a_terminal_on_stderr_only(
    terminal: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    with stderr_progress("Asking") as progress:
        collect(Recorder(), WORDS, progress=progress)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("Asking" in shown.err) == (terminal == "1")
    assert shown.err == "" or terminal == "1"


def test_non_finite_answers_are_kept_and_shown() -> None:  # R41
    model = CallableModel(
        lambda texts: [[np.nan, 1.0] if "b" in text else [1.0, 2.0] for text in texts]
    )
    answers = collect(model, ["a", "a b", "b", "a b"])
    assert answers.n_non_finite == 3
    assert answers.example_non_finite == "a b"
    assert np.isnan(answers.values[:, 0]).tolist() == [False, True, True, True]
    fine = collect(model, ["a"])
    assert (fine.n_non_finite, fine.example_non_finite) == (0, None)


class Scripted:
    """A model that gives prepared answers, one per batch."""

    fingerprint = "scripted"

    def __init__(self, *answers: Scores) -> None:
        self.answers = list(answers)

    def score(self, inputs: Sequence[Query]) -> Scores:
        return self.answers.pop(0)


def scores(n_rows: int, labels: tuple[str, ...] = ("x",), kind: OutputKind = "raw") -> Scores:
    values: FloatArray = np.full((n_rows, len(labels)), 2.0)
    return Scores(values, labels, kind)


def test_row_count_is_checked_at_once() -> None:  # R51
    with pytest.raises(ModelError, match="returned 1 rows for 2 texts; expected one each"):
        collect(Scripted(scores(1)), ["a", "b"])


@pytest.mark.parametrize("second", [scores(1, ("x", "y")), scores(1, ("z",)), scores(1, kind="logit")])
def test_outputs_may_not_change_between_batches(second: Scores) -> None:
    with pytest.raises(ModelError, match=r"batch that starts with 'b'; expected x \(raw\) as before"):
        collect(Scripted(scores(1), second), ["a", "b"], batch_size=1)


def test_outputs_must_be_those_of_the_store() -> None:
    memory = Memory()
    collect(Scripted(scores(1)), ["a"], store=memory)
    with pytest.raises(ModelError, match="Use another store for another model"):
        collect(Scripted(scores(1, ("z",))), ["b"], store=memory)


def test_declared_probabilities_lie_in_the_unit_interval() -> None:
    with pytest.raises(
        ModelError, match=r"the probability 2\.0 in a batch .*; expected numbers in \[0, 1\]"
    ):
        collect(Scripted(scores(1, kind="probability")), ["a"])
    model = CallableModel(lambda texts: np.array([1.0000001, np.nan, 0.0]), kind="probability")
    assert collect(model, ["a", "b", "c"]).n_non_finite == 1


def test_impossible_requests() -> None:
    with pytest.raises(InputError, match="Got no queries; expected at least one"):
        collect(Recorder(), [])
    with pytest.raises(InputError, match="Got batch_size=0; expected at least 1"):
        collect(Recorder(), ["a"], batch_size=0)


def test_own_black_boxes_need_no_base_class() -> None:
    assert isinstance(Recorder(), BlackBox)
