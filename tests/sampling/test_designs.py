"""Designs: exact cases, support, distributions and every law's contract.

Each chi-square test asks for p > 1e-4 at a fixed seed: a correct law fails one with probability 1e-4
when the seed or the order of random draws changes.
"""

from collections import Counter
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chisquare

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.sampling._subsets import (
    all_subsets,
    class_sizes,
    repeated,
    round_to_total,
    sample_by_size,
    water_fill,
)
from piste.sampling.designs import DESIGNS, draw, min_masks, with_anchors

NAMES = ["auto", *DESIGNS]
PAIRED = {"shapley", "leverage", "permutation"}
ALPHA = 1e-4

Mask = tuple[bool, ...]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def as_set(masks: BoolArray) -> set[Mask]:
    return {tuple(row) for row in masks.tolist()}


def subsets_of_sizes(n_units: int, sizes: set[int]) -> set[Mask]:
    return {mask for mask in product([False, True], repeat=n_units) if sum(mask) in sizes}


def kept_sizes(name: str, n_units: int) -> set[int]:
    """The sizes that each law's definition allows, written down independently of the code."""
    short = set(range(1, min(3, n_units) + 1))
    deletions = set(range(max(n_units - 5, 0), n_units))
    between = set(range(1, n_units))
    return {
        "exhaustive": set(range(n_units + 1)),
        "uniform-size": set(range(n_units)),
        "short": short,
        "deletions": deletions,
        "bernoulli": set(range(n_units + 1)),
        "mixed": short | deletions | between,
    }.get(name, between)


def n_available(name: str, n_units: int, exclude: BoolArray) -> int:
    """How many masks a law can give at most, by enumeration."""
    left_out = as_set(exclude)
    if name in PAIRED:
        left_out |= as_set(~exclude)
    if name == "identify":
        allowed = {m for m in subsets_of_sizes(n_units, {1, 2}) if sum(m) == 1 or m[0]}
    else:
        allowed = subsets_of_sizes(n_units, kept_sizes(name, n_units))
    return len(allowed - left_out)


# Exact cases


@pytest.mark.parametrize("n_units", [1, 2, 4, 9])
def test_exhaustive_is_every_mask(n_units: int) -> None:
    design = draw("exhaustive", n_units, 2**n_units + 3, rng())
    assert design.exhaustive
    assert as_set(design.masks) == set(product([False, True], repeat=n_units))


def test_exhaustive_counts_in_binary() -> None:
    masks = draw("exhaustive", 2, 4, rng()).masks
    np.testing.assert_array_equal(masks, [[0, 0], [1, 0], [0, 1], [1, 1]])


@pytest.mark.parametrize(
    ("n_units", "expected"),
    [
        (1, [[1]]),
        (2, [[1, 0], [0, 1], [1, 1]]),
        (4, [*np.eye(4), [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]),
    ],
)
def test_identify_is_singles_and_pairs_with_the_first(n_units: int, expected: list[list[int]]) -> None:
    masks = draw("identify", n_units, 100, rng()).masks
    assert min_masks("identify", n_units) == len(expected) == 2 * n_units - 1
    np.testing.assert_array_equal(masks, np.array(expected, dtype=bool))


@pytest.mark.parametrize(
    ("n_units", "expected"),
    [
        (1, [[0], [1]]),
        (2, [[0, 0], [1, 0], [0, 1], [1, 1]]),
        (3, [[0, 0, 0], *np.eye(3), [1, 1, 0], [1, 0, 1], [0, 1, 1]]),
        (4, [[0] * 4, *np.eye(4), [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0]]),
    ],
)
def test_identify_with_background_adds_the_empty_text_and_closes_a_triangle(
    n_units: int, expected: list[list[int]]
) -> None:
    masks = draw("identify", n_units, 100, rng(), background=True).masks
    assert min_masks("identify", n_units, background=True) == len(expected)
    np.testing.assert_array_equal(masks, np.array(expected, dtype=bool))


def slalom(masks: BoolArray, weight: FloatArray, value: FloatArray, background: float) -> FloatArray:
    """A SLALOM whose background unit, if its weight is not 0, has the value -0.3."""
    scores: FloatArray = (masks @ (weight * value) - 0.3 * background) / (masks @ weight + background)
    return scores


def test_identify_determines_a_published_slalom() -> None:
    n = 7
    weight, value = np.exp(rng(1).normal(size=n)), rng(2).normal(size=n)
    scores = slalom(draw("identify", n, 2 * n - 1, rng()).masks, weight, value, background=0.0)
    single, pair = scores[:n], scores[n:]
    np.testing.assert_allclose(single, value, rtol=1e-14)
    ratio = (single[0] - pair) / (pair - single[1:])
    np.testing.assert_allclose(ratio, weight[1:] / weight[0], rtol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 1e-3])  # the second is nearly additive
