"""Wrappers around one remote request, each a black box itself: sent again, side by side, and priced."""

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from piste._errors import InputError, ModelError, PisteWarning
from piste._typing import FloatArray
from piste.sampling.models.endpoint import BrokenAnswerError, TransientError, UnreachedError
from piste.sampling.models.limits import Batch, Gate, Limits, Tokens, Usage
from piste.sampling.models.protocol import BlackBox, Scores
from piste.sampling.records import Hidden, OutputKind, Query, Text

if TYPE_CHECKING:
    from tenacity import RetryCallState

_logger = logging.getLogger(__name__)

BROKEN_ANSWERS = 3  # so many answers that break the contract end a request
STRANGER = 3  # so many attempts at an address that nothing has ever answered at
_BOUNDED = (
    "The model leaves labels out of some answers; their scores are upper bounds there, counted in "
    "model.usage.n_bounded."
)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_LONGEST_RETRY_AFTER = 600.0  # a server that asks for more patience is reported instead


class Request(BlackBox, Protocol):
    """A model whose ``score`` is one request, more or less, and that can tell its size beforehand."""

    @property
    def request_size(self) -> int:
        """The most inputs of one request."""
        ...

    def size(self, inputs: Sequence[Query]) -> tuple[int, Tokens]:
        """How many requests the inputs take, and their tokens; nothing is sent."""
        ...


