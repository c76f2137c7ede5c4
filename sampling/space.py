"""From a model's answers to what is explained: which numbers, and of which outputs."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import expit

from piste._errors import InputError
from piste._typing import FloatArray, IntArray
from piste.sampling.records import OutputKind

Space = Literal["logit", "probability", "raw"]
"""What is explained: one-vs-rest log-odds, probabilities, or the model's numbers unchanged."""


class InSpace(NamedTuple):
    """Answers as they are explained.

    Parameters
    ----------
    scores
        Shape (n_masks, n_outputs), float64.
    space
        What the scores are: ``raw`` where a model's numbers are neither log-odds nor probabilities.
    n_clipped
        Shape (n_outputs,), int64: probabilities per output closer to 0 or 1 than epsilon.
    errors
        Shape (n_masks, n_outputs): standard errors of the scores; None where those of the answers are
        not known.
    """

    scores: FloatArray
    space: Space
    n_clipped: IntArray
    errors: FloatArray | None = None


def to_space(
    values: FloatArray,
    kind: OutputKind,
    space: str = "logit",
    epsilon: float = 1e-6,
    *,
    errors: FloatArray | None = None,
) -> InSpace:
    """Express answers in the space to be explained.

    Probabilities become log-odds ``log(p / (1 - p))`` with p clipped to [epsilon, 1 - epsilon]; numbers
    of the kind ``raw`` stay as they are in every space; those of an unknown kind are taken for
    probabilities if all finite ones lie in [0, 1], else for raw ones. Standard errors follow by the delta
    method: those of log-odds are ``errors / (p (1 - p))``.

    Parameters
    ----------
    values
        Shape (n_masks, n_outputs), float64. NaN stays NaN.
    kind
        What the values are.
    space
        ``logit``, ``probability`` or ``raw``.
    epsilon
        Between 0 and 1/2, exclusive.
    errors
        Shape of the values: their standard errors, where they are known.

    Raises
    ------
    InputError
        If the space or the epsilon is not one of these.

    >>> to_space(np.array([[1.0], [0.5]]), "probability").scores.round(4).ravel().tolist()
    [13.8155, 0.0]
    """
    if space not in get_args(Space):
        raise InputError(f"Got space={space!r}; expected {', '.join(map(repr, get_args(Space)))}.")
    if not 0 < epsilon < 0.5:
        raise InputError(f"Got epsilon={epsilon}; expected a number between 0 and 0.5.")
    if kind == "unknown":
        kind = "probability" if _within_unit_interval(values) else "raw"
    unclipped = np.zeros(values.shape[1], np.int64)
    if kind == "probability" and space == "logit":
        return _log_odds(values, epsilon, errors)
    if kind == "logit" and space == "probability":
        p = expit(values)
        return InSpace(p, "probability", unclipped, None if errors is None else errors * p * (1 - p))
    used = "raw" if "raw" in (kind, space) else space
    return InSpace(values, used, unclipped, errors)  # type: ignore[arg-type]


def choose_targets(scores: FloatArray, labels: Sequence[str], target: int | str | None) -> list[int]:
    """Which outputs to explain, as column numbers.

    Parameters
    ----------
    scores
        Shape (n_outputs,): the unmasked text's.
    labels
        One name per output.
    target
        None for the predicted class (the largest score), a label, an index (also written as digits, as
        on a command line) or ``all``.

    Raises
    ------
    InputError
        If there is no such index or label; the message lists those that exist.

    >>> choose_targets(np.array([0.1, 0.2, 0.7]), ("bad", "fair", "good"), None)
    [2]
    """
    if target is None:
        return [0 if np.isnan(scores).all() else int(np.nanargmax(scores))]
    if target == "all":
        return list(range(len(labels)))
    if target in labels:
        return [labels.index(str(target))]
    index = int(target) if isinstance(target, str) and target.isdecimal() else target
    whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
    if whole and 0 <= index < len(labels):  # type: ignore[operator]
        return [int(index)]
    names = ", ".join(f"{index} {label!r}" for index, label in enumerate(labels))
    raise InputError(f"Got target={target!r}; expected one of the outputs {names}, or 'all'.")


def _within_unit_interval(values: FloatArray) -> bool:
    finite = values[np.isfinite(values)]
    return finite.size > 0 and bool(((finite >= 0) & (finite <= 1)).all())


def _log_odds(probabilities: FloatArray, epsilon: float, errors: FloatArray | None) -> InSpace:
    finite = np.isfinite(probabilities)
    p = np.where(finite, np.clip(probabilities, epsilon, 1 - epsilon), np.nan)
    n_clipped = (finite & (p != probabilities)).sum(axis=0)
    errors = None if errors is None else errors / (p * (1 - p))
    return InSpace(np.log(p) - np.log1p(-p), "logit", n_clipped, errors)
