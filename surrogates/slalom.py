"""SLALOM as a scikit-learn estimator."""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.result import Status
from piste.fitting.slalom import PriorChoice, SlalomOptions, fit_slaloms, min_queries
from piste.surrogates.base import check_kind, check_masks, check_masks_and_scores


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
        The model is the sum of this many SLALOMs, like a Transformer's attention heads. With more than
        one, ``value_`` and ``importance_`` sum the heads up by their attention on the full text.
    shared_importance
        With several outputs: one set of importances for all of them, or one for each.
    prior
        Ridge on values and importances: ``"evidence"`` (marginal likelihood), ``"cv"`` (five folds), or
        the two strengths, per squared standardised score.
    max_iter
        Levenberg-Marquardt steps per start.
    random_state
        Seed of the heads' starting points and the folds; nothing else is random.

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
    kinds: ClassVar[tuple[str, ...]] = ("value", "importance", "linear", "removal")
    effect: ClassVar[str] = "removal"
    takes_counts: ClassVar[bool] = True

    def __init__(
        self,
        background: bool = True,
        heads: int = 1,
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
        used = weights > 0
        if not used.any():
            raise InputError("Got sample_weight of zeros only; expected a positive one. Leave it out.")
        self._fit = fit_slaloms(masks_[used], scores_[used], weights[used], options)
        self._single_output = np.ndim(scores) == 1
        self.n_features_in_ = masks_.shape[1]
        self.full_counts_ = masks_[used].max(axis=0)
        value, importance, background = self._summed_heads()
        self.value_ = self._shaped(value[:, 1:])
        self.importance_ = self._shaped(importance)
        self.background_value_ = self._per_output(value[:, 0])
        self.background_importance_ = self._per_output(background)
        self.base_value_ = self._per_output(self._fit.predict(np.zeros((1, self.n_features_in_)))[0])
        self.noise_ = self._per_output(self._fit.noise)
        self.status_ = self._fit.status
        self.n_iter_ = self._fit.n_iter
        return self

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Scores of masks (n_masks, n_units): shape (n_masks,), or (n_masks, k) after a 2-D fit."""
        predicted = self._fit.predict(check_masks(masks, self.n_features_in_))
        return predicted[:, 0] if self._single_output else predicted

    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (k, n_units).

        ``value``: ``v``, the score of a text made of this unit alone (absolute, no gauge).
        ``importance``: ``s``, mean zero over the units.
        ``linear``: ``v exp(s)``.
        ``removal``: ``F(full) - F(full without one occurrence)``; units without a background and
        without company fall to ``base_value_``.
        """
        kind = check_kind(kind, self.kinds)
        if kind == "value":
            return self.value_
        if kind == "importance":
            return self.importance_
        if kind == "linear":
            return self.value_ * np.exp(self.importance_)
        full = self.full_counts_
        left = full - np.diag((full > 0).astype(float))
        scores = self._fit.predict(np.vstack([full, left]))
        return self._shaped((scores[0] - scores[1:]).T)

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
        return min_queries(n_units, background=self.background, heads=self.heads)

    def _options(self) -> SlalomOptions:
        """The constructor's options, checked."""
        if self.heads < 1 or self.max_iter < 1:
            raise InputError(
                f"Got heads={self.heads} and max_iter={self.max_iter}; expected at least 1 of each."
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

    def _summed_heads(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values (background first), importances and background importance, heads summed up.

        A unit's weight is its attention on the full text summed over heads, its value the attention-
        weighted sum of its values; one head comes through unchanged.
        """
        fit = self._fit
        n_heads = fit.value.shape[1]
        log_w = np.concatenate([fit.background_importance[..., None], fit.importance], axis=2)
        value = np.concatenate([fit.background_value[..., None], fit.value], axis=2)
        if n_heads == 1:
            return value[:, 0], fit.importance[:, 0], fit.background_importance[:, 0]
        w = np.exp(log_w - log_w.max(axis=2, keepdims=True))
        share = w / (w[..., :1] + (w[..., 1:] * self.full_counts_).sum(axis=2, keepdims=True))
        attention = share.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mixed = np.where(
                attention > 0, n_heads * (share * value).sum(axis=1) / attention, value.sum(axis=1)
            )
            importance = np.log(attention)
        centre = importance[:, 1:].mean(axis=1, keepdims=True)
        return mixed, importance[:, 1:] - centre, importance[:, 0] - centre[:, 0]

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self._single_output else rows

    def _per_output(self, values: FloatArray) -> FloatArray | float:
        return float(values[0]) if self._single_output else values
