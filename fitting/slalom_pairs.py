r"""Pairs of units on top of a SLALOM: what it leaves unexplained, as a ridge whose strengths are learnt.

With presences ``c_i = z_i - 1/2`` and the SLALOM's attention shares ``a_i(z) = w_i z_i / W(z)``, the
residual of a SLALOM is modelled as

    g(z) = sum_i a_i(z) d_i + sum_{i<j} c_i c_j T_ij + sum_{i<j} a_i(z) a_j(z) U_ij + constant,

``d`` (the background among its units) moving the SLALOM's values. Everything is linear in ``d``, ``T`` and
``U``, which get independent Gaussian priors of mean zero: one variance for ``d``, and for ``T`` and ``U``
one for each range of distances between the two units, since words interact most with their neighbours.
In ``T``, variances are also in proportion to both units' own effects: strong units have strong
interactions. The variances and that of the noise maximise the marginal likelihood (MacKay 1992,
doi:10.1162/neco.1992.4.3.415). Numbers of pairs do not matter: all is solved in as many unknowns as masks.

The ranges, and both kinds of pairs, were chosen on real texts (docs/quality.md). The model is piste's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from piste._typing import FloatArray, IntArray
from piste.fitting._pair_shapley import pair_shapley
from piste.fitting._threads import single_blas_thread
from piste.fitting.shapley import slalom_shapley

# Distances at which a new variance begins.
RANGES = (1, 2, 4, 9)
# A unit without any effect of its own counts as this share of the mean one.
LEAST_EFFECT = 0.05
# Strengths are learnt from at most so many masks, and the terms from at most so many: the cost grows
# with the cube of their number.
MOST_FOR_STRENGTHS = 500
MOST_MASKS = 4000
# Prior of each log variance, relative to the residual's; all but flat.
CENTRE, SPREAD = float(np.log(0.03)), 5.0
BOUNDS = (-14.0, 6.0)
JITTER = 1e-8
N_STEPS = 60
# Residuals of less than this share of the answers' size are rounding.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Head:
    """A fitted SLALOM: values and importances (n_units,), and the background's.

    An importance of ``-inf`` means no background, and then its value is the answer to the empty text.
    """

    value: FloatArray
    importance: FloatArray
    background_value: float
    background_importance: float

    def shares(self, masks: FloatArray) -> FloatArray:
        """Attention of the background and of each unit, shape (n_masks, 1 + n_units); rows sum to 1."""
        top = max(float(self.importance.max()), self.background_importance)
        weights = masks * np.exp(self.importance - top)
        background = np.exp(self.background_importance - top) * np.ones((len(masks), 1))
        together = np.hstack([background, weights])
        total = together.sum(axis=1, keepdims=True)
        together[total[:, 0] == 0, 0] = 1.0  # nothing takes part: the answer to the empty text
        shares: FloatArray = together / np.where(total == 0, 1.0, total)
        return shares

    def effects(self) -> FloatArray:
        """Size of each unit's share of the full text times what it pulls, relative to the mean."""
        share = self.shares(np.ones((1, len(self.value))))[0]
        pulled = share[0] * self.background_value + share[1:] @ self.value
        size = np.abs(share[1:] * (self.value - pulled))
        relative: FloatArray = size / (size.mean() or 1.0)
        return relative + LEAST_EFFECT