class Retrying:
    """Sends a request again after a passing failure, later each time.

    Waits half a second, doubled with each failure up to a minute, less a random part of up to a half so
    that requests spread out; never less than the server's Retry-After. After a request has failed for
    good, the next are tried once each until one succeeds: a dead server costs the wait only once.

    Parameters
    ----------
    model
        What sends one request.
    gate
        Its limits say how often; waits end when their batch is halted.
    """

    def __init__(self, model: BlackBox, gate: Gate) -> None:
        self._model = model
        self._gate = gate
        self._down = self._met = False
        self._jitter = random.Random()  # when requests are sent, never what they answer

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return self._model.fingerprint

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch.

        Raises
        ------
        ModelError
            The last failure, and how often the request was sent.
        """
        from tenacity import Retrying as Repeating
        from tenacity import retry_if_exception_type

        n_broken = 0

        def stops(state: "RetryCallState") -> bool:
            nonlocal n_broken
            failure = _failure(state)
            n_broken += isinstance(failure, BrokenAnswerError)
            self._met = self._met or not isinstance(failure, UnreachedError)
            most = 1 if self._down else self._gate.limits.retries + 1
            most = most if self._met else min(most, STRANGER)
            too_long = getattr(failure, "retry_after", 0.0) > _LONGEST_RETRY_AFTER
            return state.attempt_number >= most or n_broken >= BROKEN_ANSWERS or too_long

        repeating = Repeating(
            retry=retry_if_exception_type(TransientError),
            stop=stops,
            wait=self._wait,
            sleep=self._gate.sleep,
            reraise=True,
        )
        try:
            scores = repeating(self._model.score, inputs)
        except TransientError as error:
            self._down = not isinstance(error, BrokenAnswerError)
            n_sent = repeating.statistics["attempt_number"]
            raise ModelError(f"{error} (sent {n_sent} time{'s' if n_sent > 1 else ''})") from error
        self._down, self._met = False, True
        return scores

    def _wait(self, state: "RetryCallState") -> float:
        failure = _failure(state)
        backoff = min(_FIRST_WAIT * 2 ** (state.attempt_number - 1), _LONGEST_WAIT)
        seconds: float = max(
            backoff * self._jitter.uniform(0.5, 1), getattr(failure, "retry_after", 0.0)
        )
        _logger.info("%s Sending it again in %.1f s.", failure, seconds)
        return seconds


class Concurrent:
    """Splits inputs into requests and has several of them under way at a time.

    Which texts share a request, and the order of `score`, depend on the inputs alone. When a request
    fails for good no other of its batch is started; those under way are waited for, so that a store
    inside keeps every answer that was paid for. Threads can share a model: their batches queue up.

    Parameters
    ----------
    model
        What answers one request; called from several threads.
    gate
        The limits, and the count of what is used.
    request_size
        The most inputs of one request.
    size
        The requests and tokens that inputs take.
    senders
        The threads that send requests, where they are another's as well.
    """

    def __init__(
        self,
        model: BlackBox,
        gate: Gate,
        *,
        request_size: int,
        size: Callable[[Sequence[Query]], tuple[int, Tokens]],
        senders: ThreadPoolExecutor | None = None,
    ) -> None:
        self._model = model
        self._gate = gate
        self._request_size = request_size
        self._size = size
        self._senders = senders or ThreadPoolExecutor(gate.limits.concurrency, "piste-request")

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return self._model.fingerprint

    @property
    def usage(self) -> Usage:
        """What the model has been asked so far."""
        return self._gate.usage

    @property
    def limits(self) -> Limits:
        """How the model is asked."""
        return self._gate.limits

    def around(self, wrap: Callable[[BlackBox], BlackBox]) -> "Concurrent":
        """The same model with each request wrapped, as by a store that keeps every answer at once."""
        return Concurrent(
            wrap(self._model),
            self._gate,
            request_size=self._request_size,
            size=self._size,
            senders=self._senders,
        )

    def size(self, inputs: Sequence[Query]) -> tuple[int, Tokens]:
        """How many requests the inputs take, and about how many tokens; nothing is sent."""
        sizes = [self._size(inputs[chunk]) for chunk in self._chunks(inputs)]
        return (
            sum(n_requests for n_requests, _ in sizes),
            Tokens(sum(tokens.input for _, tokens in sizes), sum(tokens.output for _, tokens in sizes)),
        )

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch.

        Raises
        ------
        InputError
            For a query of a kind that the server cannot be sent.
        ModelError
            If a request fails for good, or the requests' answers differ in labels.
        """
        parts = sorted(self.stream(inputs), key=lambda part: int(part[0].start))
        return _joined([scores for _, scores in parts])

    def stream(self, inputs: Sequence[Query]) -> Iterator[tuple[slice, Scores]]:
        """Each request's part of the inputs with its answers, as they come; raises as `score` does."""
        chunks = self._chunks(inputs)
        n_bounded = self.usage.n_bounded
        with Batch().begun() as batch:
            futures = {
                self._senders.submit(self._request, inputs[chunk], batch): chunk
                for chunk in self._order(chunks)
            }
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException as error:
                batch.halt()
                wait([future for future in futures if not future.cancel()])
                if isinstance(error, ModelError):
                    raise ModelError(str(error)) from error
                raise
        if n_bounded == 0 < self.usage.n_bounded:
            warnings.warn(_BOUNDED, PisteWarning, stacklevel=2)

    def _request(self, inputs: Sequence[Query], batch: Batch) -> Scores:
        with batch.worked_for():
            return self._model.score(inputs)

    def _order(self, chunks: list[slice]) -> list[slice]:
        """Which request to start next, where several are under way and their order is anybody's.

        At random: two processes with one store that asked in the same order would ask for the same at
        the same time, all along.
        """
        if self._gate.limits.concurrency == 1:
            return chunks
        return random.Random().sample(chunks, len(chunks))

    def _chunks(self, inputs: Sequence[Query]) -> list[slice]:
        size = self._request_size
        return [slice(start, start + size) for start in range(0, len(inputs), size)]


def remote(model: Request, gate: Gate) -> Concurrent:
    """A model that sends single requests, sent again and side by side as the gate's limits say."""
    return Concurrent(Retrying(model, gate), gate, request_size=model.request_size, size=model.size)


@dataclass(frozen=True)
class Estimate:
    """What explaining would take at most; nothing has been sent.

    Parameters
    ----------
    n_queries, n_requests
        Masked texts, and the requests that carry them.
    input_tokens, output_tokens
        A fourth of the characters of the unmasked requests; masked texts are shorter, and tokenizers
        differ.
    cost
        At the model's price; None where none was given.
    seconds
        What the limit on requests or tokens per minute makes it last at least.
    """

    n_queries: int
    n_requests: int
    input_tokens: float
    output_tokens: float
    cost: float | None
    seconds: float


