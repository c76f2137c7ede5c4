"""Where a model's subwords lie in the text, and how much of it the window lets in."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Encoding, Tokenizer

from piste._errors import InputError
from piste._typing import BoolArray
from piste.sampling.models._foreign import is_a
from piste.sampling.records import Hidden, Query, Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# These count positions from pad_token_id + 1 on: that many of max_position_embeddings are never used.
_POSITIONS_AFTER_PADDING = {
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "layoutlmv3",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}
_NO_LIMIT = 10**9  # transformers writes 10**30 where a tokenizer knows no maximal length


@dataclass(frozen=True)
class Subwords:
    """What ``Tokenizing`` asks for, whichever library does the cutting.

    Parameters
    ----------
    token_spans
        Character offsets of each subword of one segment, without special tokens, never truncated.
    count
        The number of these, which is known even where the offsets are not.
    window
        How many tokens the model takes, special ones included; None where it knows no limit.
    n_special
        How many special tokens are added to one text, and to a pair.
    mask_token
        The tokenizer's own mask token as text.
    """

    token_spans: Callable[[str], list[tuple[int, int]]]
    count: Callable[[str], int]
    window: int | None = None
    n_special: tuple[int, int] = (0, 0)
    mask_token: str | None = None

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment the offset from which the window cuts it off, or its length."""
        if self.window is None:
            return tuple(map(len, parts))
        counts = [self.count(part) for part in parts]
        kept = kept_tokens(counts, self.window - self.n_special[len(parts) - 1])
        return tuple(
            len(part) if n == count else _edge(self.token_spans(part), n)
            for part, count, n in zip(parts, counts, kept, strict=True)
        )


def kept_tokens(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of each segment survive when ``tokenizers`` truncates the longest first.

    >>> kept_tokens([9], 5), kept_tokens([2, 9], 8), kept_tokens([9, 8], 5)
    ([5], [2, 6], [3, 2])
    """
    room = max(room, 0)
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    shorter = min(lengths)
    longer = room - shorter
    if longer < shorter:
        shorter, longer = room // 2, room - room // 2
    return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]


def _edge(spans: list[tuple[int, int]], n_kept: int) -> int:
    # Pieces of one character share its offsets: it counts as seen if one of them is.
    return max(spans[n_kept - 1][1], spans[n_kept][0]) if n_kept else 0


def subwords_of(tokenizer: object, window: int | None, mask_token: str | None) -> Subwords:
    """Read a transformers tokenizer, a ``tokenizers.Tokenizer`` or a function that gives offsets."""
    if is_a(tokenizer, "transformers", "PreTrainedTokenizerBase"):
        return transformers_subwords(tokenizer, window, mask_token)  # type: ignore[arg-type]
    if isinstance(tokenizer, Tokenizer):
        return tokenizers_subwords(tokenizer, window, mask_token)
    if callable(tokenizer):
        return Subwords(tokenizer, lambda text: len(tokenizer(text)), window, mask_token=mask_token)
    raise InputError(
        f"Got a tokenizer of type {type(tokenizer).__name__}; expected a transformers tokenizer, a "
        "tokenizers.Tokenizer or a function from a text to [(start, end), …] in characters."
    )


def transformers_subwords(
    tokenizer: "PreTrainedTokenizerBase", window: int | None, mask_token: str | None = None
) -> Subwords:
    """Offsets from a fast transformers tokenizer; ``window`` defaults to its ``model_max_length``."""

    def spans(text: str) -> list[tuple[int, int]]:
        if not tokenizer.is_fast:
            raise InputError(
                f"Got {type(tokenizer).__name__}, a slow tokenizer, which does not say where its "
                "tokens lie; expected a fast one. Use units='word', and texts within the window."
            )
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(start, end) for start, end in encoded["offset_mapping"]]

    return Subwords(
        spans,
        lambda text: len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]),
        window_of({}, tokenizer.model_max_length) if window is None else window,
        (tokenizer.num_special_tokens_to_add(False), tokenizer.num_special_tokens_to_add(True)),
        mask_token or tokenizer.mask_token,
    )


def tokenizers_subwords(
    tokenizer: Tokenizer, window: int | None, mask_token: str | None = None
) -> Subwords:
    """Offsets from a ``tokenizers.Tokenizer``, whose own truncation and padding are left out."""
    plain = Tokenizer.from_str(without_batching(tokenizer))
    special = {token.content for token in plain.get_added_tokens_decoder().values() if token.special}
    return Subwords(
        lambda text: list(plain.encode(text, add_special_tokens=False).offsets),
        lambda text: len(plain.encode(text, add_special_tokens=False)),
        window,
        (plain.num_special_tokens_to_add(False), plain.num_special_tokens_to_add(True)),
        mask_token or next((name for name in ("[MASK]", "<mask>") if name in special), None),
    )


def without_batching(tokenizer: Tokenizer) -> str:
    """A tokenizer as JSON, without the truncation and padding that its last call may have left."""
    state = json.loads(tokenizer.to_str())
    return json.dumps({**state, "truncation": None, "padding": None}, sort_keys=True)


def window_of(config: Mapping[str, object], model_max_length: float | None) -> int | None:
    """How many tokens a model takes by its config and its tokenizer, special ones included.

    >>> window_of({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, None)
    512
    """
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    limits = [] if model_max_length is None else [int(model_max_length)]
    if isinstance(positions, int):
        pad = config.get("pad_token_id")
        after_padding = config.get("model_type") in _POSITIONS_AFTER_PADDING
        limits.append(positions - (pad + 1 if after_padding and isinstance(pad, int) else 0))
    return min((limit for limit in limits if 0 < limit < _NO_LIMIT), default=None)


def plain_texts(inputs: Sequence[Query]) -> list[Text]:
    """What the tokenizer gets: the texts as they are, hidden spans included.

    Raises
    ------
    InputError
        If single texts and pairs are mixed.
    """
    texts = [query.text if isinstance(query, Hidden) else query for query in inputs]
    if len({isinstance(text, tuple) for text in texts}) > 1:
        raise InputError(
            "Got single texts and pairs in one batch; expected one sort. Ask for each apart."
        )
    return texts


def attention(query: Query, encoding: Encoding) -> list[int]:
    """1 for each token, 0 for one whose characters (whitespace aside) all lie in hidden spans."""
    if not isinstance(query, Hidden):
        return [1] * len(encoding.ids)
    parts = query.text if isinstance(query.text, tuple) else (query.text,)
    spaces: list[BoolArray] = [np.array([char.isspace() for char in part], bool) for part in parts]
    hidden = [np.zeros(len(part), bool) for part in parts]
    for segment, start, end in query.spans:
        hidden[segment][start:end] = True

    def attends(segment: int | None, start: int, end: int) -> bool:
        if segment is None:  # a special token
            return True
        here, space = hidden[segment][start:end], spaces[segment][start:end]
        return not (here & ~space).any() or not (here | space).all()

    return [
        int(attends(segment, start, end))
        for segment, (start, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]
