import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling.models import BlackBox, HuggingFaceClassifier, Tokenizing, load_model
from piste.sampling.records import Hidden

MakeModel = Callable[..., Path]

TEXTS = ["a good film", "", "the plot and the actor ! not very bad", "a bad film ."]
PAIRS = [("a good film", "the plot"), ("", "a bad film ."), ("the actor", "")]


def reference_logits(tiny_bert: tuple[Any, Any], texts: list[Any]) -> FloatArray:
    """What transformers itself answers, one text at a time, without padding."""
    import torch

    model, tokenizer = tiny_bert
    rows = []
    with torch.no_grad():
        for text in texts:
            pair = text if isinstance(text, tuple) else (text,)
            # Lists, as transformers drops an empty second text that comes as a plain string.
            columns = [[part] for part in pair]
            encoded = tokenizer(*columns, return_tensors="pt", truncation=True, max_length=16)
            rows.append(model(**encoded).logits[0].double().numpy())
    return np.array(rows)


def log_odds(logits: FloatArray) -> FloatArray:
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    values: FloatArray = np.log(p / (1 - p))
    return values


@pytest.mark.parametrize("texts", [TEXTS, PAIRS, TEXTS[:1]])
def test_softmax_head_answers_one_vs_rest_log_odds(
    tiny_bert: tuple[Any, Any], tiny_bert_dir: Path, texts: list[Any]
) -> None:
    scores = load_model(f"hf:{tiny_bert_dir}").score(texts)
    assert scores.kind == "logit"
    assert scores.labels == ("negative", "neutral", "positive")
    assert scores.values.dtype == np.float64
    np.testing.assert_allclose(scores.values, log_odds(reference_logits(tiny_bert, texts)), atol=2e-5)


def test_segment_ids_tell_the_texts_of_a_pair_apart(tiny_bert_dir: Path) -> None:
    model = load_model(f"hf:{tiny_bert_dir}")
    pair, swapped = model.score([("a film", "a good film"), ("a good film", "a film")]).values
    assert np.abs(pair - swapped).max() > 1e-3


def test_pairs_and_texts_do_not_mix(tiny_bert_dir: Path) -> None:
    with pytest.raises(InputError, match="Got single texts and pairs in one batch"):
        load_model(f"hf:{tiny_bert_dir}").score(["a film", ("a", "film")])


def test_multi_label_head_is_not_normalised(make_tiny_bert: MakeModel, transformers: Any) -> None:
    folder = make_tiny_bert(problem_type="multi_label_classification")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    scores = load_model(f"hf:{folder}").score(TEXTS)
    assert scores.kind == "logit"
    np.testing.assert_allclose(scores.values, reference_logits((model, tokenizer), TEXTS), atol=1e-5)


@pytest.mark.parametrize(("problem_type", "kind"), [("regression", "raw"), (None, "logit")])
def test_one_output(make_tiny_bert: MakeModel, problem_type: str | None, kind: str) -> None:
    folder = make_tiny_bert(problem_type=problem_type, id2label={0: "stars"})
    scores = load_model(f"hf:{folder}").score(TEXTS)
    assert scores.kind == kind
    assert scores.labels == ("stars",)
    forced = load_model(f"hf:{folder}", kind="logit").score(TEXTS)
    assert forced.kind == "logit"
    np.testing.assert_array_equal(forced.values, scores.values)


