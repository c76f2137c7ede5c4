"""Numba kernels of the Shapley values of a SLALOM; `piste.fitting.shapley` derives the formulas.

    d = v - F(empty), the lift      y = t w        x = 1 - exp(-y)      b = y exp(-y)
    q = 1 - p x                     r = 1 / q      h = b r              c = h d
    P = exp(-t w_0) prod q          A = sum c      g = d (1 - y) - p (A - c)

Both kernels sum over the nodes of log t and of p; p ascends.
"""

import numpy as np

from piste._typing import FloatArray
from piste.fitting._jit import jit

# y stops at exp(6.5) = 665: exp(-665) = 1e-289 is still a normal number, and y exp(-y) nothing.
LARGEST_LOG_EXPONENT = 6.5
# What multiplies the product P is below 1e10 times the range of the game, for any text.
NEGLIGIBLE = 1e-30


@jit
def shapley(
    lift: FloatArray,
    importance: FloatArray,
    background_importance: float,
    log_times: FloatArray,
    time_weights: FloatArray,
    shares: FloatArray,
    share_weights: FloatArray,
) -> FloatArray:
    """Values: the sum of ``P r_i (c_i - p x_i A)``, shape (n_units,)."""
    n_units = len(lift)
    phi = np.zeros(n_units)
    y, x, b, r, h = np.empty((5, n_units))
    for node in range(len(log_times)):
        absent = _at_time(log_times[node], importance, background_importance, y, x, b)
        for p, share_weight in zip(shares, share_weights):  # noqa: B905 - Numba knows no strict=
            product, total = _at_share(p, absent, x, b, lift, r, h)
            if product < NEGLIGIBLE:
                break  # the product falls as p grows
            weight = time_weights[node] * share_weight * product
            for i in range(n_units):
                phi[i] += weight * r[i] * (h[i] * lift[i] - p * x[i] * total)
    return phi


@jit
def jacobian(
    lift: FloatArray,
    importance: FloatArray,
    background_importance: float,
    log_times: FloatArray,
    time_weights: FloatArray,
    shares: FloatArray,
    share_weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Derivatives of the values with respect to v and to s, each (n_units, n_units).

    Loops rather than BLAS: its threads would change the last bits, and dawdle on matrices this small.
    """
    n_units = len(lift)
    by_value, by_importance = np.zeros((n_units, n_units)), np.zeros((n_units, n_units))
    own_value, own_importance = np.zeros(n_units), np.zeros(n_units)
    y, x, b, r, h = np.empty((5, n_units))
    hg = np.empty(n_units)
    for node in range(len(log_times)):
        absent = _at_time(log_times[node], importance, background_importance, y, x, b)
        for p, share_weight in zip(shares, share_weights):  # noqa: B905
            product, total = _at_share(p, absent, x, b, lift, r, h)
            if product < NEGLIGIBLE:
                break
            weight = time_weights[node] * share_weight * product
            for k in range(n_units):
                hg[k] = h[k] * (lift[k] * (1.0 - y[k]) - p * (total - h[k] * lift[k]))
                own_value[k] += weight * h[k]
                own_importance[k] += weight * hg[k]
            for i in range(n_units):
                left = weight * p * r[i]
                by_x, by_c = left * x[i], left * h[i] * lift[i]
                for k in range(n_units):
                    by_value[i, k] -= by_x * h[k]
                    by_importance[i, k] -= by_x * hg[k] + by_c * h[k]
    for i in range(n_units):
        by_value[i, i], by_importance[i, i] = own_value[i], own_importance[i]
    return by_value, by_importance


@jit
def _at_time(
    log_time: float,
    importance: FloatArray,
    background_importance: float,
    y: FloatArray,
    x: FloatArray,
    b: FloatArray,
) -> float:
    """Fill y, x and b; give the background's part of P."""
    for i in range(len(importance)):
        y[i] = np.exp(min(log_time + importance[i], LARGEST_LOG_EXPONENT))
        x[i] = -np.expm1(-y[i])
        b[i] = y[i] * np.exp(-y[i])
    absent: float = np.exp(-np.exp(log_time + background_importance))
    return absent


@jit
def _at_share(
    p: float,
    absent: float,
    x: FloatArray,
    b: FloatArray,
    lift: FloatArray,
    r: FloatArray,
    h: FloatArray,
) -> tuple[float, float]:
    """Fill r and h; give P and A."""
    product, total = absent, 0.0
    for i in range(len(x)):
        q = 1.0 - p * x[i]
        product *= q
        r[i] = 1.0 / q
        h[i] = b[i] * r[i]
        total += h[i] * lift[i]
    return product, total


def warm_up() -> None:
    """Compile the kernels, or load them from the cache."""
    one = np.ones(1)
    for kernel in (shapley, jacobian):
        kernel(one, one, 0.0, one, one, one / 2, one)
