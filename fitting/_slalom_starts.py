"""Where a SLALOM fit starts: only importances are needed, the solver finds the best values for them."""

import numpy as np
from scipy.linalg import LinAlgError, eigh

from piste._typing import FloatArray
from piste.fitting._cholesky import factorise
from piste.fitting._slalom_solver import Problem

# The background's share of attention on the full text at each even start: nearly the published model,
# half way, and nearly the additive model (the family's two ends).
BACKGROUND_SHARES = (0.1, 0.5, 0.9)
# Rounds of reweighting: the first round's weights are wrong by the spread of importances, the second's
# by the first's error.
N_ROUNDS = 3
# Largest change of a weight in one round, relative to the median one, up or down: noise can make it
# negative.
LARGEST = 1e3
# Ridge, relative to the mean squared column, on both matrices of a pencil that may be singular: their
# common null vectors get the eigenvalue 1, the largest there is.
RIDGE = 1e-13
# Least mean squared error of the rational equation, of standardised scores, that a SLALOM which is exact
# to float32 could have: weights of rows that differ a millionfold, and a million rows, are allowed for.
HOPELESS = 1e-3


def even_importances(problem: Problem) -> list[FloatArray]:
    """Equally important units with a small, an equal and a large background, each (n_columns,)."""
    even = np.zeros(problem.rows.n_columns)
    if not problem.background:
        return [even]
    starts = [even.copy() for _ in BACKGROUND_SHARES]
    for start, share in zip(starts, BACKGROUND_SHARES, strict=True):
        start[0] = np.log(problem.rows.full[1:].sum() * share / (1 - share))
    return starts


def rational_importance(problem: Problem, *, only_exact: bool = False) -> FloatArray:
    """Importances (n_columns,) from an eigenproblem: exact where the answers are a SLALOM's.

    With ``only_exact`` they are what the first round gives if that shows that no SLALOM is exact.

    Multiplied out, the model is linear in ``w`` and ``u = w v``, for any masks at all:

        sum_j M_rj u_j - y_r sum_j M_rj w_j = 0.

    Noise of variance ``e`` in ``y_r`` adds ``e W_r^2`` to the square of the left side on average, so

        min over u and w of  sum_r c_r (M_r u - y_r M_r w)^2 / sum_r c_r (M_r w)^2

    is not biased by it: with u eliminated, the smallest eigenvector of a symmetric pencil. Rows get
    ``c_r = weight_r / W_r^2`` from the round before, which makes them errors of the model itself
    (Sanathanan & Koerner 1963, doi:10.1109/TAC.1963.1105517).
    """
    rows, scores = problem.rows, problem.scores
    importance = np.zeros(rows.n_columns)
    for _ in range(N_ROUNDS):
        w = np.exp(importance)
        c = problem.weights / rows.times(w[:, None], 1)[:, 0] ** 2
        powers = np.concatenate([[c], (c[:, None] * scores).T, (c * (scores**2).sum(axis=1))[None]])
        grams = w[:, None] * rows.weighted_gram(powers) * w
        plain, by_score = grams[0], grams[1:-1]
        ridge = RIDGE * np.trace(plain) / len(plain) * np.eye(len(plain))
        plain, left = plain + ridge, grams[-1] + ridge
        half = factorise(plain).half(np.concatenate(list(by_score), axis=1))
        for output in np.split(half, len(by_score), axis=1):
            left -= output.T @ output
        try:
            unexplained, vectors = eigh(left, plain, subset_by_index=[0, 0])
        except LinAlgError:  # singular in spite of the ridge
            break
        change = vectors[:, 0]
        # Where the masks fall into parts that never meet, each part has a sign of its own.
        change = np.abs(change) / max(np.median(np.abs(change)), 1e-300)
        importance += np.log(np.clip(change, 1 / LARGEST, LARGEST))
        importance -= importance.mean()
        if only_exact and unexplained[0] > HOPELESS:
            break
    return importance
