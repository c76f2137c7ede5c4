"""Black boxes that answer from a store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock

import numpy as np

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling._store_database import AnswerStore
from piste.sampling.models._foreign import abbreviated
from piste.sampling.models.protocol import BlackBox, Scores, Tokenizing
from piste.sampling.records import OutputKind, Query


class Stored:
    """A model that is asked only what the store does not know; threads can share it.

    The answers to a batch are committed as soon as it returns. An input that two threads need at once
    is asked once. Where answers cannot be written, they are kept in memory, and nothing more is asked
    until they could be.

    Parameters
    ----------
    model
        The model to ask.
    store
        Where its answers are kept.
    output
        The output kind asked for, where the model's fingerprint does not tell it.
    """

    def __init__(
        self, model: BlackBox, store: AnswerStore, *, output: OutputKind | None = None
    ) -> None:
        self._model = model
        self._answers = store.of(model.fingerprint, output)
        self._lock = Lock()
        self._in_flight: dict[Query, Event] = {}
        self._unwritten: list[tuple[Sequence[Query], Scores]] = []
        self._n_asked = self._n_known = 0

    @property
    def fingerprint(self) -> str:
        """That of the model."""
        return self._model.fingerprint

    @property
    def n_asked(self) -> int:
        """How many queries the model has answered by now."""
        return self._n_asked

    @property
    def n_known(self) -> int:
        """How many distinct queries of each batch needed no asking, since the store knew them."""
        return self._n_known

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch from the store, and the rest of it by the model.

        Raises
        ------
        InputError
            If the store cannot be read or written.
        ModelError
            If the model's rows, labels or kind are not those expected.
        """
        distinct = list(dict.fromkeys(inputs))
        n_asked, waiting = 0, True
        while waiting:  # again, as whoever was waited for may have failed
            with self._claimed(distinct) as (mine, theirs):
                if mine:
                    self._ask(mine)
                    n_asked += len(mine)
            for event in theirs:
                event.wait()
            waiting = bool(theirs)
        with self._lock:
            self._n_known += len(distinct) - n_asked
        return _from_store(self._answers.get(inputs), self._answers.labels, self._answers.kind)

    @contextmanager
    def _claimed(self, queries: Sequence[Query]) -> Iterator[tuple[list[Query], set[Event]]]:
        """Of what is not known, what to ask here, and what to wait for because others are asking it."""
        done = Event()
        with self._lock:
            self._write()  # refuses before paying for what could not be kept
            rows = self._answers.get(queries)
            unknown = [query for query, row in zip(queries, rows, strict=True) if row is None]
            theirs = {self._in_flight[query] for query in unknown if query in self._in_flight}
            mine = [query for query in unknown if query not in self._in_flight]
            self._in_flight.update(dict.fromkeys(mine, done))
        try:
            yield mine, theirs
        finally:
            with self._lock:
                for query in mine:
                    del self._in_flight[query]
            done.set()

    def _ask(self, queries: Sequence[Query]) -> None:
        scores = self._model.score(queries)
        if len(scores.values) != len(queries):
            raise ModelError(
                f"The model returned {len(scores.values)} rows for {len(queries)} texts; expected one "
                "each."
            )
        with self._lock:
            self._n_asked += len(queries)
            self._unwritten.append((queries, scores))
            self._write()

    def _write(self) -> None:
        while self._unwritten:
            try:
                self._answers.put(*self._unwritten[0])
            except ModelError:  # answers of another model: nothing to keep for later
                del self._unwritten[0]
                raise
            del self._unwritten[0]


class StoredTokenizing:
    """A :class:`Stored` model that knows its own tokens.

    Parameters
    ----------
    stored
        The model with its store.
    tokens
        The model itself.
    """

    def __init__(self, stored: Stored, tokens: Tokenizing) -> None:
        self._stored = stored
        self._tokens = tokens

    @property
    def fingerprint(self) -> str:
        """That of the model."""
        return self._stored.fingerprint

    @property
    def n_asked(self) -> int:
        """As for :class:`Stored`."""
        return self._stored.n_asked

    @property
    def n_known(self) -> int:
        """As for :class:`Stored`."""
        return self._stored.n_known

    @property
    def mask_token(self) -> str | None:
        """The model's own mask token."""
        return self._tokens.mask_token

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch as :meth:`Stored.score` does."""
        return self._stored.score(inputs)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets of each subword of one segment, as the model gives them."""
        return self._tokens.token_spans(text)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment the offset where the model's window ends, or its length."""
        return self._tokens.seen_until(parts)


def with_store(
    model: BlackBox, store: AnswerStore, *, output: OutputKind | None = None
) -> Stored | StoredTokenizing:
    """The model with a store, still knowing its tokens if it does."""
    stored = Stored(model, store, output=output)
    return StoredTokenizing(stored, model) if isinstance(model, Tokenizing) else stored


class StoredOnly:
    """A model of which there is nothing but stored answers.

    It has no tokenizer: explain with the units, masking, design, budget and seed of the run that stored
    them.

    Parameters
    ----------
    store
        Where the answers are.
    fingerprint
        Whose answers.
    output
        The output kind asked for, if that was given when they were stored.

    Attributes
    ----------
    n_known
        How many queries it has answered by now.

    Raises
    ------
    InputError
        If the store has no answer of that model.
    """

    def __init__(
        self, store: AnswerStore, fingerprint: str, *, output: OutputKind | None = None
    ) -> None:
        self.n_known = 0
        self._path = store.path
        self._fingerprint = fingerprint
        self._answers = store.of(fingerprint, output)
        if self._answers.labels is None:
            raise InputError(
                f"Got the model '{fingerprint}'; the store '{store.path}' has answers of "
                f"{listed(store)}. Choose one of them."
            )

    @property
    def fingerprint(self) -> str:
        """That of the model whose answers these are."""
        return self._fingerprint

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch from the store.

        Raises
        ------
        ModelError
            If an answer is missing.
        """
        rows = self._answers.get(inputs)
        missing = [query for query, row in zip(inputs, rows, strict=True) if row is None]
        if missing:
            raise ModelError(
                f"Got {len(missing)} of {len(inputs)} texts without a stored answer, first "
                f"{abbreviated(missing[0])}; expected all of them in '{self._path}', as there is no "
                "model to ask. Explain the same texts with the options and seed of the run that stored the "
                "answers, or with the model."
            )
        self.n_known += len(rows)
        return _from_store(rows, self._answers.labels, self._answers.kind)


def _from_store(
    rows: Sequence[FloatArray | None], labels: tuple[str, ...] | None, kind: OutputKind | None
) -> Scores:
    if labels is None or kind is None or any(row is None for row in rows):
        raise InputError(
            "Got a store that lost answers while it was used; expected nobody to delete them. Run "
            "again."
        )
    return Scores(np.stack([row for row in rows if row is not None]), labels, kind)


def listed(store: AnswerStore) -> str:
    """The models of a store, for messages."""
    return ", ".join(f"'{model.fingerprint}'" for model in store.models()) or "no model"
