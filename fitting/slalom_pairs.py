r"""Pairs of units on top of a SLALOM: what it leaves unexplained, as a ridge whose strengths are learnt.

With presences ``c_i = z_i - 1/2`` and the SLALOM's attention shares ``a_i(z) = w_i z_i / W(z)``, the
residual of a SLALOM is modelled as

    g(z) = sum_i a_i(z) d_i + sum_{i<j} c_i c_j T_ij + sum_{i<j} a_i(z) a_j(z) U_ij + constant,

``d`` (the background among its units) moving the SLALOM's values. Everything is linear in ``d``, ``T`` and
``U``, which get independent Gaussian priors of mean zero: one variance for ``d``, and for ``T`` and ``U``
one for each range of distances between the two units, since words interact most with their neighbours.
In ``T``, variances are also in proportion to both units' own effects: strong units have strong
interactions. The variances, that of the noise, and the importances ``log w_i``, which a SLALOM fits as if
there were no pairs, maximise the marginal likelihood (MacKay 1992, doi:10.1162/neco.1992.4.3.415). Numbers of
pairs do not matter: all is solved in as many unknowns as masks.

The ranges, both kinds of pairs and free importances were chosen on real texts (docs/quality.md). The model is
piste's own.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from piste._typing import FloatArray, IntArray
from piste.fitting._attention_head import Head
from piste.fitting._pair_kernels import by_range, centred, weighted_gram
from piste.fitting._pair_shapley import pair_shapley
from piste.fitting._pair_strengths import JITTER, Strengths, learn
from piste.fitting._threads import small_algebra
from piste.fitting.shapley import slalom_shapley

# Strengths are learnt from at most so many masks, and the terms from at most so many: the cost grows
# with the cube of their number.
MOST_FOR_STRENGTHS = 500
MOST_MASKS = 4000
# Residuals of less than this share of the answers' size are rounding.
ROUNDING = 1e-10


@dataclass(frozen=True)
class PairedSlalom:
    """A SLALOM whose values and importances have been moved, and its pair terms, in units of the score.

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
        shares, centred_masks = self.head.shares(masks), masks - 0.5
        attended = shares[:, 1:]
        scores: FloatArray = (
            self.constant
            + shares @ self.head.values()
            + ((centred_masks @ self.presence) * centred_masks).sum(axis=1) / 2
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
    """Pair terms, and new values and importances, for what a SLALOM leaves of the answers.

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
    few: slice | IntArray = slice(None)
    if len(masks) > MOST_FOR_STRENGTHS:
        few = np.sort(rng.choice(len(masks), MOST_FOR_STRENGTHS, replace=False))
    with small_algebra():
        strengths = learn(head, masks[few], scores[few], weights[few], spread)
        return _solved(strengths, masks, scores, weights, spread)


def _solved(
    strengths: Strengths, masks: FloatArray, scores: FloatArray, weights: FloatArray, spread: float
) -> PairedSlalom:
    """The posterior mean given the strengths, as matrices."""
    head, scaled = strengths.head, strengths.scaled
    shares, presence = head.shares(masks), (masks - 0.5) * scaled
    attended = shares[:, 1:]
    total = weighted_gram(presence, strengths.presence)
    total += weighted_gram(attended, strengths.attended)
    around = shares - shares.mean(axis=0)
    total = centred(total) + strengths.value * (around @ around.T)
    total[np.diag_indices_from(total)] += strengths.noise / weights + JITTER
    rest = scores - shares @ head.values()
    centre = float(np.average(rest, weights=weights))
    dual = cho_solve(cho_factor(total, lower=True), rest - centre)
    dual -= dual.mean()  # features are centred
    values = strengths.value * (dual @ around)
    presence_pairs = _pair_terms(presence, strengths.presence, dual)
    attended_pairs = _pair_terms(attended, strengths.attended, dual)
    constant = (
        centre
        - float(shares.mean(axis=0) @ values)
        - _mean_of_pairs(presence, presence_pairs)
        - _mean_of_pairs(attended, attended_pairs)
    )
    return PairedSlalom(
        head.moved_by(values, np.zeros(len(values))),
        presence_pairs * scaled * scaled[:, None],
        attended_pairs,
        constant,
        strengths.noise * spread**2,
    )


def _pair_terms(columns: FloatArray, variances: FloatArray, dual: FloatArray) -> FloatArray:
    """Terms of products of columns, shape (n_units, n_units), symmetric with a zero diagonal."""
    terms: FloatArray = by_range(columns.shape[1], variances) * ((columns.T * dual) @ columns)
    return terms


def _mean_of_pairs(columns: FloatArray, terms: FloatArray) -> float:
    """Mean over masks of what the pairs add; each stands in the matrix twice."""
    return float(((columns.T @ columns) * terms).sum()) / len(columns) / 2
