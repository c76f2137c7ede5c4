r"""Standard errors of a fitted SLALOM and of everything derived from it.

Parameters are ``theta = (v_0, v_1 ... v_n, s_0, s_1 ... s_n)``, background first; without a background
they are ``(v_1 ... v_n, s_1 ... s_n)``. With :math:`A_j = m_j w_j / W` the Jacobian has the columns

    dF/dv_j = A_j,      dF/ds_j = A_j (v_j - F).

Gauge: importances move with their mean over the units fixed, so that their errors refer to mean zero.
The ridge of the fit is taken over, and what it may have shrunk is part of the error (`covariance`,
``shrunk``): intervals are for the parameters without a prior.

Several heads are linearised together, each with its own parameters and gauge. Which head is which does not
matter to what adds up over heads, removal and Shapley values; their errors are those of the fit's own
neighbourhood (`SlalomInference`). A head's values and importances have no meaning of their own, nor errors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from piste._typing import BoolArray, FloatArray
from piste.fitting._sampling_units import SamplingUnits, mask_pairs
from piste.fitting._slalom_solver import BACKGROUND_FREEDOM
from piste.fitting.bootstrap import bootstrap_covariance, one_step_bootstrap
from piste.fitting.inference import (
    SANDWICHES,
    Covariance,
    Estimate,
    Linearisation,
    Sandwich,
    covariance,
    linearise,
)
from piste.fitting.shapley import slalom_shapley_jacobian
from piste.fitting.slalom import Slaloms

SlalomKind = Literal["value", "importance", "linear", "removal", "shapley"]
SlalomCovariance = Sandwich | Literal["one-step bootstrap"]
ADDED_UP: tuple[SlalomKind, ...] = ("removal", "shapley")
"""Kinds whose value for several heads is the sum of the heads' own."""

SLALOM_COVARIANCES: tuple[SlalomCovariance, ...] = (*SANDWICHES, "one-step bootstrap")


@dataclass(frozen=True)
class SlalomParameters:
    """One SLALOM: one output, one head.

    Parameters
    ----------
    value, importance
        Shape (n_units,), float64: in score units; log weights, mean zero.
    background_value, background_importance
        In score units, and in the gauge of ``importance``; ``-inf`` for no background, whose value is
        then the answer to the empty text.
    """

    value: FloatArray
    importance: FloatArray
    background_value: float
    background_importance: float

    @property
    def n_units(self) -> int:
        """Units, the background not counted."""
        return len(self.value)

    @property
    def background(self) -> bool:
        """Whether there is one."""
        return bool(np.isfinite(self.background_importance))

    @property
    def first(self) -> int:
        """Column of the first unit among the values."""
        return int(self.background)

    @property
    def n_columns(self) -> int:
        """Values, or importances: units and the background where there is one."""
        return self.n_units + self.first

    @property
    def columns(self) -> tuple[FloatArray, FloatArray]:
        """Values and importances, background first, each of shape (n_columns,)."""
        if not self.background:
            return self.value, self.importance
        return (
            np.concatenate([[self.background_value], self.value]),
            np.concatenate([[self.background_importance], self.importance]),
        )