@dataclass(frozen=True)
class PairedSlalom:
    """A SLALOM whose values have been moved, and its pair terms, in units of the score.

    ``head`` weighs attention; ``presence`` is ``T`` and ``attended`` is ``U``, each (n_units, n_units),
    symmetric with a zero diagonal; ``noise`` is the variance that is left.
    """

    head: Head
    presence: FloatArray
    attended: FloatArray
    constant: float
    noise: float

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks, shape (n_masks,)."""
        shares, centred = self.head.shares(masks), masks - 0.5
        values = np.concatenate([[self.head.background_value], self.head.value])
        attended = shares[:, 1:]
        scores: FloatArray = (
            self.constant
            + shares @ values
            + ((centred @ self.presence) * centred).sum(axis=1) / 2
            + ((attended @ self.attended) * attended).sum(axis=1) / 2
        )
        return scores

    def shapley(self) -> FloatArray:
        """Exact Shapley values, shape (n_units,); those of ``c_i c_j`` are zero by symmetry."""
        head = self.head
        single = slalom_shapley(
            head.value, head.importance, head.background_value, head.background_importance
        )
        return single + pair_shapley(self.attended, head.importance, head.background_importance)


def fit_pairs_to_rest(
    head: Head, masks: FloatArray, scores: FloatArray, weights: FloatArray, seed: int
) -> PairedSlalom:
    """Pair terms, and new values, for what a SLALOM leaves of the answers.

    Parameters
    ----------
    head
        The SLALOM, fitted to these answers.
    masks
        Shape (n_masks, n_units), 0/1, float64.
    scores, weights
        Shape (n_masks,), float64; weights are positive and count answers.
    seed
        Of the choice of masks where there are more than `MOST_MASKS` or `MOST_FOR_STRENGTHS`.
    """
    n_units = masks.shape[1]
    none = np.zeros((n_units, n_units))
    alone = PairedSlalom(head, none, none, 0.0, 0.0)
    rng = np.random.default_rng(seed)
    if len(masks) > MOST_MASKS:
        kept = rng.choice(len(masks), MOST_MASKS, replace=False)
        masks, scores, weights = masks[kept], scores[kept], weights[kept]
    residual = scores - alone.predict(masks)
    centre = float(np.average(residual, weights=weights))
    spread = float(np.sqrt(np.average((residual - centre) ** 2, weights=weights)))
    if spread <= ROUNDING * np.abs(scores).max(initial=0.0) or n_units < 2:
        return alone
    target = (residual - centre) / spread
    with single_blas_thread():
        blocks = list(_blocks(head, masks))
        few: slice | IntArray = slice(None)
        if len(masks) > MOST_FOR_STRENGTHS:
            few = np.sort(rng.choice(len(masks), MOST_FOR_STRENGTHS, replace=False))
        grams = [_centred(block.gram(few)) for block in blocks]
        scaled = np.stack([gram / _mean_square(gram) for gram in grams])
        strengths, noise = _strengths(scaled, target[few], weights[few])
        return _solved(head, masks.shape[1], target, weights, blocks, strengths, noise, centre, spread)


@dataclass(frozen=True)
class _Block:
    """Features of one prior variance: columns, or products of columns so far apart; unit mean square."""

    kind: str
    columns: FloatArray
    nearest: int = 0
    beyond: int = 0

    def gram(self, rows: slice | IntArray) -> FloatArray:
        """Inner products of the masks' features, shape (n_rows, n_rows)."""
        columns = self.columns[rows]
        if not self.nearest:
            return columns @ columns.T
        total = np.zeros((len(columns), len(columns)))
        for distance in range(self.nearest, self.beyond):
            products = columns[:, :-distance] * columns[:, distance:]
            total += products @ products.T
        return total

    def means(self) -> FloatArray:
        """Mean of each column, (n_columns,), or of each product, (n_columns, n_columns)."""
        if not self.nearest:
            mean: FloatArray = self.columns.mean(axis=0)
            return mean
        return self._within(self.columns.T @ self.columns) / len(self.columns)

    def weighted(self, dual: FloatArray) -> FloatArray:
        """Features summed with weights (n_masks,), shaped as ``means``."""
        if not self.nearest:
            summed: FloatArray = dual @ self.columns
            return summed
        return self._within((self.columns.T * dual) @ self.columns)

    def _within(self, products: FloatArray) -> FloatArray:
        """Only the pairs of this block's distances."""
        at = np.arange(len(products))
        distance = np.abs(at[:, None] - at)
        return np.where((distance >= self.nearest) & (distance < self.beyond), products, 0.0)


