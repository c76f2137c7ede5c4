from typing import Any

import numpy as np
import pytest

from piste._errors import InputError, ModelError
from piste.sampling.collect import collect
from piste.sampling.models import BlackBox, CallableModel, Tokenizing, TokenizingCallable
from piste.sampling.models.callable import wrap_callable
from piste.sampling.records import Hidden

TEXTS = ["short review text", "short text", "text"]
SCORES = [3.0, 2.0, 1.0]


class Text(str):
    """What numpy and others pass for a str."""

    __slots__ = ()


def words(text: str) -> list[tuple[int, int]]:
    """Whitespace-separated words, as a tokenizer function."""
    starts = [i for i, c in enumerate(text) if not c.isspace() and (i == 0 or text[i - 1].isspace())]
    return [(start, start + len(text[start:].split()[0])) for start in starts]


def test_function_gets_a_list_of_exactly_str() -> None:  # T02a, R52
    def strict(texts: object) -> list[float]:
        assert type(texts) is list
        assert all(type(text) is str for text in texts)
        return [0.5] * len(texts)

    model = CallableModel(strict)
    assert model.score(np.array(["a b c", "a b"])).values.shape == (2, 1)  # type: ignore[arg-type]
    assert model.score((Text("a b c"),)).values.shape == (1, 1)


def test_pairs_arrive_as_tuples_of_two_str() -> None:
    def strict(pairs: list[tuple[str, str]]) -> list[float]:
        assert all(type(pair) is tuple and type(pair[0]) is type(pair[1]) is str for pair in pairs)
        return [float(len(hypothesis)) for _, hypothesis in pairs]

    assert CallableModel(strict).score([(Text("a"), Text("bc"))]).values.tolist() == [[2.0]]


def test_one_row_for_many_texts_is_refused_before_anything_else() -> None:  # T02b, R51
    model = CallableModel(lambda texts: [[0.2, 0.8]])
    with pytest.raises(ModelError, match=r"returned 1 rows for 3 texts; expected .* one row per text"):
        collect(model, ["a b c", "a b", "a"])


@pytest.mark.parametrize(
    "shape", [lambda s: s, lambda s: np.array(s), lambda s: np.array(s)[:, None], lambda s: tuple(s)]
)
def test_list_vector_and_column_are_the_same(shape: Any) -> None:  # T11, R50
    scores = CallableModel(lambda texts: shape(SCORES)).score(TEXTS)
    assert scores.values.tolist() == [[3.0], [2.0], [1.0]]
    assert scores.values.dtype == np.float64
    assert scores.labels == ("output",)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "bool"])
def test_numpy_types_are_lifted(dtype: str) -> None:  # R41
    values = CallableModel(lambda texts: np.ones((len(texts), 2), dtype)).score(TEXTS).values
    assert values.dtype == np.float64
    assert values.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rows", [False, True])
def test_tensors_of_any_type_that_require_gradients_are_lifted(
    torch: Any, dtype: str, rows: bool
) -> None:
    def function(texts: list[str]) -> Any:
        tensor = torch.full((len(texts), 2), 1.5, dtype=getattr(torch, dtype), requires_grad=True)
        return list(tensor) if rows else tensor

    assert CallableModel(function).score(TEXTS).values.tolist() == [[1.5, 1.5]] * 3


def test_float64_tensors_lose_no_digit(torch: Any) -> None:
    third = CallableModel(lambda texts: torch.tensor([1 / 3], dtype=torch.float64)).score(["a"])
    assert third.values[0, 0] == 1 / 3


def test_answers_do_not_change_with_the_functions_own_buffer(torch: Any) -> None:
    buffer = torch.ones(1, dtype=torch.float64)
    before = CallableModel(lambda texts: buffer).score(["a"]).values
    buffer.fill_(2)
    assert before.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([{"label": "good", "score": 0.5}], "a list of dict; expected .* Pass a transformers pipeline"),
        (["good"], "a list of str; expected numbers"),
        ({"good": [0.5]}, "an object of type dict; expected numbers"),
        ("good", "an object of type str; expected numbers"),
        (None, "an object of type NoneType; expected numbers"),
        ([[0.1], [0.1, 0.2]], "a list of list; expected numbers"),
        (0.5, r"numbers of shape \(\); expected"),
        (np.zeros((1, 2, 3)), r"numbers of shape \(1, 2, 3\); expected"),
        (np.zeros((1, 0)), r"numbers of shape \(1, 0\); expected"),
    ],
)
def test_other_answers_are_refused_with_an_example(answer: object, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        CallableModel(lambda texts: answer).score(["a b c"])
    assert "lambda texts: [" in str(caught.value)


def test_no_answers_are_too_few() -> None:
    with pytest.raises(ModelError, match="returned 0 rows for 1 texts"):
        CallableModel(lambda texts: []).score(["a b c"])


def test_exception_names_the_text() -> None:
    def divide(texts: list[str]) -> list[float]:
        return [1 / len(text.split()) for text in texts]

    model = CallableModel(divide)
    with pytest.raises(ModelError, match=r"raised ZeroDivisionError: .*batch of 1 that starts with ''"):
        model.score([""])
    with pytest.raises(ModelError, match=r"that starts with 'word word [word ]*…'\)") as caught:
        CallableModel(lambda texts: 1 / 0).score(["word " * 100])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ModelError, match=r"starts with 'premise \| hypothesis'"):
        CallableModel(lambda texts: 1 / 0).score([("premise", "hypothesis")])