def slalom_jacobian(parameters: SlalomParameters, masks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions (n_masks,) and their derivatives (n_masks, 2 * n_columns).

    Parameters
    ----------
    parameters
        Where.
    masks
        Shape (n_masks, n_units), non-negative counts. An empty mask without a background has the
        background's value and no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> at = SlalomParameters(np.array([1.0, 3.0]), np.zeros(2), 0.0, -np.inf)
    >>> slalom_jacobian(at, np.array([[1.0, 1.0]]))
    (array([2.]), array([[ 0.5,  0.5, -0.5,  0.5]]))
    """
    value, importance = parameters.columns
    if parameters.background:
        masks = np.column_stack([np.ones(len(masks)), masks])
    weighted = masks * np.exp(importance - importance.max())
    total = weighted.sum(axis=1)
    nothing = total == 0
    share = weighted / np.where(nothing, 1.0, total)[:, None]
    predicted = np.where(nothing, parameters.background_value, share @ value)
    return predicted, np.hstack([share, share * (value - predicted[:, None])])


def slalom_gradients(parameters: SlalomParameters, kind: SlalomKind, full: FloatArray) -> FloatArray:
    r"""Derivatives of attributions with respect to the parameters, shape (n_units, 2 * n_columns).

    ``value`` :math:`v_i`; ``importance`` :math:`s_i`; ``linear`` :math:`v_i e^{s_i}`; ``removal``
    :math:`F(full) - F(full - 1_i)`; ``shapley`` the exact Shapley values, copies of a unit being
    players of their own and the value that of one copy.

    Parameters
    ----------
    parameters
        Where.
    kind
        The attribution.
    full
        Shape (n_units,): counts of the full text; whole numbers where Shapley values are asked for.
    """
    return _GRADIENTS[kind](parameters, full)


def _value(parameters: SlalomParameters, _: FloatArray) -> FloatArray:
    return np.eye(2 * parameters.n_columns)[parameters.first : parameters.n_columns]


def _importance(parameters: SlalomParameters, _: FloatArray) -> FloatArray:
    return np.eye(2 * parameters.n_columns)[parameters.n_columns + parameters.first :]


def _linear(parameters: SlalomParameters, full: FloatArray) -> FloatArray:
    weight = np.exp(parameters.importance)[:, None]
    change = _value(parameters, full) + parameters.value[:, None] * _importance(parameters, full)
    gradients: FloatArray = weight * change
    return gradients


def _removal(parameters: SlalomParameters, full: FloatArray) -> FloatArray:
    left = full - np.diag((full > 0).astype(np.float64))
    _, derivatives = slalom_jacobian(parameters, np.vstack([full, left]))
    effects: FloatArray = derivatives[0] - derivatives[1:]
    return effects


def _shapley(parameters: SlalomParameters, full: FloatArray) -> FloatArray:
    # Units that the full text lacks are given one copy, which is what they would be worth.
    copies = np.maximum(full, 1.0).astype(np.int64)
    owner = np.repeat(np.arange(parameters.n_units), copies)
    jacobian = slalom_shapley_jacobian(
        parameters.value[owner],
        parameters.importance[owner],
        parameters.background_value,
        parameters.background_importance,
    )
    one_of_each = np.cumsum(copies) - 1
    member = np.eye(parameters.n_units)[owner]
    by_value = jacobian.value[one_of_each] @ member
    by_importance = jacobian.importance[one_of_each] @ member
    if not parameters.background:
        return np.hstack([by_value, by_importance])
    v_0 = jacobian.background_value[one_of_each, None]
    s_0 = jacobian.background_importance[one_of_each, None]
    return np.hstack([v_0, by_value, s_0, by_importance])


_GRADIENTS: dict[SlalomKind, Callable[[SlalomParameters, FloatArray], FloatArray]] = {
    "value": _value,
    "importance": _importance,
    "linear": _linear,
    "removal": _removal,
    "shapley": _shapley,
}


@dataclass(frozen=True)
class SlalomInference:
    """What is known about one output of a fit.

    Parameters
    ----------
    heads
        The solution.
    fit
        Its linearisation, the ridge included.
    residuals
        Shape (n_rows,), in score units, of the rows that take part.
    units
        What was drawn at once.
    full
        Shape (n_units,): counts of the full text.
    shrunk
        Shape (n_heads * 2 * n_columns,): the parameters from the centre of the prior, which is the heads'
        share of the mean score for values and 0 for importances.
    identifiable
        Shape (n_units,), bool: whether the unit's importance is to be reported as known.
    seed
        Of the bootstrap.
    """

    heads: tuple[SlalomParameters, ...]
    fit: Linearisation
    residuals: FloatArray
    units: SamplingUnits
    full: FloatArray
    shrunk: FloatArray
    identifiable: BoolArray
    seed: int = 0

    @property
    def parameters(self) -> SlalomParameters:
        """Those of the only head."""
        (only,) = self.heads
        return only

    def covariance(self, kind: SlalomCovariance) -> Covariance:
        """Covariance of the parameters, in the gauge.

        As `piste.fitting.inference.covariance`, the ridge being a prior;
        ``one-step bootstrap`` as in `piste.fitting.bootstrap.one_step_bootstrap`, seeded.
        """
        if kind == "one-step bootstrap":
            rng = np.random.default_rng(self.seed)
            draws = one_step_bootstrap(self.fit, self.residuals, self.units, rng)
            return bootstrap_covariance(draws, self.fit, len(self.residuals) - self.fit.n_effective)
        return covariance(self.fit, self.residuals, kind, units=self.units, shrunk=self.shrunk)

    def std_errors(self, kind: SlalomKind, covariance: SlalomCovariance) -> tuple[FloatArray, float]:
        """Standard errors (n_units,) of one attribution kind, and their degrees of freedom."""
        if len(self.heads) > 1 and kind not in ADDED_UP:
            return np.full(len(self.full), np.nan), np.inf
        found = self.covariance(covariance)
        gradients = [slalom_gradients(head, kind, self.full) for head in self.heads]
        errors = found.std_errors(np.hstack(gradients))
        if kind in ("importance", "linear"):
            errors[~self.identifiable] = np.inf
        return errors, found.df


def slalom_inference(
    masks: FloatArray, scores: FloatArray, weights: FloatArray, fits: Slaloms
) -> tuple[SlalomInference, ...]:
    """Linearise each output of a fit.

    Parameters
    ----------
    masks, scores, weights
        What was fitted: shapes (n_masks, n_units), (n_masks, n_outputs), (n_masks,).
    fits
        The solution. Where outputs share their importances each is linearised on its own answers alone,
        which makes the errors too large rather than too small.
    """
    full = masks.max(axis=0)
    taken = weights > 0
    masks, scores, weights = masks[taken], scores[taken], weights[taken]
    return tuple(
        _linearised(masks, scores[:, output], weights, full, fits, output)
        for output in range(scores.shape[1])
    )


def slalom_estimate(
    inferences: tuple[SlalomInference, ...],
    values: FloatArray,
    kind: SlalomKind,
    covariance: SlalomCovariance,
) -> Estimate:
    """Attributions (n_outputs, n_units) with their errors; NaN where heads give the number no meaning."""
    found = [inference.std_errors(kind, covariance) for inference in inferences]
    errors, df = zip(*found, strict=True)
    return Estimate(values, np.stack(errors), np.array(df))


# The solver works on scores of unit variance. In score units, values have the same ridge, for they
# scale as the scores do; importances have no units, so theirs is multiplied by the variance.
def _linearised(
    masks: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    full: FloatArray,
    fits: Slaloms,
    output: int,
) -> SlalomInference:
    heads = tuple(
        SlalomParameters(
            fits.value[output, head],
            fits.importance[output, head],
            float(fits.background_value[output, head]),
            float(fits.background_importance[output, head]),
        )
        for head in range(fits.n_heads[output])
    )
    centre = float(np.average(scores, weights=weights))
    variance = float(np.average((scores - centre) ** 2, weights=weights))
    if not heads[0].background:
        kept = masks.sum(axis=1) > 0
        masks, scores, weights = masks[kept], scores[kept], weights[kept]
    predicted, jacobians = zip(*(slalom_jacobian(head, masks) for head in heads), strict=True)
    n, first, prior = heads[0].n_columns, heads[0].first, fits.prior[output]
    ridge = np.repeat([prior.value, prior.importance * variance], n)
    ridge[n : n + first] *= BACKGROUND_FREEDOM
    gauge = np.zeros((1, 2 * n))
    gauge[0, n + first :] = 1.0
    fit = linearise(
        np.hstack(jacobians),
        weights,
        ridge=np.tile(ridge, len(heads)),
        gauge=np.asarray(np.kron(np.eye(len(heads)), gauge), dtype=np.float64),
    )
    columns = (head.columns for head in heads)
    shrunk = [np.concatenate([value - centre / len(heads), s]) for value, s in columns]
    return SlalomInference(
        heads=heads,
        fit=fit,
        residuals=scores - sum(predicted),
        units=mask_pairs(masks, full),
        full=full,
        shrunk=np.concatenate(shrunk),
        identifiable=fits.identifiable[output],
    )
