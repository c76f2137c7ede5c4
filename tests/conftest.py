"""Tiny real models, made once per run from nothing but a config; a cache folder for each test."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test goes to the network

VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a the good bad film plot actor not very and but ! . , i ate today "
    "rais ##in ##s ##ly"
).replace(" ", "\n")
WINDOW = 16
LABELS = ("negative", "neutral", "positive")

MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds another's answers, nor leaves any in the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def torch() -> Any:
    """The module, where it is installed."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def transformers(torch: Any) -> Any:
    """The module, where it is installed, without its progress bars."""
    module = pytest.importorskip("transformers")
    module.utils.logging.disable_progress_bar()
    return module


@pytest.fixture(scope="session")
def make_tiny_bert(
    torch: Any, transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> MakeModel:
    """Save a two-layer BERT with a few words, and any config options, to a new folder."""

    def make(**options: Any) -> Path:
        folder = tmp_path_factory.mktemp("bert")
        (folder / "vocab.txt").write_text(VOCABULARY, encoding="utf-8")
        about = {"tokenizer_class": "BertTokenizer", "model_max_length": WINDOW}
        (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
        config = transformers.BertConfig(
            vocab_size=VOCABULARY.count("\n") + 1,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            initializer_range=0.3,  # large enough for the words to matter
            **{
                "max_position_embeddings": WINDOW,
                "id2label": dict(enumerate(LABELS)),
                **options,
            },
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            transformers.BertForSequenceClassification(config).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_bert_dir(make_tiny_bert: MakeModel) -> Path:
    """Three exclusive classes, window of 16 tokens."""
    return make_tiny_bert()


@pytest.fixture(scope="module")
def tiny_bert(transformers: Any, tiny_bert_dir: Path) -> tuple[Any, Any]:
    """``tiny_bert_dir`` as a model object, in evaluation mode, and its tokenizer."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert_dir).eval()
    return model, transformers.AutoTokenizer.from_pretrained(tiny_bert_dir)


@pytest.fixture(scope="session")
def make_onnx(torch: Any, transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Export a saved BERT to a new folder, with the inputs named."""
    pytest.importorskip("onnx")

    def make(
        source: Path, inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")
    ) -> Path:
        folder = tmp_path_factory.mktemp("onnx")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            source, attn_implementation="eager"
        ).eval()
        model.config.return_dict = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
            torch.onnx.export(
                model,
                tuple(torch.ones((2, 5), dtype=torch.int64) for _ in inputs),
                str(folder / "model.onnx"),
                input_names=list(inputs),
                output_names=["logits"],
                dynamic_axes={name: {0: "batch", 1: "length"} for name in inputs},
                dynamo=False,
            )
        for name in ("tokenizer.json", "config.json"):
            copy(source / name, folder / name)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_onnx_dir(tiny_bert_dir: Path, make_onnx: MakeModel) -> Path:
    """``tiny_bert_dir`` exported to ONNX."""
    return make_onnx(tiny_bert_dir)