def test_identify_determines_a_slalom_with_background(scale: float) -> None:
    n = 7
    weight, value = scale * np.exp(rng(1).normal(size=n)), rng(2).normal(size=n) / scale
    masks = draw("identify", n, 2 * n + 1, rng(), background=True).masks
    scores = slalom(masks, weight, value, background=1.0)
    empty, single = scores[0], scores[1 : n + 1]
    pairs = masks[n + 1 :]
    left, right = pairs.argmax(axis=1), n - 1 - pairs[:, ::-1].argmax(axis=1)
    joint = scores[n + 1 :]
    system = np.zeros((n, n))
    system[np.arange(n), left] = joint - single[left]
    system[np.arange(n), right] = joint - single[right]
    ratio = np.linalg.solve(system, single[left] + single[right] - joint - empty)
    # Nearly additive scores hold the weights in their third digit only: 1e-16 grows to some 1e-10.
    np.testing.assert_allclose(ratio, weight, rtol=1e-8)
    np.testing.assert_allclose((single * (1 + ratio) - empty) / ratio, value, rtol=1e-8)


@pytest.mark.parametrize("n_units", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "identify"])
def test_a_large_budget_takes_the_whole_support_once(name: str, n_units: int) -> None:
    design = draw(name, n_units, 10**6, rng())
    name = "exhaustive" if name == "auto" else name
    assert as_set(design.masks) == subsets_of_sizes(n_units, kept_sizes(name, n_units))


@pytest.mark.parametrize(
    ("name", "max_units", "sizes"),
    [
        ("short", 2, {1, 2}),
        ("short", 9, {1, 2, 3, 4}),
        ("deletions", 1, {3}),
        ("deletions", 9, {0, 1, 2, 3}),
    ],
)
def test_max_units_bounds_what_is_kept_or_removed(name: str, max_units: int, sizes: set[int]) -> None:
    design = draw(name, 4, 100, rng(), max_units=max_units)
    assert as_set(design.masks) == subsets_of_sizes(4, sizes)


@pytest.mark.parametrize(
    ("n_units", "n_masks", "chosen"),
    [(1, 2, "exhaustive"), (6, 64, "exhaustive"), (6, 63, "leverage"), (1000, 50, "leverage")],
)
def test_auto_enumerates_where_the_budget_allows_and_says_so(
    n_units: int, n_masks: int, chosen: str
) -> None:
    assert draw("auto", n_units, n_masks, rng()).name == chosen


@pytest.mark.parametrize("name", sorted(PAIRED))
def test_one_unit_has_no_proper_subset(name: str) -> None:
    design = draw(name, 1, 10, rng(), exclude=np.array([[True]]))
    assert design.masks.shape == (0, 1)
    np.testing.assert_array_equal(with_anchors(design).masks, [[True], [False]])


def test_permutations_are_walks_of_all_sizes() -> None:
    n_units = 200  # so many that two walks share a prefix with probability below 0.03
    masks = draw("permutation", n_units, 4 * (n_units - 1), rng()).masks
    for walk in np.split(masks[::2], 2):
        prefixes = walk[np.argsort(walk.sum(axis=1))]
        np.testing.assert_array_equal(prefixes.sum(axis=1), np.arange(1, n_units))
        assert (prefixes[:-1] <= prefixes[1:]).all()


