"""The masks that judge fits: laws that share one pool, so that none depends on which others are asked."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import comb

from piste._typing import BoolArray, IntArray
from piste.evaluation.fidelity_tables import DELETIONS
from piste.sampling.designs import draw, draw_of_size

MOST_DELETIONS = 10
LAWS: Mapping[str, int] = {DELETIONS: 20, "uniform-size": 100, "short": 50, "bernoulli": 100}
"""Mask laws by name, with how many masks judge a text: of ``deletions`` for each number removed."""

RESERVED_SHARE = 4  # of the masks of one size at most a fourth judge: the fits need some of them too
_MOST_OF_A_SIZE = max(LAWS.values())
_OF_SIZES, _OF_LAWS = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class Judged:
    """Which of the judging masks follow one law.

    Parameters
    ----------
    law, n_removed
        The law, and of ``deletions`` how many units are removed.
    rows
        Shape (n_masks,), int64: their numbers; several laws can share a mask.
    """

    law: str
    n_removed: int | None
    rows: IntArray


def judging_masks(
    n_units: int, laws: Mapping[str, int], rng: np.random.Generator
) -> tuple[BoolArray, list[Judged]]:
    """Distinct masks, none of them the full or the empty text, and which of them follow which law.

    Of the masks of each size at most a fourth are set aside, in random order; a law that wants so many masks of
    a size takes the first ones. So every law has the sizes that are its own as far as there are masks, whatever
    else is asked, and masks are asked once for all laws.
    """
    seed = int(rng.integers(2**62))
    room = np.floor(comb(n_units, np.arange(n_units + 1)) / RESERVED_SHARE)
    parts = [
        (
            law,
            n_removed,
            np.minimum(_sizes(n_units, law, n_removed, n_masks, seed), room).astype(np.int64),
        )
        for law, n_masks in laws.items()
        for n_removed in _numbers(law, n_units)
    ]
    most = np.max([sizes for _, _, sizes in parts], axis=0)
    starts = np.cumsum(most) - most
    pools = [
        _pool(n_units, size, int(room[size]), seed)[:count] for size, count in enumerate(most) if count
    ]
    masks = np.concatenate(pools) if pools else np.zeros((0, n_units), dtype=np.bool_)
    judged = [
        Judged(
            law,
            n_removed,
            np.concatenate([starts[s] + np.arange(sizes[s]) for s in range(n_units + 1)]),
        )
        for law, n_removed, sizes in parts
    ]
    return masks, judged


def _numbers(law: str, n_units: int) -> list[int] | list[None]:
    """How many units ``deletions`` removes, leaving something; a text of one unit has a row all the same."""
    most = min(MOST_DELETIONS, n_units - 1)
    return list(range(1, most + 1)) if law == DELETIONS and most > 0 else [None]


def _sizes(n_units: int, law: str, n_removed: int | None, n_masks: int, seed: int) -> IntArray:
    """How many masks of each size a law wants, shape (n_units + 1,)."""
    counts = np.zeros(n_units + 1, dtype=np.int64)
    if n_removed is not None:
        counts[n_units - n_removed] = n_masks
    elif law != DELETIONS:
        rng = np.random.default_rng([seed, _OF_LAWS, list(LAWS).index(law)])
        drawn = draw(law, n_units, n_masks, rng, exclude=_ends(n_units)).masks
        counts += np.bincount(drawn.sum(axis=1), minlength=n_units + 1)
    return counts


def _pool(n_units: int, size: int, room: int, seed: int) -> BoolArray:
    """Masks of one size that are set aside, in random order: the same ones whatever is asked."""
    rng = np.random.default_rng([seed, _OF_SIZES, size])
    drawn = draw_of_size(size, min(room, _MOST_OF_A_SIZE), rng, _ends(n_units))
    shuffled: BoolArray = rng.permutation(drawn)
    return shuffled


def _ends(n_units: int) -> BoolArray:
    """The full and the empty text, which every fit is told."""
    return np.repeat([[True], [False]], n_units, axis=1)