def _blocks(head: Head, masks: FloatArray) -> Iterator[_Block]:
    """One block for the values, and one per range of distances for each kind of pairs."""
    n_units = masks.shape[1]
    shares = head.shares(masks)
    yield _Block("value", shares)
    columns = {"presence": (masks - 0.5) * np.sqrt(head.effects()), "attended": shares[:, 1:]}
    for kind, each in columns.items():
        for nearest, beyond in zip(RANGES, (*RANGES[1:], n_units), strict=True):
            if nearest < n_units:
                yield _Block(kind, each, nearest, min(beyond, n_units))


def _centred(gram: FloatArray) -> FloatArray:
    """The inner products of features less their means."""
    rows = gram.mean(axis=0)
    centred: FloatArray = gram - rows - rows[:, None] + rows.mean()
    return centred


def _mean_square(gram: FloatArray) -> float:
    """Of the features that these are inner products of; 1 where all are zero."""
    return float(np.trace(gram)) / len(gram) or 1.0


def _strengths(grams: FloatArray, target: FloatArray, weights: FloatArray) -> tuple[FloatArray, float]:
    """Variance of each block and of the noise, relative to the target's, by marginal likelihood."""
    n_blocks, n_rows, _ = grams.shape
    flat = grams.reshape(n_blocks, -1)
    eye, by_answer = np.eye(n_rows), 1.0 / weights

    def loss(logs: FloatArray) -> tuple[float, FloatArray]:
        variances = np.exp(logs)
        gram = (variances[:-1] @ flat).reshape(n_rows, n_rows)
        gram[np.diag_indices(n_rows)] += variances[-1] * by_answer + JITTER
        try:
            factor = cho_factor(gram, lower=True)
        except LinAlgError:  # a step too far, which the search takes back
            return 1e12, np.zeros_like(logs)
        inverse = cho_solve(factor, eye)
        dual = inverse @ target
        slope = np.outer(dual, dual) - inverse
        value = 0.5 * target @ dual + np.log(np.diag(factor[0])).sum()
        gradient = -0.5 * variances * np.append(flat @ slope.ravel(), np.diag(slope) @ by_answer)
        away = (logs - CENTRE) / SPREAD
        return float(value + 0.5 * away @ away), gradient + away / SPREAD

    start = np.log(np.append(np.full(n_blocks, 0.1 / n_blocks), 0.1))
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS] * len(start),
        options={"maxiter": N_STEPS},
    )
    variances = np.exp(found.x)
    return variances[:-1], float(variances[-1])


def _solved(  # noqa: PLR0913 - the parts of one linear system
    head: Head,
    n_units: int,
    target: FloatArray,
    weights: FloatArray,
    blocks: list[_Block],
    strengths: FloatArray,
    noise: float,
    centre: float,
    spread: float,
) -> PairedSlalom:
    """The posterior mean, as matrices."""
    total = np.diag(noise / weights + JITTER)
    scales = np.empty(len(blocks))
    for at, (block, strength) in enumerate(zip(blocks, strengths, strict=True)):
        gram = _centred(block.gram(slice(None)))
        scales[at] = strength / _mean_square(gram)
        total += scales[at] * gram
    dual = cho_solve(cho_factor(total, lower=True), target)
    dual -= dual.mean()  # features are centred
    values = np.concatenate([[head.background_value], head.value])
    pairs = {kind: np.zeros((n_units, n_units)) for kind in ("presence", "attended")}
    constant = centre
    for block, scale in zip(blocks, spread * scales, strict=True):
        terms = scale * block.weighted(dual)
        if block.kind == "value":
            constant -= float(block.means() @ terms)
            values = values + terms
            continue
        constant -= float((block.means() * terms).sum()) / 2  # each pair stands there twice
        pairs[block.kind] += terms
    root = np.sqrt(head.effects())
    moved = Head(values[1:], head.importance, float(values[0]), head.background_importance)
    return PairedSlalom(
        moved,
        pairs["presence"] * root * root[:, None],
        pairs["attended"],
        constant,
        noise * spread**2,
    )