def test_mixed_is_half_leverage_a_quarter_short_a_quarter_deletions() -> None:
    sizes = draw("mixed", 60, 400, rng()).masks.sum(axis=1)
    # 100 masks each, and 200 / 59 per size from leverage. Each count is a sum of at most five numbers
    # that are within one of their expectation.
    assert abs((sizes <= 3).sum() - (100 + 3 * 200 / 59)) <= 5
    assert abs((sizes >= 55).sum() - (100 + 5 * 200 / 59)) <= 7


# The parts


@pytest.mark.parametrize(("n_units", "size"), [(1, 0), (1, 1), (5, 0), (5, 2), (5, 4), (7, 7), (8, 4)])
def test_all_subsets_against_itertools(n_units: int, size: int) -> None:
    masks = all_subsets(n_units, size)
    members = {tuple(np.flatnonzero(row).tolist()) for row in masks}
    assert len(masks) == len(members)
    assert members == set(combinations(range(n_units), size))


@pytest.mark.parametrize("n_units", [1, 2, 5, 12, 61, 500])
@pytest.mark.parametrize("limit", [1, 7, 1000, 2**40])
def test_class_sizes_are_binomials_cut_at_the_limit(n_units: int, limit: int) -> None:
    expected = [min(comb(n_units, s), limit) for s in range(n_units + 1)]
    assert class_sizes(n_units, limit).tolist() == expected


def test_water_filling_passes_on_in_proportion() -> None:
    targets = water_fill(np.array([1.0, 1.0, 3.0, 0.0]), np.array([2, 90, 90, 90]), 42)
    np.testing.assert_allclose(targets, [2, 10, 30, 0], rtol=1e-15)


def test_repeated_marks_all_but_the_first() -> None:
    rows = np.array([[0, 1], [1, 1], [0, 1], [1, 0], [1, 0]], dtype=bool)
    assert repeated(rows, rows[1:2]).tolist() == [False, True, True, False, True]


positive_or_zero = st.floats(1e-3, 1e3) | st.just(0.0)
shares = st.lists(st.tuples(positive_or_zero, st.integers(0, 300)), min_size=1, max_size=30)


