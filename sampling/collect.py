"""Ask a model: the only place that does, so that batches, budget and answers are kept in one way."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling.models._foreign import abbreviated, model_errors
from piste.sampling.models.protocol import Batching, BlackBox, Scores, Streaming
from piste.sampling.records import Hidden, OutputKind, Query

_logger = logging.getLogger(__name__)

_ROUNDING = 1e-6  # how far a sum of float32 probabilities may leave [0, 1]

Progress = Callable[[int, int], None]
"""Called after each batch with how many queries are done, and how many there are."""


class Store(Protocol):
    """Where one model's answers are kept."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the outputs kept; None while there are none."""
        ...

    @property
    def kind(self) -> OutputKind | None:
        """What the numbers kept are; None while there are none."""
        ...

    def get(self, queries: Sequence[Query]) -> list[FloatArray | None]:
        """The row of each query, shape (n_outputs,), or None where it has not been asked."""
        ...

    def put(self, queries: Sequence[Query], scores: Scores) -> None:
        """Keep a batch of answers, one row per query."""
        ...


class Memory:
    """Answers kept as long as this object lives.

    >>> memory = Memory()
    >>> memory.put(["a film"], Scores(np.array([[0.5]]), ("good",), "probability"))
    >>> memory.get(["a film", "a"])
    [array([0.5]), None]
    """

    def __init__(self) -> None:
        self._rows: dict[Query, FloatArray] = {}
        self._labels: tuple[str, ...] | None = None
        self._kind: OutputKind | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the outputs kept; None while there are none."""
        return self._labels

    @property
    def kind(self) -> OutputKind | None:
        """What the numbers kept are; None while there are none."""
        return self._kind

    def get(self, queries: Sequence[Query]) -> list[FloatArray | None]:
        """The row of each query, shape (n_outputs,), or None where it has not been asked."""
        return [self._rows.get(query) for query in queries]

    def put(self, queries: Sequence[Query], scores: Scores) -> None:
        """Keep a batch of answers, one row per query."""
        self._labels, self._kind = scores.labels, scores.kind
        self._rows.update(zip(queries, scores.values, strict=True))


@dataclass(frozen=True)
class Answers:
    """What a model answered to a list of queries.

    Parameters
    ----------
    values
        Shape (n_queries_given, n_outputs), float64, in the order of the queries; NaN and infinity kept.
    labels
        One name per output.
    kind
        What the values are.
    n_queries
        Distinct queries that the model was asked now; the others were known or repeated.
    example_non_finite
        One query answered with NaN or infinity, if there is any.
    """

    values: FloatArray
    labels: tuple[str, ...]
    kind: OutputKind
    n_queries: int
    example_non_finite: Query | None

    @property
    def n_non_finite(self) -> int:
        """How many rows have a NaN or infinite output."""
        return int((~np.isfinite(self.values)).any(axis=1).sum())


def collect(
    model: BlackBox,
    queries: Sequence[Query],
    *,
    store: Store | None = None,
    batch_size: int = 64,
    max_queries: int | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Ask a model each distinct query that is not known yet, longest first, in batches.

    Parameters
    ----------
    model
        The black box.
    queries
        At least one; repeated ones are asked once.
    store
        Answers known from before; new ones are put there batch by batch, so that an error later loses
        nothing. None starts without any.
    batch_size
        The most queries in one call of the model. One that streams its answers is called once; one that
        knows its tokens makes smaller batches, of similar lengths, where that is faster.
    max_queries
        The most queries to ask now; None for no limit.
    progress
        Called after each batch; without any influence on queries, batches or values.

    Raises
    ------
    InputError
        If there are no queries, ``batch_size`` is below 1 or ``max_queries`` does not suffice; nothing
        is asked then.
    ModelError
        If the model raises, or answers with another number of rows, other labels or another kind.

    Examples
    --------
    >>> from piste.sampling.models.callable import CallableModel
    >>> model = CallableModel(lambda texts: [len(text) for text in texts])
    >>> answers = collect(model, ["a", "film", "a"])
    >>> answers.values.ravel().tolist(), answers.n_queries
    ([1.0, 4.0, 1.0], 2)
    """
    store = Memory() if store is None else store
    distinct = list(dict.fromkeys(queries))
    known = store.get(distinct)
    rows = {query: row for query, row in zip(distinct, known, strict=True) if row is not None}
    new = sorted((query for query in distinct if query not in rows), key=_length, reverse=True)
    _check_request(distinct, new, batch_size, max_queries)
    n_done = 0
    with closing(_answered(model, new, batch_size)) as answered:
        for batch, scores in answered:
            _check_answers(batch, scores, store)
            store.put(batch, scores)
            rows.update(zip(batch, scores.values, strict=True))
            n_done += len(batch)
            if progress is not None:
                progress(n_done, len(new))
    _logger.debug("Asked %d of %d queries, the others were known.", len(new), len(queries))
    assert store.labels is not None
    assert store.kind is not None
    non_finite = (query for query in distinct if not np.isfinite(rows[query]).all())
    return Answers(
        np.stack([rows[query] for query in queries], dtype=np.float64),
        store.labels,
        store.kind,
        len(new),
        next(non_finite, None),
    )


