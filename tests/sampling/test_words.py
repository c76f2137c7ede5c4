"""Token ids from words are the tokenizer's own, for every text there is."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from piste.sampling.models import HuggingFaceClassifier, OnnxClassifier
from piste.sampling.models._tokens import without_batching
from piste.sampling.models._words import Words

SENTIMENT = Path(__file__).parents[2] / "sampling" / "models" / "sentiment" / "tokenizer.json"
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "film",
    "fil",
    "##m",
    "##e",
    "e",
    "good",
]
PIECES = [
    *VOCABULARY,
    " ",
    "  ",
    "\t",
    "\u00a0",
    "é",
    "e\u0301",
    "\u0301",
    "好",
    "ΑΣ",
    "İ",
    "\x1c",
    "\x00",
]
WINDOW = 12


def bert() -> Tokenizer:
    """A small tokenizer in the manner of BERT."""
    vocabulary = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(VOCABULARY[:5])
    return tokenizer


STATES = {
    "small": without_batching(bert()),
    "sentiment": without_batching(Tokenizer.from_file(str(SENTIMENT))),
}
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@cache
def both(name: str, window: int | None) -> tuple[Words | None, Tokenizer]:
    """The words of a tokenizer, and the tokenizer itself."""
    reference = Tokenizer.from_str(STATES[name])
    if window is not None:
        reference.enable_truncation(window)
    return Words.of(STATES[name], window), reference


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("window", [None, WINDOW, 2])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@example(texts=["", " ", "film [MASK]film [CLS]", "good \u0301film e \u0301", "a " * 30])
def test_ids_are_those_of_the_tokenizer(name: str, window: int | None, texts: list[str]) -> None:
    words, reference = both(name, window)
    assert words is not None
    assert words.ids(texts) == [reference.encode(text).ids for text in texts]


def with_another_normalizer() -> Tokenizer:
    tokenizer = bert()
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = bert()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    return tokenizer


def with_a_token_across_words() -> Tokenizer:
    tokenizer = bert()
    tokenizer.add_tokens(["good film"])
    return tokenizer


@pytest.mark.parametrize("make", [with_another_normalizer, byte_level, with_a_token_across_words])
def test_other_tokenizers_are_left_to_cut_whole_texts(make: Any) -> None:
    assert Words.of(without_batching(make()), None) is None


@pytest.fixture(scope="module")
def adapters(
    tiny_bert: tuple[Any, Any], tiny_onnx_dir: Path
) -> tuple[HuggingFaceClassifier, OnnxClassifier]:
    """One model in both."""
    return HuggingFaceClassifier(tiny_bert[0], tokenizer=tiny_bert[1]), OnnxClassifier(tiny_onnx_dir)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_adapters_inputs_are_those_of_their_tokenizers(
    tiny_bert: tuple[Any, Any],
    adapters: tuple[HuggingFaceClassifier, OnnxClassifier],
    texts: list[str],
) -> None:
    encoded = tiny_bert[1](texts, truncation=True, max_length=16)
    for box in adapters:
        assert box._words is not None
        rows = box._encode(texts)
        assert rows.ids == encoded["input_ids"]
        assert rows.attended is None
        assert rows.type_ids in (None, [[0] * len(row) for row in rows.ids])