@given(shares=shares, total=st.integers(0, 3000), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_allocation_fills_and_rounds(shares: list[tuple[float, int]], total: int, seed: int) -> None:
    weights, room = np.array([w for w, _ in shares]), np.array([r for _, r in shares], dtype=np.int64)
    targets = water_fill(weights, room, total)
    counts = round_to_total(targets, rng(seed))
    assert counts.sum() == min(total, room[weights > 0].sum())
    assert (counts <= room).all()
    assert (np.abs(counts - targets) < 1).all()
    assert (targets[weights == 0] == 0).all()
    # One level c for all: full sizes have c * weight >= room, the others c * weight == target.
    is_open = (weights > 0) & (targets < room * (1 - 1e-9))
    level = targets[is_open] / weights[is_open]
    np.testing.assert_allclose(level, level.max(initial=0), rtol=1e-6)
    if is_open.any():
        is_full = (weights > 0) & ~is_open
        assert (level.max() * weights[is_full] >= room[is_full] * (1 - 1e-6)).all()


def test_rounding_is_right_on_average() -> None:
    targets = np.array([0.25, 3.0, 1.9, 0.0, 0.05, 2.8])
    generator, n_draws = rng(), 4000
    counts = np.array([round_to_total(targets, generator) for _ in range(n_draws)])
    assert set(counts.sum(axis=1).tolist()) == {8}
    # Hoeffding: a mean of n_draws values within 1 of each other is off by more with probability 1e-4.
    tolerance = np.sqrt(np.log(2 * len(targets) / ALPHA) / (2 * n_draws))
    np.testing.assert_allclose(counts.mean(axis=0), targets, atol=tolerance)


# Distributions


def size_law(name: str, n: int) -> FloatArray:
    """P(size s kept) for s = 0..n while no size is exhausted, written down from the definitions."""
    sizes = np.arange(n + 1)
    inner = (sizes > 0) & (sizes < n)
    laws = {
        "uniform-size": sizes < n,
        "shapley": inner / np.where(inner, sizes * (n - sizes), 1),
        "short": (sizes >= 1) & (sizes <= 3),
        "deletions": (sizes >= n - 5) & (sizes < n),
        "bernoulli": np.array([comb(n, s) for s in sizes]),
    }
    weights: FloatArray = np.asarray(laws.get(name, inner), dtype=np.float64)
    law: FloatArray = weights / weights.sum()
    return law


@pytest.mark.parametrize("name", ["uniform-size", "short", "deletions", "bernoulli"])
def test_sizes_of_single_masks_follow_the_law(name: str) -> None:
    n_units, n_draws, generator = 8, 1500, rng(1)
    sizes = [int(draw(name, n_units, 1, generator).masks.sum()) for _ in range(n_draws)]
    expected = size_law(name, n_units) * n_draws
    observed = np.bincount(sizes, minlength=n_units + 1)
    assert (observed[expected == 0] == 0).all()
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > ALPHA


@pytest.mark.parametrize("n_units", [7, 8])
@pytest.mark.parametrize("name", sorted(PAIRED))
def test_sizes_of_single_pairs_follow_the_law(name: str, n_units: int) -> None:
    n_draws, generator = 1500, rng(2)
    pairs = [draw(name, n_units, 2, generator).masks for _ in range(n_draws)]
    observed = Counter(int(pair.sum(axis=1).min()) for pair in pairs)
    law = size_law(name, n_units)
    classes = range(1, n_units // 2 + 1)
    expected = [n_draws * (law[s] + law[n_units - s] * (2 * s != n_units)) for s in classes]
    assert chisquare([observed[s] for s in classes], expected).pvalue > ALPHA


@pytest.mark.parametrize("name", ["leverage", "shapley"])
@pytest.mark.parametrize(("n_units", "n_masks"), [(12, 500), (11, 300), (60, 2000), (300, 1000)])
def test_pair_counts_are_within_one_of_the_inclusion_probabilities(
    name: str, n_units: int, n_masks: int
) -> None:
    sizes = np.arange(1, n_units)
    weights = size_law(name, n_units)[1:-1]
    binomials = np.array([float(comb(n_units, int(s))) for s in sizes])
    level = brentq(lambda c: np.minimum(binomials, c * weights).sum() - n_masks, 0, 1e9, xtol=1e-9)
    expected = np.minimum(binomials, level * weights)
    observed = np.bincount(draw(name, n_units, n_masks, rng()).masks.sum(axis=1), minlength=n_units)[1:]
    # The middle size holds both members of its pairs, and so moves by two.
    np.testing.assert_array_less(
        np.abs(observed - expected), np.where(2 * sizes == n_units, 2, 1) + 1e-6
    )


@pytest.mark.parametrize("name", ["uniform-size", "short", "deletions", "bernoulli"])
def test_counts_are_within_one_of_their_expectation(name: str) -> None:
    observed = np.bincount(draw(name, 60, 50, rng()).masks.sum(axis=1), minlength=61)
    targets = water_fill(size_law(name, 60), np.array([min(comb(60, s), 50) for s in range(61)]), 50)
    np.testing.assert_array_less(np.abs(observed - targets), 1 + 1e-6)


@pytest.mark.parametrize("n_masks", [3, 8])  # drawn and redrawn; picked from a list
def test_subsets_of_one_size_are_equally_likely(n_masks: int) -> None:
    weights = np.array([0.0, 0, 1, 0, 0, 0])
    forbidden = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], dtype=bool)
    generator, n_draws = rng(3), 1500
    draws = [sample_by_size(weights, n_masks, forbidden, generator) for _ in range(n_draws)]
    # Rows come in random order, so every row by itself is uniform on the nine allowed pairs.
    for row in (0, n_masks - 1):
        observed = Counter(tuple(masks[row].tolist()) for masks in draws)
        assert len(observed) == 9
        assert chisquare(list(observed.values())).pvalue > ALPHA


