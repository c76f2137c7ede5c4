"""Faithfulness metrics as two steps: the masks to ask about, and the values that the answers give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.evaluation import erasure, perturbation

TIES = "ties"
"""Flag of a value that another order of equal scores might change."""

_ROUNDING = 1e-9  # relative to the model's scores: a smaller change is none


class Value(NamedTuple):
    """One number: at which setting, what, whether ties had a say, and why it is undefined if it is."""

    setting: str
    value: float
    tied: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Answered:
    """What a measure reads.

    Parameters
    ----------
    scores
        Shape (n_units,), float64, finite: the explanation of the units that the model sees.
    masks
        Shape (n_masks, n_units), bool: as the measure drew them.
    full
        The model's score of the whole text for the target.
    answers
        Shape (n_masks,), float64: its score under each mask; NaN where it gave none.
    effects
        Whether the scores are effects in the space of the answers.
    """

    scores: FloatArray
    masks: BoolArray
    full: float
    answers: FloatArray
    effects: bool = True

    @property
    def drops(self) -> FloatArray:
        """``y(x) - y(x masked)``; what rounding leaves of no change at all is none."""
        drops = self.full - self.answers
        none = np.abs(drops) <= _ROUNDING * max(
            abs(self.full), np.nanmax(np.abs(self.answers), initial=0)
        )
        return np.where(none, 0.0, drops)


class Measure(Protocol):
    """A faithfulness metric."""

    @property
    def name(self) -> str:
        """As in the column ``metric``."""
        ...

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that every text has, also one that failed."""
        ...

    def masks(self, scores: FloatArray, rng: np.random.Generator) -> BoolArray:
        """Which units stay, shape (n_masks, n_units), bool; scores are finite, there is at least one."""
        ...

    def values(self, answered: Answered) -> list[Value]:
        """The numbers that the answers give."""
        ...


@dataclass(frozen=True)
class Erasure:
    """ERASER's comprehensiveness or sufficiency at shares of the text, and their mean ``aopc``.

    Parameters
    ----------
    name
        ``comprehensiveness`` or ``sufficiency``.
    bins
        Shares of the units that are the rationale.
    size
        Units in the rationale by ERASER's k rule (`piste.evaluation.erasure.human_size`), for the
        setting ``human length``; None leaves it out.
    """

    name: str
    bins: tuple[float, ...] = erasure.BINS
    size: int | None = None

    def __post_init__(self) -> None:
        _check_name(self.name, ("comprehensiveness", "sufficiency"))
        erasure.bin_sizes(1, self.bins)

    @property
    def settings(self) -> tuple[str, ...]:
        """One per share, ``aopc``, and ``human length`` if asked for."""
        shares = tuple(f"{share:.10g}" for share in self.bins)
        return (*shares, "aopc", *(["human length"] if self.size is not None else []))

    def masks(self, scores: FloatArray, rng: np.random.Generator) -> BoolArray:
        """Everything but the rationale, or the rationale alone."""
        rationales = erasure.first_units(erasure.relevance_order(scores, rng), self._sizes(len(scores)))
        return ~rationales if self.name == "comprehensiveness" else rationales

    def values(self, answered: Answered) -> list[Value]:
        """What is lost at each share."""
        change = getattr(erasure, self.name)(answered.full, answered.answers)
        tied = erasure.tied_at(answered.scores, self._sizes(len(answered.scores)))
        n_bins = len(self.bins)
        at_bins = [Value(*each) for each in zip(self.settings[:n_bins], change, tied, strict=False)]
        mean = Value("aopc", erasure.aopc(change[:n_bins]), bool(tied[:n_bins].any()))
        human = [] if self.size is None else [Value("human length", change[-1], tied[-1])]
        return [*at_bins, mean, *human]

    def _sizes(self, n_units: int) -> np.ndarray:
        human = [] if self.size is None else [min(self.size, n_units)]
        return np.array([*erasure.bin_sizes(n_units, self.bins), *human], dtype=np.int64)


@dataclass(frozen=True)
class Curve:
    """Area under the insertion or deletion curve, most and least relevant units first.

    Parameters
    ----------
    name
        ``insertion`` or ``deletion``.
    points
        Steps of the curve; a text of fewer units has one per unit.
    keep_points
        Whether the curve itself is given too, as settings such as ``most first @ 0.25`` (share of units
        inserted or deleted).
    """

    name: str
    points: int = 20
    keep_points: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, ("insertion", "deletion"))
        erasure.curve_counts(1, self.points)

    @property
    def settings(self) -> tuple[str, ...]:
        """The two orders."""
        return "most first", "least first"

    def masks(self, scores: FloatArray, rng: np.random.Generator) -> BoolArray:
        """The texts of both orders, one order after the other."""
        order = erasure.relevance_order(scores, rng)
        counts = erasure.curve_counts(len(scores), self.points)
        draw = erasure.insertion_masks if self.name == "insertion" else erasure.deletion_masks
        return np.concatenate([draw(order, counts, most_first=most) for most in (True, False)])

    def values(self, answered: Answered) -> list[Value]:
        """The two areas, and the curves if asked for."""
        n_units = len(answered.scores)
        counts = erasure.curve_counts(n_units, self.points)
        # Whether the cut after c units is free is the same in both orders: counts are symmetric.
        tied = bool(erasure.tied_at(answered.scores, counts).any())
        found = []
        for setting, curve in zip(self.settings, np.split(answered.answers, 2), strict=True):
            found.append(Value(setting, erasure.curve_area(counts, curve), tied))
            if self.keep_points:
                shares = counts / n_units
                found += [
                    Value(f"{setting} @ {share:.4g}", float(y), tied)
                    for share, y in zip(shares, curve, strict=True)
                ]
        return found


