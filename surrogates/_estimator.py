"""What estimators on masks share beside the checks of `piste.surrogates.base`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from piste._typing import FloatArray
from piste.fitting.inference import Estimate
from piste.surrogates._intervals import interval
from piste.surrogates.base import check_kind, check_masks


class MaskRegressor(RegressorMixin, BaseEstimator):
    """A regressor on masks: they are not negative, and scores may have several outputs."""

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn is untyped)
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.multi_output = True
        return tags


class _Fit(Protocol):
    """What was fitted to one output."""

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks, shape (n_masks,)."""
        ...


class UnmeasuredRegressor(MaskRegressor):
    """One that predicts each output by a fit of its own, and does not know the errors of what it says."""

    kinds: ClassVar[tuple[str, ...]]
    n_features_in_: int
    _fits: Sequence[_Fit]
    _single: bool

    @abstractmethod
    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (n_outputs, n_units)."""

    def predict(self, masks: ArrayLike) -> FloatArray:
        """Predicted scores, shape (n_masks,) or (n_masks, n_outputs)."""
        check_is_fitted(self)
        scores = self._scores(check_masks(masks, self.n_features_in_))
        return scores[:, 0] if self._single else scores

    def std_errors(self, kind: str | None = None) -> FloatArray:
        """Infinite, shaped as the attributions: not known."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self._shaped(np.full((len(self._fits), self.n_features_in_), np.inf))

    def confidence_interval(
        self, kind: str | None = None, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray]:
        """The whole line, shaped as the attributions: see ``std_errors``."""
        values = np.atleast_2d(self.attributions(kind))
        unknown = Estimate(values, np.full(values.shape, np.inf), np.full(len(values), np.inf))
        return interval(unknown, level, single=self._single)

    def _removal(self) -> FloatArray:
        """``f(full) - f(full without the unit)``, shape (n_outputs, n_units)."""
        n_units = self.n_features_in_
        scores = self._scores(np.vstack([np.ones(n_units), 1.0 - np.eye(n_units)]))
        removal: FloatArray = (scores[0] - scores[1:]).T
        return removal

    def _scores(self, Z: FloatArray) -> FloatArray:
        return np.column_stack([fit.predict(Z) for fit in self._fits])

    def _shaped(self, rows: FloatArray) -> FloatArray:
        return rows[0] if self._single else rows
