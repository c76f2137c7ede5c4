"""Control variates for Shapley values: what a surrogate knows exactly need not be estimated.

Let g be a fitted surrogate whose Shapley values phi(g) are known. Its part beyond the additive one,

    beyond(z) = g(z) - g(empty) - sum_i z_i phi_i(g),

vanishes at the empty and at the full text, and its Shapley values are all zero. Subtracting it from the
answers therefore changes no Shapley value and no end point, whatever g is; but a regression has less
left that could mislead it, if g resembles the model where that is not additive. Because a regression
passes additive parts through unchanged, this is the same as ``phi(g) + regression(answers - g)``.

The surrogate is fitted to the same masks that the regression uses. Fitting it to other folds of masks
would make it independent of the residuals, but costs exactness (once all masks are asked, nothing may
depend on g) and, as measured on real texts (docs/shapley_error.md), accuracy. What remains is a bias
that vanishes as masks are added. Standard errors do need residuals that g has not seen: ``left_out``.
"""

from typing import Literal, NamedTuple, cast

import numpy as np
from sklearn.base import clone

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting.mask_process import fit_mask_process
from piste.surrogates.base import Surrogate
from piste.surrogates.slalom import Slalom
from piste.surrogates.trees import Trees

ControlName = Literal["slalom", "gaussian-process"]
CONTROLS: tuple[ControlName, ...] = ("slalom", "gaussian-process")

# Measured: with fewer than 4 masks per parameter a second head does harm, with more it does good; more
# heads are somewhat better from 8 on, and cost too much time.
MASKS_PER_PARAMETER = 4
# Values that miss their sum by more, relative to the answers' spread, are no Shapley values.
INEXACT = 1e-6
# Parameters per mask from which on in-sample residuals say nothing about those of other masks.
MOST_LEVERAGE = 0.9


class Control(NamedTuple):
    """A fitted control at the masks it was fitted to; both of shape (n_masks, n_outputs).

    ``beyond`` is its part beyond the additive one, with Shapley values zero; ``left_out`` the same
    predicted without the mask's own answer, as far as that can be told.
    """

    beyond: FloatArray
    left_out: FloatArray


def fit_control(
    control: ControlName | Surrogate | None, masks: FloatArray, scores: FloatArray
) -> Control:
    """Fit a control to the answers.

    Parameters
    ----------
    control
        ``slalom``, with two heads where masks are enough; ``gaussian-process``, which uses masks whose
        complement was asked too (`piste.fitting.mask_process`); an estimator that attributes by exact
        ``shapley`` values, which is cloned; or None for no control. `Trees` is no name: trees fit the
        masks that they have seen so closely that the bias was a quarter of the squared error.
    masks
        Shape (n_masks, n_units), float64, 0/1.
    scores
        Shape (n_masks, n_outputs), float64.

    Raises
    ------
    InputError
        If the name is unknown or the estimator has no exact Shapley values.
    """
    if control is None:
        return Control(np.zeros_like(scores), np.zeros_like(scores))
    if control == "gaussian-process":
        return _of_process(masks, scores)
    estimator = _slalom(*masks.shape) if control == "slalom" else _checked(control)
    return _of_estimator(estimator, masks, scores)


def exact_shapley_values(surrogate: Surrogate) -> FloatArray:
    """Shapley values of a fitted surrogate's own predictions, shape (n_outputs, n_units)."""
    return np.atleast_2d(surrogate.attributions("shapley"))


def _slalom(n_masks: int, n_units: int) -> Slalom:
    """Two heads where masks are enough for them, else one."""
    both = Slalom(heads=2)
    return both if n_masks >= MASKS_PER_PARAMETER * both.min_queries(n_units) else Slalom()


def _of_process(masks: FloatArray, scores: FloatArray) -> Control:
    fitted = fit_mask_process(masks, scores)
    if fitted is None:
        return Control(np.zeros_like(scores), np.zeros_like(scores))
    at_empty = fitted.process.predict(np.zeros((1, masks.shape[1])))
    beyond = fitted.mean - at_empty - masks @ fitted.process.shapley().T
    return Control(beyond, beyond + fitted.left_out - fitted.mean)


def _of_estimator(estimator: Surrogate, masks: FloatArray, scores: FloatArray) -> Control:
    n_masks, n_units = masks.shape
    estimator.fit(masks, scores if scores.shape[1] > 1 else scores[:, 0])
    ends = np.array([[0.0] * n_units, [1.0] * n_units])
    predicted = estimator.predict(np.vstack([ends, masks])).reshape(n_masks + 2, -1)
    at_empty, at_full, at_masks = predicted[0], predicted[1], predicted[2:]
    values = exact_shapley_values(estimator)
    error = np.abs(values.sum(axis=1) - (at_full - at_empty)).max()
    if not error <= INEXACT * max(np.ptp(predicted), np.finfo(float).tiny):
        raise InputError(
            f"Got a control whose Shapley values miss f(full) - f(empty) by {error:.3g}; expected "
            f"exact ones. Choose one of {', '.join(map(repr, CONTROLS))} or None."
        )
    beyond = at_masks - at_empty - masks @ values.T
    if isinstance(estimator, Trees):  # its residuals say nothing of other masks; it knows those that do
        left_out = estimator.left_out_.reshape(n_masks, -1)
        known = _inner(masks)[:, None] & np.isfinite(left_out)
        return Control(beyond, beyond + np.where(known, left_out - at_masks, 0.0))
    # A residual of a mask that the fit has seen is on average (1 - leverage) times the one of a mask
    # that it has not, and leverages add up to the number of parameters.
    leverage = min(estimator.min_queries(n_units) / n_masks, MOST_LEVERAGE)
    unseen = np.where(_inner(masks)[:, None], leverage / (1.0 - leverage), 0.0)
    return Control(beyond, beyond - unseen * (scores - at_masks))


def _checked(control: object) -> Surrogate:
    """A fresh copy of an estimator that has exact Shapley values."""
    if isinstance(control, Surrogate) and not isinstance(control, type) and "shapley" in control.kinds:
        return cast("Surrogate", clone(control))
    raise InputError(
        f"Got control={control!r}; expected {', '.join(map(repr, CONTROLS))}, None or a surrogate "
        "estimator that attributes by exact 'shapley' values."
    )


def _inner(masks: FloatArray) -> BoolArray:
    """Which masks are neither empty nor full."""
    kept = masks.sum(axis=1)
    inner: BoolArray = (kept > 0) & (kept < masks.shape[1])
    return inner