@dataclass(frozen=True)
class Infidelity:
    """Mean squared error of summed scores as the loss after random removals; ``scaled`` by the best factor.

    Parameters
    ----------
    n_masks
        Removals per text, the same for every method; a short text has fewer.
    most
        The most units removed at once.
    """

    n_masks: int = 100
    most: int = 10
    name: str = "infidelity"

    def __post_init__(self) -> None:
        _check_at_least(1, n_masks=self.n_masks, most=self.most)

    @property
    def settings(self) -> tuple[str, ...]:
        """As scores are, and scaled."""
        return "unscaled", "scaled"

    def masks(self, scores: FloatArray, rng: np.random.Generator) -> BoolArray:
        """Texts with 1 to ``most`` units removed."""
        return ~perturbation.draw_removals(len(scores), self.n_masks, rng, most=self.most)

    def values(self, answered: Answered) -> list[Value]:
        """Both errors; the unscaled one only for scores that are effects in this space."""
        removed, drops = ~answered.masks, answered.drops
        scaled = perturbation.infidelity(answered.scores, removed, drops, scaled=True)
        if not answered.effects:
            unscaled = Value("unscaled", np.nan, reason="scores are no effects in this space")
        else:
            unscaled = Value("unscaled", perturbation.infidelity(answered.scores, removed, drops))
        return [unscaled, Value("scaled", scaled)]


@dataclass(frozen=True)
class SensitivityN:
    """Correlation of summed scores with losses over random subsets of one size, and its mean over sizes.

    Parameters
    ----------
    n_subsets
        Subsets of each size, the same for every method; all of them where there are fewer.
    n_sizes
        Sizes on a logarithmic grid.
    """

    n_subsets: int = 50
    n_sizes: int = 5
    name: str = "sensitivity-n"

    def __post_init__(self) -> None:
        _check_at_least(2, n_subsets=self.n_subsets)
        _check_at_least(1, n_sizes=self.n_sizes)

    @property
    def settings(self) -> tuple[str, ...]:
        """The mean over sizes."""
        return ("mean",)

    def masks(self, scores: FloatArray, rng: np.random.Generator) -> BoolArray:
        """Texts without each subset, size after size."""
        n_units = len(scores)
        parts = [
            perturbation.draw_subsets(n_units, int(size), self.n_subsets, rng)
            for size in perturbation.grid_sizes(n_units, self.n_sizes)
        ]
        return ~np.concatenate([np.zeros((0, n_units), dtype=np.bool_), *parts])

    def values(self, answered: Answered) -> list[Value]:
        """The correlation of each size, and the mean of those that are defined."""
        removed, drops = ~answered.masks, answered.drops
        sizes = removed.sum(axis=1)
        found = []
        for size in np.unique(sizes):
            rows = sizes == size
            value = perturbation.sensitivity_n(answered.scores, removed[rows], drops[rows])
            constant = np.isnan(value) and np.isfinite(drops[rows]).all()
            found.append(Value(f"n={size}", value, reason="no variation" if constant else ""))
        if not found:
            return [Value("mean", np.nan, reason="one unit has no subsets")]
        defined = [each.value for each in found if np.isfinite(each.value)]
        if not defined:
            return [*found, Value("mean", np.nan, reason=found[0].reason)]
        return [*found, Value("mean", float(np.mean(defined)))]


def _check_name(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InputError(f"Got the name {name!r}; expected {' or '.join(map(repr, known))}.")


def _check_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise InputError(f"Got {name}={number}; expected at least {least}.")


BUILT_IN: Mapping[str, Measure] = {
    each.name: each
    for each in (
        Erasure("comprehensiveness"),
        Erasure("sufficiency"),
        Curve("deletion"),
        Curve("insertion"),
        Infidelity(),
        SensitivityN(),
    )
}


def chosen_measures(metrics: str | Measure | Sequence[str | Measure]) -> list[Measure]:
    """Measures by name, or as they are.

    Raises
    ------
    InputError
        If a name is unknown, or there is none.

    >>> [each.name for each in chosen_measures(["deletion", Erasure("sufficiency", bins=(0.2,))])]
    ['deletion', 'sufficiency']
    """
    one = isinstance(metrics, str) or not isinstance(metrics, Sequence)
    listed: list[str | Measure] = [metrics] if one else list(metrics)  # type: ignore[list-item, arg-type]
    unknown = [each for each in listed if isinstance(each, str) and each not in BUILT_IN]
    if unknown or not listed:
        raise InputError(
            f"Got metrics {unknown}; expected some of {', '.join(map(repr, BUILT_IN))}, or objects such as "
            "Erasure('sufficiency', bins=(0.2,))."
        )
    return [BUILT_IN[each] if isinstance(each, str) else each for each in listed]
