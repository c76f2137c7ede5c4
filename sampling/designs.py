"""Which masked versions of a text are asked: one function per sampling law.

Most laws only say how many units a mask keeps: within a size, every subset is equally likely. The
masks of a design are distinct. A size of which every mask is taken passes its share on to the others
in proportion, and the number of masks (or pairs) of each size is its expectation rounded up or down,
right on average.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import gammaln

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.sampling._subsets import (
    pair_names,
    repeated,
    sample_by_size,
    sample_pairs_by_size,
    with_complements,
)
from piste.sampling.records import Design


@dataclass(frozen=True)
class Request:
    """What a law is asked for.

    Parameters
    ----------
    n_units
        Units of the text, at least 1.
    n_masks
        Upper bound on the number of masks.
    rng
        The only source of randomness.
    exclude
        Shape (n_excluded, n_units), bool: rows that must not be drawn.
    max_units
        Most units that ``short`` keeps or ``deletions`` removes; None is the law's own default.
    background
        For ``identify``: whether the surrogate has an always-present background unit.
    """

    n_units: int
    n_masks: int
    rng: np.random.Generator
    exclude: BoolArray
    max_units: int | None = None
    background: bool = False


Law = Callable[[Request], BoolArray]
"""From a request to distinct masks, shape (n <= n_masks, n_units), bool."""


def draw(
    name: str,
    n_units: int,
    n_masks: int,
    rng: np.random.Generator,
    *,
    exclude: BoolArray | None = None,
    max_units: int | None = None,
    background: bool = False,
) -> Design:
    """Draw distinct masks from a named law, at most ``n_masks`` and none of the excluded ones.

    Parameters
    ----------
    name
        One of `DESIGNS`, or ``auto``: ``exhaustive`` where ``2 ** n_units <= n_masks``, else
        ``leverage``.
    n_units
        Units of the text.
    n_masks
        Upper bound on the number of masks. Fewer come only when the law has no masks left, or one
        fewer where masks come in pairs and the bound is odd.
    rng
        The only source of randomness: the same state gives the same masks.
    exclude
        Shape (n_excluded, n_units), bool: masks that must not be drawn, such as those of a fit when
        held-out masks are wanted. Sizes keep following the law while there are masks left; a law in
        pairs leaves out every pair with an excluded member.
    max_units
        Most units that ``short`` keeps (default 3) or ``deletions`` removes (default 5).
    background
        For ``identify``: whether to determine a SLALOM with a background unit.

    Returns
    -------
    Design
        Masks of shape (n_drawn, n_units), bool, True where the unit is kept, under the law's name. The
        full and the empty text are rows only where the law has them (see `with_anchors`).

    Raises
    ------
    InputError
        If the name is unknown, a number too small, an option not the law's, or ``exclude`` misshapen.

    Examples
    --------
    >>> design = draw("identify", 3, 5, np.random.default_rng(0))
    >>> design.masks.astype(int).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1]]
    """
    if n_masks < (least := min_masks(name, n_units, background=background)):
        raise InputError(
            f"Got n_masks={n_masks}; expected at least {_readable(least)} for design {name!r} on "
            f"{n_units} units. Raise the budget or take another design."
        )
    n_subsets = 1 << operator.index(n_units)
    if name == "auto":
        name = "exhaustive" if n_subsets <= n_masks else "leverage"
    _check_options(name, max_units, background)
    request = Request(
        n_units=n_units,
        n_masks=min(n_masks, n_subsets),
        rng=rng,
        exclude=_checked_exclude(exclude, n_units),
        max_units=max_units,
        background=background,
    )
    return Design(DESIGNS[name](request), name)


def min_masks(name: str, n_units: int, *, background: bool = False) -> int:
    """The smallest ``n_masks`` that a law can work with.

    ``2 ** n_units`` for ``exhaustive``; ``2 * n_units - 1`` for ``identify``, or with a background
    ``2 * n_units + 1`` (all ``2 ** n_units`` below three units); 2 where masks come in pairs; else 1.

    Raises
    ------
    InputError
        If the name is unknown or ``n_units`` is not positive.
    """
    if name != "auto" and name not in DESIGNS:
        names = ", ".join(map(repr, ["auto", *DESIGNS]))
        raise InputError(f"Got design {name!r}; expected one of {names}.")
    if n_units < 1:
        raise InputError(f"Got n_units={n_units}; expected at least 1. Check that the text has units.")
    n_subsets = 1 << operator.index(n_units)
    if name == "exhaustive":
        return n_subsets
    if name == "identify":
        return min(2 * n_units + 1, n_subsets) if background else 2 * n_units - 1
    return 2 if name in ("auto", "shapley", "leverage", "permutation") else 1


def draw_of_size(n_kept: int, n_masks: int, rng: np.random.Generator, exclude: BoolArray) -> BoolArray:
    """At most ``n_masks`` distinct masks that keep ``n_kept`` units, none of the excluded rows."""
    sizes = _uniform_on(exclude.shape[1], n_kept, n_kept)
    return sample_by_size(sizes, n_masks, exclude, rng)


def with_anchors(design: Design) -> Design:
    """The design with the full text as row 0 and the empty text as row 1, each once, then the rest.

    Returns
    -------
    Design
        Masks of shape (n, n_units), bool, n at most ``design.n_masks + 2``: within a budget, draw two
        fewer and exclude these two.
    """
    kept = design.masks.sum(axis=1)
    between = design.masks[(kept > 0) & (kept < design.n_units)]
    anchors = np.repeat([[True], [False]], design.n_units, axis=1)
    return Design(np.concatenate([anchors, between]), design.name)


def draw_exhaustive(request: Request) -> BoolArray:
    """All ``2 ** n`` masks, counting in binary: row r keeps unit i where bit i of r is 1."""
    numbers = np.arange(2**request.n_units, dtype="<u8")[:, None].view(np.uint8)
    bits = np.unpackbits(numbers, axis=1, count=request.n_units, bitorder="little")
    return _without(bits == 1, request.exclude)


def draw_uniform_size(request: Request) -> BoolArray:
    """LIME's law: the number of removed units is uniform on 1..n.

    ``P(mask with r units removed) = 1 / (n C(n, r))``; r = n is the empty text.

    References
    ----------
    Ribeiro, Singh, Guestrin 2016, arXiv:1602.04938 (``lime_text.py`` of their package).
    """
    return _by_size(request, _uniform_on(request.n_units, 0, request.n_units - 1))


def draw_shapley(request: Request) -> BoolArray:
    """KernelSHAP's law in pairs of a mask and its complement.

    ``P(size s) ∝ 1 / (s (n - s))``, 0 < s < n.

    References
    ----------
    Lundberg, Lee 2017, arXiv:1705.07874; in pairs: Covert, Lee 2021, arXiv:2012.01536.
    """
    weights = np.zeros(request.n_units + 1)
    sizes = np.arange(1, request.n_units)
    weights[1:-1] = 1 / (sizes * (request.n_units - sizes))
    return _by_pairs(request, weights)


def draw_leverage(request: Request) -> BoolArray:
    """Leverage scores in pairs: a mask is in with probability ``min(1, c / C(n, s))``, 0 < s < n.

    The leverage score of a mask of size s in Shapley regression is ``1 / C(n, s)``, so sizes are
    uniform until one is exhausted; water filling finds the c that makes the numbers add up.

    References
    ----------
    Musco, Witter 2024, arXiv:2410.01917.
    """
    return _by_pairs(request, _uniform_on(request.n_units, 1, request.n_units - 1))


def draw_permutation(request: Request) -> BoolArray:
    """Proper prefixes of random orders and of their reverses: ``P(size s) = 1 / (n - 1)``, 0 < s < n.

    The prefixes of a reversed order complement those of the order, so masks come in pairs. Repeats are
    dropped. An order that the budget cuts short loses prefixes of random sizes.

    References
    ----------
    Castro, Gómez, Tejada 2009, doi:10.1016/j.cor.2008.04.004; with reverses: Mitchell et al. 2022,
    arXiv:2104.12199.
    """
    n_units, rng = request.n_units, request.rng
    masks = np.zeros((0, n_units), dtype=np.bool_)
    if n_units == 1:
        return masks
    known = pair_names(request.exclude)
    known = known[known.any(axis=1) & ~repeated(known, known[:0])]
    n_pairs = min(request.n_masks // 2, (1 << n_units - 1) - 1 - len(known))
    # Every round draws as many orders as would do without repeats: the last few masks can be rare.
    n_orders = -(-(n_pairs + len(known)) // (n_units - 1))
    while len(masks) < n_pairs:
        ranks = rng.permuted(np.tile(np.arange(n_units), (n_orders, 1)), axis=1)
        sizes = rng.permutation(np.arange(1, n_units))
        prefixes = (ranks[:, None, :] < sizes[:, None]).reshape(-1, n_units)
        taken = np.concatenate([known, pair_names(masks)])
        fresh = prefixes[~repeated(pair_names(prefixes), taken)]
        masks = np.concatenate([masks, fresh[: n_pairs - len(masks)]])
    return with_complements(masks)


def draw_short(request: Request) -> BoolArray:
    """SLALOM-eff's law: the number of kept units is uniform on 1..``max_units`` (default 3).

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536.
    """
    return _by_size(request, _short_sizes(request))


def draw_deletions(request: Request) -> BoolArray:
    """SLALOM-fidel's law: the number of removed units is uniform on 1..``max_units`` (default 5).

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536 (their code also draws the full text).
    """
    return _by_size(request, _deletion_sizes(request))


def draw_identify(request: Request) -> BoolArray:
    """The fewest masks that determine a SLALOM: every single unit, and each with unit 0.

    Without a background these are ``2 n - 1``. With one, the empty text and the pair of units 1 and 2
    make ``2 n + 1``; below three units no set of masks suffices, and all ``2 ** n`` are given.

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536 (without a background).
    """
    # F is the model's log-odds, w = exp(importance), v = value; F_i keeps unit i, F_ij units i and j.
    # Without a background F_i = v_i, and a pair with unit 0 gives w_i (F_0i - F_i) = w_0 (F_0 - F_0i):
    # n values and n - 1 ratios, all that the model has.
    #
    # With a background unit of value v_b let a_i = w_i / w_b. The empty text gives v_b, a single unit
    # (1 + a_i) F_i = v_b + a_i v_i. Put into (1 + a_i + a_j) F_ij = v_b + a_i v_i + a_j v_j, it leaves
    #     a_i (F_ij - F_i) + a_j (F_ij - F_j) = F_i + F_j - F_ij - v_b,
    # one equation per pair, linear in a. A star on unit 0 has n - 1 pairs for n unknowns: one is
    # missing. Where the model is nearly additive, F_ij - F_i ≈ F_j - v_b =: g_j, so the unknowns
    # a_i / g_i all have the same coefficient: the matrix is the unsigned incidence matrix of the graph
    # of pairs, regular only if the graph's cycle is odd. A pair of leaves closes a triangle.
    single = np.eye(request.n_units, dtype=np.bool_)
    star = single[1:] | single[0]
    if not request.background:
        return _without(np.concatenate([single, star]), request.exclude)
    empty = np.zeros((1, request.n_units), dtype=np.bool_)
    closing = single[1:2] | single[2:3] if request.n_units > 2 else empty[:0]
    return _without(np.concatenate([empty, single, star, closing]), request.exclude)


def draw_bernoulli(request: Request) -> BoolArray:
    """Each unit kept with probability 1/2: every mask is as likely as any other.

    ``P(size s) = C(n, s) / 2 ** n``; the numbers of masks per size are stratified as in every law.
    """
    n, kept = request.n_units, np.arange(request.n_units + 1)
    log_binomials = gammaln(n + 1) - gammaln(kept + 1) - gammaln(n - kept + 1)
    return _by_size(request, np.exp(log_binomials - n * np.log(2)))


def draw_mixed(request: Request) -> BoolArray:
    """Half ``leverage``, a quarter ``short``, a quarter ``deletions``, in random order.

    Where short and deleted texts are exhausted, masks of uniform size, 0 < s < n, take their place.
    """
    masks = draw_leverage(replace(request, n_masks=request.n_masks // 2))
    quarters = _short_sizes(request) + _deletion_sizes(request)
    for weights in (quarters, _uniform_on(request.n_units, 1, request.n_units - 1)):
        taken = np.concatenate([request.exclude, masks])
        rest = replace(request, n_masks=request.n_masks - len(masks), exclude=taken)
        masks = np.concatenate([masks, _by_size(rest, weights)])
    shuffled: BoolArray = request.rng.permutation(masks)
    return shuffled


DESIGNS: Final[dict[str, Law]] = {
    "exhaustive": draw_exhaustive,
    "uniform-size": draw_uniform_size,
    "shapley": draw_shapley,
    "leverage": draw_leverage,
    "permutation": draw_permutation,
    "short": draw_short,
    "deletions": draw_deletions,
    "identify": draw_identify,
    "bernoulli": draw_bernoulli,
    "mixed": draw_mixed,
}
"""Every law by its name."""


def _by_size(request: Request, weights: FloatArray) -> BoolArray:
    return sample_by_size(weights, request.n_masks, request.exclude, request.rng)


def _by_pairs(request: Request, weights: FloatArray) -> BoolArray:
    return sample_pairs_by_size(weights, request.n_masks // 2, request.exclude, request.rng)


def _uniform_on(n_units: int, smallest: int, largest: int) -> FloatArray:
    """Equal weights that add up to 1 on the sizes from smallest to largest, if there are any."""
    weights = np.zeros(n_units + 1)
    weights[smallest : largest + 1] = 1 / max(largest - smallest + 1, 1)
    return weights


def _short_sizes(request: Request) -> FloatArray:
    return _uniform_on(request.n_units, 1, min(request.max_units or 3, request.n_units))


def _deletion_sizes(request: Request) -> FloatArray:
    n_units = request.n_units
    return _uniform_on(n_units, n_units - min(request.max_units or 5, n_units), n_units - 1)


def _without(masks: BoolArray, exclude: BoolArray) -> BoolArray:
    return masks[~repeated(masks, exclude)]


def _check_options(name: str, max_units: int | None, background: bool) -> None:
    if max_units is not None and name not in ("short", "deletions"):
        raise InputError(
            f"Got max_units={max_units} with design {name!r}; only 'short' and 'deletions' take it. "
            "Leave it out."
        )
    if max_units is not None and max_units < 1:
        raise InputError(f"Got max_units={max_units}; expected at least 1. Raise it or leave it out.")
    if background and name != "identify":
        raise InputError(
            f"Got background=True with design {name!r}; only 'identify' takes it. Leave it out."
        )


def _checked_exclude(exclude: BoolArray | None, n_units: int) -> BoolArray:
    if exclude is None:
        return np.zeros((0, n_units), dtype=np.bool_)
    if exclude.ndim != 2 or exclude.shape[1] != n_units or exclude.dtype != np.bool_:
        raise InputError(
            f"Got exclude of shape {exclude.shape} and type {exclude.dtype}; expected a boolean array "
            f"(n_excluded, {n_units}). Pass the masks of a design for the same units."
        )
    return exclude


def _readable(number: int) -> str:
    """The number, or where it is long the power of two that it is."""
    return str(number) if number < 10**9 else f"2**{number.bit_length() - 1}"
