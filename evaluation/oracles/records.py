"""What an oracle is: a black box, texts, and what surrogates should say about them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting.interactions import exact_pairs
from piste.fitting.shapley import exact_shapley
from piste.sampling.collect import collect
from piste.sampling.designs import draw
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.callable import CallableModel
from piste.sampling.models.protocol import BlackBox
from piste.sampling.segment import segment
from piste.surrogates.base import Surrogate

Exact = Literal["determined", "all masks", "limit", "never"]
"""When a surrogate must meet a known answer: as soon as the masks determine its parameters; once every
mask was asked; in the limit of many masks and a long text; or never, where the answer is there to
compare with."""

PAIRS = "pairs"
"""The kind that stands for pairwise interactions, the upper triangle of ``pair_values``, row by row."""

MOST_ENUMERATED = 12


@dataclass(frozen=True)
class Known:
    """What is known about one kind of attribution of one surrogate.

    Parameters
    ----------
    surrogate
        Name of the surrogate, as in `piste.explain`.
    kind
        Kind of attribution; ``pairs`` for pairwise interactions.
    answers
        One array per text of the oracle, shape (n_units,) or, for pairs, (n_units (n_units - 1) / 2,),
        float64, in units of the attribution.
    exact
        When the surrogate must meet them.
    tolerance
        Largest relative error, in the 2-norm, that counts as meeting them.
    """

    surrogate: str
    kind: str
    answers: tuple[FloatArray, ...]
    exact: Exact = "never"
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.exact not in get_args(Exact):
            names = ", ".join(map(repr, get_args(Exact)))
            raise InputError(f"Got exact={self.exact!r}; expected one of {names}.")


@dataclass(frozen=True)
class Oracle:
    """A black box whose explanations are known.

    Parameters
    ----------
    name
        What it is called in tables.
    model
        The black box; equal inputs get equal answers.
    texts
        What is explained, one or more; their units are words.
    truth
        What is known, per surrogate and kind.
    masking, design
        What the truth holds for, as in `piste.explain`.
    estimators
        The estimator that a surrogate's name stands for, where its default is not what the truth is
        about.

    Raises
    ------
    InputError
        If the numbers of texts, units and answers do not agree.
    """

    name: str
    model: BlackBox
    texts: tuple[str, ...]
    truth: tuple[Known, ...]
    masking: str = "remove"
    design: str = "auto"
    estimators: Mapping[str, Surrogate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError(f"Got oracle {self.name!r} without texts; expected at least one.")
        n_units = [segment(text).n_units for text in self.texts]
        for known in self.truth:
            expected = [n * (n - 1) // 2 if known.kind == PAIRS else n for n in n_units]
            lengths = [len(answer) for answer in known.answers]
            if lengths != expected:
                raise InputError(
                    f"Got {lengths} numbers for {known.surrogate} {known.kind}; expected {expected}, "
                    "one per unit (or pair of units) of each text."
                )

    @property
    def exact(self) -> frozenset[str]:
        """Names of the surrogates that must be exact on it, given enough masks."""
        return frozenset(known.surrogate for known in self.truth if known.exact != "never")


def black_box(name: str, score: Callable[[str], float], *parameters: object) -> BlackBox:
    """A function of one text as a model with one log-odds output, named after its parameters."""
    digest = hashlib.sha256(repr(parameters).encode()).hexdigest()[:16]
    return CallableModel(
        lambda texts: [score(text) for text in texts],
        kind="logit",
        fingerprint=f"oracle:{name}:{digest}",
    )


def upper_triangle(pairs: FloatArray) -> FloatArray:
    """Interactions (n_units, n_units) as the vector that a truth of kind ``pairs`` holds."""
    values: FloatArray = pairs[np.triu_indices(len(pairs), 1)]
    return values


def enumerated(model: BlackBox, text: str, masking: str = "remove") -> tuple[FloatArray, BoolArray]:
    """The answers (2^n,) to every mask (2^n, n) of a text, as `exact_shapley` takes them.

    Raises
    ------
    InputError
        If the text has more than 12 words.
    """
    units = segment(text)
    if units.n_units > MOST_ENUMERATED:
        raise InputError(
            f"Got a text of {units.n_units} words; expected at most {MOST_ENUMERATED}, for every masked "
            "version of it is asked. Give a shorter one."
        )
    n_masks = 1 << units.n_units
    masks = draw("exhaustive", units.n_units, n_masks, np.random.default_rng(0)).masks
    answers = collect(model, render(units, masks, choose_masking(masking, model)), batch_size=n_masks)
    return answers.values[:, 0], masks


def enumerated_truth(
    model: BlackBox, texts: Sequence[str], masking: str = "remove"
) -> tuple[Known, ...]:
    """What the answers to every mask of short texts say: Shapley values, pairs, removal effects."""
    games = [enumerated(model, text, masking) for text in texts]
    shapley = tuple(exact_shapley(*game) for game in games)
    pairs = tuple(upper_triangle(exact_pairs(*game)) for game in games)
    removal = tuple(
        scores[-1] - scores[[len(scores) - 1 - (1 << unit) for unit in range(masks.shape[1])]]
        for scores, masks in games
    )
    return (
        Known("shap", "shapley", shapley, "all masks"),
        Known("interactions", "total", shapley, "all masks"),
        Known("interactions", PAIRS, pairs, "all masks"),
        Known("slalom", "shapley", shapley),
        Known("slalom", "removal", removal),
    )
