"""The nouns of a run: what is explained, which versions of it are asked, what the model answered."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray, IntArray

Text = str | tuple[str, str]
"""One text, or a pair such as (premise, hypothesis)."""

OutputKind = Literal["logit", "probability", "raw", "unknown"]
"""What a model's numbers are.

``logit``: one-vs-rest log-odds of each label, ``log(p / (1 - p))``; ``probability``: in [0, 1], each
label on its own (rows need not sum to one); ``raw``: anything else, such as a regression; ``unknown``:
an undeclared callable, decided from its answers.
"""


@dataclass(frozen=True)
class Hidden:
    """A text that keeps its length while the tokens of some spans get no attention.

    Parameters
    ----------
    text
        The whole, unaltered text.
    spans
        ``(segment, start, end)`` character offsets of what is hidden.
    """

    text: Text
    spans: tuple[tuple[int, int, int], ...]


Query = str | tuple[str, str] | Hidden
"""What a model can be asked."""


@dataclass(frozen=True)
class Units:
    """The parts of one text that are masked as wholes, in reading order.

    Parameters
    ----------
    text
        The original text or pair; every offset indexes it.
    kind
        How it was cut: ``word``, ``token``, ``sentence``, ``spans`` or ``callable``.
    segments
        Shape (n_units,), int64: 0, or 1 for the second text of a pair.
    starts, ends
        Shape (n_units,), int64: character offsets into the unit's own segment, ``start < end``, without
        overlap.
    seen
        Shape (n_units,), bool: False beyond the model's window, where no mask can reach.

    Raises
    ------
    InputError
        If the offsets are empty, out of order, overlapping or outside the text.
    """

    text: Text
    kind: str
    segments: IntArray
    starts: IntArray
    ends: IntArray
    seen: BoolArray

    def __post_init__(self) -> None:
        if not len(self.segments) == len(self.starts) == len(self.ends) == len(self.seen):
            raise InputError("Units need as many segments, starts, ends and seen flags as units.")
        if not np.isin(self.segments, range(len(self.parts))).all():
            raise InputError(
                f"Got segments {np.unique(self.segments).tolist()} of {len(self.parts)} texts; expected 0, "
                "or 1 for the second text of a pair."
            )
        for segment, part in enumerate(self.parts):
            here = self.segments == segment
            start, end = self.starts[here], self.ends[here]
            if (start < 0).any() or (end > len(part)).any() or (start >= end).any():
                raise InputError(
                    f"Got a unit outside its text of {len(part)} characters (or an empty one); "
                    "expected 0 <= start < end <= length. Check the spans."
                )
            if (start[1:] < end[:-1]).any():
                raise InputError(
                    "Got overlapping or unordered units; expected spans in reading order without "
                    "overlap. Sort or merge the spans."
                )

    @property
    def parts(self) -> tuple[str, ...]:
        """The one or two texts that the offsets index."""
        return self.text if isinstance(self.text, tuple) else (self.text,)

    @property
    def n_units(self) -> int:
        """How many units there are, seen or not."""
        return len(self.starts)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Each unit's exact text, ``part[start:end]``."""
        parts = self.parts
        return tuple(
            parts[segment][start:end]
            for segment, start, end in zip(self.segments, self.starts, self.ends, strict=True)
        )


@dataclass(frozen=True)
class Design:
    """Which units each query keeps.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), bool, distinct rows; True keeps the unit.
    name
        The law the masks were drawn from; ``auto`` is recorded as what it chose.
    """

    masks: BoolArray
    name: str

    def __post_init__(self) -> None:
        if self.masks.ndim != 2 or self.masks.dtype != np.bool_:
            raise InputError(
                f"Got masks of shape {self.masks.shape} and type {self.masks.dtype}; expected a "
                "boolean array (n_masks, n_units), True where the unit is kept."
            )
        packed = np.packbits(self.masks, axis=1)
        rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel() if packed.size else packed
        if len(np.unique(rows)) != len(rows):
            raise InputError("Got repeated masks; expected distinct rows. Drop the duplicates.")

    @property
    def n_masks(self) -> int:
        """How many masks there are."""
        return len(self.masks)

    @property
    def n_units(self) -> int:
        """How many units each mask covers."""
        n_units: int = self.masks.shape[1]
        return n_units

    @property
    def exhaustive(self) -> bool:
        """Whether every one of the ``2 ** n_units`` masks is present."""
        return self.n_units < 63 and self.n_masks == 1 << self.n_units


@dataclass(frozen=True)
class Responses:
    """What the model answered to each mask of one text.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), bool.
    values
        Shape (n_masks, n_outputs), float64, in the units that ``kind`` names; as the model gave them,
        so possibly NaN or infinite.
    labels
        One name per output.
    kind
        What the values are.
    n_queries
        Distinct texts that the model was asked for this text; at most the number of masks, since
        different masks can leave the same text.
    example_non_finite
        One masked text that the model answered with NaN or infinity, if there is any.
    """

    masks: BoolArray
    values: FloatArray
    labels: tuple[str, ...]
    kind: OutputKind
    n_queries: int
    example_non_finite: Query | None = None

    def __post_init__(self) -> None:
        if self.masks.shape[0] != self.values.shape[0] or self.values.shape[1] != len(self.labels):
            raise InputError(
                f"Got {self.masks.shape[0]} masks, values of shape {self.values.shape} and "
                f"{len(self.labels)} labels; expected one row per mask and one column per label."
            )

    @property
    def n_non_finite(self) -> int:
        """How many answers had a NaN or infinite output."""
        return int((~np.isfinite(self.values)).any(axis=1).sum())
