r"""A Gaussian process over masks whose posterior mean has exact Shapley values.

**Only half of a game matters.** A game f and its dual ``f(all) - f(all but S)`` have the same Shapley
values, so they are those of the odd part ``g(z) = (f(z) - f(1 - z)) / 2``, and a mask together with
its complement is one observation of g. Everything here is about pairs.

**The process.** With ``x = 2 z - 1`` in {-1, 1}^n,

    g(x) = b'x + h(x) + noise,     cov(h(x), h(x')) = sigma^2 [k(x, x') - k(x, -x')],
    k(x, x') = prod_i (1 + rho_i x_i x'_i) / (1 + rho_i),      0 < rho_i < 1.

Multiplied out, k gives each product ``prod_{i in U} x_i`` a variance in proportion to
``prod_{i in U} rho_i``: interactions fade with their order, units that matter in none have a small rho,
and subtracting ``k(x, -x')`` leaves the odd orders. The additive part b is flat: it is left to the
regression. The noise is what of g no smooth function predicts; the full and the empty text are to be
met exactly and have none. All rho and the noise maximise the likelihood of the contrasts of the answers
that are free of b (REML), with a weak prior that keeps the rho together: ``logit rho_i ~ N(mean, 2)``.

**Shapley values of the mean.** ``m(x) = sum_r a_r [k(x, x_r) - k(-x, x_r)]`` is a sum of products. Let
every unit be kept with probability (1 + u) / 2, independently: the mean of ``k(x, x_r)`` is the product
of ``(1 + rho_i u x_ri) / (1 + rho_i)``, and by Owen (1972) the Shapley value is the integral along u of
its slope, exact with ceil(n / 2) Gauss-Legendre nodes:

    phi_i = 2 sum_r a_r int_{-1}^1 rho_i x_ri / (1 + rho_i) prod_{j != i} F_rj(u) du,
    F_rj(u) = (1 + rho_j u x_rj) / (1 + rho_j)

(twice, because the second term has the same Shapley values as the first).

**A pair left out.** With Q an orthonormal basis of the contrasts, ``P = Q (Q' K Q)^-1 Q'`` and ``a = P
g``, the residual of pair r predicted from the others, b included, is ``a_r / P_rr`` (Dubrule 1983).

Sources: Owen (1972), doi:10.1287/mnsc.18.5.64; Rasmussen & Williams (2006), Gaussian Processes for
Machine Learning, sections 2.7 and 5.4; Dubrule (1983), doi:10.1007/BF01036232. The product kernel is
that of Boolean functions with damped Fourier weights; its use for Shapley values is piste's.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, null_space
from scipy.optimize import minimize

from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting._threads import small_algebra

# Pairs that the kernel is chosen by, spread over all, or twice the units: enough for n + 1 numbers.
MOST_FOR_KERNEL = 200
MOST_STEPS = 10  # more change no error
# Sum of all rho at the start: what masks of a dozen units led to (rho = .3); a product over n units
# keeps its range only if each is of the order of 1 / n.
FIRST_TOTAL = 4.0
RHO_LOGITS = (-9.0, 3.0)
LOG_NOISE = (-14.0, 2.0)
SPREAD_OF_LOGITS = 2.0  # a variance
# Contrasts this small beside the answers are rounding: the game is additive, up to its even part.
ROUNDING = 1e-12


@dataclass(frozen=True)
class MaskProcess:
    """The posterior mean ``m`` of the process, additive part left out.

    Parameters
    ----------
    signs
        Shape (n_pairs, n_units), float64, -1 or 1: one member of each pair.
    pull
        Shape (n_outputs, n_pairs), float64, in the unit of the scores: the ``a`` of each output.
    rho
        Shape (n_units,), float64, in (0, 1): how strongly units interact.
    """

    signs: FloatArray
    pull: FloatArray
    rho: FloatArray

    def predict(self, masks: FloatArray) -> FloatArray:
        """``m``, shape (n_masks, n_outputs): odd, so complementary masks get opposite numbers."""
        same, opposite = _kernels(2.0 * masks - 1.0, self.signs, self.rho)
        return (same - opposite) @ self.pull.T

    def shapley(self) -> FloatArray:
        """Exact Shapley values of ``m``, shape (n_outputs, n_units); they sum to m(all) - m(none)."""
        n_units = len(self.rho)
        values = np.zeros((len(self.pull), n_units))
        slope = self.rho * self.signs / (1.0 + self.rho)
        for u, weight in zip(*np.polynomial.legendre.leggauss((n_units + 1) // 2), strict=True):
            factors = (1.0 + u * self.rho * self.signs) / (1.0 + self.rho)
            values += 2.0 * weight * (self.pull * factors.prod(axis=1)) @ (slope / factors)
        return values


class Predicted(NamedTuple):
    """What a process fitted to masks says about those same masks; both of shape (n_masks, n_outputs).

    ``mean`` is ``MaskProcess.predict``; in ``left_out`` each mask that has its complement is predicted
    from the other pairs, additive part included, and given less that part of the fit.
    """

    process: MaskProcess
    mean: FloatArray
    left_out: FloatArray


class _Pairs(NamedTuple):
    """Pairs of complementary masks: one member each, half the difference of answers, rows."""

    signs: FloatArray
    halves: FloatArray
    unit: IntArray
    """Shape (n_masks,): the pair of each row, -1 where its complement is missing."""
    turned: FloatArray
    """Shape (n_masks,): 1 where the row is the member in ``signs``, -1 where it is the other."""


@small_algebra()
def fit_mask_process(masks: FloatArray, scores: FloatArray) -> Predicted | None:
    """Fit the process to the pairs among the masks; outputs share the kernel.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), float64, 0/1, repeats allowed.
    scores
        Shape (n_masks, n_outputs), float64.

    Returns
    -------
    None where there is nothing to fit: no more pairs than an additive model explains.

    Examples
    --------
    >>> masks = np.array([[i >> bit & 1 for bit in range(4)] for i in range(16)], dtype=float)
    >>> scores = masks[:, :1] * masks[:, 1:2] * masks[:, 2:3]
    >>> fitted = fit_mask_process(masks, scores)
    >>> bool(fitted.process.rho[3] < fitted.process.rho[0])
    True
    """
    pairs = _complementary(masks, scores)
    contrasts = null_space(pairs.signs.T) if len(pairs.signs) else np.zeros((0, 0))
    free = contrasts.T @ pairs.halves
    size = np.sqrt(np.square(free).sum(axis=0))
    varies = size > ROUNDING * np.sqrt(np.square(pairs.halves).sum(axis=0))
    if not varies.any():
        return None
    scaled = pairs.halves[:, varies] / size[varies]
    exact = np.abs(pairs.signs.sum(axis=1)) == pairs.signs.shape[1]
    chosen = _spread_out(len(pairs.signs), max(MOST_FOR_KERNEL, 2 * pairs.signs.shape[1]))
    rho, noise = _likeliest(pairs.signs[chosen], scaled[chosen], exact[chosen])
    same, opposite = _kernels(pairs.signs, pairs.signs, rho)
    inverse = _projected_inverse(same - opposite + np.diag(np.where(exact, 0.0, noise)), contrasts)
    pull = (inverse @ pairs.halves).T
    pull[~varies] = 0.0
    process = MaskProcess(pairs.signs, pull, rho)
    mean = process.predict(masks)
    # (g - a / P_rr) - (g - noise a) is how much less the others alone predict of a pair.
    # A pair that the additive part meets whatever its answer, a = P_rr = 0, says nothing of the others.
    precision = np.diag(inverse)
    told = ~exact & (precision > ROUNDING * precision.max())
    own = np.zeros_like(pull.T)
    own[told] = pull.T[told] * (noise - 1.0 / precision[told])[:, None]
    moved = np.where(pairs.unit >= 0, pairs.turned, 0.0)[:, None] * own[pairs.unit]
    return Predicted(process, mean, mean + moved)


def _complementary(masks: FloatArray, scores: FloatArray) -> _Pairs:
    """The pairs of which both members were asked; answers to repeated masks are averaged."""
    signs = 2.0 * masks - 1.0
    turned = signs[:, 0].copy()
    names, name = np.unique(signs * turned[:, None], axis=0, return_inverse=True)
    name = name.reshape(-1)
    sums = np.zeros((2, len(names), scores.shape[1]))
    counts = np.zeros((2, len(names)))
    for side, rows in enumerate((turned > 0, turned < 0)):
        np.add.at(sums[side], name[rows], scores[rows])
        counts[side] = np.bincount(name[rows], minlength=len(names))
    both = counts.min(axis=0) > 0
    means = sums[:, both] / counts[:, both, None]
    number = np.where(both, np.cumsum(both) - 1, -1)
    return _Pairs(names[both], (means[0] - means[1]) / 2.0, number[name], turned)


def _spread_out(n: int, most: int) -> IntArray:
    """At most ``most`` of n numbers, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def _kernels(left: FloatArray, right: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``k(x, x')`` and ``k(x, -x')``, each of shape (n_left, n_right)."""
    drop = np.log1p(-rho) - np.log1p(rho)  # log k of two masks that differ in this unit alone
    differing = (drop.sum() - (left * drop) @ right.T) / 2.0
    return np.exp(differing), np.exp(drop.sum() - differing)


def _projected_inverse(matrix: FloatArray, contrasts: FloatArray) -> FloatArray:
    """``Q (Q' K Q)^-1 Q'``."""
    factor = cho_factor(contrasts.T @ matrix @ contrasts, lower=True)
    projected: FloatArray = contrasts @ cho_solve(factor, contrasts.T)
    return projected


def _likeliest(signs: FloatArray, halves: FloatArray, exact: BoolArray) -> tuple[FloatArray, float]:
    """The rho and the noise that the contrasts of the answers make most likely."""
    n_units = signs.shape[1]
    first = min(FIRST_TOTAL / n_units, 0.5)
    contrasts = null_space(signs.T)
    if contrasts.shape[1] == 0:
        return np.full(n_units, first), 1.0
    start: FloatArray = np.append(np.full(n_units, np.log(first / (1.0 - first))), np.log(0.03))

    def objective(at: FloatArray) -> tuple[float, FloatArray]:
        return negative_log_likelihood(at, signs, halves, exact, contrasts)

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[RHO_LOGITS] * n_units + [LOG_NOISE],
        options={"maxiter": MOST_STEPS},
    ).x
    return 1.0 / (1.0 + np.exp(-found[:-1])), float(np.exp(found[-1]))


# With A = k(x, x'), B = k(x, -x') and drop_i = log((1 - rho_i) / (1 + rho_i)), log A is the sum of
# drop_i (1 - x_i x'_i) / 2 and log B that of drop_i (1 + x_i x'_i) / 2. The derivative of a drop in
# logit rho_i is -2 rho_i (1 - rho_i) / (1 - rho_i^2) = -2 rho_i / (1 + rho_i). The objective is
#     sum over outputs of (m / 2) log(g' P g) + (1 / 2) log |Q' K Q|,    dP = -P dK P,
# sigma^2 maximised out, so that its derivative is the sum of G * dK with
#     G = (n_outputs P - sum of (m / g' P g) P g g' P) / 2.
def negative_log_likelihood(
    at: FloatArray, signs: FloatArray, halves: FloatArray, exact: BoolArray, contrasts: FloatArray
) -> tuple[float, FloatArray]:
    """Restricted likelihood with the prior on the rho, and its gradient.

    Parameters
    ----------
    at
        Shape (n_units + 1,): logits of the rho, logarithm of the noise relative to sigma^2.
    signs, halves, exact
        Shapes (n_pairs, n_units), (n_pairs, n_outputs), (n_pairs,): masks, answers, and which have no
        noise.
    contrasts
        Shape (n_pairs, n_contrasts): orthonormal, orthogonal to the columns of ``signs``.
    """
    logits, noise = at[:-1], np.exp(at[-1])
    rho = 1.0 / (1.0 + np.exp(-logits))
    same, opposite = _kernels(signs, signs, rho)
    matrix = same - opposite + np.diag(np.where(exact, 0.0, noise))
    factor = cho_factor(contrasts.T @ matrix @ contrasts, lower=True)
    inverse = contrasts @ cho_solve(factor, contrasts.T)
    pull = inverse @ halves
    n_contrasts, n_outputs = contrasts.shape[1], halves.shape[1]
    misfit = np.einsum("ro,ro->o", halves, pull)
    deviations = logits - logits.mean()
    value = (
        0.5 * n_contrasts * np.log(misfit).sum()
        + n_outputs * np.log(np.diag(factor[0])).sum()
        + 0.5 * deviations @ deviations / SPREAD_OF_LOGITS
    )
    outer = 0.5 * (n_outputs * inverse - (pull * (n_contrasts / misfit)) @ pull.T)
    by_same, by_opposite = outer * same, outer * opposite
    crossed = np.einsum("ri,ri->i", signs, (by_same + by_opposite) @ signs)
    by_drop = (by_same.sum() - by_opposite.sum() - crossed) / 2.0
    by_logit = -2.0 * rho / (1.0 + rho) * by_drop + deviations / SPREAD_OF_LOGITS
    by_noise = noise * np.diag(outer)[~exact].sum()
    return float(value), np.append(by_logit, by_noise)
