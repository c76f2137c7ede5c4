r"""What LIME tends to on the attention classifier, as an integral, and an approximation by a constant.

Masks keep a number of the d words that is uniform on 0 .. d - 1, all weigh the same, and a masked word
becomes the unknown word in its place. For long texts the share u of kept words is uniform on (0, 1), and
given u words are kept independently. So ``var z_j = 1/4`` and ``cov(z_j, z_k) = 1/12``; with
``c_j = cov(f, z_j)``, least squares solves ``c_j = beta_j / 6 + sum_k beta_k / 12``:

    beta_j = 6 (c_j - sum_k c_k / (d + 2)).                                                            (1)

Legend: word j has unnormalised attention g_j and score w_j (``u_t`` in `attention`), its mask h_j and m_j;
``G``, ``H`` are the sums of g and h over the words, and G_0 is the attention of cls and padding. In the
long run the denominator of the softmax is ``D(u) = u G + (1 - u) H + G_0``, and f is its mean fbar(u) at
u. Word j moves numerator and denominator,

    E[f | z_j = 1, u] - fbar(u) = (1 - u) b_j(u),  b_j = {(g_j w_j - h_j m_j) - fbar (g_j - h_j)} / D,

to first order in 1/d. As z_j = 1 with chance u, ``c_j = int u (1 - u) b_j du + cov(fbar(u), u)``. The last
term is the same for all words and d times as large, but it all but cancels in (1): fbar' is the sum
of all b_k, so that ``cov(fbar(u), u) = int u (1 - u) / 2 sum_k b_k du``, and what (1) leaves of both sums,
``cov(fbar, u) 2 / (d + 2) - sum_k int u (1 - u) b_k du / (d + 2)``, is nil. Hence

    beta_j = 6 int_0^1 u (1 - u) b_j(u) du.

Where words and masks get the same attention, D is constant, f linear, and this is
``alpha_j w_j - alpha^h_j m_j``: a factor of 1. The constant 3/2 of the source fits where masks get some 0.4 of
the words' attention, by coincidence; it leaves out fbar, which matters as soon as g_j differs from h_j.
"""

from typing import NamedTuple

import numpy as np

from piste._typing import FloatArray

N_NODES = 64
"""Gauss-Legendre nodes. The integrand is analytic but for its pole D(u) = 0, left or right of [0, 1]: the
error falls like r^-128, with r = 1.2 for a pole as near as a hundredth of the interval."""


class LimitParts(NamedTuple):
    """Attention and scores per head, attention relative to a common factor of the head.

    Parameters
    ----------
    attention, score
        Shape (n_heads, n_words): of the words where they stand.
    masked_attention, masked_score
        The same of the unknown word in their places.
    rest_attention
        Shape (n_heads,): summed over what is never masked, cls and padding.
    rest_product
        Shape (n_heads,): attention times score, summed over the same.
    """

    attention: FloatArray
    score: FloatArray
    masked_attention: FloatArray
    masked_score: FloatArray
    rest_attention: FloatArray
    rest_product: FloatArray


def lime_limit(parts: LimitParts) -> FloatArray:
    """Coefficients of LIME, shape (n_words,), for many masks of uniform size without a kernel.

    Off by some 1/n_words; see the derivation above. Exact for a score that is linear in the words.

    References
    ----------
    Lopardo, Precioso & Garreau (2024), arXiv:2402.03485, for the setting; the integral is piste's.

    Examples
    --------
    Where words and masks get the same attention, the score is linear:

    >>> same = np.full((1, 3), 0.25)
    >>> score, masked = np.array([[1.0, 2.0, 3.0]]), np.zeros((1, 3))
    >>> lime_limit(LimitParts(same, score, same, masked, np.array([0.25]), np.zeros(1))).round(12)
    array([0.25, 0.5 , 0.75])
    """
    g, h = parts.attention, parts.masked_attention
    gw, hm = g * parts.score, h * parts.masked_score
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    u, weights = (1.0 + nodes) / 2.0, weights / 2.0

    def kept(of_words: FloatArray, of_masks: FloatArray, rest: FloatArray) -> FloatArray:
        """A sum over positions at each node, shape (n_heads, n_nodes)."""
        summed: FloatArray = (
            np.outer(of_words.sum(axis=1), u) + np.outer(of_masks.sum(axis=1), 1.0 - u) + rest[:, None]
        )
        return summed

    D = kept(g, h, parts.rest_attention)
    mean = kept(gw, hm, parts.rest_product) / D
    density = 6.0 * weights * u * (1.0 - u) / D
    per_head = (gw - hm) * density.sum(axis=1)[:, None] - (g - h) * (density * mean).sum(axis=1)[
        :, None
    ]
    limit: FloatArray = per_head.mean(axis=0)
    return limit


def three_halves(parts: LimitParts) -> FloatArray:
    r"""The published approximation of the same, shape (n_words,).

    .. math::

        \beta_j \approx \frac32 \frac1K \sum_h (\alpha_j w_j - \alpha^{h}_j m_j), \qquad
        \alpha_j = \frac{g_j}{G + G_0}, \quad \alpha^h_j = \frac{h_j}{H + G_0}

    References
    ----------
    Lopardo, Precioso & Garreau (2024), Attention Meets Post-hoc Interpretability, arXiv:2402.03485.
    """
    g, h, rest = parts.attention, parts.masked_attention, parts.rest_attention
    alpha = g / (g.sum(axis=1) + rest)[:, None]
    masked = h / (h.sum(axis=1) + rest)[:, None]
    per_head = alpha * parts.score - masked * parts.masked_score
    approximation: FloatArray = 1.5 * per_head.mean(axis=0)
    return approximation
