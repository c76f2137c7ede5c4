"""What is settled about a text before the model is asked, and what is refused then."""

import hashlib
from collections.abc import Sequence

import numpy as np

from piste._errors import InputError
from piste._typing import IntArray
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Design, Text, Units
from piste.sampling.segment import segment
from piste.surrogates.records import Options

MOST_UNITS = 1500  # minutes and gigabytes begin here


def planned_queries(model: BlackBox, text: Text, options: Options) -> int:
    """The most queries that explaining a text can take, without asking any.

    Raises
    ------
    InputError
        If the text would be refused.
    """
    n_seen = int(units_of(model, text, options).seen.sum())
    return min(options.cap, (1 << n_seen) + options.noise_probe)


def units_of(model: BlackBox, text: Text, options: Options) -> Units:
    """The units of a text, if it is one and they are not too many.

    Raises
    ------
    InputError
        If it cannot be explained.
    """
    _check_text(text)
    units = segment(text, options.units, model=model, context=options.context)
    n_seen = int(units.seen.sum())
    if n_seen > MOST_UNITS:
        raise InputError(
            f"Got a text of {n_seen} units; expected at most {MOST_UNITS}, for fits solve dense systems of "
            "that size, and no budget would do. Use larger units, such as units='sentence'."
        )
    return units


def generators(seed: int, text: Text) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators that depend on the seed and the text alone, so the order of texts is irrelevant."""
    fit, held_out = np.random.SeedSequence(entropy(seed, text)).spawn(2)
    return np.random.default_rng(fit), np.random.default_rng(held_out)


def entropy(seed: int, what: object) -> list[int]:
    """What seeds a generator that depends on a seed and on what is written alone."""
    digest = hashlib.sha256(repr(what).encode("utf-8", "surrogatepass")).digest()
    return [seed, *np.frombuffer(digest, dtype=np.uint32).tolist()]


def groups_of(units: Units) -> IntArray:
    """A number for each seen unit, equal for units of the same text."""
    tokens = np.array(units.tokens, dtype=object)[units.seen]
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int64)


def check_design(design: Design, n_units: int, options: Options) -> None:
    """Refuse a caller's design that does not fit the text or the budget."""
    if design.n_units != n_units:
        raise InputError(
            f"Got a design over {design.n_units} units for a text of {n_units}; expected as many "
            "columns as units that the model sees."
        )
    needed = n_queries(design) + options.noise_probe
    if needed > options.cap:
        raise InputError(
            f"Got budget={options.cap} for a design of {design.n_masks} masks; expected at least "
            f"{needed} queries, the unmasked text among them. Raise the budget."
        )


def n_queries(design: Design) -> int:
    """How many queries the masks take; the unmasked text is asked for in any case."""
    return design.n_masks + int(not design.masks.all(axis=1).any())


def _check_text(text: object) -> None:
    """Refuse what no model can be sent."""
    parts: Sequence[object] = text if isinstance(text, tuple) else (text,)
    if not all(isinstance(part, str) for part in parts) or len(parts) not in (1, 2):
        raise InputError(
            f"Got {text!r} of type {type(text).__name__}; expected a str, or a pair of them as a tuple."
        )
    for part in parts:
        if any("\ud800" <= character <= "\udfff" for character in str(part)):
            raise InputError(
                "Got a text with half a surrogate pair, which UTF-8 cannot hold; expected valid "
                "Unicode. Decode the file with errors='replace'."
            )
