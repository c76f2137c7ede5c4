"""SLALOM as a scikit-learn estimator."""

from collections.abc import Sequence
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from statsmodels.iolib.summary import Summary

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting._rows import small
from piste.fitting._slalom_summary import summed_heads
from piste.fitting.additivity import Additivity, Ends, additivity, compare_ends
from piste.fitting.inference import Estimate
from piste.fitting.interactions import PairIndex, slalom_pairs_heads
from piste.fitting.result import Status
from piste.fitting.shapley import slalom_shapley_heads
from piste.fitting.slalom import AUTO, Heads, PriorChoice, SlalomOptions, fit_slaloms, min_queries
from piste.fitting.slalom_inference import (
    SLALOM_COVARIANCES,
    SlalomCovariance,
    SlalomInference,
    SlalomKind,
    slalom_estimate,
    slalom_gradients,
    slalom_inference,
    slalom_jacobian,
)
from piste.surrogates._intervals import check_covariance, interval, readable, row_names, summary_table
from piste.surrogates.base import (
    Plan,
    check_kind,
    check_masks,
    check_masks_and_scores,
    large,
    rows_that_count,
)


class Slalom(RegressorMixin, BaseEstimator):
    r"""Softmax-linked additive log-odds model of a Transformer, with a background token.

    Each unit has a value ``v`` and an importance ``s``, and a mask with counts ``m`` scores

        F(m) = (w_0 v_0 + sum_i m_i w_i v_i) / (w_0 + sum_i m_i w_i),    w = exp(s).

    The background ``(v_0, s_0)`` stands for what is always attended to (special tokens, a prompt) and
    defines the empty text; ``background=False`` is the published model, whose ``w_0`` is zero.

    Parameters
    ----------
    background
        Whether to fit a background. Where the answers follow the published model exactly, that one is
        chosen all the same and ``background_importance_`` is ``-inf``.
    heads
        The model is the sum of this many SLALOMs, like a Transformer's attention heads. ``"auto"`` adds
        heads, up to four, while five-fold cross-validation over the masks gets better; that takes some 50
        times as long as one head. Removal and Shapley values add up over heads; ``value_`` and
        ``importance_`` then only sum up what the heads attend to on the full text.
    shared_importance
        With several outputs: one set of importances for all of them, or one for each.
    prior
        Ridge on values and importances: ``"evidence"`` (marginal likelihood; .3 and .3 where answers are
        fewer than parameters), ``"cv"`` (five folds), or the two strengths, per squared standardised score.
    max_iter
        Levenberg-Marquardt steps per start.
    random_state
        Seed of the folds of cross-validation; nothing else is random.

    Attributes
    ----------
    value_
        Shape (n_units,) or (n_outputs, n_units): absolute, in score units; no gauge.
    importance_
        Same shape: log weights, dimensionless. Gauge: mean zero over the units.
    background_value_, background_importance_
        Per output: in score units, and in the gauge of ``importance_``.
    base_value_
        Prediction for the empty text, per output.
    status_
        How the fit came out, with advice.
    n_heads_
        Shape (n_outputs,), int64: heads of each output.
    noise_
        Residual variance per output, in squared score units.

    References
    ----------
    Leemann, Fastowski, Pfeiffer & Kasneci (2025), TMLR, arXiv 2405.13536.

    Examples
    --------
    >>> import numpy as np
    >>> from itertools import product
    >>> masks = np.array(list(product([0, 1], repeat=3)))[1:]
    >>> weight, value = np.array([1.0, 2.0, 4.0]), np.array([3.0, 0.0, -1.0])
    >>> scores = masks @ (weight * value) / (masks @ weight)
    >>> fitted = Slalom().fit(masks, scores)
    >>> np.round(fitted.value_, 6) + 0.0
    array([ 3.,  0., -1.])
    >>> np.round(np.exp(fitted.importance_), 6)
    array([0.5, 1. , 2. ])
    """

    name: ClassVar[str] = "slalom"
    kinds: ClassVar[tuple[str, ...]] = (
        "value",
        "importance",
        "linear",
        "removal",
        "shapley",
    )
    effect: ClassVar[str] = "removal"
    takes_counts: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    def __init__(
        self,
        background: bool = True,
        heads: Heads = 1,
        *,
        shared_importance: bool = False,
        prior: PriorChoice = "evidence",
        max_iter: int = 100,
        random_state: int = 0,
    ) -> None:
        self.background = background
        self.heads = heads
        self.shared_importance = shared_importance
        self.prior = prior
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, masks: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to masks (n_masks, n_units), 0/1 or counts, and scores (n_masks,) or (n_masks, k).

        A weight counts answers: 2 means the same as the row given twice, 0 as the row left out.

        Raises
        ------
        InputError
            If a shape does not fit, a number is not finite, or an option has no meaning.
        """
        masks_, scores_, weights = check_masks_and_scores(masks, scores, sample_weight)
        options = self._options()
        used = rows_that_count(weights)
        self._fit = fit_slaloms(masks_[used], scores_[used], weights[used], options)
        self._answers = (small(masks_), scores_, weights)
        self._inferences: tuple[SlalomInference, ...] | None = None
        self._estimates: dict[tuple[str, str], Estimate] = {}  # errors, then intervals, need the same
        self._single_output = np.ndim(scores) == 1
        self.n_features_in_ = masks_.shape[1]
        self.full_counts_ = masks_[used].max(axis=0)
        value, importance, background = summed_heads(self._fit, self.full_counts_)
        self.value_ = self._shaped(value[:, 1:])
        self.importance_ = self._shaped(importance)
        self.background_value_ = self._per_output(value[:, 0])
        self.background_importance_ = self._per_output(background)
        self.base_value_ = self._per_output(self._fit.predict(np.zeros((1, self.n_features_in_)))[0])
        self.noise_ = self._per_output(self._fit.noise)
        self.n_heads_ = np.array(self._fit.n_heads)
        self.status_ = self._fit.status
        self.n_iter_ = self._fit.n_iter
        return self

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Scores of masks (n_masks, n_units): shape (n_masks,), or (n_masks, k) after a 2-D fit."""
        check_is_fitted(self)
        predicted = self._fit.predict(check_masks(masks, self.n_features_in_))
        return predicted[:, 0] if self._single_output else predicted

    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (k, n_units).

        ``value``: ``v``, the score that the unit pulls the text towards (absolute, no gauge); without a
        background, the score of a text made of this unit alone.
        ``importance``: ``s``, mean zero over the units.
        ``linear``: ``v exp(s)``.
        ``removal``: ``F(full) - F(full without one occurrence)``; units without a background and
        without company fall to ``base_value_``.
        ``shapley``: exact Shapley value of the fitted model; of one copy where units have several.
        """
        check_is_fitted(self)
        kind = check_kind(kind, self.kinds)
        if kind == "value":
            return self.value_
        if kind == "importance":
            return self.importance_
        if kind == "linear":
            return self.value_ * np.exp(self.importance_)
        if kind == "shapley":
            return self._shaped(self._shapley())
        full = self.full_counts_
        left = full - np.diag((full > 0).astype(float))
        scores = self._fit.predict(np.vstack([full, left]))
        return self._shaped((scores[0] - scores[1:]).T)

    def std_errors(self, kind: str | None = None, covariance: SlalomCovariance = "HC2") -> FloatArray:
        """Standard errors, shape and units of ``attributions(kind)``, by the delta method.

        They hold whether or not the model is a SLALOM (the target is then the SLALOM that fits best
        over the law of the masks), in the gauge, and include what the prior may have shrunk. They come
        from residuals, so noise of the answers is in them, and misfit stays in them when every mask was
        asked. Infinite where the answers do not determine the number. With several heads only ``removal``
        and ``shapley`` have errors, for they add up over heads; the others' are NaN. Where heads were
        simulated, 95 % intervals of Shapley values covered 93 to 97 %, of removal 92 to 98 % with noise of
        5 % of the spread and 88 to 94 % with 30 %; what choosing their number adds is not in them. With
        ``shared_importance`` each output is taken alone, which errs on the large side.

        Parameters
        ----------
        kind
            As for ``attributions``.
        covariance
            ``HC2`` and others of `piste.fitting.inference.covariance`, or ``one-step bootstrap``: masks
            resampled 1,000 times, with their complements, one linearised step each.
        """
        return self._shaped(self._estimate(kind, covariance).std_error.copy())

    def confidence_interval(
        self,
        kind: str | None = None,
        level: float = 0.95,
        covariance: SlalomCovariance = "HC2",
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals, ``attributions ± t std_errors``, shaped as ``attributions(kind)``.

        t has as many degrees of freedom as there are masks less the effective parameters.
        """
        return interval(self._estimate(kind, covariance), level, single=self._single_output)

    def summary(
        self,
        level: float = 0.95,
        kind: str | None = None,
        covariance: SlalomCovariance = "HC2",
        names: Sequence[str] | None = None,
    ) -> Summary:
        """A table in the style of statsmodels; ``str`` prints it. ``names`` label the units."""
        kind = check_kind(kind, self.kinds)
        facts = {
            "Masks": len(self._answers[0]),
            "Units": self.n_features_in_,
            "Heads": ", ".join(map(str, self.n_heads_)),
            "Covariance": covariance,
            "Status": self.status_,
            "Noise variance": readable(self.noise_),
            "Background value": readable(self.background_value_),
            "Background importance": readable(self.background_importance_),
        }
        rows = row_names(names, self.n_features_in_)
        estimate = self._estimate(kind, covariance)
        return summary_table(estimate, level, title=f"SLALOM {kind}", facts=facts, names=rows)

    def unit_status(self, kind: str) -> list[Status] | list[list[Status]]:
        """How each attribution came out; importances may be unidentifiable where values are not."""
        check_kind(kind, self.kinds)
        concerned = kind in ("importance", "linear") and self.status_ is not Status.NO_VARIATION
        rows = [
            [
                Status.IMPORTANCE_NOT_IDENTIFIABLE if concerned and not known else self.status_
                for known in output
            ]
            for output in self._fit.identifiable
        ]
        return rows[0] if self._single_output else rows

    def min_queries(self, n_units: int) -> int:
        """Parameters up to the gauge, per head: ``2 n + 1``, or ``2 n - 1`` without a background."""
        return min_queries(
            n_units, background=self.background, heads=1 if self.heads == AUTO else self.heads
        )

    def plan(self, masks: ArrayLike) -> Plan:
        """What an optimal design needs to know: the fit linearised at its first output's solution."""
        inference, asked = self._linearised()[0], check_masks(masks, self.n_features_in_)
        gradients = [slalom_jacobian(head, asked)[1] for head in inference.heads]
        contrasts = [slalom_gradients(head, "removal", inference.full) for head in inference.heads]
        return Plan(np.hstack(gradients), inference.fit.bread, np.hstack(contrasts))

    def additivity(self, level: float = 0.95) -> list[Additivity]:
        """The background's share of attention on the full text, per output, with its interval.

        ``w_0 / (w_0 + sum_i w_i)``: 1 for a model that adds its units up, 0 for the published SLALOM. The
        fit keeps it below .99, where nothing more can be told. Needs one head.
        """
        return [
            additivity(inference, float(t.ppf(0.5 + level / 2, max(inference.covariance("HC2").df, 1))))
            for inference in self._one_head()
        ]

    def pair_values(self, index: PairIndex = "faith-shap") -> FloatArray:
        """Exact pairwise interactions of the fitted model, which cost no query.

        Shape (n_units, n_units) or (n_outputs, n_units, n_units), symmetric with a zero diagonal, in
        units of the score; ``index`` is ``faith-shap`` or ``k-sii``. Counts are not expanded.
        """
        check_is_fitted(self)
        fit = self._fit
        return self._shaped(
            slalom_pairs_heads(
                fit.value, fit.importance, fit.background_value, fit.background_importance, index
            )
        )

    def compare_ends(self, n_bootstrap: int = 99) -> list[Ends]:
        """Test the additive and the published model against the one between, per output.

        Parametric bootstrap of the likelihood ratio (neither end has a chi-square law) and cross-validated
        errors of all three; seeded by ``random_state``. It takes ``4 n_bootstrap`` fits.
        """
        masks, scores, weights = large(self._answers[0]), *self._answers[1:]
        used = weights > 0
        return [
            compare_ends(
                masks[used],
                scores[used, output],
                weights[used],
                max_iter=self.max_iter,
                n_bootstrap=n_bootstrap,
                rng=np.random.default_rng(self.random_state),
            )
            for output in range(scores.shape[1])
        ]

    def _linearised(self) -> tuple[SlalomInference, ...]:
        """The fit of each output, linearised."""
        check_is_fitted(self)
        if self._inferences is None:
            masks, scores, weights = self._answers
            self._inferences = slalom_inference(large(masks), scores, weights, self._fit)
        return self._inferences

    def _one_head(self) -> tuple[SlalomInference, ...]:
        """The same; InputError with several heads."""
        if max(self._fit.n_heads) > 1:
            raise InputError(
                f"Got a fit of {max(self._fit.n_heads)} heads; expected one head, for heads have no single "
                "background. Fit Slalom(heads=1)."
            )
        return self._linearised()

    def _estimate(self, kind: str | None, covariance: SlalomCovariance) -> Estimate:
        kind = check_kind(kind, self.kinds)
        check_covariance(covariance, SLALOM_COVARIANCES)
        found = self._estimates.get((kind, covariance))
        if found is None:
            values = np.atleast_2d(self.attributions(kind))
            found = slalom_estimate(self._linearised(), values, cast("SlalomKind", kind), covariance)
            self._estimates[kind, covariance] = found
        return found

    def _shapley(self) -> FloatArray:
        """Exact Shapley values (n_outputs, n_units), heads added up; copies of a unit are players."""
        copies = np.maximum(np.rint(self.full_counts_), 1).astype(np.int64)
        owner = np.repeat(np.arange(self.n_features_in_), copies)
        of_copies = slalom_shapley_heads(
            self._fit.value[..., owner],
            self._fit.importance[..., owner],
            self._fit.background_value,
            self._fit.background_importance,
        )
        return of_copies[:, np.cumsum(copies) - 1]

    def _options(self) -> SlalomOptions:
        """The constructor's options, checked."""
        for number in (1 if self.heads == AUTO else self.heads, self.max_iter):
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
                raise InputError(
                    f"Got heads={self.heads!r} and max_iter={self.max_iter!r}; expected whole numbers, at "
                    "least 1 of each, or heads='auto'."
                )
        if isinstance(self.prior, str) and self.prior not in ("evidence", "cv"):
            raise InputError(
                f"Got prior={self.prior!r}; expected 'evidence', 'cv' or two strengths such as "
                "(0.01, 0.1)."
            )
        if not isinstance(self.prior, str) and (len(self.prior) != 2 or not min(self.prior) >= 0):
            raise InputError(
                f"Got prior={self.prior!r}; expected two non-negative strengths, of values and of "
                "importances, such as (0.01, 0.1)."
            )
        return SlalomOptions(
            self.background,
            self.heads,
            self.shared_importance,
            self.prior,
            self.max_iter,
            self.random_state,
        )

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self._single_output else rows

    def _per_output(self, values: FloatArray) -> FloatArray | float:
        return float(values[0]) if self._single_output else values
