"""LIME: a ridge regression that is local because masks near the full text weigh most."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from statsmodels.iolib.summary import Summary

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting._rows import small
from piste.fitting._sampling_units import mask_pairs
from piste.fitting.inference import Estimate
from piste.fitting.linear import solve_ridge
from piste.fitting.linear_inference import (
    LINEAR_COVARIANCES,
    LinearAnswers,
    LinearCovariance,
    linear_std_errors,
)
from piste.fitting.result import Status
from piste.surrogates._additive import UnitStatus, overall_status, unit_statuses
from piste.surrogates._estimator import MaskRegressor
from piste.surrogates._intervals import check_covariance, interval, row_names, summary_table
from piste.surrogates._locality import locality_weights
from piste.surrogates._selection import SELECTIONS
from piste.surrogates.base import (
    Plan,
    check_kind,
    check_masks,
    check_masks_and_scores,
    check_score_errors,
    large,
)

FeatureSelection = Literal["none", "auto", "forward_selection", "highest_weights", "lasso_path"]


DEFAULT_COVARIANCE: LinearCovariance = "CR2"


class Lime(MaskRegressor):
    r"""Local linear model of a black box, as in LIME for text.

    .. math::

        \min_{b, \beta} \sum_z \omega_z \pi(z) (f(z) - b - z^\top \beta)^2 + \alpha |\beta|^2, \qquad
        \pi(z) = e^{-d(z)^2 / (2 \sigma^2)}, \quad d(z) = 100 (1 - \cos(z, z_{\text{full}}))

    with :math:`\sigma` the kernel width and :math:`\omega` the sample weights. A mask that keeps the
    share k of the units has :math:`\cos = \sqrt k`; the empty mask has :math:`\cos = 0`. The full text
    is the largest count of each unit among the masks.

    No gauge is needed: coefficients and intercept are determined as soon as the masks are (``status_``
    says so). The intercept is fitted, not pinned to the empty text's score, and not penalised.

    Parameters
    ----------
    kernel_width
        :math:`\sigma > 0`, in units of the distance d, which runs from 0 to 100; None or infinity
        weighs all masks alike.
    alpha
        Ridge strength. The default 0 recovers an exactly linear black box exactly. The lime package
        fits with ``alpha=1.0``, which shrinks every coefficient, more so the fewer masks there are.
    n_features
        How many units may have a non-zero coefficient, per output; None keeps all.
    feature_selection
        How those are chosen: ``forward_selection`` (greedy), ``highest_weights`` (largest coefficient
        times count in a ridge fit with alpha .01), ``lasso_path`` (the last step of the path with few
        enough), ``auto`` (forward selection up to 6 units, else highest weights), ``none`` (all are
        kept).
    fit_intercept
        Whether b is fitted; otherwise it is 0.

    Attributes
    ----------
    coef_
        Shape (n_units,) or (n_outputs, n_units), float64, in units of the score per unit kept (per
        count). Units that were not selected have exactly 0.
    intercept_, base_value_
        Float or shape (n_outputs,): b, the prediction for the text without any of its units.
    weights_
        Shape (n_masks,), float64: locality weights :math:`\pi`, in [0, 1], without the sample weights.
    selected_
        Shape of ``coef_``, bool.
    n_features_in_
        Number of units.
    status_
        OK; NO_VARIATION if no output varies over the masks of positive weight; or UNDERDETERMINED: the
        smallest coefficients that fit best are given.

    References
    ----------
    Ribeiro, Singh and Guestrin (2016), "Why Should I Trust You?", arXiv:1602.04938; defaults of the
    lime package 0.2.0.1, ``LimeTextExplainer``.

    Examples
    --------
    >>> import numpy as np
    >>> masks = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    >>> lime = Lime().fit(masks, masks @ [2.0, -1.0] + 0.5)
    >>> lime.attributions().round(12), round(lime.base_value_, 12)
    (array([ 2., -1.]), 0.5)
    """

    name: ClassVar[str] = "lime"
    kinds: ClassVar[tuple[str, ...]] = ("coefficient",)
    effect: ClassVar[str] = "coefficient"
    takes_counts: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    coef_: FloatArray
    intercept_: FloatArray | float
    base_value_: FloatArray | float
    weights_: FloatArray
    selected_: BoolArray
    n_features_in_: int
    status_: Status

    def __init__(
        self,
        kernel_width: float | None = 25.0,
        alpha: float = 0.0,
        n_features: int | None = None,
        feature_selection: FeatureSelection = "auto",
        fit_intercept: bool = True,
    ) -> None:
        self.kernel_width = kernel_width
        self.alpha = alpha
        self.n_features = n_features
        self.feature_selection = feature_selection
        self.fit_intercept = fit_intercept

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
            Shape (n_masks, n_units): 0/1, or counts where identical units share a coefficient.
        scores
            Shape (n_masks,) or (n_masks, n_outputs).
        sample_weight
            Shape (n_masks,), non-negative; multiplies the locality weights, so that 2 equals the row
            twice.
        score_errors
            Shape of scores, in their units: standard errors of the answers, independent of each other;
            what ``std_errors`` counts where residuals are no chance. By default none.

        Raises
        ------
        InputError
            If shapes, numbers or an option cannot be used, or all weights are zero.
        """
        self._check_options()
        Z, Y, given = check_masks_and_scores(masks, scores, sample_weight)
        errors = check_score_errors(score_errors, scores)
        locality = locality_weights(Z, self.kernel_width)
        weights = given * locality
        counted = weights > 0
        if not counted.any():
            raise InputError(
                "Got weights that are all zero; expected a mask of positive sample weight near enough "
                f"to the full text for kernel_width={self.kernel_width!r}. Widen the kernel or add the "
                "full row."
            )
        selected = np.stack([self._select(Z, y, weights) for y in Y.T])
        coef, intercept = np.zeros(selected.shape), np.zeros(len(selected))
        varies = np.ptp(Z[counted], axis=0) > 0
        identified = np.tile(varies, (len(selected), 1))
        # Outputs that keep the same units (all of them by default) are solved together.
        for kept in np.unique(selected, axis=0):
            outputs = np.flatnonzero((selected == kept).all(axis=1))
            fit = solve_ridge(
                Z[:, kept], Y[:, outputs], weights, alpha=self.alpha, intercept=self.fit_intercept
            )
            coef[np.ix_(outputs, kept)] = fit.coef
            intercept[outputs] = fit.intercept
            identified[np.ix_(outputs, kept)] = fit.identified
        constant = (np.ptp(Y[counted], axis=0) == 0) & varies.any()
        statuses = unit_statuses(identified, constant)
        self.weights_ = locality
        self._answers = (small(Z[counted]), Y[counted], weights[counted], Z.max(axis=0))
        self._score_errors = None if errors is None else errors[counted]
        self._set(coef, intercept, selected, statuses, single=np.ndim(scores) == 1)
        return self

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Predicted scores ``b + masks @ coef_``, shape (n_masks,) or (n_masks, n_outputs)."""
        check_is_fitted(self)
        predicted: FloatArray = check_masks(masks, self.n_features_in_) @ self.coef_.T
        return predicted + self.intercept_

    def attributions(self, kind: str | None = None) -> FloatArray:
        """The coefficients, shape (n_units,) or (n_outputs, n_units)."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self.coef_.copy()

    def std_errors(
        self, kind: str | None = None, covariance: LinearCovariance = DEFAULT_COVARIANCE
    ) -> FloatArray:
        """Standard errors of the coefficients, shape of ``attributions(kind)``, in their units.

        The locality weights are known weights. What is estimated is the linear model that fits best
        over the law of the masks times the locality kernel, whether or not the model is linear, and
        with ``alpha > 0`` the penalised one. Infinite where the masks do not determine a coefficient;
        NaN for units that were not selected, whose coefficients are 0 by choice. Errors after a
        selection do not include its own chance.

        Parameters
        ----------
        kind
            ``coefficient``, or None for it.
        covariance
            ``HC0`` ... ``HC3``, ``classical``: those of statsmodels' WLS. ``CR2``: HC2 with a mask and
            its complement taken as one, as their errors cancel in part; HC2 where there are no pairs;
            ``design`` once every mask was asked. ``design``: only the choice of masks is random, so
            that what is left once every mask was asked are the ``score_errors``. ``bootstrap``: masks
            resampled 1,000 times, with their complements. See `piste.fitting.inference.covariance`.
        """
        return self._shaped(self._estimate(kind, covariance).std_error[:, 1:])

    def confidence_interval(
        self,
        kind: str | None = None,
        level: float = 0.95,
        covariance: LinearCovariance = DEFAULT_COVARIANCE,
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals, ``attributions ± t std_errors``, shaped as ``attributions(kind)``.

        t has as many degrees of freedom as there are masks of positive weight (``CR2``, ``design``:
        pairs) less the effective parameters. Infinite errors give ``(-inf, inf)``.
        """
        low, high = interval(self._estimate(kind, covariance), level, single=self.coef_.ndim == 1)
        return low[..., 1:], high[..., 1:]

    def summary(
        self,
        level: float = 0.95,
        covariance: LinearCovariance = DEFAULT_COVARIANCE,
        names: Sequence[str] | None = None,
    ) -> Summary:
        """A table in the style of statsmodels; ``str`` prints it. ``names`` label the units."""
        facts = {
            "Masks": len(self.weights_),
            "Units": self.n_features_in_,
            "Covariance": covariance,
            "Status": self.status_,
            "Kernel width": self.kernel_width,
            "Ridge": self.alpha,
        }
        rows = ["intercept", *row_names(names, self.n_features_in_)]
        estimate = self._estimate(None, covariance)
        return summary_table(estimate, level, title="LIME coefficients", facts=facts, names=rows)

    def unit_status(self, kind: str) -> UnitStatus:
        """How each coefficient came out, shaped as ``attributions(kind)``.

        A unit that was not selected is OK unless no mask of positive weight tells anything about it.
        """
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self._unit_status

    def min_queries(self, n_units: int) -> int:
        """One mask per coefficient, and one for the intercept if it is fitted."""
        return n_units + int(self.fit_intercept)

    def plan(self, masks: ArrayLike) -> Plan:
        """What an optimal design needs to know: masks count as the locality kernel weighs them."""
        asked, _, weights, full = large(self._answers[0]), *self._answers[1:]
        candidates = check_masks(masks, self.n_features_in_)
        local = locality_weights(np.vstack([full, candidates]), self.kernel_width)[1:]
        design, rows = (np.column_stack([np.ones(len(z)), z]) for z in (asked, candidates))
        information = (design * weights[:, None]).T @ design
        contrasts = np.eye(design.shape[1])[1:]
        covariance = np.asarray(np.linalg.pinv(information, hermitian=True), dtype=np.float64)
        return Plan(rows * np.sqrt(local)[:, None], covariance, contrasts)

    def _estimate(self, kind: str | None, covariance: LinearCovariance) -> Estimate:
        """Intercept and coefficients of each output, shape (n_outputs, 1 + n_units), with errors."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        check_covariance(covariance, LINEAR_COVARIANCES)
        value = np.column_stack([np.atleast_1d(self.intercept_), np.atleast_2d(self.coef_)])
        columns = np.column_stack(
            [np.full(len(value), self.fit_intercept), np.atleast_2d(self.selected_)]
        )
        if covariance == DEFAULT_COVARIANCE and self._asked_out():
            covariance = "design"
        errors, df = np.full(value.shape, np.nan), np.empty(len(value))
        for kept in np.unique(columns, axis=0):
            outputs = np.flatnonzero((columns == kept).all(axis=1))
            answers = self._linear_answers(value[outputs], outputs, kept)
            errors[np.ix_(outputs, kept)], df[outputs] = linear_std_errors(answers, covariance)
        return Estimate(value, errors, df)

    def _asked_out(self) -> bool:
        """Whether every mask was asked: the coefficients are then those of the law itself."""
        Z, n_units = self._answers[0], self.n_features_in_
        binary = bool(((Z == 0) | (Z == 1)).all())
        return binary and n_units < 30 and len(np.unique(Z, axis=0)) == 2**n_units

    def _linear_answers(self, value: FloatArray, outputs: IntArray, kept: BoolArray) -> LinearAnswers:
        """The fit of outputs that keep the same columns, the intercept's being the first."""
        Z, scores, weights, full = large(self._answers[0]), *self._answers[1:]
        Y = scores[:, outputs]
        X = np.column_stack([np.ones(len(Z)), Z])

        def refit(times: FloatArray) -> FloatArray:
            fit = solve_ridge(
                Z[:, kept[1:]], Y, weights * times, alpha=self.alpha, intercept=self.fit_intercept
            )
            return np.column_stack([fit.intercept, fit.coef])[:, int(not kept[0]) :]

        ridge = np.concatenate([[0.0], np.full(Z.shape[1], float(self.alpha))])
        return LinearAnswers(
            design=X[:, kept],
            residuals=Y - X @ value.T,
            weights=weights,
            units=mask_pairs(Z, full),
            refit=refit,
            ridge=ridge[kept],
            std_errors=None if self._score_errors is None else self._score_errors[:, outputs],
        )

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self.coef_.ndim == 1 else rows

    def _check_options(self) -> None:
        if self.kernel_width is not None and not self.kernel_width > 0:
            raise InputError(f"Got kernel_width={self.kernel_width!r}; expected a number > 0, or None.")
        if not 0 <= self.alpha < np.inf:
            raise InputError(f"Got alpha={self.alpha!r}; expected a finite number >= 0.")
        if self.n_features is not None and self.n_features < 1:
            raise InputError(f"Got n_features={self.n_features!r}; expected a number >= 1, or None.")
        if self.feature_selection not in ("none", "auto", *SELECTIONS):
            raise InputError(
                f"Got feature_selection={self.feature_selection!r}; expected 'none', 'auto', "
                f"{', '.join(map(repr, SELECTIONS))}."
            )

    def _select(self, Z: FloatArray, y: FloatArray, weights: FloatArray) -> BoolArray:
        """Which units keep a coefficient for one output, shape (n_units,)."""
        n_units = Z.shape[1]
        method: str = self.feature_selection
        if method == "none" or self.n_features is None or self.n_features >= n_units:
            return np.ones(n_units, dtype=np.bool_)
        if method == "auto":
            method = "forward_selection" if self.n_features <= 6 else "highest_weights"
        selected = np.zeros(n_units, dtype=np.bool_)
        selected[SELECTIONS[method](Z, y, weights, self.n_features)] = True
        return selected

    def _set(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        selected: BoolArray,
        statuses: tuple[tuple[Status, ...], ...],
        *,
        single: bool,
    ) -> None:
        self.n_features_in_ = coef.shape[1]
        self.status_ = overall_status(statuses)
        self.coef_ = coef[0] if single else coef
        self.selected_ = selected[0] if single else selected
        self.intercept_ = self.base_value_ = float(intercept[0]) if single else intercept
        self._unit_status: UnitStatus = statuses[0] if single else statuses
