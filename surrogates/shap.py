"""KernelSHAP: Shapley values as a weighted regression that adds up exactly."""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from statsmodels.iolib.summary import Summary

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting._rows import small
from piste.fitting._sampling_units import mask_pairs
from piste.fitting.inference import Estimate
from piste.fitting.linear import solve_constrained
from piste.fitting.linear_inference import (
    LINEAR_COVARIANCES,
    LinearAnswers,
    LinearCovariance,
    linear_std_errors,
)
from piste.fitting.result import Status
from piste.surrogates._additive import UnitStatus, overall_status, unit_statuses
from piste.surrogates._estimator import MaskRegressor
from piste.surrogates._intervals import check_covariance, interval, readable, row_names, summary_table
from piste.surrogates.base import (
    Surrogate,
    check_kind,
    check_masks,
    check_masks_and_scores,
    check_score_errors,
    large,
)
from piste.surrogates.control import ControlName, fit_control


class KernelShap(MaskRegressor):
    r"""Shapley values of a black box whose players are the units of a text.

    .. math::

        \min_\phi \sum_z w_z (f(z) - f(\emptyset) - z^\top \phi)^2 \quad\text{subject to}\quad
        \sum_i \phi_i = f(\text{full}) - f(\emptyset)

    The constraint is the gauge: it is eliminated, not imposed by a large weight, so the values always
    add up to rounding. Exact when all masks are given; otherwise the estimate that the masks allow,
    without any selection of units. All that is needed of a design is that it draws masks of one size
    alike.

    Parameters
    ----------
    control
        A surrogate that takes over what it knows: the regression estimates only the Shapley values of
        what it leaves unexplained, its own being exact (`piste.surrogates.control`). Costs no query;
        the values still add up, and are exact when all masks are given. ``gaussian-process`` learns
        from pairs of complementary masks; on real texts it divided the squared error by 3 at 200 masks,
        by 4 at 400 and by 7 at 800, ``slalom`` by 2 (docs/shapley_error.md). Or an estimator whose
        attributions have the kind ``shapley``; it is cloned. Standard errors are approximate then: they
        come from predictions of each mask without its own answer, the control's options held fixed.

    Attributes
    ----------
    values_
        Shape (n_units,) or (n_outputs, n_units), float64, in units of the score.
    base_value_, full_value_
        Float or shape (n_outputs,): mean score of the empty and of the full rows, ``f(empty)``,
        ``f(full)``.
    weights_
        Shape (n_masks,), float64: the weights of the regression; 0 for the empty and full rows, which
        it meets exactly.
    n_features_in_
        Number of units.
    status_
        OK; NO_VARIATION if no output varies; or UNDERDETERMINED: of the values that fit best, those
        nearest to equal shares are given.

    References
    ----------
    Lundberg and Lee (2017), A Unified Approach to Interpreting Model Predictions, arXiv:1705.07874.
    Musco and Witter (2025), Provably Accurate Shapley Value Estimation via Leverage Score Sampling,
    arXiv:2410.01917.

    Examples
    --------
    >>> import numpy as np
    >>> masks = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    >>> shap = KernelShap().fit(masks, [0.9, 0.4, 0.2, 0.1])
    >>> shap.attributions().round(12), shap.base_value_
    (array([0.5, 0.3]), 0.1)
    """

    name: ClassVar[str] = "shap"
    kinds: ClassVar[tuple[str, ...]] = ("shapley",)
    effect: ClassVar[str] = "shapley"
    takes_counts: ClassVar[bool] = False

    values_: FloatArray
    base_value_: FloatArray | float
    full_value_: FloatArray | float
    weights_: FloatArray
    n_features_in_: int
    status_: Status

    def __init__(self, control: ControlName | Surrogate | None = None) -> None:
        self.control = control

    def fit(
        self,
        masks: ArrayLike,
        scores: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        score_errors: ArrayLike | None = None,
    ) -> Self:
        """Fit to the answers.

        Parameters
        ----------
        masks
            Shape (n_masks, n_units), 0/1, the full and the empty row among them.
        scores
            Shape (n_masks,) or (n_masks, n_outputs).
        sample_weight
            Shape (n_masks,), non-negative: the weights of the regression, as they are; those of the
            full and empty rows do not matter. By default ``shapley_weights(masks)``.
        score_errors
            Shape of scores, in their units: standard errors of the answers, independent of each other;
            ``std_errors`` counts them where residuals do not. By default none.

        Raises
        ------
        InputError
            If shapes, numbers or the control cannot be used, a mask holds counts, or the full or empty
            row is missing.
        """
        Z, Y, given = check_masks_and_scores(masks, scores, sample_weight)
        errors = check_score_errors(score_errors, scores)
        full, empty = anchors(Z)
        inner = ~(full | empty)
        weights = shapley_weights(Z) if sample_weight is None else np.where(inner, given, 0.0)
        base, top = Y[empty].mean(axis=0), Y[full].mean(axis=0)
        control = fit_control(self.control, Z, Y)
        gains = Y - base - control.beyond
        fit = solve_constrained(Z[inner], gains[inner], weights[inner], total=top - base)
        identified = np.broadcast_to(fit.identified, fit.coef.shape)
        statuses = unit_statuses(identified, np.ptp(Y, axis=0) == 0)
        self.n_features_in_ = Z.shape[1]
        counted = weights > 0
        self._answers = (small(Z[counted]), (Y - base - control.left_out)[counted], weights[counted])
        self._score_errors = None if errors is None else errors[counted]
        self._anchor_variances = None if errors is None else anchor_variances(errors, empty, full)
        self.weights_ = weights
        self.status_ = overall_status(statuses)
        single = np.ndim(scores) == 1
        self.values_ = fit.coef[0] if single else fit.coef
        self.base_value_ = float(base[0]) if single else base
        self.full_value_ = float(top[0]) if single else top
        self._unit_status: UnitStatus = statuses[0] if single else statuses
        return self

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Predicted scores ``f(empty) + masks @ values_``, shape (n_masks,) or (n_masks, n_outputs)."""
        check_is_fitted(self)
        predicted: FloatArray = check_masks(masks, self.n_features_in_) @ self.values_.T
        return predicted + self.base_value_

    def attributions(self, kind: str | None = None) -> FloatArray:
        """The Shapley values, shape (n_units,) or (n_outputs, n_units)."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self.values_.copy()

    def std_errors(
        self, kind: str | None = None, covariance: LinearCovariance = "design"
    ) -> FloatArray:
        """Standard errors of the Shapley values, shape of ``attributions(kind)``, in score units.

        Infinite where the values are not determined.

        Parameters
        ----------
        kind
            ``shapley``, or None for it.
        covariance
            ``design``: the choice of masks is random, in pairs with their complements and without
            replacement from each size, and so are the answers as far as ``score_errors`` says: once
            every mask was asked, these are all that is left. It holds for any weights that depend on a
            mask's size alone. ``HC3``, ``CR3``, ``classical`` ...
            (`piste.fitting.inference.covariance`): the answers vary as the residuals do. These know
            nothing of the noise of the full and of the empty row, which all take from ``score_errors``.
            ``bootstrap``: as ``design``, with pairs resampled 1,000 times within sizes.
        """
        return self._shaped(self._estimate(kind, covariance).std_error)

    def confidence_interval(
        self,
        kind: str | None = None,
        level: float = 0.95,
        covariance: LinearCovariance = "design",
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals, ``attributions ± t std_errors``, shaped as ``attributions(kind)``.

        t has as many degrees of freedom as there are masks (``design``, ``CR3``: pairs), less the
        parameters. Infinite errors give ``(-inf, inf)``.
        """
        return interval(self._estimate(kind, covariance), level, single=self._single)

    def summary(
        self,
        level: float = 0.95,
        covariance: LinearCovariance = "design",
        names: Sequence[str] | None = None,
    ) -> Summary:
        """A table in the style of statsmodels; ``str`` prints it. ``names`` label the units."""
        estimate = self._estimate(None, covariance)
        facts = {
            "Masks": len(self.weights_),
            "Units": self.n_features_in_,
            "Covariance": covariance,
            "Status": self.status_,
            "f(empty)": readable(self.base_value_),
            "f(full)": readable(self.full_value_),
        }
        rows = row_names(names, self.n_features_in_)
        return summary_table(estimate, level, title="Shapley values", facts=facts, names=rows)

    def unit_status(self, kind: str) -> UnitStatus:
        """How each value came out, shaped as ``attributions(kind)``."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self._unit_status

    def min_queries(self, n_units: int) -> int:
        """The full and the empty text, and one mask per value that their difference leaves free."""
        return n_units + 1

    def _estimate(self, kind: str | None, covariance: LinearCovariance) -> Estimate:
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        check_covariance(covariance, LINEAR_COVARIANCES)
        Z, Y, weights = large(self._answers[0]), *self._answers[1:]
        n_units = Z.shape[1]
        values = np.atleast_2d(self.values_)
        total = values.sum(axis=1)
        answers = LinearAnswers(
            design=Z,
            residuals=Y - Z @ values.T,
            weights=weights,
            units=mask_pairs(Z, np.ones(n_units)),
            refit=lambda times: solve_constrained(Z, Y, weights * times, total=total).coef,
            gauge=np.ones((1, n_units)),
            std_errors=self._score_errors,
        )
        errors, df = linear_std_errors(answers, covariance, fixed_answers=True)
        if self._anchor_variances is not None:
            errors = np.sqrt(errors**2 + self._anchor_variances.T @ self._anchor_moves() ** 2)
        return Estimate(values, errors, df)

    def _anchor_moves(self) -> FloatArray:
        """Derivatives of the values by the scores of the empty and of the full text, (2, n_units)."""
        Z, weights = large(self._answers[0]), self._answers[2]
        gains = np.array([-1.0, 0.0]) * np.ones((len(Z), 1))
        return solve_constrained(Z, gains, weights, total=np.array([-1.0, 1.0])).coef

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self._single else rows

    @property
    def _single(self) -> bool:
        return self.values_.ndim == 1


def anchors(masks: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which rows are full and which empty, each of shape (n_masks,).

    Raises
    ------
    InputError
        If a mask holds counts, or there is no full or no empty row.
    """
    if not ((masks == 0) | (masks == 1)).all():
        raise InputError(
            "Got masks with entries other than 0 and 1; expected each unit to be kept or removed, "
            "since the players of the Shapley value are units. Do not tie repeats, or use Lime or "
            "Slalom."
        )
    n_kept = masks.sum(axis=1)
    full, empty = n_kept == masks.shape[1], n_kept == 0
    for anchor, kept in ((full, "full row (all ones)"), (empty, "empty row (all zeros)")):
        if not anchor.any():
            raise InputError(
                f"Got masks without the {kept}; expected both the full and the empty row, whose "
                "difference the Shapley values share out. Ask the model about both."
            )
    return full, empty


def anchor_variances(errors: FloatArray, empty: BoolArray, full: BoolArray) -> FloatArray:
    """Variances of the mean scores of the empty and of the full rows, shape (2, n_outputs)."""
    return np.stack([(errors[rows] ** 2).sum(axis=0) / rows.sum() ** 2 for rows in (empty, full)])


# The regression that defines the Shapley values (Lundberg and Lee 2017) runs over all masks z with
# weights mu(z) = (n - 1) / (C(n, s) s (n - s)), s = |z|. Summed over the C(n, s) masks of one size,
# that is the mass (n - 1) / (s (n - s)). Its normal equations are sums over z of mu(z) g(z), with g the
# products of the entries of z with each other and with f(z): for each size, mass times the mean of g
# over the masks of that size. Where a design draws the masks of each size uniformly, the mean over the
# distinct ones that it drew estimates that mean, however many it drew of each size; so weights mass /
# (number drawn of that size) estimate the normal equations from any such design, which is
# post-stratification (Holt and Smith 1979, doi:10.2307/2344652). It is exact for a size that was
# enumerated, and consistent as the draws grow. Dividing mu by the expected number of draws, as Leverage
# SHAP does (Musco and Witter, arXiv:2410.01917), aims at the same sums but keeps the noise in how many
# masks of each size were drawn, and needs the law. The price: a size that a design hardly draws, such
# as the outer ones of coin flips, still has its whole mass, on few masks. Draw sizes evenly.
def shapley_weights(masks: FloatArray) -> FloatArray:
    r"""Weights with which a regression on these masks estimates Shapley values, whatever law drew them.

    .. math:: w_z = \frac{n - 1}{s (n - s)} \cdot \frac{1}{D_s R_z}, \qquad s = |z|

    with D_s the number of distinct masks of size s and R_z how often z occurs. They sum to the whole
    kernel mass of the sizes that occur, and equal the Shapley kernel where all masks do.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), float64, 0/1.

    Returns
    -------
    array
        Shape (n_masks,), float64; 0 for empty and full rows.

    Examples
    --------
    >>> import numpy as np
    >>> shapley_weights(np.array([[1.0, 1, 1], [1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]]))
    array([0. , 0.5, 0.5, 0.5, 0.5, 0. ])
    """
    n_units = masks.shape[1]
    packed = np.packbits(masks.astype(np.bool_), axis=1)
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, which, counts = np.unique(rows, return_inverse=True, return_counts=True)
    repeats = counts[which.reshape(-1)]
    sizes = masks.sum(axis=1).astype(np.int64)
    n_distinct = np.bincount(sizes, weights=1.0 / repeats, minlength=n_units + 1)
    mass = np.zeros(n_units + 1)
    inner = np.arange(1, n_units)
    mass[1:-1] = (n_units - 1) / (inner * (n_units - inner))
    weights: FloatArray = mass[sizes] / (n_distinct[sizes] * repeats)
    return weights
