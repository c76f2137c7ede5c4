"""Weighted linear least squares for several outputs at once: free, ridge, or with a fixed total.

Every fit here is ``min |B - A c|^2 + alpha |c|^2`` once the constant, or the constraint, has been
eliminated. The Gram matrix ``A'A`` of text-sized problems is small (250 columns) and well conditioned,
and its Cholesky factor costs a hundredth of the singular vectors of ``A``, so it is tried first; one step
of iterative refinement on the residual ``B - A c`` brings back the digits that squaring lost. Where the
matrix may be singular, the singular values of ``A`` decide.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting._linear_kernels import greedy_columns, reflected_rows, scaled_rows
from piste.fitting._threads import small_algebra
from piste.fitting.result import Status

_EPS = float(np.finfo(np.float64).eps)
_SAFE_SPREAD = 1e-10
"""Reciprocal condition of a Gram matrix above which no eigenvalue can be a rounding error (about 1e-16
times the number of rows) and one refinement step (factor 1e-16 / 1e-10 in the error) suffices."""
_SMALLEST_WEIGHT = 1e-200
"""Anything below counts as zero: squared reciprocals of such weights overflow."""
_FULL_LEVERAGE = 1.0 - 1e-6
"""A coordinate vector with this much of its square in the row space lies in it, up to rounding."""


@dataclass(frozen=True)
class LinearFit:
    """A fitted linear model with what its covariance needs.

    Parameters
    ----------
    coef
        Shape (n_outputs, n_features), float64, in units of Y per unit of X.
    intercept
        Shape (n_outputs,), float64, in units of Y; zeros where none was fitted.
    rank
        Parameters that the data determine, beside the intercept: numerical rank of the weighted design
        after the intercept or the constraint has been eliminated.
    status
        OK, or UNDERDETERMINED when ``rank`` is below the number of free coefficients.
    identified
        Shape (n_features,), bool: whether the data determine this very coefficient.
    bread
        Shape (n_features, n_features), float64: the (pseudo-)inverse of ``A'A + alpha I`` that maps
        ``A'B`` to coefficients. Covariances are ``bread @ meat @ bread``.
    """

    coef: FloatArray
    intercept: FloatArray
    rank: int
    status: Status
    identified: BoolArray
    bread: FloatArray


@small_algebra()
def solve_ridge(
    X: FloatArray, Y: FloatArray, weights: FloatArray, *, alpha: float = 0.0, intercept: bool = True
) -> LinearFit:
    r"""Weighted ridge regression with an unpenalised intercept, exact on exactly linear data.

    .. math:: \min_{b, \beta} \sum_i w_i (y_i - b - x_i^\top \beta)^2 + \alpha |\beta|^2

    for each column of Y. With ``alpha = 0`` and fewer independent rows than coefficients, the smallest
    of the best coefficient vectors (in the Euclidean norm, intercept not counted) is returned: columns
    that never vary get 0, equal columns equal shares. Singular values of the centred weighted design
    count as zero up to ``max(shape) * eps`` times the Frobenius norm of the weighted design before
    centring.

    Parameters
    ----------
    X
        Shape (n_rows, n_features), float64.
    Y
        Shape (n_rows, n_outputs), float64.
    weights
        Shape (n_rows,), float64, non-negative: a weight of 2 equals the row twice.
    alpha
        Strength of the penalty, non-negative, in units of weight times X squared.
    intercept
        Whether to fit ``b``; otherwise it is 0.

    Raises
    ------
    InputError
        If no weight is positive.

    References
    ----------
    Hoerl and Kennard (1970), doi:10.1080/00401706.1970.10488634. Björck (1996), Numerical Methods for
    Least Squares Problems, doi:10.1137/1.9781611971484 (refinement).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> fit = solve_ridge(X, X @ [[2.0], [-1.0]] + 3.0, np.ones(4))
    >>> fit.coef.round(12), fit.intercept.round(12), str(fit.status)
    (array([[ 2., -1.]]), array([3.]), 'ok')
    """
    roots = _root_weights(weights)
    if not roots.any():
        raise InputError(
            "Got weights that are all zero; expected a positive one. Widen the kernel or add masks "
            "nearer to the full text."
        )
    x_centre, y_centre = np.zeros(X.shape[1]), np.zeros(Y.shape[1])
    if intercept:
        x_centre, y_centre = _weighted_mean(X, weights), _weighted_mean(Y, weights)
    A = scaled_rows(np.ascontiguousarray(X), x_centre, roots)
    B = roots[:, None] * (Y - y_centre)
    coef, bread, basis = _least_squares(A, B, alpha=alpha, size=_size(X, roots))
    return LinearFit(
        coef=coef.T,
        intercept=y_centre - x_centre @ coef,
        rank=basis.shape[1],
        status=Status.OK if basis.shape[1] == X.shape[1] else Status.UNDERDETERMINED,
        identified=np.square(basis).sum(axis=1) > _FULL_LEVERAGE,
        bread=bread,
    )


# With Q an orthonormal basis of the vectors that sum to zero, every coefficient vector of sum `total`
# is total / n + Q psi for exactly one psi: the constraint is gone, and the smallest psi belongs to the
# coefficients nearest to equal shares. Q is all but the first column of the Householder reflection that
# maps e_1 to -(1, ..., 1) / sqrt(n). Leverage SHAP uses the projection Q Q' in its place, which makes
# a regular problem singular.
@small_algebra()
def solve_constrained(
    X: FloatArray, Y: FloatArray, weights: FloatArray, *, total: FloatArray
) -> LinearFit:
    r"""Weighted least squares with a fixed sum of coefficients, by exact elimination.

    .. math:: \min_\phi \sum_i w_i (y_i - x_i^\top \phi)^2 \quad\text{subject to}\quad \sum_j \phi_j = t

    for each column of Y; no intercept, no penalty. Where the rows do not determine the solution, the
    one nearest to equal shares ``t / n`` is returned. The rank rule is that of ``solve_ridge``. No row
    at all, or no positive weight, leaves equal shares.

    Parameters
    ----------
    X
        Shape (n_rows, n_features), float64; n_rows may be 0.
    Y
        Shape (n_rows, n_outputs), float64.
    weights
        Shape (n_rows,), float64, non-negative.
    total
        Shape (n_outputs,), float64, in units of Y: ``coef.sum(axis=1)`` equals it to rounding.

    References
    ----------
    Musco and Witter (2025), Provably Accurate Shapley Value Estimation via Leverage Score Sampling,
    arXiv:2410.01917 (the problem without its constraint).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> solve_constrained(X, np.array([[0.3], [0.1]]), np.ones(2), total=np.array([0.8])).coef.round(12)
    array([[0.5, 0.3]])
    """
    n_features = X.shape[1]
    reflector = np.full(n_features, 1.0 / np.sqrt(n_features))
    reflector[0] += 1.0
    Q = (np.eye(n_features) - np.outer(reflector, reflector) / reflector[0])[:, 1:]
    share = total / n_features
    roots = _root_weights(weights)
    A = reflected_rows(np.ascontiguousarray(X), X @ reflector / reflector[0], reflector, roots)
    B = roots[:, None] * (Y - np.outer(X.sum(axis=1), share))
    psi, bread, basis = _least_squares(A, B, size=_size(X, roots))
    coef = (share + Q @ psi).T
    coef += ((total - coef.sum(axis=1)) / n_features)[:, None]
    # The direction (1, ..., 1) is known from the constraint, and adds 1/n to each leverage.
    leverage = np.square(Q @ basis).sum(axis=1) + 1.0 / n_features
    return LinearFit(
        coef=coef,
        intercept=np.zeros(Y.shape[1]),
        rank=basis.shape[1],
        status=Status.OK if basis.shape[1] == n_features - 1 else Status.UNDERDETERMINED,
        identified=leverage > _FULL_LEVERAGE,
        bread=Q @ bread @ Q.T,
    )


@small_algebra()
def forward_selection(X: FloatArray, y: FloatArray, weights: FloatArray, n_features: int) -> IntArray:
    """Columns in the order in which greedy least squares with intercept takes them.

    Each step adds the column that lowers the weighted residual sum of squares most; ties go to the
    lower index.

    Parameters
    ----------
    X
        Shape (n_rows, n_columns), float64.
    y
        Shape (n_rows,), float64.
    weights
        Shape (n_rows,), float64, non-negative, one at least positive.
    n_features
        How many columns to take, at most all.

    Returns
    -------
    array
        Shape (n_features,), int64: distinct column numbers.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> forward_selection(X, X @ [1.0, -2.0], np.ones(4), 1)
    array([1])
    """
    A, b = weighted_deviations(X, weights), weighted_deviations(y[:, None], weights)[:, 0]
    return greedy_columns(A.T @ A, A.T @ b, min(n_features, X.shape[1]), _SAFE_SPREAD)


def weighted_deviations(X: FloatArray, weights: FloatArray) -> FloatArray:
    """Rows minus their weighted mean, times the roots of the weights; shape of X, float64.

    Constant columns become exactly 0. Least squares on the result are weighted least squares with an
    intercept.

    Examples
    --------
    >>> import numpy as np
    >>> weighted_deviations(np.array([[0.0, 0.7], [1.0, 0.7]]), np.array([4.0, 4.0]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    return scaled_rows(np.ascontiguousarray(X), _weighted_mean(X, weights), _root_weights(weights))


def _least_squares(
    A: FloatArray, B: FloatArray, *, size: float, alpha: float = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients (n, n_outputs), bread (n, n) and an orthonormal basis (n, rank) of A's row space."""
    bread = _bread_of_full_rank(A, size, alpha)
    if bread is None:
        return _by_singular_values(A, B, size, alpha)
    coef = bread @ (A.T @ B)
    coef += bread @ (A.T @ (B - A @ coef) - alpha * coef)
    return coef, bread, np.eye(len(bread))


def _bread_of_full_rank(A: FloatArray, size: float, alpha: float) -> FloatArray | None:
    """Bread where the columns are independent for certain; None where they may not be."""
    n_rows, n_columns = A.shape
    if not n_rows >= n_columns > 0:
        return None
    gram = A.T @ A
    bread = _inverse(gram)
    if bread is None:
        return None
    # Row sums of a symmetric matrix bound its largest eigenvalue, and those of its inverse the smallest.
    largest, smallest = (float(np.abs(each).sum(axis=0).max()) for each in (gram, bread))
    if not 1 / smallest > max(_SAFE_SPREAD * largest, _cutoff(A, size) ** 2):
        return None
    if alpha:
        gram.flat[:: n_columns + 1] += alpha
        bread = _inverse(gram)
    return bread


def _inverse(matrix: FloatArray) -> FloatArray | None:
    """Of a symmetric matrix; None where it is not positive definite."""
    factor, failed = lapack.dpotrf(matrix, lower=1)
    if failed:
        return None
    lower, _ = lapack.dpotri(factor, lower=1)
    inverse: FloatArray = np.tril(lower) + np.tril(lower, -1).T
    return inverse


def _by_singular_values(
    A: FloatArray, B: FloatArray, size: float, alpha: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What `_least_squares` returns, from the singular values of A that are not zero."""
    left, values, transposed = np.linalg.svd(A, full_matrices=False)
    kept = values > _cutoff(A, size)
    left, values, basis = left[:, kept], values[kept], transposed[kept].T
    curvature = np.square(values) + alpha
    # A'B would lose what the bread, up to 1 / eps^2 large, then blows up.
    along = (values / curvature)[:, None] * (left.T @ B)
    return basis @ along, (basis / curvature) @ basis.T, basis


def _cutoff(A: FloatArray, size: float) -> float:
    """Singular values up to this count as zero."""
    return float(max(A.shape) * _EPS * size)


def _weighted_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean of the rows; exact for constant columns, as it averages deviations from the heaviest row."""
    origin = values[np.argmax(weights)]
    mean: FloatArray = origin + weights @ (values - origin) / weights.sum()
    return mean


def _root_weights(weights: FloatArray) -> FloatArray:
    """Square roots of the weights."""
    return np.where(weights > _SMALLEST_WEIGHT, np.sqrt(weights), 0.0)


def _size(X: FloatArray, roots: FloatArray) -> float:
    """Frobenius norm of the weighted rows: the scale of their rounding errors."""
    return float(np.sqrt(np.square(roots) @ np.einsum("ij,ij->i", X, X)))
