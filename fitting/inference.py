"""Standard errors of fits that minimise a weighted sum of squares: what the answers leave open.

A fit ``min_theta sum_r w_r (y_r - f_r(theta))^2 + theta' R theta``, linear or linearised at its
solution with Jacobian J, moves by ``bread J' w dy`` when the answers move by dy, with

    bread = (J' W J + R)^+   within the gauge (the directions that leave the gauge alone),
    H     = W^1/2 J bread J' W^1/2   (the whitened hat matrix; its diagonal h are the leverages).

Every covariance below is that influence applied to an estimate of how the residuals ``e`` vary.

**Never small where nothing is known.** Columns are scaled to unit length, so that units of measurement
do not matter; directions whose singular value is below ``UNKNOWN_SPREAD`` of the largest are null
directions of the data, and every number with a component in one of them has an infinite error, ridge
or no ridge. So has, with heteroskedasticity-consistent errors, a number that hangs on a single answer
(leverage 1): its residual is 0 whatever the noise.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting._sampling_units import SamplingUnits
from piste.fitting._threads import small_algebra
from piste.fitting._unit_residuals import FULL_LEVERAGE, without_own_pull

Sandwich = Literal["classical", "HC0", "HC1", "HC2", "HC3", "CR2", "CR3", "design"]
"""How residuals are taken to vary; see `covariance`."""
SANDWICHES: tuple[Sandwich, ...] = (
    "classical",
    "HC0",
    "HC1",
    "HC2",
    "HC3",
    "CR2",
    "CR3",
    "design",
)

UNKNOWN_SPREAD = 1e-6
"""Singular values below this share of the largest count as zero: a standard error would be a million
times that of the best-known direction. Its square stays far above the rounding of a Gram matrix."""
_COMPONENT = 1e-6
"""A number whose gradient has at most this share in a null direction does not depend on it."""


@dataclass(frozen=True)
class Linearisation:
    """A least-squares fit seen from its solution; everything but the residuals.

    Parameters
    ----------
    design
        ``W^1/2 J``, shape (n_rows, n_parameters), float64.
    bread, bread_without_ridge
        Shape (n_parameters, n_parameters): pseudo-inverses of ``J'WJ + R`` and of ``J'WJ`` within the
        gauge.
    influence
        ``design @ bread``, shape (n_rows, n_parameters): how parameters answer to whitened residuals.
    leverage
        Shape (n_rows,), in [0, 1]: diagonal of the hat matrix.
    weights
        Shape (n_rows,), positive.
    ridge
        Shape (n_parameters,), the diagonal of R.
    unknown
        Shape (n_parameters, n_unknown): directions about which the rows say nothing.
    scale
        Shape (n_parameters,): lengths of the design's columns (1 for empty ones); what makes gradients
        comparable.
    """

    design: FloatArray
    bread: FloatArray
    bread_without_ridge: FloatArray
    influence: FloatArray
    leverage: FloatArray
    weights: FloatArray
    ridge: FloatArray
    unknown: FloatArray
    scale: FloatArray

    @property
    def n_effective(self) -> float:
        """Parameters that the answers pay for: trace of the hat matrix."""
        return float(self.leverage.sum())


@dataclass(frozen=True)
class Covariance:
    """Covariance of parameters, and what of them is unknown.

    Parameters
    ----------
    matrix
        Shape (n_parameters, n_parameters), float64; holds nothing about the unknown directions.
    bias
        Shape (n_parameters,): how far a prior is estimated to have moved the parameters; else 0.
    unknown, scale
        As in `Linearisation`.
    df
        Degrees of freedom of the t distribution for intervals; infinite for the normal one. At or below
        0, nothing tells the noise and all errors are infinite.
    """

    matrix: FloatArray
    bias: FloatArray
    unknown: FloatArray
    scale: FloatArray
    df: float

    def std_errors(self, gradients: FloatArray) -> FloatArray:
        """Delta method, ``sqrt(diag(D C D') + (D bias)^2)``: errors of numbers with gradients D.

        Parameters
        ----------
        gradients
            Shape (n_numbers, n_parameters): derivatives with respect to the parameters.

        Returns
        -------
        array
            Shape (n_numbers,), in the units of the numbers; infinite where they are not identified.
        """
        variance = np.einsum("kp,pq,kq->k", gradients, self.matrix, gradients, optimize=True)
        errors: FloatArray = np.sqrt(np.maximum(variance, 0.0) + (gradients @ self.bias) ** 2)
        errors[self._unidentified(gradients)] = np.inf
        return errors

    def _unidentified(self, gradients: FloatArray) -> BoolArray:
        if self.df <= 0:
            return np.ones(len(gradients), dtype=np.bool_)
        length = np.linalg.norm(gradients / self.scale, axis=1)
        share: FloatArray = np.abs(gradients @ self.unknown).max(axis=1, initial=0.0)
        return np.asarray(share > _COMPONENT * length, dtype=np.bool_)


@dataclass(frozen=True)
class Estimate:
    """Numbers with their standard errors.

    Parameters
    ----------
    value, std_error
        Shape (n_outputs, n_numbers), float64, in the numbers' own units; NaN errors where there is no
        distribution to speak of.
    df
        Shape (n_outputs,): degrees of freedom, infinite for the normal distribution.
    """

    value: FloatArray
    std_error: FloatArray
    df: FloatArray

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, ``value ± t std_error``; the whole line where the error is infinite.

        Raises
        ------
        InputError
            If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise InputError(f"Got level={level!r}; expected a number between 0 and 1, such as 0.95.")
        quantile = np.asarray(stats.t.ppf(0.5 + level / 2, self._degrees))[:, None]
        half = np.multiply(
            quantile, self.std_error, out=np.zeros_like(self.std_error), where=self.std_error != 0
        )
        return self.value - half, self.value + half

    def p_values(self) -> FloatArray:
        """Two-sided, of the hypothesis that the number is 0; shape of ``value``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(self.value) / self.std_error
        return 2.0 * np.asarray(stats.t.sf(ratio, self._degrees[:, None]), dtype=np.float64)

    @property
    def _degrees(self) -> FloatArray:
        """With none left the errors are infinite, and any quantile will do."""
        return np.where(self.df > 0, self.df, np.inf)


@small_algebra()
def linearise(
    jacobian: FloatArray,
    weights: FloatArray,
    *,
    ridge: FloatArray | None = None,
    gauge: FloatArray | None = None,
) -> Linearisation:
    """Bread, influence and leverage of a weighted, possibly penalised, least-squares fit.

    Parameters
    ----------
    jacobian
        Shape (n_rows, n_parameters), float64: derivatives of predictions, or the design matrix.
    weights
        Shape (n_rows,), positive: known weights, a 2 counting as two rows for the fit but as one answer
        for its noise. Leave out rows that do not take part.
    ridge
        Shape (n_parameters,), non-negative: the penalty on each squared parameter, in the units of the
        weighted squared error. By default none.
    gauge
        Shape (n_constraints, n_parameters): the parameters move only where ``gauge @ theta`` stays.

    Examples
    --------
    >>> import numpy as np
    >>> fit = linearise(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]), np.ones(3))
    >>> fit.leverage
    array([1. , 0.5, 0.5])
    """
    n_parameters = jacobian.shape[1]
    ridge = np.zeros(n_parameters) if ridge is None else ridge
    design = np.sqrt(weights)[:, None] * jacobian
    lengths = np.linalg.norm(design, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    free = _free_directions(gauge, scale)
    gram = free.T @ ((design / scale).T @ (design / scale)) @ free
    values, vectors = np.linalg.eigh(gram)
    unknown = values <= UNKNOWN_SPREAD**2 * max(values.max(initial=0.0), np.finfo(float).tiny)
    outwards = free / scale[:, None]
    known = outwards @ vectors[:, ~unknown]
    bread = bread_without_ridge = (known / values[~unknown]) @ known.T
    if ridge.any():
        penalised = gram + free.T @ ((ridge / scale**2)[:, None] * free)
        inner = np.linalg.pinv(penalised, hermitian=True, rcond=UNKNOWN_SPREAD**2)
        bread = outwards @ inner @ outwards.T
    influence = design @ bread
    return Linearisation(
        design=design,
        bread=bread,
        bread_without_ridge=bread_without_ridge,
        influence=influence,
        leverage=np.clip(np.einsum("rp,rp->r", influence, design), 0.0, 1.0),
        weights=weights,
        ridge=ridge,
        unknown=outwards @ vectors[:, unknown],
        scale=scale,
    )


@small_algebra()
def covariance(
    fit: Linearisation,
    residuals: FloatArray,
    kind: Sandwich,
    *,
    units: SamplingUnits | None = None,
    shrunk: FloatArray | None = None,
) -> Covariance:
    r"""Covariance of the parameters of one output.

    With :math:`e` the residuals, :math:`x_r` the whitened rows ``w_r^1/2 J_r``, B the bread:

    - ``classical``: :math:`\hat\sigma^2 B J'WJ B`, :math:`\hat\sigma^2 = \sum w e^2 / (m - tr H)`: the
      model is true, its noise has the variance :math:`\sigma^2 / w_r`.
    - ``HC0``-``HC3``: :math:`B \sum_r x_r x_r' w_r e_r^2 c_r B` with :math:`c_r = 1`,
      :math:`m / (m - tr H)`, :math:`1 / (1 - h_r)`, :math:`1 / (1 - h_r)^2` (nearly the jackknife). The
      noise may differ from mask to mask and the model may be wrong: the interval is then for the
      pseudo-true parameter, the best fit over the law that the masks were drawn from (White 1980).
    - ``CR2``, ``CR3``: HC2 and HC3 for masks drawn in pairs. The residuals of a sampling unit (a mask
      and its complement) are divided by the root of their block of ``I - H``, or by the block, and add
      up before they are squared. Equal to HC2 and HC3 where no mask's complement is there.
    - ``design``: the answers are fixed and only the draw of the masks is random: sampling units without
      replacement from strata (sizes) of known extent. Within each of the strata the units' terms vary
      about their mean; a stratum taken to the share f counts ``1 - f``, so that the error vanishes when
      every mask was asked. Noise of the answers themselves is not counted where f is near 1.

    A penalised fit is off its target by ``- B R theta``. Plain sandwiches leave that out: their
    interval is for the penalised parameter. Where R is a prior that was fitted to the data, the
    interval is meant for the parameter without it, and two terms are added:
    :math:`\hat\sigma^2 B R B`, the mean square of the bias under that prior (with ``classical`` this
    makes :math:`\hat\sigma^2 B`, the Bayesian covariance, whose intervals cover on average over
    parameters: Nychka 1988; Marra & Wood 2012); and, as the directions that matter are not average,
    the square of the bias itself, estimated by one Gauss-Newton step without the prior,
    :math:`(J'WJ)^+ R \theta`.

    Parameters
    ----------
    fit
        The geometry.
    residuals
        Shape (n_rows,), float64, unweighted.
    kind
        One of the above.
    units
        Needed for ``CR2``, ``CR3`` and ``design``.
    shrunk
        Shape (n_parameters,): the parameters, measured from the prior's centre, where R is a prior.

    References
    ----------
    White (1980), doi:10.2307/1912934. MacKinnon & White (1985), doi:10.1016/0304-4076(85)90158-7 (HC1
    to HC3). Bell & McCaffrey (2002), Survey Methodology 28:169-181 (CR2, CR3). Binder (1983),
    doi:10.2307/1402588 (design). Nychka (1988), doi:10.2307/2290146. Marra & Wood (2012),
    doi:10.1111/j.1467-9469.2011.00760.x.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.ones((4, 1)), np.array([1.0, 2.0, 3.0, 6.0])
    >>> fit = linearise(x, np.ones(4))
    >>> covariance(fit, y - 3.0, "classical").std_errors(np.eye(1)).round(6)
    array([1.080123])
    """
    n_rows = len(residuals)
    white = np.sqrt(fit.weights) * residuals
    df, unknown = _degrees(n_rows, fit), fit.unknown
    per_degree = 1.0 / df if df > 0 else 0.0  # with none left, every error is infinite anyway
    variance = float(white @ white) * per_degree
    if kind == "classical":
        matrix = variance * fit.influence.T @ fit.influence
    elif kind in ("HC0", "HC1"):
        terms = fit.influence * white[:, None]
        matrix = terms.T @ terms * (n_rows * per_degree if kind == "HC1" else 1.0)
    elif kind in ("HC2", "HC3"):
        left = 1.0 - fit.leverage
        alone = fit.leverage > FULL_LEVERAGE
        adjusted = np.where(
            alone, 0.0, white / np.where(alone, 1.0, np.sqrt(left) if kind == "HC2" else left)
        )
        terms = fit.influence * adjusted[:, None]
        matrix, unknown = terms.T @ terms, _also_unknown(fit, fit.influence[alone])
    else:
        if units is None:
            raise InputError(f"Got covariance {kind!r} without sampling units; expected them.")
        matrix, unknown, df = _by_units(fit, white, units, kind)
    bias = np.zeros(len(fit.scale))
    if shrunk is not None:
        matrix = matrix + variance * (fit.bread * fit.ridge) @ fit.bread
        bias = fit.bread_without_ridge @ (fit.ridge * shrunk)
    return Covariance(matrix, bias, unknown, fit.scale, df)


def _degrees(n_answers: int, fit: Linearisation) -> float:
    """Degrees of freedom left; a rounding error's worth counts as none."""
    df = n_answers - fit.n_effective
    return df if df > 1e-9 * n_answers else 0.0


def _free_directions(gauge: FloatArray | None, scale: FloatArray) -> FloatArray:
    """Orthonormal basis, in scaled coordinates, of the moves that the gauge allows."""
    if gauge is None:
        return np.eye(len(scale))
    q, _ = np.linalg.qr((gauge / scale).T, mode="complete")
    return np.ascontiguousarray(q[:, len(gauge) :])


def _also_unknown(fit: Linearisation, moves: FloatArray) -> FloatArray:
    """The null directions, and the moves (n_moves, n_parameters) of answers that are fitted exactly."""
    lengths = np.linalg.norm(moves * fit.scale, axis=1)
    moved = lengths > 0
    return np.column_stack([fit.unknown, (moves[moved] / lengths[moved, None]).T])


def _by_units(
    fit: Linearisation, white: FloatArray, units: SamplingUnits, kind: Sandwich
) -> tuple[FloatArray, FloatArray, float]:
    """Sandwich over sampling units: matrix, unknown directions, degrees of freedom."""
    fixed_answers = kind == "design"
    share_open = 1.0 - units.fraction if fixed_answers else np.ones(units.n_units)
    power = 0.5 if kind == "CR2" else 1.0
    adjusted, moves = without_own_pull(white, fit.influence, fit.design, units, share_open, power=power)
    totals = units.totals(fit.influence * adjusted[:, None])
    unknown = _also_unknown(fit, moves)
    if not fixed_answers:
        return totals.T @ totals, unknown, _degrees(units.n_units, fit)
    spread = totals - units.stratum_means(totals)
    counts = units.stratum_counts()
    spread = np.where(counts[:, None] > 1, spread, totals)  # one unit has no spread: its size instead
    factor = np.sqrt(share_open * counts / np.maximum(counts - 1, 1))
    terms = spread * factor[:, None]
    n_open = int((share_open > 0).sum())
    df = _degrees(n_open, fit) if n_open else np.inf
    return terms.T @ terms, unknown, df
