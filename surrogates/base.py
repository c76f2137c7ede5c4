"""What every surrogate estimator offers beyond scikit-learn's own methods."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting.result import Status


@runtime_checkable
class Surrogate(Protocol):
    """A model of a model: fitted to masks and scores, it predicts scores and attributes them to units.

    Masks have shape (n_masks, n_units) and hold 0/1 or, where identical units share parameters, counts.
    Scores have shape (n_masks,) or (n_masks, n_outputs); every fitted array that has one entry per unit
    has shape (n_units,) in the first case and (n_outputs, n_units) in the second.

    Besides these members a fitted surrogate has ``status_`` and ``base_value_``, its prediction for the
    text without any of its units. One whose estimate is held by a prior or penalty, so that few random masks
    do little harm, has a class variable ``shrinks = True``: design ``auto`` then draws them sooner.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    """Attribution kinds, the first being the default."""
    effect: ClassVar[str]
    """The kind that tells how much a unit changes the score, in units of the score."""
    takes_counts: ClassVar[bool]
    """Whether a mask entry may count several identical units that share their parameters."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's options, as scikit-learn's ``clone`` needs them."""
        ...

    def fit(self, masks: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the answers; returns self."""
        ...

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Predicted scores, shape (n_masks,) or (n_masks, n_outputs)."""
        ...

    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (n_outputs, n_units)."""
        ...

    def std_errors(self, kind: str | None = None) -> FloatArray:
        """Standard errors of the attributions, of their shape and units; infinite where unknown."""
        ...

    def confidence_interval(
        self, kind: str | None = None, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of intervals of the attributions, each of their shape and units."""
        ...

    def unit_status(self, kind: str) -> Sequence[Status] | Sequence[Sequence[Status]]:
        """How each attribution came out, shaped as ``attributions(kind)``."""
        ...

    def min_queries(self, n_units: int) -> int:
        """The smallest number of well-chosen masks that determines every parameter."""
        ...


class Plan(NamedTuple):
    """What an optimal design needs to know of a fit; see `piste.fitting.optimal.choose_rows`.

    Parameters
    ----------
    gradients
        Shape (n_masks, n_parameters): of the predictions, times the root of the mask's weight.
    covariance
        Shape (n_parameters, n_parameters), per unit of noise variance.
    contrasts
        Shape (n_units, n_parameters): gradients of the attributions that are to be estimated.
    """

    gradients: FloatArray
    covariance: FloatArray
    contrasts: FloatArray


@runtime_checkable
class Plannable(Protocol):
    """A surrogate that can say which masks would teach it most about its effects."""

    def plan(self, masks: ArrayLike) -> Plan:
        """Gradients at masks that could be asked next, and what is known so far."""
        ...


MOST_SCORE = 1e100  # fits square scores and add them up


def check_masks_and_scores(
    masks: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masks, scores as columns and weights, all float64 and of matching lengths.

    Returns
    -------
    masks : shape (n_masks, n_units)
    scores : shape (n_masks, n_outputs)
    weights : shape (n_masks,), non-negative; ones by default

    Raises
    ------
    InputError
        If a shape does not fit, a number is not finite or a score beyond `MOST_SCORE`, or a mask entry
        or weight is negative.
    """
    masks_ = np.ascontiguousarray(masks, dtype=np.float64)
    scores_ = np.asarray(scores, dtype=np.float64)
    if masks_.ndim != 2 or masks_.shape[0] == 0 or masks_.shape[1] == 0:
        raise InputError(f"Got masks of shape {masks_.shape}; expected (n_masks, n_units), both > 0.")
    if scores_.ndim not in (1, 2) or scores_.shape[0] != masks_.shape[0]:
        raise InputError(
            f"Got scores of shape {scores_.shape} for {masks_.shape[0]} masks; expected (n_masks,) or "
            "(n_masks, n_outputs)."
        )
    weights = (
        np.ones(len(masks_))
        if sample_weight is None
        else np.ascontiguousarray(sample_weight, dtype=np.float64)
    )
    if weights.shape != (len(masks_),):
        raise InputError(
            f"Got sample_weight of shape {weights.shape}; expected ({len(masks_)},), one per mask."
        )
    for name, array in (("masks", masks_), ("scores", scores_), ("sample_weight", weights)):
        if not np.isfinite(array).all():
            raise InputError(
                f"Got NaN or infinity in {name}; expected finite numbers. Drop those rows."
            )
    if (masks_ < 0).any() or (weights < 0).any():
        raise InputError("Got negative masks or sample weights; expected non-negative numbers.")
    largest = np.abs(scores_).max(initial=0.0)
    if largest > MOST_SCORE:
        raise InputError(
            f"Got a score of size {largest:.3g}; expected at most {MOST_SCORE:g}, since fits square them. "
            "Rescale the scores."
        )
    return masks_, scores_.reshape(len(masks_), -1), weights


def check_presences(masks: FloatArray) -> None:
    """InputError unless every entry is 0 or 1."""
    if not np.isin(masks, (0.0, 1.0)).all():
        raise InputError(
            "Got masks with entries other than 0 and 1; expected 0/1. Leave tie_repeats off."
        )


def rows_that_count(weights: FloatArray) -> BoolArray:
    """Where a weight is positive, shape (n_masks,); InputError if nowhere."""
    used: BoolArray = weights > 0
    if not used.any():
        raise InputError("Got sample_weight of zeros only; expected a positive one. Leave it out.")
    return used


def check_score_errors(score_errors: ArrayLike | None, scores: ArrayLike) -> FloatArray | None:
    """Standard errors of the scores as columns (n_masks, n_outputs), float64; None where none are known.

    Raises
    ------
    InputError
        If they are not shaped as the scores, or one is negative or not finite.
    """
    if score_errors is None:
        return None
    errors = np.asarray(score_errors, dtype=np.float64)
    if errors.shape != np.shape(scores) or not (np.isfinite(errors) & (errors >= 0)).all():
        raise InputError(
            f"Got score_errors of shape {errors.shape} for scores of shape {np.shape(scores)}; expected "
            "one finite number >= 0 for each score."
        )
    return errors.reshape(len(errors), -1)


def large(masks: np.ndarray) -> FloatArray:
    """Masks that were kept, as float64 again."""
    return np.ascontiguousarray(masks, dtype=np.float64)


def check_masks(masks: ArrayLike, n_units: int) -> FloatArray:
    """Masks to predict for, float64; InputError unless they have ``n_units`` columns."""
    masks_ = np.ascontiguousarray(masks, dtype=np.float64)
    if masks_.ndim != 2 or masks_.shape[1] != n_units:
        raise InputError(
            f"Got masks of shape {masks_.shape}; expected (n_masks, {n_units}), as the fit had."
        )
    return masks_


def check_kind(kind: str | None, kinds: tuple[str, ...]) -> str:
    """The kind asked for, or the default; InputError names the kinds that exist."""
    if kind is None:
        return kinds[0]
    if kind not in kinds:
        raise InputError(f"Got kind {kind!r}; expected one of {', '.join(map(repr, kinds))}.")
    return kind
