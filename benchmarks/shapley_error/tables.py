"""Real games whose exact Shapley values are known: every masked version of a text, scored once."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from piste import load_model
from piste._typing import BoolArray, FloatArray
from piste.fitting.shapley import exact_shapley
from piste.sampling.collect import collect
from piste.sampling.designs import draw
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.segment import segment
from piste.sampling.space import choose_targets, to_space

TEXTS_BY_SIZE = {10: 10, 11: 10, 12: 14, 13: 8, 14: 8}
"""How many texts of each number of units."""


@dataclass(frozen=True)
class Game:
    """One text under one model.

    Parameters
    ----------
    model, text
        What was asked about what.
    scores
        Shape (2^n_units,), float64: log-odds of the class predicted for the whole text; row r keeps
        unit i where bit i of r is 1.
    shapley
        Shape (n_units,), float64: exact, from all the scores.
    """

    model: str
    text: str
    scores: FloatArray
    shapley: FloatArray

    @property
    def n_units(self) -> int:
        """Players of the game."""
        return len(self.shapley)

    def score(self, masks: BoolArray) -> FloatArray:
        """The model's answers to masks (n_masks, n_units), from the table."""
        answers: FloatArray = self.scores[codes(masks)]
        return answers


def codes(masks: BoolArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The row of the table that each mask is."""
    return (np.asarray(masks) != 0) @ (1 << np.arange(masks.shape[1]))


def texts(data_folder: Path, seed: int = 0) -> list[str]:
    """Sentences of `sst2_dev.tsv` with 10 to 14 words, a seeded choice."""
    lines = (data_folder / "sst2_dev.tsv").read_text(encoding="utf-8").splitlines()
    sentences = [line.split("\t")[0] for line in lines]
    order = np.random.default_rng(seed).permutation(len(sentences))
    by_size: dict[int, list[str]] = {size: [] for size in TEXTS_BY_SIZE}
    for at in order:
        size = segment(sentences[at]).n_units
        if len(by_size.get(size, ())) < TEXTS_BY_SIZE.get(size, 0):
            by_size[size].append(sentences[at])
    return [text for group in by_size.values() for text in group]


def games(uri: str, name: str, chosen: list[str], cache: Path) -> Iterator[Game]:
    """The games of one model; tables that the cache lacks are scored, which takes minutes."""
    cache.mkdir(parents=True, exist_ok=True)
    model: BlackBox | None = None
    for text in chosen:
        path = cache / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npy"
        if not path.is_file():
            model = model or load_model(uri)
            np.save(path, _scores(model, text))
        scores = np.load(path)
        n_units = scores.shape[0].bit_length() - 1
        masks = draw("exhaustive", n_units, len(scores), np.random.default_rng(0)).masks
        yield Game(name, text, scores, exact_shapley(scores, masks))


def _scores(model: BlackBox, text: str) -> FloatArray:
    """Log-odds of the predicted class for every mask."""
    units = segment(text)
    masks = draw("exhaustive", units.n_units, 1 << units.n_units, np.random.default_rng(0)).masks
    answers = collect(model, render(units, masks, choose_masking("remove")), batch_size=64)
    in_space = to_space(answers.values, answers.kind).scores
    target = choose_targets(in_space[-1], answers.labels, None)[0]
    return np.ascontiguousarray(in_space[:, target])