def test_labels_have_defaults_and_are_checked() -> None:
    three = CallableModel(lambda texts: np.zeros((len(texts), 3)))
    assert three.score(["a"]).labels == ("0", "1", "2")
    named = CallableModel(lambda texts: np.zeros((len(texts), 3)), labels=["bad", "good"])
    with pytest.raises(ModelError, match="returned 3 columns; expected 2, one per label bad, good"):
        named.score(["a"])
    with pytest.raises(InputError, match=r"Got labels='good'; expected .*\['good'\]"):
        CallableModel(len, labels="good")


def test_kind_is_unknown_unless_declared() -> None:
    assert CallableModel(lambda texts: [0.5]).score(["a"]).kind == "unknown"
    assert CallableModel(lambda texts: [0.5], kind="probability").score(["a"]).kind == "probability"
    with pytest.raises(InputError, match="Got kind='logits'; expected 'logit', 'probability', 'raw'"):
        CallableModel(len, kind="logits")  # type: ignore[arg-type]


def test_fingerprint_is_the_name_or_the_one_given() -> None:
    class Scorer:
        def __call__(self, texts: list[str]) -> list[float]:
            return [0.0] * len(texts)

    assert CallableModel(words).fingerprint.endswith("test_callable.words")
    assert CallableModel(Scorer()).fingerprint.endswith("<locals>.Scorer")
    assert CallableModel(words, fingerprint="v2").fingerprint == "v2"


def test_attention_masks_are_refused() -> None:
    with pytest.raises(InputError, match=r"masking='attention' for a callable.* Use masking='remove'"):
        CallableModel(len).score([Hidden("a b", ((0, 0, 1),))])


def test_only_a_tokenizer_makes_it_tokenizing() -> None:
    plain = wrap_callable(lambda texts: [0.0])
    assert isinstance(plain, BlackBox)
    assert not isinstance(plain, Tokenizing)
    assert isinstance(wrap_callable(lambda texts: [0.0], tokenizer=words), Tokenizing)
    with pytest.raises(InputError, match="window or mask_token without a tokenizer"):
        wrap_callable(len, window=16)


def test_tokenizer_function() -> None:  # T15 with a function, which adds no special tokens
    model = TokenizingCallable(
        lambda texts: [len(text) for text in texts],
        tokenizer=words,
        window=3,
        mask_token="?",
        fingerprint="f",
    )
    assert model.token_spans("ok film") == [(0, 2), (3, 7)]
    assert model.seen_until(["one two three"]) == (13,)
    assert model.seen_until(["one two three four"]) == (14,)
    assert model.seen_until(["one two", "one two"]) == (4, 7)
    assert (model.mask_token, model.fingerprint) == ("?", "f")
    assert model.score(["abc"]).values.tolist() == [[3.0]]


def test_pieces_of_one_character_are_seen_together() -> None:
    emoji = TokenizingCallable(len, tokenizer=lambda text: [(0, 2), (3, 4), (3, 4), (3, 4)], window=2)
    assert emoji.seen_until(["ok 😀"]) == (4,)


def test_no_window_sees_everything() -> None:
    assert TokenizingCallable(len, tokenizer=words).seen_until(["one " * 999]) == (3996,)


def test_window_counts_the_special_tokens_of_transformers_tokenizers(
    transformers: Any, tiny_bert_dir: Any
) -> None:  # T15
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert_dir)
    text = "film " * 40
    for window in (16, None):  # the tokenizer's own model_max_length is 16
        model = TokenizingCallable(len, tokenizer=tokenizer, window=window)
        assert model.seen_until([text]) == (14 * 5,)
        assert model.mask_token == "[MASK]"
    backend = TokenizingCallable(len, tokenizer=tokenizer.backend_tokenizer, window=16)
    assert backend.seen_until([text]) == (14 * 5,)
    assert backend.token_spans("raisins") == [(0, 4), (4, 6), (6, 7)]
    assert backend.mask_token == "[MASK]"


@pytest.mark.parametrize("window", [0, -1])
def test_impossible_window(window: int) -> None:
    with pytest.raises(InputError, match=f"Got window={window}; expected at least one token"):
        TokenizingCallable(len, tokenizer=words, window=window)


def test_unknown_tokenizer() -> None:
    with pytest.raises(
        InputError, match="Got a tokenizer of type str; expected a transformers tokenizer"
    ):
        TokenizingCallable(len, tokenizer="words")
