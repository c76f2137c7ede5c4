"""Boosted trees on masks: what a surrogate can reach that need not be read."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import beta
from sklearn.utils.validation import check_is_fitted

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting.result import Status
from piste.surrogates._additive import UnitStatus, overall_status, unit_statuses
from piste.surrogates._estimator import UnmeasuredRegressor
from piste.surrogates.base import (
    check_kind,
    check_masks_and_scores,
    check_presences,
    rows_that_count,
)

# Measured on real texts at 500 masks: cross-validation took from a hundred rounds to all of them, and
# neither slower learning nor more leaves did better on held-out masks.
LEAVES = (4, 8)
LEARNING_RATE = 0.1
N_FOLDS = 5
FIXED = {
    "objective": "regression",
    "min_data_in_leaf": 5,
    "feature_fraction_bynode": 0.5,
    "lambda_l2": 1.0,
    "learning_rate": LEARNING_RATE,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
OF_DATA = {"min_data_in_bin": 1, "feature_pre_filter": False, "verbose": -1}

Units = tuple[int, ...]


class _Fitted(NamedTuple):
    """Trees of one output: they predict ``(score - centre) / spread``."""

    booster: Any
    centre: float
    spread: float
    left_out: FloatArray

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks, shape (n_masks,)."""
        scores: FloatArray = self.centre + self.spread * self.booster.predict(masks, num_threads=1)
        return scores


