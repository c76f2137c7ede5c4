"""What a remote model may be asked, how fast and for how much; one gate that every request passes."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Event, Lock

from piste._errors import InputError, ModelError

_logger = logging.getLogger(__name__)

MILLION = 1_000_000
_KEPT = "Where there is a store it has what was answered."


@dataclass(frozen=True)
class Price:
    """What a request costs, in any one currency.

    Parameters
    ----------
    input, output
        Per million tokens sent, and per million tokens answered.
    request
        Per request, on top.

    >>> Price(input=0.5, output=1.5).of(Tokens(1_000_000, 500_000))
    1.25
    """

    input: float = 0.0
    output: float = 0.0
    request: float = 0.0

    def of(self, tokens: "Tokens", n_requests: int = 1) -> float:
        """The cost of that many tokens in that many requests."""
        return (
            self.input * tokens.input / MILLION
            + self.output * tokens.output / MILLION
            + self.request * n_requests
        )


@dataclass(frozen=True)
class Tokens:
    """How many tokens are sent and answered; an estimate is a fourth of the characters."""

    input: float
    output: float


@dataclass(frozen=True)
class Limits:
    """How a remote model is asked.

    Parameters
    ----------
    concurrency
        The most requests under way at a time.
    timeout
        Seconds until a request that is not answered counts as lost.
    retries
        How often a request is sent again after a passing failure.
    rpm, tpm
        The most requests, and tokens, per minute; sent evenly spaced. None for no limit.
    max_cost
        No request is sent that could take the cost above this; needs a price.
    max_seconds
        No request is sent later than this after the first one.
    price
        A :class:`Price`, or a sequence of its numbers: per million input tokens, per million output
        tokens, per request.
    """

    concurrency: int = 8
    timeout: float = 60.0
    retries: int = 6
    rpm: float | None = None
    tpm: float | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    price: Price | Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.price is not None and not isinstance(self.price, Price):
            object.__setattr__(self, "price", _price(self.price))
        for name, least in (("concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"Got {name}={value!r}; expected a whole number of at least {least}.")
        for name in ("timeout", "rpm", "tpm", "max_cost", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"Got {name}={value!r}; expected a number above 0.")
        if self.max_cost is not None and self.tariff == Price():
            raise InputError(
                f"Got max_cost={self.max_cost} without a price; expected price=(per million input "
                "tokens, per million output tokens), in the same currency."
            )

    @property
    def tariff(self) -> Price:
        """The price; nothing where none was given."""
        return self.price if isinstance(self.price, Price) else Price()


@dataclass(frozen=True)
class Usage:
    """What a model has been asked so far.

    Parameters
    ----------
    n_requests
        Requests sent, those that failed and were sent again included.
    input_tokens, output_tokens
        As the server counted them; a fourth of the characters where it did not.
    cost
        At the price given, 0 without one. A request that broke off is counted, as it may be billed.
    n_bounded
        Labels that the server left out, whose score is therefore only an upper bound.
    """

    n_requests: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    cost: float = 0.0
    n_bounded: int = 0


class Batch:
    """Requests that are given up together, and with them those of batches begun on their behalf."""

    def __init__(self) -> None:
        self.halted = Event()
        self._within: set[Batch] = set()
        self._lock = Lock()

    def halt(self) -> None:
        """End the requests that wait; those under way are still answered."""
        with self._lock:
            self.halted.set()
            within = list(self._within)
        for batch in within:
            batch.halt()

    @contextmanager
    def begun(self) -> Iterator["Batch"]:
        """Within the block this batch is part of the one that the thread works for."""
        outer = _OWN_BATCH.get()
        if outer is not None:
            with outer._lock:
                outer._within.add(self)
                if outer.halted.is_set():
                    self.halted.set()
        try:
            yield self
        finally:
            if outer is not None:
                with outer._lock:
                    outer._within.discard(self)

    @contextmanager
    def worked_for(self) -> Iterator[None]:
        """What this thread asks within the block belongs to the batch."""
        before = _OWN_BATCH.set(self)
        try:
            yield
        finally:
            _OWN_BATCH.reset(before)


_OWN_BATCH: ContextVar[Batch | None] = ContextVar("own_batch", default=None)
"""The batch that a thread works for; None outside any, where nothing is ever given up."""


class Gate:
    """Shared by all requests of one model, from any thread: rates, budgets, the circuit breaker.

    Parameters
    ----------
    limits
        What to keep to.
    clock
        Seconds that only grow.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = Lock()
        self._refusal: str | None = None
        self._usage = Usage()
        self._reserved, self._n_reserved = 0.0, 0
        self._deadline: float | None = None
        self._next_request = self._next_tokens = float("-inf")

    @property
    def usage(self) -> Usage:
        """What has been asked so far."""
        with self._lock:
            return self._usage

    def enter(self, tokens: Tokens) -> None:
        """Wait for a request's turn and reserve its cost.

        Raises
        ------
        ModelError
            If a budget is spent or the circuit is broken; nothing may be sent then.
        """
        with self._lock:
            self._check(tokens)
            if self._deadline is None and self.limits.max_seconds is not None:
                self._deadline = self._clock() + self.limits.max_seconds
            self._reserved += self.limits.tariff.of(tokens)
            self._n_reserved += 1
            start = max(self._clock(), self._next_request, self._next_tokens)
            if self.limits.rpm is not None:
                self._next_request = start + 60 / self.limits.rpm
            if self.limits.tpm is not None:
                self._next_tokens = start + 60 * (tokens.input + tokens.output) / self.limits.tpm
        try:
            self.sleep(start - self._clock())
        except ModelError:
            self.leave(tokens, None)
            raise
        with self._lock:
            self._usage = replace(self._usage, n_requests=self._usage.n_requests + 1)

    def leave(self, reserved: Tokens, billed: Tokens | None) -> None:
        """Exchange a request's reservation for what it used; None where the server did no work."""
        tariff = self.limits.tariff
        with self._lock:
            self._n_reserved -= 1
            # Sums and differences leave rounding errors; what is under way never costs less than nothing.
            left = self._reserved - tariff.of(reserved)
            self._reserved = max(left, 0.0) if self._n_reserved else 0.0
            if billed is not None:
                self._usage = replace(
                    self._usage,
                    input_tokens=self._usage.input_tokens + billed.input,
                    output_tokens=self._usage.output_tokens + billed.output,
                    cost=self._usage.cost + tariff.of(billed),
                )

    def sleep(self, seconds: float) -> None:
        """Wait, unless that ends after the time budget or the request's batch is halted."""
        if seconds > 0 and self._is_late(seconds):
            raise ModelError(self._out_of_time())
        batch = _OWN_BATCH.get()
        halted = Event() if batch is None else batch.halted
        if seconds > 0:
            halted.wait(seconds)
        if halted.is_set():
            raise ModelError("The request was not sent: another one of the same batch failed.")

    def break_circuit(self, message: str) -> None:
        """Refuse every further request with this message."""
        with self._lock:
            if self._refusal is None:
                self._refusal = message
                _logger.info("Nothing more is sent: %s", message)

    def note_bounded(self, n_labels: int) -> None:
        """Count labels whose score is only an upper bound."""
        with self._lock:
            self._usage = replace(self._usage, n_bounded=self._usage.n_bounded + n_labels)

    def _check(self, tokens: Tokens) -> None:
        if self._refusal is not None:
            raise ModelError(self._refusal)
        if self._is_late(0):
            raise ModelError(self._out_of_time())
        spent = self._usage.cost + self._reserved
        cost = self.limits.tariff.of(tokens)
        if self.limits.max_cost is not None and spent + cost > self.limits.max_cost:
            raise ModelError(
                f"The cost budget of {self.limits.max_cost:g} is spent: {self._usage.cost:.6g} so far, "
                f"{self._reserved:.6g} under way, about {cost:.6g} for the next request. Raise "
                f"max_cost to go on. {_KEPT}"
            )

    def _is_late(self, seconds: float) -> bool:
        return self._deadline is not None and self._clock() + seconds > self._deadline

    def _out_of_time(self) -> str:
        return (
            f"The time budget of {self.limits.max_seconds:g} seconds is spent. Raise max_seconds to go on. "
            f"{_KEPT}"
        )


def _price(numbers: object) -> Price:
    try:
        price = Price(*map(float, numbers))  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Got price={numbers!r}; expected up to three numbers: per million input tokens, per "
            "million output tokens, per request."
        ) from error
    if not all(number >= 0 for number in (price.input, price.output, price.request)):
        raise InputError(f"Got price={numbers!r}; expected no negative number.")
    return price
