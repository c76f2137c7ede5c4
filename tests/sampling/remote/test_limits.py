import time

import pytest

from piste._errors import ModelError
from piste.sampling.models.endpoint import retry_after
from piste.sampling.models.limits import Batch, Gate, Limits, Price, Tokens


def test_requests_are_evenly_spaced(waits: list[float]) -> None:
    gate = Gate(Limits(rpm=60), clock=lambda: 100.0)
    for _ in range(4):
        gate.enter(Tokens(0, 0))
    assert waits == [1.0, 2.0, 3.0]


def test_tokens_hold_the_next_request_back(waits: list[float]) -> None:
    gate = Gate(Limits(tpm=600), clock=lambda: 0.0)
    for sent, answered in ((10, 20), (5, 0), (1, 0)):
        gate.enter(Tokens(sent, answered))
    assert waits == [3.0, 3.5]


def test_both_limits_on_a_real_clock() -> None:
    gate = Gate(Limits(rpm=3000, tpm=1e9))
    start = time.monotonic()
    for _ in range(6):
        gate.enter(Tokens(1, 1))
    assert time.monotonic() - start >= 5 * 0.02  # five gaps after the first request


def test_costs_under_way_count(waits: list[float]) -> None:
    gate = Gate(Limits(price=Price(request=1.0), max_cost=2.0))
    gate.enter(Tokens(0, 0))
    gate.enter(Tokens(0, 0))
    with pytest.raises(ModelError, match="0 so far, 2 under way, about 1 for the next"):
        gate.enter(Tokens(0, 0))
    gate.leave(Tokens(0, 0), None)
    gate.enter(Tokens(0, 0))


def test_nothing_under_way_costs_nothing() -> None:
    gate = Gate(Limits(price=Price(input=1e6), max_cost=1))
    first, second = Tokens(0.1, 0), Tokens(0.3, 0)
    gate.enter(first)
    gate.enter(second)
    gate.leave(first, None)
    gate.leave(second, None)
    # In floating point a + b - a - b is not 0 here.
    a, b = gate.limits.tariff.of(first), gate.limits.tariff.of(second)
    assert a + b - a - b != 0
    with pytest.raises(ModelError, match="0 so far, 0 under way"):
        gate.enter(Tokens(2, 0))


def test_a_wait_beyond_the_deadline_is_refused_at_once() -> None:
    gate = Gate(Limits(rpm=1, max_seconds=5), clock=lambda: 0.0)
    gate.enter(Tokens(0, 0))
    with pytest.raises(ModelError, match="time budget of 5 seconds"):
        gate.enter(Tokens(0, 0))
    assert gate.usage.n_requests == 1


def test_halting_ends_the_waits_of_a_batch_and_of_those_within_alone() -> None:
    gate, outer, other = Gate(Limits()), Batch(), Batch()
    with outer.worked_for(), Batch().begun() as inner:
        gate.enter(Tokens(0, 0))
    with outer.worked_for(), Batch().begun() as inner:
        outer.halt()
        with Batch().begun() as late:
            assert late.halted.is_set()
    for batch in (outer, inner):
        with (
            batch.worked_for(),
            pytest.raises(ModelError, match="another one of the same batch failed"),
        ):
            gate.enter(Tokens(0, 0))
    with other.worked_for():
        gate.enter(Tokens(0, 0))
    gate.enter(Tokens(0, 0))  # of no batch


@pytest.mark.parametrize("header", [None, "soon", "", "-3", "inf", "nan", "Mon, 99 Foo"])
def test_retry_after_without_a_time(header: str | None) -> None:
    assert retry_after(header) == 0
