"""From a classifier's head to one-vs-rest scores with names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from scipy.special import expit

from piste._errors import InputError
from piste._typing import FloatArray
from piste.sampling.models.protocol import Scores
from piste.sampling.records import OutputKind


def check_output_kind(kind: str | None) -> None:
    """Refuse a declared output kind that does not exist."""
    declarable = [name for name in get_args(OutputKind) if name != "unknown"]
    if kind is not None and kind not in declarable:
        raise InputError(
            f"Got kind={kind!r}; expected {', '.join(map(repr, declarable))}, or None to leave it open."
        )


def default_labels(n_outputs: int) -> tuple[str, ...]:
    """Names for the columns of a model that has none: ``output``, or ``0`` to ``n_outputs - 1``."""
    return ("output",) if n_outputs == 1 else tuple(map(str, range(n_outputs)))


def one_vs_rest_log_odds(logits: FloatArray) -> FloatArray:
    """Log-odds of each class against all others, ``z_c - log sum_{k != c} exp(z_k)``.

    Parameters
    ----------
    logits
        Shape (n_inputs, n_outputs >= 2), float64: unnormalised log-probabilities of exclusive classes.

    Returns
    -------
    Shape (n_inputs, n_outputs), float64, accurate also where a softmax saturates.

    >>> one_vs_rest_log_odds(np.array([[800.0, 0.0, 0.0]])).round(3).tolist()
    [[799.307, -800.0, -800.0]]
    """
    top = logits.argmax(axis=1, keepdims=True)
    without_top = logits.copy()
    np.put_along_axis(without_top, top, -np.inf, axis=1)
    # Every other class has p <= 1/2, so that log(1 - p) loses no digits; the top class is summed anew.
    with np.errstate(invalid="ignore"):  # a NaN or infinite logit gives NaN, which is reported later
        total: FloatArray = np.logaddexp.reduce(logits, axis=1, keepdims=True)
        rest = total + np.log1p(-np.exp(without_top - total))
        without = np.logaddexp.reduce(without_top, axis=1, keepdims=True)
        np.put_along_axis(rest, top, without, axis=1)
        log_odds: FloatArray = logits - rest
        return log_odds


@dataclass(frozen=True)
class Head:
    """How the numbers of a Transformer's classification head are to be read.

    Parameters
    ----------
    id2label
        The config's names of the outputs.
    problem_type
        The config's: ``regression`` is left raw, ``multi_label_classification`` has independent
        log-odds, as has a single output; anything else is a softmax over exclusive classes.
    kind
        What to answer instead: ``raw`` leaves the numbers alone, ``logit`` and ``probability`` read
        even a regression as a classifier.
    """

    id2label: Mapping[int, str] | Mapping[str, str]
    problem_type: str | None
    kind: OutputKind | None

    def __post_init__(self) -> None:
        check_output_kind(self.kind)

    def scores(self, logits: FloatArray) -> Scores:
        """Logits of shape (n_inputs, n_outputs), float64, as scores with names."""
        labels = self._labels(logits.shape[1])
        kind = self.kind or ("raw" if self.problem_type == "regression" else "logit")
        if kind == "raw":
            return Scores(logits, labels, kind)
        independent = logits.shape[1] == 1 or self.problem_type == "multi_label_classification"
        log_odds = logits if independent else one_vs_rest_log_odds(logits)
        return Scores(expit(log_odds) if kind == "probability" else log_odds, labels, kind)

    def _labels(self, n_outputs: int) -> tuple[str, ...]:
        if len(self.id2label) != n_outputs:
            return default_labels(n_outputs)
        return tuple(
            str(name) for _, name in sorted(self.id2label.items(), key=lambda item: int(item[0]))
        )
