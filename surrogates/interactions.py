"""Pairwise Shapley interactions as a weighted regression that adds up exactly."""

from typing import ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting._rows import small
from piste.fitting._sampling_units import mask_pairs
from piste.fitting.answer_errors import answer_variance
from piste.fitting.inference import Estimate, covariance, linearise
from piste.fitting.interactions import (
    PairFit,
    PairIndex,
    fit_pairs,
    pair_features,
    pair_model,
    pair_sums,
)
from piste.fitting.result import Status
from piste.surrogates._additive import UnitStatus, overall_status, unit_statuses
from piste.surrogates._estimator import MaskRegressor
from piste.surrogates._intervals import interval
from piste.surrogates.base import (
    check_kind,
    check_masks,
    check_masks_and_scores,
    check_score_errors,
    large,
)
from piste.surrogates.shap import anchor_variances, anchors, shapley_weights


class Interactions(MaskRegressor):
    r"""Main effects of the units of a text, and what each two of them do together.

    .. math::

        f(z) \approx f(\emptyset) + \sum_i z_i a_i + \sum_{i<j} z_i z_j a_{ij}, \qquad
        \sum_i a_i + \sum_{i<j} a_{ij} = f(\text{full}) - f(\emptyset)

    ``faith-shap`` is the best such model under the Shapley kernel, meeting the empty and the full text
    exactly, fitted like `KernelShap`. ``k-sii`` averages each pair's joint effect over the sets of the
    other units; it is estimated as Faith-SHAP's pairs plus the same average of what that model leaves
    unexplained, each answer counting for the unseen ones of its size. Both are exact when all masks are
    given, and where the black box has no higher interactions and the masks determine its pairs. In both
    ``a_i`` and half of the unit's pairs make up its Shapley value.

    There are n (n + 1) / 2 numbers to be found, 55 for 10 units and 465 for 30. A mask and its
    complement say the same about pairs, so that designs in pairs need n (n - 1) + 2 masks to determine
    them, and some four times as many to estimate them well; totals are as good as those of `KernelShap`
    long before.

    Parameters
    ----------
    order
        Largest interaction; 2 is what there is.
    index
        ``faith-shap`` or ``k-sii``.

    Attributes
    ----------
    values_
        Main effects ``a_i``, shape (n_units,) or (n_outputs, n_units), float64, in units of the score.
    pair_values_
        Shape (n_units, n_units) or (n_outputs, n_units, n_units): ``a_ij``, symmetric, zero diagonal.
    base_value_, full_value_
        Float or shape (n_outputs,): mean score of the empty and of the full rows.
    weights_
        Shape (n_masks,), float64: the weights of the regression; 0 for the empty and full rows.
    n_features_in_
        Number of units.
    status_
        OK; NO_VARIATION if no output varies; or UNDERDETERMINED: of the values that fit best, those
        nearest to equal main effects without pairs are given.

    References
    ----------
    Tsai, Yeh and Ravikumar (2023), Faith-Shap, arXiv:2203.00870. Bordt and von Luxburg (2023), From
    Shapley Values to Generalized Additive Models and back, arXiv:2209.04012 (k-SII). Regression on the
    residual: Witter, Liu and Musco (2025), arXiv:2506.11849 (for single units).

    Examples
    --------
    >>> import numpy as np
    >>> masks = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    >>> pairs = Interactions().fit(masks, [0.0, 1.0, 3.0, 6.0])
    >>> pairs.values_.round(12), float(pairs.pair_values_[0, 1].round(12))
    (array([1., 3.]), 2.0)
    >>> pairs.attributions("total").round(12)
    array([2., 4.])
    """

    name: ClassVar[str] = "interactions"
    kinds: ClassVar[tuple[str, ...]] = ("main", "total")
    effect: ClassVar[str] = "total"
    takes_counts: ClassVar[bool] = False

    values_: FloatArray
    pair_values_: FloatArray
    base_value_: FloatArray | float
    full_value_: FloatArray | float
    weights_: FloatArray
    n_features_in_: int
    status_: Status

    def __init__(self, order: int = 2, index: PairIndex = "faith-shap") -> None:
        self.order = order
        self.index = index

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
            Shape (n_masks,), non-negative: the weights of the regression, as they are, and what a mask
            counts within its size for ``k-sii``. By default ``shapley_weights(masks)``.
        score_errors
            Shape of scores, in their units: standard errors of the answers, independent of each other;
            ``std_errors`` counts them where residuals do not. By default none.

        Raises
        ------
        InputError
            If shapes, numbers or an option cannot be used, a mask holds counts, or the full or empty
            row is missing.
        """
        self._check_options()
        Z, Y, given = check_masks_and_scores(masks, scores, sample_weight)
        errors = check_score_errors(score_errors, scores)
        full, empty = anchors(Z)
        inner = ~(full | empty)
        weights = shapley_weights(Z) if sample_weight is None else np.where(inner, given, 0.0)
        base, top = Y[empty].mean(axis=0), Y[full].mean(axis=0)
        fit = fit_pairs(Z[inner], Y[inner] - base, weights[inner], top - base)
        main, pairs = fit.main, fit.pairs
        if self.index == "k-sii":
            residuals = np.where(inner[:, None], Y - base - fit.predict(Z), 0.0)
            rest = pair_sums(Z, residuals, _shares_of_size(Z, weights))
            main, pairs = main - 0.5 * rest.sum(axis=2), pairs + rest
        self.n_features_in_ = Z.shape[1]
        self._answers = (small(Z[inner]), Y[inner] - base - fit.predict(Z[inner]), weights[inner])
        self._score_errors = None if errors is None else errors[inner]
        self._anchor_variances = None if errors is None else anchor_variances(errors, empty, full)
        self.weights_ = weights
        self._single = np.ndim(scores) == 1
        self.values_, self.pair_values_ = self._shaped(main), self._shaped(pairs)
        self.base_value_ = float(base[0]) if self._single else base
        self.full_value_ = float(top[0]) if self._single else top
        self._set_statuses(fit, constant=np.ptp(Y, axis=0) == 0)
        return self

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Predicted scores, shape (n_masks,) or (n_masks, n_outputs)."""
        check_is_fitted(self)
        Z = check_masks(masks, self.n_features_in_)
        main = np.atleast_2d(self.values_)
        pairs = self.pair_values_.reshape(-1, *self.pair_values_.shape[-2:])
        gains = pair_model(Z, main, pairs)
        return (gains[:, 0] if self._single else gains) + self.base_value_

    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (n_outputs, n_units).

        ``main``: ``a_i``, its effect in the absence of all others. ``total``: with half of each of its
        pairs, which estimates its Shapley value; these add up to ``full_value_ - base_value_``.
        """
        check_is_fitted(self)
        if check_kind(kind, self.kinds) == "main":
            return self.values_.copy()
        total: FloatArray = self.values_ + 0.5 * self.pair_values_.sum(axis=-1)
        return total

    def std_errors(self, kind: str | None = None) -> FloatArray:
        """Standard errors of the attributions, of their shape and units; infinite where undetermined.

        Those of the regression, for masks drawn in pairs, without replacement from each size, and
        answers of the ``score_errors`` that ``fit`` was given (``design`` of `KernelShap.std_errors`):
        without these 0 once every mask was asked.
        What ``k-sii`` adds to the main effects is taken as known.
        """
        return self._shaped(self._estimate(kind).std_error)

    def confidence_interval(
        self, kind: str | None = None, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals, ``attributions ± t std_errors``, each shaped as the attributions."""
        return interval(self._estimate(kind), level, single=self._single)

    def unit_status(self, kind: str) -> UnitStatus:
        """How each attribution came out; a total is determined if all of its parts are."""
        check_is_fitted(self)
        return self._unit_status[check_kind(kind, self.kinds)]

    def min_queries(self, n_units: int) -> int:
        """The full and the empty text, and one mask per number that their difference leaves free."""
        return n_units * (n_units + 1) // 2 + 1

    def _check_options(self) -> None:
        if self.order != 2:
            raise InputError(f"Got order={self.order!r}; expected 2: pairs are what there is.")
        if self.index not in get_args(PairIndex):
            names = " or ".join(map(repr, get_args(PairIndex)))
            raise InputError(f"Got index={self.index!r}; expected {names}.")

    def _set_statuses(self, fit: PairFit, constant: BoolArray) -> None:
        known = {"main": fit.main_identified}
        known["total"] = fit.main_identified & fit.pairs_identified.all(axis=1)
        self._unit_status: dict[str, UnitStatus] = {}
        for kind, identified in known.items():
            rows = unit_statuses(
                np.broadcast_to(identified, (len(constant), len(identified))), constant
            )
            self._unit_status[kind] = rows[0] if self._single else rows
        self.status_ = overall_status(rows)

    def _estimate(self, kind: str | None) -> Estimate:
        values = np.atleast_2d(self.attributions(kind))
        Z, residuals, weights = large(self._answers[0]), *self._answers[1:]
        n_units = Z.shape[1]
        first, second = np.triu_indices(n_units, 1)
        in_pair = np.zeros((n_units, len(first)))
        if check_kind(kind, self.kinds) == "total":
            in_pair[first, np.arange(len(first))] = in_pair[second, np.arange(len(first))] = 0.5
        parts = np.hstack([np.eye(n_units), in_pair])
        fit = linearise(pair_features(Z), weights, gauge=np.ones((1, parts.shape[1])))
        units = mask_pairs(Z, np.ones(n_units))
        found = [covariance(fit, e, "design", units=units) for e in residuals.T]
        errors = np.stack([one.std_errors(parts) for one in found])
        if self._score_errors is not None and self._anchor_variances is not None:
            noise = answer_variance(fit, parts, self._score_errors, units.fraction[units.unit])
            ends = fit_pairs(
                Z, np.array([-1.0, 0.0]) * np.ones((len(Z), 1)), weights, np.array([-1.0, 1.0])
            )
            moves = np.hstack([ends.main, ends.pairs[:, first, second]]) @ parts.T
            errors = np.sqrt(errors**2 + noise + self._anchor_variances.T @ moves**2)
        return Estimate(values, errors, np.array([one.df for one in found]))

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self._single else rows


def _shares_of_size(masks: FloatArray, weights: FloatArray) -> FloatArray:
    """Each row's part of the weight of its size, shape (n_masks,); 0 where that is 0."""
    sizes = masks.sum(axis=1).astype(np.int64)
    of_size = np.bincount(sizes, weights=weights)[sizes]
    shares: FloatArray = np.divide(weights, of_size, out=np.zeros_like(weights), where=of_size > 0)
    return shares
