"""From the log-probabilities of a few tokens to those of labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from piste._typing import FloatArray

Alternatives = Sequence[tuple[str, float]]
"""Tokens that could have come, with their log-probabilities."""


@dataclass(frozen=True)
class LabelLogProbs:
    """Log-probabilities of labels.

    Parameters
    ----------
    values
        Shape (n_labels,), float64, natural logarithms.
    bounded
        Shape (n_labels,), bool: labels that were not among the tokens returned; their value is the
        smallest returned, which theirs cannot exceed.
    cut
        A token that starts a label without being it, where such a one is likelier than every label: the
        model writes the label in several tokens, and its own probability is unknown. None otherwise.
    """

    values: FloatArray
    bounded: np.ndarray[Any, np.dtype[np.bool_]]
    cut: str | None


def label_log_probs(alternatives: Alternatives, labels: Sequence[str]) -> LabelLogProbs:
    """Add up the variants of each label: ``log sum exp`` over tokens equal but for case and spaces.

    >>> found = label_log_probs([(" Good", -1.0), ("good", -1.0), ("The", -3.0)], ["good", "bad"])
    >>> found.values.round(4).tolist(), found.bounded.tolist()
    ([-0.3069, -3.0], [False, True])
    """
    tokens = [(normal(token), value) for token, value in alternatives]
    smallest = min(value for _, value in tokens)
    variants = [[value for token, value in tokens if token == normal(label)] for label in labels]
    bounded = np.array([not found for found in variants])
    values = np.array([np.logaddexp.reduce(found) if found else smallest for found in variants])
    likeliest = max(
        (value for value, out in zip(values, bounded, strict=True) if not out), default=-np.inf
    )
    starts = [
        token
        for token, value in tokens
        if token and value > likeliest and any(_starts(token, label) for label in labels)
    ]
    return LabelLogProbs(values, bounded, next(iter(starts), None))


def normal(token: str) -> str:
    """A token without the spaces around it, in lower case; ▁ and Ġ are how tokenizers write a space.

    >>> normal("▁Positive")
    'positive'
    """
    return token.strip(" \t\n\r▁Ġ").casefold()


def first_alternatives(choice: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What the first token of an answer could have been; empty where the server does not say.

    Chat answers, and llama.cpp's completions, hold ``content[0].top_logprobs``, a list; completions
    after OpenAI hold ``top_logprobs[0]``, an object.
    """
    found = choice.get("logprobs") or {}
    content = found.get("content")
    if content:
        return [(each["token"], float(each["logprob"])) for each in content[0]["top_logprobs"]]
    legacy = found.get("top_logprobs")
    return [(token, float(value)) for token, value in legacy[0].items()] if legacy else []


def echoed(choice: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """A completion's tokens, those of an echoed prompt first; empty where the server sends none."""
    found = choice.get("logprobs") or {}
    tokens, values = found.get("tokens") or [], found.get("token_logprobs") or []
    return list(zip(tokens, values, strict=True))


def continuation_log_prob(
    tokens: Sequence[tuple[str, float | None]], prompt: str, continuation: str
) -> float | None:
    """The log-probability of a continuation: the sum over the tokens that write it.

    None where no token starts exactly at its start, or the tokens do not spell prompt and continuation.
    """
    start, end = len(prompt), len(prompt) + len(continuation)
    if not "".join(token for token, _ in tokens).startswith(prompt + continuation):
        return None
    total, position, met = 0.0, 0, False
    for token, value in tokens:
        if start <= position < end:
            met = met or position == start
            if value is None or not met:
                return None
            total += value
        position += len(token)
    return total if met else None


def _starts(token: str, label: str) -> bool:
    whole = normal(label)
    return len(token) > 1 and whole != token and whole.startswith(token)