class Trees(UnmeasuredRegressor):
    r"""Gradient-boosted regression trees whose features are the units of a text.

    .. math:: f(z) \approx \sum_t T_t(z)

    Nothing but ``T_t`` having few leaves is assumed of the black box, so their held-out error is the one
    to compare a readable surrogate's with. How far they are off their best on other masks is not known: errors
    of their attributions are infinite. The number of trees and of their leaves is chosen by
    five-fold cross-validation over the masks. Needs LightGBM: ``pip install 'piste[trees]'``.

    Parameters
    ----------
    max_rounds
        The most trees per output.
    random_state
        Seed of the folds and of the units that a split may choose from, a whole number.

    Attributes
    ----------
    base_value_
        Prediction for the empty text, per output, in units of the score.
    left_out_
        Shape (n_masks,) or (n_masks, n_outputs): each mask's score as predicted in cross-validation by
        the trees that had not seen it; NaN where its weight was 0 or one mask was all there is.
    n_trees_, n_leaves_
        Shape (n_outputs,), int64: what cross-validation chose.
    n_features_in_
        Number of units.
    status_
        OK; NO_VARIATION; or UNDERDETERMINED with fewer masks than an additive model needs.

    References
    ----------
    Ke et al. (2017), LightGBM, NeurIPS. Shapley values of leaves against one background: Lundberg et al.
    (2020), arXiv:1905.04610. Trees on masks: Butler et al. (2025), ProxySPEX, arXiv:2505.17495.

    Examples
    --------
    >>> import numpy as np
    >>> masks = np.random.default_rng(0).integers(0, 2, (400, 3))
    >>> trees = Trees().fit(masks, masks[:, 0] * masks[:, 1] * 4.0)
    >>> trees.attributions("shapley").round(2) + 0.0
    array([2., 2., 0.])
    """

    name: ClassVar[str] = "trees"
    kinds: ClassVar[tuple[str, ...]] = ("shapley", "removal")
    effect: ClassVar[str] = "shapley"
    takes_counts: ClassVar[bool] = False
    shrinks: ClassVar[bool] = True

    base_value_: FloatArray | float
    left_out_: FloatArray
    status_: Status
    _fits: list[_Fitted]

    def __init__(self, max_rounds: int = 500, *, random_state: int = 0) -> None:
        self.max_rounds = max_rounds
        self.random_state = random_state

    def fit(self, masks: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to masks (n_masks, n_units), 0/1, and scores (n_masks,) or (n_masks, n_outputs).

        Raises
        ------
        InputError
            If a shape, a number or an option cannot be used, a mask holds counts, or LightGBM is not
            installed.
        """
        Z, Y, weights = check_masks_and_scores(masks, scores, sample_weight)
        self._check_options()
        check_presences(Z)
        used = rows_that_count(weights)
        self._single = np.ndim(scores) == 1
        self.n_features_in_ = Z.shape[1]
        self._fits = [self._boosted(Z[used], y[used], weights[used]) for y in Y.T]
        left_out = np.full(Y.shape, np.nan)
        left_out[used] = np.column_stack([fitted.left_out for fitted in self._fits])
        self.left_out_ = left_out[:, 0] if self._single else left_out
        self.n_trees_ = np.array([fitted.booster.num_trees() for fitted in self._fits])
        self.n_leaves_ = np.array([fitted.booster.params["num_leaves"] for fitted in self._fits])
        base = self._scores(np.zeros((1, self.n_features_in_)))[0]
        self.base_value_ = float(base[0]) if self._single else base
        self._set_statuses(Z[used], constant=np.ptp(Y[used], axis=0) == 0)
        return self

    def attributions(self, kind: str | None = None) -> FloatArray:
        """One number per unit, shape (n_units,) or (n_outputs, n_units), in units of the score.

        ``shapley``: exact Shapley value of the trees' prediction, the full text against the empty one.
        ``removal``: ``f(full) - f(full without the unit)``.
        """
        check_is_fitted(self)
        if check_kind(kind, self.kinds) == "removal":
            return self._shaped(self._removal())
        return self._shaped(np.stack([_shapley(fitted, self.n_features_in_) for fitted in self._fits]))

    def unit_status(self, kind: str) -> UnitStatus:
        """How each attribution came out."""
        check_is_fitted(self)
        check_kind(kind, self.kinds)
        return self._unit_status

    def min_queries(self, n_units: int) -> int:
        """As an additive model: with fewer masks a unit's effect cannot be told from the others'."""
        return n_units + 1

    def _boosted(self, Z: FloatArray, y: FloatArray, weights: FloatArray) -> _Fitted:
        """Trees of one output, their size chosen by cross-validation over the masks."""
        lightgbm = _lightgbm()
        centre, spread = float(np.average(y, weights=weights)), float(y.std()) or 1.0
        data = lightgbm.Dataset(Z, (y - centre) / spread, weight=weights, params=OF_DATA)
        fold = np.random.default_rng(self.random_state).permutation(len(Z)) % N_FOLDS
        folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]
        options = [FIXED | {"num_leaves": n_leaves, "seed": self.random_state} for n_leaves in LEAVES]
        if len(folds) < 2:
            booster = lightgbm.train(options[0], data, 1)
            return _Fitted(booster, centre, spread, np.full(len(Z), np.nan))
        found = [
            lightgbm.cv(each, data, self.max_rounds, folds=folds, metrics="l2", return_cvbooster=True)
            for each in options
        ]
        curves = np.array([each["valid l2-mean"] for each in found])
        best, last = np.unravel_index(curves.argmin(), curves.shape)
        n_trees = int(last) + 1
        left_out = np.empty(len(Z))
        for (_, held), booster in zip(folds, found[best]["cvbooster"].boosters, strict=True):
            left_out[held] = booster.predict(Z[held], num_iteration=n_trees, num_threads=1)
        booster = lightgbm.train(options[best], data, n_trees)
        return _Fitted(booster, centre, spread, centre + spread * left_out)

    def _set_statuses(self, Z: FloatArray, constant: BoolArray) -> None:
        varies = np.ptp(Z, axis=0) > 0
        known = varies & (len(Z) >= self.min_queries(Z.shape[1]))
        rows = unit_statuses(np.broadcast_to(known, (len(constant), len(known))), constant)
        self._unit_status: UnitStatus = rows[0] if self._single else rows
        self.status_ = overall_status(rows)

    def _check_options(self) -> None:
        n = self.max_rounds
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise InputError(f"Got max_rounds={n!r}; expected a whole number, at least 1.")
        seed = self.random_state
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise InputError(
                f"Got random_state={seed!r}; expected a whole number, at least 0, such as random_state=0."
            )


def _shapley(fitted: _Fitted, n_units: int) -> FloatArray:
    """Shapley values (n_units,) of the full text's prediction against the empty one's.

    A leaf of value v that needs the units P and not the units Q is a game whose Shapley values are
    ``v (p - 1)! q! / (p + q)!`` for each unit of P and ``- v p! (q - 1)! / (p + q)!`` for each of Q; the
    trees are the sum of their leaves.
    """
    values = np.zeros(n_units)
    for tree in fitted.booster.dump_model()["tree_info"]:
        for value, needed, barred in _leaves(tree["tree_structure"], (), ()):
            p, q = len(needed), len(barred)
            if p:
                values[list(needed)] += value * beta(p, q + 1)
            if q:
                values[list(barred)] -= value * beta(p + 1, q)
    scaled: FloatArray = fitted.spread * values
    return scaled


def _leaves(
    node: Mapping[str, Any], needed: Units, barred: Units
) -> Iterator[tuple[float, Units, Units]]:
    """Each leaf's value, the units that it needs and those that must be missing."""
    if "leaf_value" in node:
        yield node["leaf_value"], needed, barred
        return
    unit = node["split_feature"]  # a mask holds 0 or 1, and every threshold lies between
    yield from _leaves(node["left_child"], needed, (*barred, unit))
    yield from _leaves(node["right_child"], (*needed, unit), barred)


def _lightgbm() -> Any:  # noqa: ANN401  (untyped)
    """The library, imported when it is needed."""
    try:
        import lightgbm
    except ImportError as error:
        raise InputError(
            "Got a fit of trees, for which lightgbm is missing; expected it to be installed. Run "
            "pip install 'piste[trees]', or take another surrogate."
        ) from error
    return lightgbm
