"""Probabilities that are frequencies among sampled answers, and how far off chance alone puts them.

The number of samples is a property of the model, and of what a store keeps of a model there is only its
fingerprint: so it ends in it, as ``..., 20 samples``. An answer from the store then has the same error as
one just given, and a model of one's own has errors as soon as its fingerprint says so.
"""

import re

import numpy as np

from piste._typing import FloatArray, IntArray
from piste.sampling.records import OutputKind

_SAMPLED = re.compile(r", ([1-9]\d*) samples$")
_ROUNDING = 1e-6  # a count recovered from its frequency is whole to some 1e-13


def of_samples(fingerprint: str, n_samples: int) -> str:
    """A fingerprint that says that answers are frequencies among so many samples.

    >>> of_samples("openai:model", 20)
    'openai:model, 20 samples'
    """
    return f"{fingerprint}, {n_samples} samples"


def frequencies(counts: IntArray) -> FloatArray:
    """How often each label came, ``(count + 1/2) / (total + n_labels / 2)``, shape (..., n_labels).

    With two labels, its log-odds are those of the probability up to terms of order 1 / total^2 (Haldane
    1956, doi:10.1111/j.1469-1809.1955.tb01285.x); NaN where no sample counts.

    >>> frequencies(np.array([[3, 1], [0, 0]]))
    array([[0.7, 0.3],
           [nan, nan]])
    """
    totals = counts.sum(axis=-1, keepdims=True)
    found: FloatArray = np.where(totals > 0, counts + 0.5, np.nan) / (totals + counts.shape[-1] / 2)
    return found


def sampling_errors(fingerprint: str, values: FloatArray, kind: OutputKind) -> FloatArray | None:
    """Standard errors of a model's answers, if its fingerprint says that they were sampled, else None."""
    said = _SAMPLED.search(fingerprint)
    return sampling_std_error(values, int(said[1])) if said and kind == "probability" else None


def sampling_std_error(values: FloatArray, n_samples: int) -> FloatArray:
    r"""The binomial standard error of `frequencies`.

    .. math:: \sqrt{p (1 - p) / (m + k / 2)}

    with m the samples that counted and k the number of labels; at most ``n_samples`` counted, and how
    many is told by the frequencies themselves: ``p (m + k / 2) - 1/2`` is whole for each label. Where
    several numbers would do it is the largest. Never 0, as the frequencies are neither 0 nor 1; of the
    log-odds of two labels it gives ``1 / (count + 1/2) + 1 / (total - count + 1/2)`` as variance (Gart &
    Zweifel 1967, doi:10.1093/biomet/54.1-2.181).

    Parameters
    ----------
    values
        Shape (n_answers, n_labels), float64; NaN stays NaN.
    n_samples
        How many answers were drawn for each text.

    >>> sampling_std_error(frequencies(np.array([[24, 0], [12, 0]])), 24).round(4)
    array([[0.028 , 0.028 ],
           [0.0533, 0.0533]])
    """
    half = values.shape[1] / 2
    counted, unsolved = np.full(len(values), n_samples), np.arange(len(values))
    for total in range(n_samples, 0, -1):
        counts = values[unsolved] * (total + half) - 0.5
        whole = (np.abs(counts - np.rint(counts)) < _ROUNDING).all(axis=1)
        counted[unsolved[whole]] = total
        unsolved = unsolved[~whole]
        if not len(unsolved):
            break
    errors: FloatArray = np.sqrt(values * (1 - values) / (counted + half)[:, None])
    return errors
