"""Oracles that are a formula of the words: additive, with pairs, and SLALOM itself."""

from collections.abc import Mapping, Sequence

import numpy as np

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.oracles.records import PAIRS, Known, Oracle, black_box, upper_triangle
from piste.fitting.interactions import slalom_pairs
from piste.fitting.shapley import slalom_shapley


def linear_oracle(
    weights: Mapping[str, float],
    bias: float = 0.0,
    *,
    texts: Sequence[str] | None = None,
    name: str = "linear",
) -> Oracle:
    r"""A model that adds its words up, :math:`f(t) = b + \sum_i w(t_i)`, with :math:`w = 0` elsewhere.

    A word's LIME coefficient, its Shapley value and what its removal takes away all are its weight;
    there are no interactions. SLALOM only comes near it.

    Parameters
    ----------
    weights
        Log-odds per occurrence of each word.
    bias
        Log-odds of the empty text.
    texts
        What to explain; by default one text, all the words.

    Examples
    --------
    >>> oracle = linear_oracle({"good": 1.5, "bad": -1.0}, 0.25)
    >>> oracle.model.score(["good good bad", ""]).values.ravel().tolist()
    [2.25, 0.25]
    >>> oracle.truth[0].answers[0].tolist(), sorted(oracle.exact)
    ([1.5, -1.0], ['interactions', 'lime', 'shap'])
    """
    chosen = _texts(texts, weights)

    def score(text: str) -> float:
        return bias + sum(weights.get(word, 0.0) for word in text.split())

    effects = tuple(np.array([weights.get(word, 0.0) for word in text.split()]) for text in chosen)
    none = tuple(np.zeros(len(effect) * (len(effect) - 1) // 2) for effect in effects)
    truth = (
        Known("lime", "coefficient", effects, "determined"),
        Known("shap", "shapley", effects, "determined"),
        Known("interactions", "main", effects, "determined"),
        Known("interactions", "total", effects, "determined"),
        Known("interactions", PAIRS, none, "determined"),
        Known("slalom", "removal", effects),
        Known("slalom", "shapley", effects),
    )
    return Oracle(name, black_box(name, score, dict(weights), bias), chosen, truth)


def pair_oracle(
    main: Mapping[str, float],
    pairs: Mapping[tuple[str, str], float],
    *,
    texts: Sequence[str] | None = None,
    name: str = "pairs",
) -> Oracle:
    r"""A model of words and pairs of words, :math:`f(t) = \sum_{i \in t} a_i + \sum_{i<j \in t} a_{ij}`.

    It looks at which words are there, not how often. A word's Shapley value is its main effect and half
    of its pairs; Faith-SHAP's numbers are the model's own.

    Parameters
    ----------
    main
        Log-odds of each word.
    pairs
        Log-odds of two different words together, in either order, each pair once.
    texts
        What to explain, without repeated words; by default one text, all the words.

    Raises
    ------
    InputError
        If a text repeats a word, or a pair is no pair or given twice.

    Examples
    --------
    >>> oracle = pair_oracle({"not": 0.0, "good": 2.0}, {("not", "good"): -3.0})
    >>> [known.answers[0].tolist() for known in oracle.truth if known.surrogate == "shap"]
    [[-1.5, 0.5]]
    """
    together = {frozenset(pair): weight for pair, weight in pairs.items()}
    if len(together) < len(pairs) or any(len(pair) != 2 for pair in together):
        raise InputError(f"Got pairs {sorted(pairs)}; expected two different words each, once.")
    chosen = _texts(texts, main)
    if any(len(set(text.split())) < len(text.split()) for text in chosen):
        raise InputError("Got a text that repeats a word; expected different ones: pairs are of words.")

    def score(text: str) -> float:
        present = set(text.split())
        joint = sum(weight for pair, weight in together.items() if pair <= present)
        return sum(main.get(word, 0.0) for word in present) + joint

    effects = tuple(np.array([main.get(word, 0.0) for word in text.split()]) for text in chosen)
    joint = tuple(_joint(text.split(), together) for text in chosen)
    shapley = tuple(a + 0.5 * b.sum(axis=1) for a, b in zip(effects, joint, strict=True))
    removal = tuple(a + b.sum(axis=1) for a, b in zip(effects, joint, strict=True))
    truth = (
        # A mask and its complement together tell nothing of pairs but their Shapley share.
        Known("shap", "shapley", shapley, "determined"),
        Known("interactions", "main", effects, "determined"),
        Known("interactions", "total", shapley, "determined"),
        Known("interactions", PAIRS, tuple(map(upper_triangle, joint)), "determined"),
        Known("slalom", "removal", removal),
        Known("slalom", "shapley", shapley),
    )
    parameters = (dict(main), sorted((sorted(pair), weight) for pair, weight in together.items()))
    return Oracle(name, black_box(name, score, *parameters), chosen, truth)


def slalom_oracle(
    values: Mapping[str, float],
    importances: Mapping[str, float],
    background: tuple[float, float] | None = None,
    *,
    empty: float = 0.0,
    texts: Sequence[str] | None = None,
    name: str = "slalom",
) -> Oracle:
    r"""A model that is a SLALOM, :math:`F(t) = \sum_i e^{s(t_i)} v(t_i) / \sum_i e^{s(t_i)}`.

    Words that it does not know take no part. Importances are known up to a constant; the truth has mean
    zero over the words of each text.

    Parameters
    ----------
    values
        Log-odds that each word pulls towards.
    importances
        Log weight of each of these words.
    background
        Value and importance of what always takes part (special tokens); None for the published model.
    empty
        Log-odds of the empty text, where there is no background.
    texts
        What to explain; by default one text, all the words.

    Raises
    ------
    InputError
        If not the same words have values and importances, or a text has none of them.

    References
    ----------
    Leemann, Fastowski, Pfeiffer & Kasneci (2025), TMLR, arXiv 2405.13536.

    Examples
    --------
    >>> oracle = slalom_oracle({"good": 2.0, "bad": -2.0}, {"good": 0.0, "bad": 0.0})
    >>> oracle.model.score(["good good good", "good bad", "bad"]).values.ravel().tolist()
    [2.0, 0.0, -2.0]
    """
    if values.keys() != importances.keys():
        raise InputError(
            f"Got values for {sorted(values)} and importances for {sorted(importances)}; expected both "
            "for the same words."
        )
    chosen = _texts(texts, values)
    unknown = sorted({word for text in chosen for word in text.split()} - values.keys())
    if unknown:
        raise InputError(
            f"Got texts with {unknown}, which have no value; expected the words {sorted(values)}."
        )
    v_0, s_0 = (empty, -np.inf) if background is None else background

    def score(text: str) -> float:
        known = [word for word in text.split() if word in values]
        v = np.array([v_0, *(values[word] for word in known)])
        s = np.array([s_0, *(importances[word] for word in known)])
        return _pooled(v, s) if known else v_0

    rows = [
        (
            np.array([values[word] for word in text.split()]),
            np.array([importances[word] for word in text.split()]),
        )
        for text in chosen
    ]
    parameters = (dict(values), dict(importances), background, empty)
    truth = _slalom_truth(rows, v_0, s_0)
    return Oracle(name, black_box(name, score, *parameters), chosen, truth)


def _slalom_truth(
    rows: Sequence[tuple[FloatArray, FloatArray]], v_0: float, s_0: float
) -> tuple[Known, ...]:
    """What is known of texts whose words have these values and importances."""
    shapley = tuple(slalom_shapley(v, s, v_0, s_0) for v, s in rows)
    pairs = tuple(upper_triangle(slalom_pairs(v, s, v_0, s_0)) for v, s in rows)
    importance = tuple(s - s.mean() for _, s in rows)
    linear = tuple(v * np.exp(s) for (v, _), s in zip(rows, importance, strict=True))
    removal = tuple(_removals(v, s, v_0, s_0) for v, s in rows)
    return (
        Known("slalom", "value", tuple(v for v, _ in rows), "determined"),
        Known("slalom", "importance", importance, "determined"),
        Known("slalom", "linear", linear, "determined"),
        Known("slalom", "removal", removal, "determined"),
        Known("slalom", "shapley", shapley, "determined"),
        Known("slalom", PAIRS, pairs, "determined"),
        Known("shap", "shapley", shapley, "all masks"),
        Known("interactions", "total", shapley, "all masks"),
        Known("interactions", PAIRS, pairs, "all masks"),
    )


def _removals(v: FloatArray, s: FloatArray, v_0: float, s_0: float) -> FloatArray:
    """What the removal of each unit takes from the score, shape (n_units,)."""
    values, log_weights = np.append(v_0, v), np.append(s_0, s)
    full = _pooled(values, log_weights)
    left = [
        _pooled(np.delete(values, at), np.delete(log_weights, at))
        if len(v) > 1 or s_0 > -np.inf
        else v_0
        for at in range(1, len(values))
    ]
    return full - np.array(left)


def _pooled(v: FloatArray, s: FloatArray) -> float:
    """Mean of the values v under the weights exp(s)."""
    w = np.exp(s - s.max())
    return float(w @ v / w.sum())


def _joint(words: Sequence[str], together: Mapping[frozenset[str], float]) -> FloatArray:
    """Interactions (n_words, n_words) of the words of a text, symmetric with a zero diagonal."""
    return np.array([[together.get(frozenset((a, b)), 0.0) for b in words] for a in words])


def _texts(texts: Sequence[str] | None, words: Mapping[str, float]) -> tuple[str, ...]:
    return (" ".join(words),) if texts is None else tuple(texts)
