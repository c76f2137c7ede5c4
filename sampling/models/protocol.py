"""What piste needs from a model: one method, and for some features a tokenizer's knowledge."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from piste._errors import ModelError
from piste._typing import FloatArray, IntArray
from piste.sampling.records import OutputKind, Query


@dataclass(frozen=True)
class Scores:
    """A model's answers to a batch of inputs.

    Parameters
    ----------
    values
        Shape (n_inputs, n_outputs), float64.
    labels
        One name per output.
    kind
        ``logit`` (one-vs-rest log-odds of each label), ``probability`` or ``raw``.
    """

    values: FloatArray
    labels: tuple[str, ...]
    kind: OutputKind

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.labels):
            raise ModelError(
                f"Got scores of shape {self.values.shape} for {len(self.labels)} labels; expected "
                "(n_inputs, n_labels)."
            )
        if len(set(self.labels)) < len(self.labels):
            raise ModelError(
                f"Got the labels {', '.join(map(repr, self.labels))}; expected a name of its own for "
                "each output. Rename them."
            )


@runtime_checkable
class BlackBox(Protocol):
    """A model that can be asked; stores, retries, limits and counters wrap it with the same method."""

    @property
    def fingerprint(self) -> str:
        """What identifies the model: equal fingerprints answer equal inputs equally."""
        ...

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer a batch; a query of a kind that the model cannot take raises InputError."""
        ...


@runtime_checkable
class Streaming(BlackBox, Protocol):
    """A black box that hands answers over as they come, so that nothing waits for a batch's slowest."""

    def stream(self, inputs: Sequence[Query]) -> Iterator[tuple[slice, Scores]]:
        """Each part of the inputs with its answers, in any order, every input once."""
        ...


@runtime_checkable
class Batching(BlackBox, Protocol):
    """A black box that makes its own batches: it knows which inputs are of similar length."""

    def score_batches(self, inputs: Sequence[Query], most: int) -> Iterator[tuple[IntArray, Scores]]:
        """Positions among the inputs with their answers, at most so many at once, every input once."""
        ...


@runtime_checkable
class Tokenizing(Protocol):
    """A model that knows its own subwords; needed for token units, mask tokens and window flags."""

    @property
    def mask_token(self) -> str | None:
        """The tokenizer's own mask token as text, or None where it has none."""
        ...

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets of each subword of one segment, without special tokens, never truncated."""
        ...

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment, the character offset from which the model's window cuts the text off.

        The segment's length where all of it is seen.
        """
        ...
