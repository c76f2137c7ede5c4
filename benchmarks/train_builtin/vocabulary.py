"""A smaller WordPiece vocabulary: the teacher's own, cut to the pieces that matter here."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TYPOGRAPHY = "‘’“”–—…€£•"
SURE_COUNT = 40  # a piece seen this often in the training text is kept whatever its sentiment
RARE_COUNT = 0.3  # stands in for "never seen", so that strong but rare words can still win a place


def plain_tokenizer(source: Tokenizer) -> Tokenizer:
    """Copy a tokenizer without its truncation and padding."""
    copy = Tokenizer.from_str(source.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def count_pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[int]:
    """Count the teacher's pieces in the training text."""
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return Counter(piece for encoding in encodings for piece in encoding.ids)


def choose_pieces(
    vocabulary: dict[str, int],
    counts: Counter[int],
    strengths: np.ndarray,
    *,
    size: int,
) -> list[int]:
    """Choose teacher ids: special tokens, single characters, then by expected influence.

    Influence is (how often the piece occurs) x (how far the teacher's answer to it alone lies
    from the typical answer): names of actors make way for rare words that carry an opinion.
    """
    characters = set(string.ascii_lowercase + string.digits + string.punctuation + TYPOGRAPHY)
    letters = string.ascii_lowercase + string.digits
    obligatory = [*SPECIAL_TOKENS, *sorted(characters), *(f"##{c}" for c in letters)]
    chosen = [vocabulary[piece] for piece in obligatory if piece in vocabulary]
    taken = set(chosen)
    excluded = {i for piece, i in vocabulary.items() if not _is_english(piece)}

    def priority(piece: int) -> tuple[bool, float, int]:
        influence = (counts[piece] + RARE_COUNT) * float(strengths[piece])
        return counts[piece] < SURE_COUNT, -influence, piece

    rest = sorted(set(vocabulary.values()) - taken - excluded, key=priority)
    chosen += rest[: size - len(chosen)]
    n_special = len(SPECIAL_TOKENS)
    return chosen[:n_special] + sorted(chosen[n_special:])


def _is_english(piece: str) -> bool:
    return piece.removeprefix("##").isascii() and not piece.startswith("[unused")


def prune_tokenizer(source: Tokenizer, pieces: Sequence[int]) -> Tokenizer:
    """Rebuild the tokenizer over the chosen pieces, numbered in the order given.

    WordPiece takes the longest match first, so a word outside the new vocabulary falls into
    shorter pieces; it becomes [UNK] only if one of its characters is unknown.
    """
    names = {index: piece for piece, index in source.get_vocab().items()}
    numbers = {names[old]: new for new, old in enumerate(pieces)}
    recipe: dict[str, Any] = json.loads(plain_tokenizer(source).to_str())
    recipe["model"]["vocab"] = numbers
    for token in recipe["added_tokens"]:
        token["id"] = numbers[token["content"]]
    for name, token in recipe["post_processor"]["special_tokens"].items():
        token["ids"] = [numbers[name]]
    return Tokenizer.from_str(json.dumps(recipe))
