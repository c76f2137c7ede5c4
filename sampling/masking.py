"""Turn masks into the texts that the model is asked about."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from piste._errors import InputError
from piste._typing import BoolArray
from piste.sampling.models.protocol import BlackBox, Tokenizing
from piste.sampling.records import Hidden, Query, Text, Units

_RESERVED = ("remove", "mask-token", "attention")


@dataclass(frozen=True)
class Masking:
    """How a hidden unit is shown to the model.

    Parameters
    ----------
    name
        What the user asked for, as recorded with the results.
    substitute
        What stands in the unit's place; ``""`` deletes it. None leaves the text whole and hides the
        unit from attention.
    """

    name: str
    substitute: str | None


def choose_masking(masking: str, model: BlackBox | None = None) -> Masking:
    """The masking that a word or a replacement string names.

    Parameters
    ----------
    masking
        ``"remove"`` deletes hidden units, ``"mask-token"`` puts the model's own mask token in their
        place, ``"attention"`` keeps the text and hides the units from attention, where the model can;
        any other string is itself put in their place. To put one of these three words into the text,
        build ``Masking(name, substitute)``.
    model
        Needed for ``"mask-token"`` only.

    Raises
    ------
    InputError
        If the string is empty or one of the three words misspelt, or the model has no mask token.

    Examples
    --------
    >>> choose_masking("remove")
    Masking(name='remove', substitute='')
    >>> choose_masking("[UNK]")
    Masking(name='[UNK]', substitute='[UNK]')
    """
    if not isinstance(masking, str) or any("\ud800" <= character <= "\udfff" for character in masking):
        raise InputError(
            f"Got masking={masking!r}; expected 'remove', 'mask-token', 'attention' or a string of valid "
            "Unicode to put in a unit's place."
        )
    if masking == "remove":
        return Masking(masking, "")
    if masking == "attention":
        return Masking(masking, None)
    if masking == "mask-token":
        return Masking(masking, _mask_token(model))
    _refuse_slips(masking)
    return Masking(masking, masking)


def render(units: Units, masks: BoolArray, masking: Masking, context: str | None = None) -> list[Query]:
    """The query that shows each mask to the model.

    Parameters
    ----------
    units
        What is masked; the text between them is the same in every query.
    masks
        Shape (n_masks, n_seen), bool: one column per unit that the model sees, True keeps it.
    masking
        How a hidden unit is shown.
    context
        A template with ``{text}`` once; the rest of it surrounds the text of every query and is never
        masked. Other braces mean themselves.

    Returns
    -------
    list of Query
        One per mask; where the mask keeps everything, the very text.

    Raises
    ------
    InputError
        If the masks do not fit the units, or the context does not fit the text.

    Examples
    --------
    >>> from piste.sampling.segment import segment
    >>> masks = np.array([[True, True, True], [True, False, True]])
    >>> render(segment("A gripping film."), masks, choose_masking("…"))
    ['A gripping film.', 'A … film.']
    """
    n_seen = int(units.seen.sum())
    if masks.ndim != 2 or masks.dtype != np.bool_ or masks.shape[1] != n_seen:
        raise InputError(
            f"Got masks of shape {masks.shape} and type {masks.dtype}; expected a boolean array "
            f"(n_masks, {n_seen}). Give one column per unit that the model sees."
        )
    prefix, suffix = split_context(context, units.text)
    whole = units.text if isinstance(units.text, tuple) else prefix + units.text + suffix
    if masking.substitute is None:
        masked = _hidden(units, masks, whole, len(prefix))
    else:
        masked = _substituted(units, masks, masking.substitute, prefix, suffix)
    queries = list(masked)
    for row in np.flatnonzero(masks.all(axis=1)):
        queries[row] = whole
    return queries


def split_context(context: str | None, text: Text) -> tuple[str, str]:
    """What stands before and after the explained text.

    Raises
    ------
    InputError
        If the context lacks ``{text}``, has it more than once, or is meant to surround a pair.

    Examples
    --------
    >>> split_context('Review: {text} {"label":', "A gripping film.")
    ('Review: ', ' {"label":')
    """
    if context is None:
        return "", ""
    if isinstance(text, tuple):
        raise InputError(
            "Got a context for a pair of texts; expected one text. Leave it out, or write it into the "
            "texts and give spans of what to explain."
        )
    if context.count("{text}") != 1:
        raise InputError(
            f"Got a context with '{{text}}' in {context.count('{text}')} places; expected one. "
            "Write {text} where the explained text belongs."
        )
    prefix, _, suffix = context.partition("{text}")
    return prefix, suffix


def _hidden(units: Units, masks: BoolArray, whole: Text, shift: int) -> Iterable[Query]:
    """The whole text with the spans that get no attention; the model itself cuts at its window."""
    columns = (units.segments, units.starts + shift, units.ends + shift)
    spans = list(zip(*(column[units.seen].tolist() for column in columns), strict=True))
    return (Hidden(whole, tuple(compress(spans, row))) for row in ~masks)


def _substituted(
    units: Units, masks: BoolArray, substitute: str, prefix: str, suffix: str
) -> Iterable[Query]:
    """The texts with the substitute in place of hidden units."""
    # A shorter text would let the model's window reach words that it does not see in the full text, and
    # their effect would pass for that of the words removed. So what the window cuts off, from the first
    # unseen unit on and with it the end of the context, is left out of every masked query.
    ending = suffix if units.seen.all() else ""
    texts = [_masked_parts(units, segment, masks, substitute) for segment in range(len(units.parts))]
    if isinstance(units.text, tuple):
        return zip(*texts, strict=True)
    return (prefix + text + ending for text in texts[0])


def _masked_parts(units: Units, segment: int, masks: BoolArray, substitute: str) -> Iterable[str]:
    """One of the texts under each mask."""
    part = units.parts[segment]
    here = units.segments == segment
    starts = units.starts[here & units.seen].tolist()
    ends = units.ends[here & units.seen].tolist()
    cut = units.starts[here & ~units.seen].min(initial=len(part))
    edges = [0, *ends]
    befores, last = edges[:-1], edges[-1]
    shown = _strings(part[before:end] for before, end in zip(befores, ends, strict=True))
    hidden = _strings(
        part[before:start] + substitute for before, start in zip(befores, starts, strict=True)
    )
    after = part[last:cut]
    return ("".join(np.where(row, shown, hidden)) + after for row in masks[:, here[units.seen]])


def _strings(strings: Iterable[str]) -> NDArray[np.object_]:
    """An array of references to Python's own strings."""
    return np.array(list(strings), dtype=np.object_)


def _mask_token(model: BlackBox | None) -> str:
    """The model's own mask token."""
    token = model.mask_token if isinstance(model, Tokenizing) else None
    if not token:
        raise InputError(
            "Got masking='mask-token' for a model without a known mask token; expected one whose "
            "tokenizer has it. Use masking='remove' or a replacement string such as '…'."
        )
    return token


def _refuse_slips(masking: str) -> None:
    """Raise if a replacement string can hardly be meant as one."""
    if not masking:
        raise InputError("Got an empty masking; expected a replacement string. Use 'remove' to delete.")
    meant = masking.strip().lower().replace("_", "-").replace(" ", "-")
    if meant in _RESERVED:
        raise InputError(f"Got masking={masking!r}; expected {meant!r} or other text. Use {meant!r}.")
