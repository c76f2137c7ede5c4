"""Token ids of masked texts put together from those of their words, where that changes nothing.

A text's masked versions share its words, so that cutting each word once is much cheaper than cutting each
version. It is exact for tokenizers that cut at every space and look at nothing beyond it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Self

from tokenizers import Tokenizer

# U+0020 is a boundary to each of these, whatever stands around it: normalisation works character by
# character or, with combining marks, up to the next base character, which a space is; the models cut each
# stretch that the second kind hands them alone.
_NORMALIZERS = ("BertNormalizer",)
_PRE_TOKENIZERS = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
_MODELS = ("WordPiece", "WordLevel")


@dataclass(frozen=True)
class Words:
    """A tokenizer that cuts at every space.

    Parameters
    ----------
    tokenizer
        Without truncation and padding.
    before, after
        The special tokens around a text.
    room
        How many other tokens there may be; None for no limit. What is beyond is cut off at the end.
    """

    tokenizer: Tokenizer
    before: tuple[int, ...]
    after: tuple[int, ...]
    room: int | None

    @classmethod
    def of(cls, state: str, window: int | None) -> Self | None:
        """The tokenizer of this JSON, or None where the words alone do not tell the tokens.

        Parameters
        ----------
        state
            A ``tokenizers.Tokenizer`` without truncation and padding.
        window
            The most tokens, special ones included; None for no limit.
        """
        if not _cuts_at_spaces(json.loads(state)):
            return None
        tokenizer = Tokenizer.from_str(state)
        whole = tokenizer.encode("a")
        special = whole.special_tokens_mask
        n_before = sum(1 for _ in takewhile(bool, special))
        n_after = sum(1 for _ in takewhile(bool, reversed(special)))
        inner = whole.ids[n_before : len(whole.ids) - n_after]
        if any(whole.type_ids) or inner != tokenizer.encode("a", add_special_tokens=False).ids:
            return None
        room = None if window is None else max(window - n_before - n_after, 0)
        around = whole.ids[:n_before], whole.ids[len(whole.ids) - n_after :]
        return cls(tokenizer, tuple(around[0]), tuple(around[1]), room)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, special ones included: those of ``tokenizer.encode``, cut to the room."""
        split = [text.split(" ") for text in texts]
        words = list(dict.fromkeys(chain.from_iterable(split)))
        encodings = self.tokenizer.encode_batch_fast(words, add_special_tokens=False)
        known = {word: encoding.ids for word, encoding in zip(words, encodings, strict=True)}
        return [
            [
                *self.before,
                *[*chain.from_iterable(map(known.__getitem__, each))][: self.room],
                *self.after,
            ]
            for each in split
        ]


def _cuts_at_spaces(state: dict[str, Any]) -> bool:
    normalizer, pre_tokenizer = state.get("normalizer"), state.get("pre_tokenizer")
    return (
        (normalizer is None or normalizer["type"] in _NORMALIZERS)
        and pre_tokenizer is not None
        and pre_tokenizer["type"] in _PRE_TOKENIZERS
        and state["model"]["type"] in _MODELS
        # One that has a space, or gets one from normalisation, could lie across words.
        and all(
            token["content"].isascii()
            and token["content"].isprintable()
            and " " not in token["content"]
            for token in state["added_tokens"]
        )
    )