@pytest.mark.parametrize("name", ["leverage", "permutation"])
def test_pairs_of_one_size_are_equally_likely(name: str) -> None:
    generator, n_draws = rng(4), 1500
    draws = [draw(name, 4, 2, generator).masks for _ in range(n_draws)]
    middle = [frozenset(as_set(masks)) for masks in draws if masks[0].sum() == 2]
    observed = Counter(middle)
    assert len(observed) == 3
    assert chisquare(list(observed.values())).pvalue > ALPHA


def test_a_cut_permutation_prefers_no_size() -> None:
    generator, n_units = rng(5), 6
    masks = np.concatenate([draw("permutation", n_units, 4, generator).masks for _ in range(1000)])
    observed = np.bincount(masks.sum(axis=1), minlength=n_units + 1)[1:-1]
    # Two prefixes of one order differ in size, so the counts vary less than chi-square allows for.
    assert chisquare(observed).pvalue > ALPHA


def test_held_out_masks_keep_the_size_law() -> None:
    fitted = draw("uniform-size", 30, 300, rng())
    held_out = draw("uniform-size", 30, 300, rng(1), exclude=fitted.masks)
    observed = np.bincount(held_out.masks.sum(axis=1), minlength=31)
    # Gone are the empty text and some of the 30 singles and 30 single removals; the rest is uniform.
    assert observed[0] == observed[30] == 0
    assert np.ptp(observed[2:29]) <= 1


# Properties


@st.composite
def requests(draw_from: st.DrawFn) -> tuple[str, int, int, BoolArray, int]:
    """A law, units, a budget that it can work with, masks to leave out, and a seed."""
    name = draw_from(st.sampled_from(NAMES))
    n_units = draw_from(st.integers(1, 9))
    n_masks = draw_from(st.integers(min_masks(name, n_units), 700))
    seed = draw_from(st.integers(0, 2**32 - 1))
    n_excluded = draw_from(st.integers(0, 2**n_units))
    exclude = rng(seed).permutation(draw("exhaustive", n_units, 2**n_units, rng()).masks)[:n_excluded]
    return name, n_units, n_masks, exclude, seed


@given(request=requests())
@settings(max_examples=100, deadline=None)
def test_every_draw_is_distinct_allowed_complete_and_reproducible(
    request: tuple[str, int, int, BoolArray, int],
) -> None:
    name, n_units, n_masks, exclude, seed = request
    design = draw(name, n_units, n_masks, rng(seed), exclude=exclude)
    drawn = as_set(design.masks)
    assert len(drawn) == design.n_masks <= n_masks
    assert not drawn & as_set(exclude)
    again = draw(name, n_units, n_masks, rng(seed), exclude=exclude)
    np.testing.assert_array_equal(design.masks, again.masks)
    if design.name in PAIRED:
        np.testing.assert_array_equal(design.masks[1::2], ~design.masks[::2])
        n_masks -= n_masks % 2
    assert design.n_masks == min(n_masks, n_available(design.name, n_units, exclude))


@given(request=requests())
@settings(max_examples=50, deadline=None)
def test_anchors_come_first_and_once(request: tuple[str, int, int, BoolArray, int]) -> None:
    name, n_units, n_masks, _, seed = request
    design = draw(name, n_units, n_masks, rng(seed))
    anchored = with_anchors(design)
    assert anchored.name == design.name
    assert anchored.masks[0].all()
    assert not anchored.masks[1].any()
    ends = {(True,) * n_units, (False,) * n_units}
    assert as_set(anchored.masks) == as_set(design.masks) | ends
    between = [row for row in design.masks.tolist() if tuple(row) not in ends]
    assert anchored.masks[2:].tolist() == between