@contextmanager
def stderr_progress(description: str = "Asking the model") -> Iterator[Progress]:
    """A progress bar on stderr as the hook of :func:`collect`; gone when done, absent in a log file."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show


def _length(query: Query) -> int:
    text = query.text if isinstance(query, Hidden) else query
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _check_request(
    distinct: Sequence[Query], new: Sequence[Query], batch_size: int, max_queries: int | None
) -> None:
    if not distinct:
        raise InputError("Got no queries; expected at least one text to ask the model for.")
    if batch_size < 1:
        raise InputError(f"Got batch_size={batch_size}; expected at least 1.")
    if max_queries is not None and len(new) > max_queries:
        raise InputError(
            f"Got a budget of {max_queries} queries for {len(new)} distinct texts; expected at least "
            f"{len(new)}. Raise the budget or draw fewer masks."
        )


def _answered(
    model: BlackBox, queries: Sequence[Query], batch_size: int
) -> Generator[tuple[Sequence[Query], Scores], None, None]:
    """Each batch with its answers; a model that streams has no batches, and no pause between them."""
    if isinstance(model, Batching):
        for positions, scores in model.score_batches(queries, batch_size):
            yield [queries[position] for position in positions], scores
        return
    if isinstance(model, Streaming) and queries:
        with model_errors(queries):
            for part, scores in model.stream(queries):
                yield queries[part], scores
        return
    for start in range(0, len(queries), batch_size):
        batch = queries[start : start + batch_size]
        with model_errors(batch):
            scores = model.score(batch)
        yield batch, scores


def _check_answers(batch: Sequence[Query], scores: Scores, store: Store) -> None:
    if len(scores.values) != len(batch):
        raise ModelError(
            f"The model returned {len(scores.values)} rows for {len(batch)} texts; expected one each."
        )
    if store.labels is not None and (scores.labels, scores.kind) != (store.labels, store.kind):
        raise ModelError(
            f"The model returned {', '.join(scores.labels)} ({scores.kind}) for a batch that starts "
            f"with {abbreviated(batch[0])}; expected {', '.join(store.labels)} ({store.kind}) as "
            "before. Use another store for another model; the outputs must not depend on the texts."
        )
    finite = scores.values[np.isfinite(scores.values)]
    outside = finite[(finite < -_ROUNDING) | (finite > 1 + _ROUNDING)]
    if scores.kind == "probability" and outside.size:
        raise ModelError(
            f"The model returned the probability {outside[0]} in a batch that starts with "
            f"{abbreviated(batch[0])}; expected numbers in [0, 1]. Declare kind='logit' or kind='raw'."
        )
