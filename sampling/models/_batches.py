"""Batches of similar lengths, bounded by tokens, and the padded arrays that a model takes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from piste._typing import BoolArray, IntArray
from piste.sampling.models.protocol import Scores

WINDOW = 1024  # inputs cut into tokens at a time: what bounds the memory of a long list of them

# Padded tokens in one forward pass. On a processor a layer's activations should stay in the cache: with the
# embedded model and a MiniLM 512 to 1,024 took 10 to 30 % less time than 4,096 and more, texts of 25 and 100
# words alike, and 256 no less than 512. An accelerator needs many to be busy.
CPU_TOKENS = 512
ACCELERATOR_TOKENS = 32_768


@dataclass(frozen=True)
class Rows:
    """Inputs as a tokenizer gave them, one list per input.

    Parameters
    ----------
    ids
        Token ids, special ones included.
    attended
        1 for a token that gets attention, else 0; None where all do.
    type_ids
        The segment of each token, where the model is told.
    """

    ids: Sequence[Sequence[int]]
    attended: Sequence[Sequence[int]] | None
    type_ids: Sequence[Sequence[int]] | None

    @property
    def lengths(self) -> IntArray:
        """Shape (n_inputs,), int64: how many tokens each input has."""
        return np.fromiter(map(len, self.ids), np.int64, len(self.ids))

    def take(self, positions: Sequence[int] | IntArray) -> "Rows":
        """Some of the inputs, in this order."""

        def taken(rows: Sequence[Sequence[int]] | None) -> Sequence[Sequence[int]] | None:
            return None if rows is None else [rows[position] for position in positions]

        return Rows([self.ids[at] for at in positions], taken(self.attended), taken(self.type_ids))


def length_sorted(lengths: IntArray, *, most_tokens: int, most_rows: int) -> Iterator[IntArray]:
    """Positions in batches, longest first, each with at most so many tokens, padding included.

    Parameters
    ----------
    lengths
        Shape (n_inputs,), int64, tokens of each input.
    most_tokens
        Bounds ``n_rows * longest`` of a batch; a longer input stands alone.
    most_rows
        Bounds the inputs of a batch.

    Examples
    --------
    >>> batches = length_sorted(np.array([2, 9, 3, 3]), most_tokens=9, most_rows=64)
    >>> [batch.tolist() for batch in batches]
    [[1], [2, 3, 0]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        n_rows = most_tokens // max(int(lengths[order[start]]), 1)
        batch = order[start : start + min(max(n_rows, 1), most_rows)]
        yield batch
        start += len(batch)


def in_order(batches: Iterable[tuple[IntArray, Scores]], n_inputs: int) -> Scores:
    """All answers of a model that makes its own batches, in the order of its inputs."""
    positions, answers = zip(*batches, strict=True)
    first: Scores = answers[0]
    values = np.empty((n_inputs, len(first.labels)))
    values[np.concatenate(positions)] = np.concatenate([each.values for each in answers])
    return Scores(values, first.labels, first.kind)


@dataclass(frozen=True)
class Padding:
    """How a model wants rows of unequal length made rectangular.

    Parameters
    ----------
    pad_id, pad_type_id
        What fills ``input_ids`` and ``token_type_ids``; without a ``pad_id`` only batches of one fit.
    blank_id
        The one token that stands for an input without any: a Transformer cannot take none.
    on_the_left
        Whether the filling comes first.
    """

    pad_id: int | None
    pad_type_id: int = 0
    blank_id: int | None = None
    on_the_left: bool = False

    def batches(self, lengths: IntArray, *, most_tokens: int, most_rows: int) -> Iterator[IntArray]:
        """As :func:`length_sorted`; each input alone where the model takes padding for text."""
        most_rows = 1 if self.pad_id is None else most_rows
        return length_sorted(lengths, most_tokens=most_tokens, most_rows=most_rows)

    def arrays(self, rows: Rows) -> dict[str, IntArray]:
        """The model's inputs by name, each of shape (n_inputs, longest), int64."""
        ids, attended, type_ids = rows.ids, rows.attended, rows.type_ids
        if self.blank_id is not None and not all(ids):
            ids = [row or [self.blank_id] for row in ids]
            attended = None if attended is None else [row or [1] for row in attended]
            type_ids = None if type_ids is None else [row or [0] for row in type_ids]
        filled = self._filled(Rows(ids, None, None).lengths)
        arrays = {
            "input_ids": _rectangle(ids, filled, self.pad_id or 0),
            "attention_mask": filled.astype(np.int64)
            if attended is None
            else _rectangle(attended, filled, 0),
        }
        if type_ids is not None:
            arrays["token_type_ids"] = _rectangle(type_ids, filled, self.pad_type_id)
        return arrays

    def _filled(self, lengths: IntArray) -> BoolArray:
        """Where the tokens stand, shape (n_inputs, longest)."""
        columns = np.arange(lengths.max(initial=0))
        if self.on_the_left:
            columns = columns[::-1]
        filled: BoolArray = columns < lengths[:, np.newaxis]
        return filled


def _rectangle(rows: Sequence[Sequence[int]], filled: BoolArray, fill: int) -> IntArray:
    array = np.full(filled.shape, fill, np.int64)
    array[filled] = np.fromiter(chain.from_iterable(rows), np.int64)
    return array
