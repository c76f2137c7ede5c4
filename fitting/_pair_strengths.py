r"""Prior variances of pair terms, and the importances that go with them, by marginal likelihood.

The answers less the SLALOM's, over their spread, are normal with covariance

    K = sum_r p_r P_r + sum_r u_r U_r(s) + v V(s) + noise / weights,

P, U and V being inner products, over masks, of centred features: products of presences and of attention
shares in ranges of distances (`piste.fitting._pair_kernels`), and shares. With ``a = K^-1 t`` the slope of
minus the log likelihood by K is ``(K^-1 - a a^T) / 2``; by the importances s it follows through the shares,
on which the SLALOM's own prediction depends as well. Log strengths have a prior that is all but flat;
importances have a normal one around those of the SLALOM, which was fitted as if there were no pairs.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from piste._typing import BoolArray, FloatArray
from piste.fitting._attention_head import Head, slope_by_importance
from piste.fitting._pair_kernels import centred, mean_squares, pair_grams, slope_by_columns

# Prior of each log variance, relative to the residual's; all but flat.
CENTRE, SPREAD = float(np.log(0.03)), 5.0
BOUNDS = (-14.0, 6.0)
# Prior standard deviation of each importance around the SLALOM's.
MOVE = 0.4
LARGEST_MOVE = 8.0
JITTER = 1e-8
# Steps with the SLALOM's importances, which are cheaper, and then with importances free.
N_STEPS = (15, 30)


@dataclass(frozen=True)
class Strengths:
    """Prior variances by range, (n_ranges,), of the values and of the noise, in units of the spread squared.

    Presences around zero enter ``scaled``, (n_units,), by the root of their unit's effect. ``head`` is the
    SLALOM with its importances moved.
    """

    presence: FloatArray
    attended: FloatArray
    value: float
    noise: float
    scaled: FloatArray
    head: Head


def learn(
    head: Head, masks: FloatArray, scores: FloatArray, weights: FloatArray, spread: float
) -> Strengths:
    """Strengths and importances that maximise the marginal likelihood, of at least two units.

    ``spread`` is the size of what the SLALOM leaves of the scores (n_masks,); weights count answers.
    """
    evidence = _Evidence.of(head, masks, scores, weights, spread)
    n_strengths = len(evidence.sizes)
    start = np.log(np.append(np.full(n_strengths - 1, 0.1 / (n_strengths - 1)), 0.1))
    still = evidence.best(start, N_STEPS[0])
    best = evidence.best(np.concatenate([still, np.zeros(evidence.n_free)]), N_STEPS[1])
    variances = np.exp(best[:n_strengths]) / evidence.sizes
    presence, attended = variances[:-2].reshape(2, -1)
    return Strengths(
        presence,
        attended,
        float(variances[-2]),
        float(variances[-1]),
        evidence.scaled,
        evidence.head_at(best),
    )


@dataclass(frozen=True)
class _Evidence:
    """Minus the log marginal likelihood, as a function of log strengths and moves of importances."""

    head: Head
    masks: FloatArray
    scores: FloatArray
    weights: FloatArray
    spread: float
    scaled: FloatArray  # roots of the units' effects
    presence: FloatArray  # (n_ranges, n_masks, n_masks)
    sizes: FloatArray  # mean squares of the features of each block; 1 for the noise

    @classmethod
    def of(
        cls, head: Head, masks: FloatArray, scores: FloatArray, weights: FloatArray, spread: float
    ) -> "_Evidence":
        scaled, shares = np.sqrt(head.effects()), head.shares(masks)
        presence, attended = (masks - 0.5) * scaled, shares[:, 1:]
        by_presence = centred(pair_grams(presence))
        by_attention = centred(pair_grams(attended))
        sizes = [
            *mean_squares(presence, by_presence),
            *mean_squares(attended, by_attention),
            float(shares.var(axis=0).sum()) or 1.0,
            1.0,
        ]
        return cls(head, masks, scores, weights, spread, scaled, by_presence, np.array(sizes))

    @property
    def free(self) -> BoolArray:
        """Which importances, the background's first, can move: those that are finite."""
        return np.isfinite(self.head.importances())

    @property
    def n_free(self) -> int:
        return int(self.free.sum())

    def head_at(self, point: FloatArray) -> Head:
        """The head at a point; its importances are the SLALOM's where the point has strengths only."""
        moves = np.zeros(len(self.free))
        if len(point) > len(self.sizes):
            moves[self.free] = MOVE * point[len(self.sizes) :]
            moves -= moves[1:].mean()  # as SLALOM's importances, which have mean zero over the units
        return self.head.moved_by(np.zeros(len(moves)), moves)

    def best(self, start: FloatArray, n_steps: int) -> FloatArray:
        """The point after so many steps of L-BFGS; bounds keep it where nothing overflows."""
        n_moves = len(start) - len(self.sizes)
        reach = LARGEST_MOVE / MOVE
        found = minimize(
            self.loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS] * len(self.sizes) + [(-reach, reach)] * n_moves,
            options={"maxiter": n_steps},
        )
        point: FloatArray = found.x
        return point

    def loss(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Minus log likelihood and log prior, and its slope."""
        n_strengths = len(self.sizes)
        logs, moves = point[:n_strengths], point[n_strengths:]
        variances = np.exp(logs) / self.sizes
        head = self.head_at(point)
        shares = head.shares(self.masks)
        around = shares - shares.mean(axis=0)
        rest = self.scores - shares @ head.values()
        target = (rest - np.average(rest, weights=self.weights)) / self.spread
        blocks = np.concatenate(
            [self.presence, centred(pair_grams(shares[:, 1:])), (around @ around.T)[None]]
        ).reshape(n_strengths - 1, -1)
        total = (variances[:-1] @ blocks).reshape(len(target), -1)
        total[np.diag_indices_from(total)] += variances[-1] / self.weights + JITTER
        try:
            factor = cho_factor(total, lower=True)
        except LinAlgError:  # a step too far, which the search takes back
            return 1e12, np.zeros_like(point)
        inverse = cho_solve(factor, np.eye(len(target)))
        dual = inverse @ target
        by_total = (inverse - np.outer(dual, dual)) / 2
        value = 0.5 * target @ dual + np.log(np.diag(factor[0])).sum()
        by_log = variances * np.append(
            blocks @ by_total.ravel(), np.diag(by_total) @ (1 / self.weights)
        )
        by_move = np.zeros(0)
        if len(moves):
            by_share = self._slope_by_share(shares, variances, centred(by_total), dual, head)
            by_move = MOVE * slope_by_importance(shares, by_share)[self.free]
        away = (logs - CENTRE) / SPREAD
        value += 0.5 * (away @ away + moves @ moves)
        return float(value), np.concatenate([by_log + away / SPREAD, by_move + moves])

    def _slope_by_share(
        self,
        shares: FloatArray,
        variances: FloatArray,
        by_total: FloatArray,
        dual: FloatArray,
        head: Head,
    ) -> FloatArray:
        """Through the covariance, and through the SLALOM's own prediction."""
        attended = variances[:-2].reshape(2, -1)[1]
        slope = 2 * variances[-2] * (by_total @ shares)
        slope[:, 1:] += slope_by_columns(shares[:, 1:], attended[:, None, None] * by_total)
        by_rest = (dual - self.weights * (dual.sum() / self.weights.sum())) / self.spread
        through: FloatArray = slope - np.outer(by_rest, head.values())
        return through
