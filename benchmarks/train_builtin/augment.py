"""Texts that the teacher answers for the student: above all, texts with words taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

WORD_OR_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
SHORTEST_SWAP = 3  # letters; the neighbours of shorter words are noise
N_NEIGHBOURS = 12
LINKS: tuple[str, ...] = (
    "not",
    "never",
    "no",
    "but",
    "very",
    "too",
    "so",
    "a",
    "isn't",
    "hardly",
    "and",
    "yet",
)
LINKS += ("without", "lacks", "more", "less", "as", "despite", "almost", "the", "of", "than")
MASK_TOKEN, UNKNOWN_TOKEN = "[MASK]", "[UNK]"

Units = list[str]


@dataclass(frozen=True)
class Augmenter:
    """Draws altered texts; every kind of change below mirrors a way in which piste queries."""

    sources: Sequence[str]
    neighbours: dict[str, list[str]]
    vocabulary: Sequence[str]
    rng: np.random.Generator

    def draw(self, n_texts: int) -> list[str]:
        """Draw `n_texts` texts; repeats are possible among the very short ones."""
        kinds: list[tuple[float, Callable[[Units], Units]]] = [
            (0.30, self.scatter),
            (0.10, self.cut),
            (0.12, self.window),
            (0.08, self.handful),
            (0.22, self.swap),
            (0.06, self.mask),
            (0.06, self.join),
            (0.06, self.phrase),
        ]
        shares = np.array([share for share, _ in kinds])
        choices = self.rng.choice(len(kinds), size=n_texts, p=shares / shares.sum())
        return [" ".join(kinds[choice][1](self._units())) for choice in choices]

    def _units(self) -> Units:
        """Split a random source at spaces, or into words and punctuation marks."""
        text = self.sources[int(self.rng.integers(len(self.sources)))]
        return text.split() if self.rng.random() < 0.5 else WORD_OR_MARK.findall(text)

    def scatter(self, units: Units) -> Units:
        """Keep a random subset of the words whose size is uniform, as piste's designs do."""
        words = _word_positions(units)
        n_gone = self.rng.integers(0, len(words) + 1)
        gone = set(self.rng.choice(words, size=n_gone, replace=False)) if words else set()
        return [unit for i, unit in enumerate(units) if i not in gone]

    def cut(self, units: Units) -> Units:
        """Remove one run of words."""
        start, stop = sorted(self.rng.integers(0, len(units) + 1, size=2))
        return units[:start] + units[stop:]

    def window(self, units: Units) -> Units:
        """Keep one run of one to five words."""
        size = int(self.rng.integers(1, 6))
        start = int(self.rng.integers(0, max(1, len(units) - size + 1)))
        return units[start : start + size]

    def handful(self, units: Units) -> Units:
        """Keep one to five words from anywhere, in order."""
        words = _word_positions(units)
        size = min(len(words), int(self.rng.integers(1, 6)))
        kept = sorted(self.rng.choice(words, size=size, replace=False)) if words else []
        return [units[i] for i in kept]

    def swap(self, units: Units) -> Units:
        """Replace some words by neighbours in the teacher's embedding space, often also scatter.

        This carries the teacher's knowledge of words that the training snippets never use.
        """
        share = self.rng.uniform(0.1, 0.5)
        swapped = [self._swap_one(unit) if self.rng.random() < share else unit for unit in units]
        return self.scatter(swapped) if self.rng.random() < 0.4 else swapped

    def _swap_one(self, unit: str) -> str:
        options = self.neighbours.get(unit.lower().strip(".,;:!?'\"()"))
        return options[self.rng.integers(len(options))] if options else unit

    def mask(self, units: Units) -> Units:
        """Replace words by [MASK], or in a few texts by [UNK], which emoji become."""
        token = UNKNOWN_TOKEN if self.rng.random() < 0.25 else MASK_TOKEN
        share = self.rng.random()
        return [token if self.rng.random() < share else unit for unit in units]

    def join(self, units: Units) -> Units:
        """Append up to three more texts, so that late positions are trained as well."""
        for _ in range(int(self.rng.integers(1, 4))):
            units = units + self._units()
        return units

    def phrase(self, units: Units) -> Units:
        """Ignore the source; string together vocabulary words, half of them after a link word."""
        size = int(self.rng.integers(1, 4))
        words = [self.vocabulary[i] for i in self.rng.integers(len(self.vocabulary), size=size)]
        links = [LINKS[i] for i in self.rng.integers(len(LINKS), size=size)]
        pairs = zip(links, words, strict=True)
        return [u for link, word in pairs for u in self._maybe_linked(link, word)]

    def _maybe_linked(self, link: str, word: str) -> Units:
        return [link, word] if self.rng.random() < 0.5 else [word]


def _word_positions(units: Units) -> list[int]:
    return [i for i, unit in enumerate(units) if any(c.isalnum() for c in unit)]


def whole_words(tokenizer: Tokenizer) -> dict[str, int]:
    """Vocabulary entries that are English words by themselves, in the order of their ids."""
    entries = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    is_word = re.compile(rf"[a-z]{{{SHORTEST_SWAP},}}").fullmatch
    return {word: index for word, index in entries if is_word(word)}


@torch.no_grad()
def nearest_words(
    texts: Sequence[str], words: dict[str, int], embeddings: Tensor
) -> dict[str, list[str]]:
    """Nearest words by cosine similarity for each known word of the texts."""
    names = list(words)
    vectors = torch.nn.functional.normalize(embeddings[list(words.values())].float(), dim=1)
    used = {word.lower() for text in texts for word in WORD_OR_MARK.findall(text)}
    rows = [i for i, name in enumerate(names) if name in used]
    found: dict[str, list[str]] = {}
    for start in range(0, len(rows), 1024):
        chunk = rows[start : start + 1024]
        nearest = (vectors[chunk] @ vectors.T).topk(N_NEIGHBOURS + 1, dim=1).indices[:, 1:]
        for row, indices in zip(chunk, nearest.tolist(), strict=True):
            found[names[row]] = [names[i] for i in indices]
    return found
