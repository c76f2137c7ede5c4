import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError
from piste.sampling.models import (
    ADAPTERS,
    CallableModel,
    HuggingFaceClassifier,
    OnnxClassifier,
    Scores,
    TokenizingCallable,
    load_model,
)
from piste.sampling.models import _foreign as foreign
from piste.sampling.records import Query


def score(texts: list[str]) -> list[float]:
    return [0.5] * len(texts)


class Custom:
    fingerprint = "custom"

    def score(self, inputs: Sequence[Query]) -> Scores:
        return Scores(np.zeros((len(inputs), 1)), ("x",), "raw")


def test_a_black_box_is_returned_as_it_is() -> None:
    model = Custom()
    assert load_model(model) is model
    with pytest.raises(
        InputError, match="Got the option 'kind' for a loaded model; expected no options"
    ):
        load_model(model, kind="raw")


def test_functions() -> None:
    assert isinstance(load_model(score), CallableModel)
    model = load_model(score, labels=["good"], kind="probability", fingerprint="v1")
    assert model.score(["a"]).labels == ("good",)
    assert model.score(["a"]).kind == "probability"
    assert model.fingerprint == "v1"
    tokenizing = load_model(score, tokenizer=lambda text: [(0, len(text))], window=3, mask_token="?")
    assert isinstance(tokenizing, TokenizingCallable)


def test_unknown_options_name_the_accepted_ones() -> None:
    message = "'batch_size' for a function; expected labels, kind, tokenizer, window, mask_token, fing"
    with pytest.raises(InputError, match=message):
        load_model(score, batch_size=16)
    with pytest.raises(InputError, match=r"Got the option 'device' for 'builtin:.*'; expected threads"):
        load_model("builtin:sentiment", device="cuda")


@pytest.mark.parametrize("uri", ["sentiment", "gpt:4", "hf:", "hf", ":x", "", "C:\\models"])
def test_unknown_uris_list_the_adapters(uri: str) -> None:
    with pytest.raises(InputError, match="Got the model '") as caught:
        load_model(uri)
    assert all(adapter.example in str(caught.value) for adapter in ADAPTERS)


def test_other_objects() -> None:
    with pytest.raises(InputError, match="Got a model of type int; expected 'builtin:sentiment'"):
        load_model(3)


def test_unknown_builtin() -> None:
    with pytest.raises(InputError, match=r"Got 'builtin:topics'; expected .*: builtin:sentiment"):
        load_model("builtin:topics")


def test_adapter_table() -> None:
    schemes = ["builtin", "hf", "onnx", "openai", "http", "https", "stored"]
    assert [adapter.scheme for adapter in ADAPTERS] == schemes
    for adapter in ADAPTERS:
        assert adapter.example.startswith(f"{adapter.scheme}:")
        assert adapter.installed == all(name in sys.modules or _found(name) for name in adapter.modules)
    options = {adapter.scheme: adapter.options for adapter in ADAPTERS}
    assert options.pop("http") == options.pop("https")
    assert {"base_url", "question", "concurrency", "max_cost"} <= set(options.pop("openai"))
    assert options == {
        "builtin": ("threads",),
        "hf": ("device", "dtype", "kind"),
        "onnx": ("threads", "providers", "kind"),
        "stored": ("fingerprint",),
    }


def _found(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def test_transformers_objects(transformers: Any, tiny_bert_dir: Path, tiny_onnx_dir: Path) -> None:
    by_path = load_model(f"hf:{tiny_bert_dir}")
    assert isinstance(by_path, HuggingFaceClassifier)
    assert isinstance(load_model(f"onnx:{tiny_onnx_dir}", threads=1), OnnxClassifier)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert_dir)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert_dir)
    by_object = load_model(model, tokenizer=tokenizer)
    with pytest.raises(InputError, match="Got a BertForSequenceClassification without tokenizer="):
        load_model(model)
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    by_pipeline = load_model(pipeline)
    assert by_path.fingerprint == by_object.fingerprint == by_pipeline.fingerprint
    expected = by_path.score(["a good film"]).values
    for other in (by_object, by_pipeline):
        np.testing.assert_array_equal(other.score(["a good film"]).values, expected)
    with pytest.raises(InputError, match="Got the option 'tokenizer' for a pipeline; expected kind"):
        load_model(pipeline, tokenizer=tokenizer)


def test_importing_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from piste.sampling.models import load_model; "
        "load_model(lambda texts: [0.0]).score(['a']); "
        "sys.exit(bool({'torch', 'transformers', 'onnxruntime'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piste.sampling.models.huggingface.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs torch and transformers; install .*'piste\[local\]'"):
        load_model("hf:somewhere")


def test_is_a_knows_subclasses_by_name_only() -> None:
    class Pipeline:
        pass

    assert foreign.is_a(InputError("x"), "piste", "PisteError")
    assert not foreign.is_a(Pipeline(), "transformers", "Pipeline")