# The contract


@pytest.mark.parametrize("n_masks", [1, 2, 3, 7, 64, 500])
@pytest.mark.parametrize("n_units", [1, 2, 3, 5, 12, 60, 1000])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, n_units: int, n_masks: int) -> None:
    least = min_masks(name, n_units)
    if n_masks < least:
        with pytest.raises(InputError, match=r"Got n_masks=.* expected at least .* Raise the budget"):
            draw(name, n_units, n_masks, rng())
        return
    design = draw(name, n_units, n_masks, rng())
    held_out = draw(name, n_units, n_masks, rng(1), exclude=design.masks)
    assert design.n_units == held_out.n_units == n_units
    assert not repeated(held_out.masks, design.masks).any()
    budget = n_masks - n_masks % 2 * (design.name in PAIRED)
    support = sum(comb(n_units, s) for s in kept_sizes(design.name, n_units))
    support = 2 * n_units - 1 if name == "identify" else support
    assert design.n_masks == min(budget, support)
    assert held_out.n_masks == min(budget, support - design.n_masks)


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(
        InputError, match=r"Got design 'lime'; expected one of 'auto', 'exhaustive', .*'mixed'"
    ):
        draw("lime", 3, 8, rng())
    with pytest.raises(InputError, match="Got design ''"):
        min_masks("", 3)


@pytest.mark.parametrize("n_masks", [0, -5])
def test_no_budget_is_refused(n_masks: int) -> None:
    with pytest.raises(
        InputError, match=f"Got n_masks={n_masks}; expected at least 1 for design 'short'"
    ):
        draw("short", 3, n_masks, rng())


@pytest.mark.parametrize("n_units", [0, -1])
def test_no_units_are_refused(n_units: int) -> None:
    with pytest.raises(InputError, match=f"Got n_units={n_units}; expected at least 1"):
        draw("auto", n_units, 8, rng())


@pytest.mark.parametrize(
    ("name", "n_units", "background", "least"),
    [
        ("exhaustive", 4, False, "16"),
        ("exhaustive", 1000, False, r"2\*\*1000"),
        ("identify", 4, False, "7"),
        ("identify", 4, True, "9"),
        ("leverage", 4, False, "2"),
    ],
)
def test_a_small_budget_names_the_smallest_sufficient_one(
    name: str, n_units: int, background: bool, least: str
) -> None:
    too_few = min(min_masks(name, n_units, background=background) - 1, 10**6)
    with pytest.raises(InputError, match=f"Got n_masks={too_few}; expected at least {least} for"):
        draw(name, n_units, too_few, rng(), background=background)


def test_numpy_integers_do_not_overflow() -> None:
    n_units = np.int64(70)
    assert min_masks("exhaustive", n_units) == 2**70  # type: ignore[arg-type]
    assert draw("auto", n_units, np.int64(10), rng()).name == "leverage"  # type: ignore[arg-type]


def test_options_of_other_laws_are_refused() -> None:
    with pytest.raises(
        InputError, match="Got max_units=2 with design 'mixed'; only 'short' and 'deletions'"
    ):
        draw("mixed", 4, 8, rng(), max_units=2)
    with pytest.raises(InputError, match="Got max_units=0; expected at least 1"):
        draw("short", 4, 8, rng(), max_units=0)
    with pytest.raises(InputError, match="Got background=True with design 'leverage'; only 'identify'"):
        draw("auto", 4, 8, rng(), background=True)


@pytest.mark.parametrize("exclude", [np.zeros(4, bool), np.zeros((2, 3), bool), np.zeros((2, 4))])
def test_misshapen_exclude_is_refused(exclude: BoolArray) -> None:
    with pytest.raises(
        InputError, match=r"Got exclude of shape .* expected a boolean array \(n_excluded, 4\)"
    ):
        draw("auto", 4, 8, rng(), exclude=exclude)
