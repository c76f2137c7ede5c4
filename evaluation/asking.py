"""A model with everything that decides how masked texts are put to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray
from piste.evaluation.explanations import Explanation
from piste.evaluation.inputs import with_answers_kept
from piste.sampling.collect import Answers, Memory, collect
from piste.sampling.masking import Masking, choose_masking, render
from piste.sampling.models import load_model
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Query, Text, Units
from piste.sampling.segment import segment
from piste.sampling.store import AnswerStore
from piste.surrogates.preparation import entropy

PARTIAL = "partial word"
"""The flag of a text in which a token starts or ends inside a word."""


@dataclass(frozen=True)
class Asking:
    """How masked texts are put to a model; see `piste.explain` for each option."""

    model: BlackBox
    masking: Masking
    context: str | None
    batch_size: int
    budget: int | None
    memories: dict[str, Memory] = field(default_factory=dict)

    def units(self, explanation: Explanation, text: Text) -> Units:
        """The units that an explanation scores, found in the text.

        Raises
        ------
        InputError
            If the spans do not fit the text, or the tokens are not in it in their order.
        """
        return explained_units(explanation, text, self.model, self.context)

    def queries(self, units: Units, masks: BoolArray) -> list[Query]:
        """The text under each mask of its seen units."""
        return render(units, masks, self.masking, self.context)

    def answers(self, queries: Sequence[Query], text_id: str) -> Answers:
        """What the model answers; each distinct query of a text is asked once until it is forgotten.

        Raises
        ------
        InputError
            If there are more distinct new queries than the budget; nothing is asked then.
        ModelError
            If the model fails.
        """
        return collect(
            self.model,
            queries,
            store=self.memories.setdefault(text_id, Memory()),
            batch_size=self.batch_size,
            max_queries=self.budget,
        )

    def forget(self, text_id: str) -> None:
        """Free the answers about a text."""
        self.memories.pop(text_id, None)


@contextmanager
def asking(
    model: object,
    *,
    masking: str = "remove",
    context: str | None = None,
    batch_size: int = 64,
    budget: int | None = None,
    store: str | PathLike[str] | AnswerStore | None = None,
) -> Iterator[Asking]:
    """Load a model and keep its answers in a store, as `piste.explain` does, while it is being asked."""
    box = load_model(model)
    chosen = choose_masking(masking, box)
    with with_answers_kept(box, store) as kept:
        yield Asking(kept, chosen, context, batch_size, budget)


def explained_units(
    explanation: Explanation,
    text: Text,
    model: BlackBox | None = None,
    context: str | None = None,
) -> Units:
    """The units that an explanation scores, found in the text by their spans or else by their tokens.

    Raises
    ------
    InputError
        If they do not fit the text; the message names it.

    >>> bad = Explanation("0", "", "lime", "score", "", None, ("film", "bad"), np.array([0.0, 1.0]))
    >>> explained_units(bad, "A film, bad.").starts.tolist()
    [2, 8]
    """
    try:
        return _units(explanation, text, model, context)
    except InputError as error:
        raise InputError(f"In the attributions of text {explanation.text_id!r}: {error}") from error


def cuts_words(explanation: Explanation, units: Units) -> bool:
    """Whether a token that was given without its offsets starts or ends inside a word, as "grippin" does.

    >>> part = Explanation("0", "", "lime", "score", "", None, ("grippin",), np.array([1.0]))
    >>> cuts_words(part, explained_units(part, "A gripping film."))
    True
    """
    if explanation.spans is not None:
        return False
    words = segment(units.text)
    edges = np.concatenate([units.starts, units.ends])[:, None]
    return bool(((words.starts < edges) & (edges < words.ends)).any())


def _units(explanation: Explanation, text: Text, model: BlackBox | None, context: str | None) -> Units:
    pair = isinstance(text, tuple)
    if explanation.spans is not None:
        given = explanation.spans if pair else [span[1:] for span in explanation.spans]
        if not pair and any(segment_ for segment_, _, _ in explanation.spans):
            raise InputError("Got units of a second text; expected those of one. Give the pair.")
        return segment(text, given, model=model, context=context)
    if isinstance(text, tuple):
        raise InputError(
            "Got attributions without start and end for a pair of texts; expected 'segment', 'start' "
            "and 'end' of each unit."
        )
    _refuse_unfound(explanation.tokens, text)
    units = segment(text, lambda _: explanation.tokens, model=model, context=context)
    if units.n_units != len(explanation.scores):
        raise InputError(
            f"Got {len(explanation.scores)} scores for {units.n_units} tokens that are not blank; "
            "expected one each. Leave blank tokens out, or give 'start' and 'end'."
        )
    return units


def _refuse_unfound(tokens: Sequence[str], text: str) -> None:
    """An error where a token is not in the text after those before it."""
    position = 0
    for token in filter(str.strip, tokens):
        start = text.find(token, position)
        if start < 0 and text.strip():
            raise InputError(
                f"Got the token {token!r}, not found in {text[position : position + 40]!r}; expected exact "
                "pieces of the text in reading order. Sort the rows, undo changes of case and marks such as "
                "'##', or give 'start' and 'end'."
            )
        position = start + len(token)


def text_generator(seed: int, text: Text, use: str) -> np.random.Generator:
    """A generator that depends on the seed, the text and the use alone, so all methods get the same."""
    return np.random.default_rng(entropy(seed, (text, use)))