def estimate(model: Concurrent, texts: Sequence[Text], n_queries: int | Sequence[int]) -> Estimate:
    """What asking about texts would take at most; sends nothing.

    Parameters
    ----------
    model
        A loaded remote model.
    texts
        The unmasked texts, with their context if they have one.
    n_queries
        Queries per text: its budget, or two to the power of its units where that is less.
    """
    per_text = [n_queries] * len(texts) if isinstance(n_queries, int) else list(n_queries)
    n_requests = 0
    sent = answered = 0.0
    for text, n_masks in zip(texts, per_text, strict=True):
        more, tokens = model.size([text] * n_masks)
        n_requests += more
        sent, answered = sent + tokens.input, answered + tokens.output
    limits = model.limits
    minutes = max(
        n_requests / limits.rpm if limits.rpm else 0.0,
        (sent + answered) / limits.tpm if limits.tpm else 0.0,
    )
    cost = limits.tariff.of(Tokens(sent, answered), n_requests) if limits.price is not None else None
    return Estimate(sum(per_text), n_requests, sent, answered, cost, 60 * minutes)


@dataclass(frozen=True)
class Noise:
    """How much a model's answers to one text differ from time to time.

    Parameters
    ----------
    values
        Shape (n_repeats, n_outputs), float64: the answers.
    labels
        One name per output.
    kind
        What the values are.
    """

    values: FloatArray
    labels: tuple[str, ...]
    kind: OutputKind

    @property
    def variance(self) -> FloatArray:
        """Shape (n_outputs,): the unbiased variance of one answer."""
        variance: FloatArray = self.values.var(axis=0, ddof=1)
        return variance

    def ceiling(self, scores: FloatArray) -> FloatArray:
        """The highest R2 that any surrogate can reach: the share of the scores' variance not noise.

        Parameters
        ----------
        scores
            Shape (n_masks, n_outputs), of the same kind.

        Returns
        -------
        Shape (n_outputs,), in [0, 1]; NaN where all scores are equal.
        """
        total = scores.var(axis=0, ddof=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            ceiling: FloatArray = np.clip(1 - self.variance / total, 0, 1)
        return ceiling


def probe_noise(model: BlackBox, text: Query, repeats: int = 10) -> Noise:
    """Ask a model about the same text several times, one request each; ask it without a store.

    Raises
    ------
    InputError
        If ``repeats`` is below 2.
    """
    if repeats < 2:
        raise InputError(f"Got repeats={repeats}; expected at least 2.")
    answers = [model.score([text]) for _ in range(repeats)]
    return Noise(np.concatenate([each.values for each in answers]), answers[0].labels, answers[0].kind)


def plain(query: Query, *, pairs: bool, what: str) -> Text:
    """A query as the text or pair that a server can be sent.

    Raises
    ------
    InputError
        For hidden tokens, or for a pair where ``pairs`` is False.
    """
    if isinstance(query, Hidden):
        raise InputError(
            f"Got masking='attention' for {what}, which takes texts only. Use masking='remove' or a "
            "replacement string."
        )
    if isinstance(query, tuple) and not pairs:
        raise InputError(
            f"Got a pair of texts for {what}, which takes single texts. Join them, or choose a shape "
            "or template that takes pairs."
        )
    return query


def _failure(state: "RetryCallState") -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _joined(parts: Sequence[Scores]) -> Scores:
    first = parts[0]
    for part in parts:
        if (part.labels, part.kind) != (first.labels, first.kind):
            raise ModelError(
                f"The server named the labels {', '.join(part.labels)} in one answer and "
                f"{', '.join(first.labels)} in another; expected the same ones. Pass labels=[...]."
            )
    return Scores(np.concatenate([part.values for part in parts]), first.labels, first.kind)