def test_declared_kinds(tiny_bert: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_bert
    logits = reference_logits(tiny_bert, TEXTS)
    raw = HuggingFaceClassifier(model, tokenizer=tokenizer, kind="raw").score(TEXTS)
    np.testing.assert_allclose(raw.values, logits, atol=1e-5)
    probability = HuggingFaceClassifier(model, tokenizer=tokenizer, kind="probability").score(TEXTS)
    np.testing.assert_allclose(probability.values.sum(axis=1), 1, atol=1e-12)
    assert (raw.kind, probability.kind) == ("raw", "probability")
    with pytest.raises(InputError, match="Got kind='softmax'; expected 'logit', 'probability', 'raw'"):
        load_model(model, tokenizer=tokenizer, kind="softmax")


def test_labels_fall_back_where_the_config_names_too_few(tiny_bert: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_bert
    named = model.config.id2label
    try:
        model.config.id2label = {0: "only"}
        assert HuggingFaceClassifier(model, tokenizer=tokenizer).score(["a"]).labels == ("0", "1", "2")
    finally:
        model.config.id2label = named


def test_it_is_a_tokenizing_black_box(tiny_bert_dir: Path) -> None:
    model = load_model(f"hf:{tiny_bert_dir}")
    assert isinstance(model, BlackBox)
    assert isinstance(model, Tokenizing)
    assert model.mask_token == "[MASK]"
    assert model.token_spans("i ate raisins  today") == [
        (0, 1),
        (2, 5),
        (6, 10),
        (10, 12),
        (12, 13),
        (15, 20),
    ]
    assert len(model.token_spans("film " * 40)) == 40


def test_text_beyond_the_window_has_no_influence(tiny_bert_dir: Path) -> None:  # T15, R26
    model = load_model(f"hf:{tiny_bert_dir}")
    assert isinstance(model, Tokenizing)
    text = "film good " * 20
    (end,) = model.seen_until([text])
    assert text[:end] == "film good " * 7  # 14 words and two special tokens
    seen, changed = model.score([text, text[:end] + "bad " * 20]).values
    np.testing.assert_allclose(changed, seen, atol=1e-6)
    assert model.seen_until(["film " * 14]) == (14 * 5,)


def test_window_of_a_pair(tiny_bert_dir: Path) -> None:
    model = load_model(f"hf:{tiny_bert_dir}")
    assert isinstance(model, Tokenizing)
    first, second = "film " * 4, "good " * 20
    ends = model.seen_until([first, second])
    assert ends == (20, 9 * 5)  # 13 tokens and three special ones
    beyond = model.score([(first, second), (first, second[: ends[1]] + "bad")]).values
    np.testing.assert_allclose(beyond[1], beyond[0], atol=1e-6)


def test_roberta_counts_positions_after_the_padding(
    transformers: Any, torch: Any, tiny_bert: tuple[Any, Any]
) -> None:
    config = transformers.RobertaConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=12,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        roberta = transformers.RobertaForSequenceClassification(config)
    model = HuggingFaceClassifier(roberta, tokenizer=tiny_bert[1])
    assert model.seen_until(["film " * 40]) == (8 * 5,)
    assert np.isfinite(model.score(["film " * 40]).values).all()


def test_hidden_tokens_get_no_attention(
    tiny_bert: tuple[Any, Any], tiny_bert_dir: Path, torch: Any
) -> None:
    model, tokenizer = tiny_bert
    text = "a good  raisins film"
    encoded = tokenizer(text, return_tensors="pt")
    encoded["attention_mask"][0, [2, 3, 4, 5]] = 0  # good, rais ##in ##s
    with torch.no_grad():
        expected = log_odds(model(**encoded).logits.double().numpy())
    box = load_model(f"hf:{tiny_bert_dir}")
    split = Hidden(text, ((0, 2, 6), (0, 8, 15)))
    joined = Hidden(text, ((0, 2, 15),))
    part_of_a_token = Hidden(text, ((0, 2, 15), (0, 16, 18)))
    np.testing.assert_allclose(
        box.score([split, joined, part_of_a_token]).values, np.tile(expected, (3, 1)), atol=2e-5
    )
    whole = box.score([text, Hidden(text, ())]).values
    np.testing.assert_array_equal(whole[0], whole[1])
    assert np.abs(whole[0] - expected).max() > 1e-3


def test_hidden_spans_of_a_pair_and_of_everything(tiny_bert_dir: Path) -> None:
    box = load_model(f"hf:{tiny_bert_dir}")
    pair = ("a film", "a film")
    first, second, everything = box.score(
        [Hidden(pair, ((0, 2, 6),)), Hidden(pair, ((1, 2, 6),)), Hidden(pair, ((0, 0, 6), (1, 0, 6)))]
    ).values
    assert np.abs(first - second).max() > 1e-4
    assert np.isfinite(everything).all()


def test_the_users_model_and_the_global_state_are_left_alone(
    torch: Any, transformers: Any, tiny_bert_dir: Path
) -> None:
    state = torch.get_rng_state()
    load_model(f"hf:{tiny_bert_dir}")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert_dir).train()
    model.bert.embeddings.eval()
    flags = [module.training for module in model.modules()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert_dir)
    box = HuggingFaceClassifier(model, tokenizer=tokenizer)
    once, again = box.score(TEXTS).values, box.score(TEXTS).values
    np.testing.assert_array_equal(once, again)  # no dropout
    assert [module.training for module in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.is_inference_mode_enabled()


def test_bfloat16_is_lifted(tiny_bert_dir: Path) -> None:
    exact = load_model(f"hf:{tiny_bert_dir}", dtype="float32").score(TEXTS).values
    half = load_model(f"hf:{tiny_bert_dir}", dtype="bfloat16").score(TEXTS).values
    assert half.dtype == np.float64
    np.testing.assert_allclose(half, exact, atol=0.2)
    assert (
        load_model(f"hf:{tiny_bert_dir}", dtype="auto").score(TEXTS).values.tolist() == exact.tolist()
    )
    with pytest.raises(InputError, match="Got dtype='half'; expected 'float32', 'bfloat16', 'auto'"):
        load_model(f"hf:{tiny_bert_dir}", dtype="half")


def test_device_is_moved_on_request_only(tiny_bert: tuple[Any, Any], tiny_bert_dir: Path) -> None:
    assert load_model(f"hf:{tiny_bert_dir}", device="cpu").score(["a"]).values.shape == (1, 3)
    with pytest.raises(InputError, match="Got device='abacus', which torch cannot use here"):
        load_model(f"hf:{tiny_bert_dir}", device="abacus")
    kept = HuggingFaceClassifier(tiny_bert[0], tokenizer=tiny_bert[1])
    assert next(tiny_bert[0].parameters()).device.type == "cpu"
    assert kept.score(["a"]).values.shape == (1, 3)


def test_padding_is_no_feature(tiny_bert_dir: Path) -> None:  # R27
    box = load_model(f"hf:{tiny_bert_dir}")
    together = box.score(TEXTS).values
    alone = np.concatenate([box.score([text]).values for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@contextmanager
def memory_for(model: Any, largest: int, error: Exception, calls: list[int]) -> Iterator[None]:
    """Let the model fail on batches larger than ``largest``."""

    def refuse(module: Any, args: Any, kwargs: Any) -> None:
        calls.append(len(kwargs["input_ids"]))
        if calls[-1] > largest:
            raise error

    handle = model.register_forward_pre_hook(refuse, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def test_out_of_memory_halves_the_batch(
    tiny_bert: tuple[Any, Any], torch: Any, caplog: pytest.LogCaptureFixture
) -> None:  # R59
    box = HuggingFaceClassifier(tiny_bert[0], tokenizer=tiny_bert[1])
    texts = [f"a {'good ' * n}film" for n in range(7)]
    expected = box.score(texts).values
    for error in (
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 bytes"),
    ):
        calls: list[int] = []
        with memory_for(tiny_bert[0], 2, error, calls), caplog.at_level(logging.WARNING):
            values = box.score(texts).values
        np.testing.assert_allclose(values, expected, atol=1e-5)
        assert calls == [7, 3, 1, 2, 4, 2, 2]
        assert "Out of memory with a batch of 7; going on with 3." in caplog.text


def test_out_of_memory_for_one_text_is_said_and_other_errors_are_not_retried(
    tiny_bert: tuple[Any, Any],
) -> None:
    box = HuggingFaceClassifier(tiny_bert[0], tokenizer=tiny_bert[1])
    calls: list[int] = []
    out_of_memory = RuntimeError("MPS backend out of memory")
    with (
        memory_for(tiny_bert[0], 0, out_of_memory, calls),
        pytest.raises(ModelError, match="out of memory"),
    ):
        box.score(["a", "b"])
    assert calls == [2, 1]
    other = RuntimeError("shape mismatch")
    with (
        memory_for(tiny_bert[0], 0, other, calls),
        pytest.raises(ModelError, match="RuntimeError: shape mismatch"),
    ):
        box.score(["a", "b"])
    assert calls == [2, 1, 2]


@pytest.fixture(scope="module")
def gpt2(transformers: Any, torch: Any) -> tuple[Any, Any]:
    """A decoder without padding token, and a tokenizer without special ones in the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<|endoftext|>", "[UNK]", "a", "good", "bad", "film"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    end = "<|endoftext|>"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", bos_token=end, eos_token=end
    )
    config = transformers.GPT2Config(
        vocab_size=len(words),
        n_positions=8,
        n_embd=16,
        n_layer=1,
        n_head=2,
        initializer_range=0.5,
        num_labels=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.GPT2ForSequenceClassification(config).eval(), tokenizer


def test_decoder_without_padding_token(gpt2: tuple[Any, Any], torch: Any) -> None:
    model, tokenizer = gpt2
    before = (model.config.pad_token_id, tokenizer.pad_token)
    box = HuggingFaceClassifier(model, tokenizer=tokenizer)
    texts = ["a good film", "film", "a bad bad film"]
    with torch.no_grad():
        expected = [
            model(**tokenizer(text, return_tensors="pt")).logits[0].double().numpy() for text in texts
        ]
    np.testing.assert_allclose(box.score(texts).values, log_odds(np.array(expected)), atol=1e-5)
    assert (model.config.pad_token_id, tokenizer.pad_token) == before
    assert box.seen_until(["a " * 20]) == (16,)
    assert box.mask_token is None


@pytest.fixture(params=["GPT2", "Llama", "Qwen2", "Mistral"])
def causal(request: pytest.FixtureRequest, transformers: Any, torch: Any) -> tuple[Any, Any]:
    """Small decoders with random weights, which pad on the right."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "<s>", "[UNK]", *"abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="<pad>", bos_token="<s>"
    )
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
    wide = {} if request.param == "GPT2" else {"intermediate_size": 32, "num_key_value_heads": 1}
    config = getattr(transformers, f"{request.param}Config")(
        vocab_size=len(words), pad_token_id=0, initializer_range=0.5, **small, **wide
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{request.param}ForSequenceClassification")(config)
    return model.eval(), tokenizer


PROMPT = "is the text that now comes good or bad " * 3  # each word unknown, 27 tokens


def test_a_shared_prompt_is_computed_once(causal: tuple[Any, Any], torch: Any) -> None:
    model, tokenizer = causal
    texts = [PROMPT + rest for rest in ("a b c d e f", "a c", "b b b", "f e d", "z", "a b c d e")]
    with torch.no_grad():
        alone = [model(**tokenizer(text, return_tensors="pt")).logits[0].double() for text in texts]
    seen = []
    hook = model.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        box = HuggingFaceClassifier(model, tokenizer=tokenizer)
        for n_more in (2, 0):  # whether the model can is asked once
            seen.clear()
            values = box.score(texts).values
            np.testing.assert_allclose(values, log_odds(torch.stack(alone).numpy()), atol=1e-4)
            assert seen[0] == 27  # the prompt, which all begin with
            assert len(seen) == 2 + n_more
            assert seen[-1] == len(texts) * 6
    finally:
        hook.remove()


def test_no_prompt_is_kept_where_it_would_not_serve(causal: tuple[Any, Any], torch: Any) -> None:
    model, tokenizer = causal
    texts = [PROMPT + rest for rest in "abcde"]
    expected = HuggingFaceClassifier(model, tokenizer=tokenizer).score(texts).values
    seen = []
    hook = model.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        HuggingFaceClassifier(model, tokenizer=tokenizer).score(texts[:2])  # too few
        HuggingFaceClassifier(model, tokenizer=tokenizer).score([f"{x} b c d e" for x in "abcde"])
        assert min(seen) == 5
        assert max(seen) == 28
        seen.clear()
        tokenizer.padding_side = "left"
        HuggingFaceClassifier(model, tokenizer=tokenizer).score(texts)
        assert set(seen) == {28}
        tokenizer.padding_side = "right"
        seen.clear()
        box = HuggingFaceClassifier(model, tokenizer=tokenizer)
        model.forward = Forgetful(model.forward)
        np.testing.assert_allclose(box.score(texts).values, expected, atol=1e-4)
        assert seen[-1] == 28  # found out in time
    finally:
        hook.remove()
        tokenizer.padding_side = "right"
        model.__dict__.pop("forward", None)


class Forgetful:
    """A forward pass that takes keys and values, and leaves them out."""

    def __init__(self, forward: Any) -> None:
        self.__wrapped__ = forward

    def __call__(self, **given: Any) -> Any:
        name = next((name for name in ("cache", "past_key_values") if name in given), None)
        if name is not None:
            del given[name]
            given["attention_mask"] = given["attention_mask"][:, -given["input_ids"].shape[1] :]
        return self.__wrapped__(**given)


def test_text_without_tokens_is_asked_as_the_begin_token(gpt2: tuple[Any, Any], torch: Any) -> None:
    model, tokenizer = gpt2
    box = HuggingFaceClassifier(model, tokenizer=tokenizer)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[0]])).logits.double().numpy()
    np.testing.assert_allclose(box.score([""]).values, log_odds(expected), atol=1e-5)


def test_left_padding_is_respected(gpt2: tuple[Any, Any]) -> None:
    model, tokenizer = gpt2
    texts = ["a good film", "film"]
    expected = HuggingFaceClassifier(model, tokenizer=tokenizer).score(texts).values
    model.config.pad_token_id = 0
    for side in ("left", "right"):
        tokenizer.padding_side = side
        try:
            values = HuggingFaceClassifier(model, tokenizer=tokenizer).score(texts).values
        finally:
            tokenizer.padding_side = "right"
        # Positions of left-padded rows are the model's own affair, so only the unpadded row must agree.
        rows = slice(0, 1) if side == "left" else slice(0, 2)
        np.testing.assert_allclose(values[rows], expected[rows], atol=1e-5)
    model.config.pad_token_id = None


def test_left_truncation_is_named(tiny_bert: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_bert
    box = HuggingFaceClassifier(model, tokenizer=tokenizer)
    tokenizer.truncation_side = "left"
    try:
        assert box.seen_until(["film"]) == (4,)
        with pytest.raises(InputError, match="truncates on the left; expected 'right'"):
            box.seen_until(["film " * 40])
    finally:
        tokenizer.truncation_side = "right"


def test_slow_tokenizers_work_without_offsets(transformers: Any, torch: Any) -> None:
    tokenizer = transformers.ByT5Tokenizer(model_max_length=16)
    assert not tokenizer.is_fast
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    with torch.random.fork_rng():
        model = HuggingFaceClassifier(
            transformers.BertForSequenceClassification(config), tokenizer=tokenizer
        )
    assert model.score(["a film", ""]).values.shape == (2, 2)
    assert model.seen_until(["a film"]) == (6,)
    assert model.fingerprint.startswith("hf:")
    for ask in (lambda: model.token_spans("a film"), lambda: model.seen_until(["film " * 9])):
        with pytest.raises(InputError, match=r"Got ByT5Tokenizer, a slow tokenizer.* Use units='word'"):
            ask()
    with pytest.raises(
        InputError, match=r"masking='attention' for ByT5Tokenizer.* Use masking='remove'"
    ):
        model.score([Hidden("a film", ((0, 0, 1),))])
