import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError, ModelError
from piste.sampling.models import BlackBox, OnnxClassifier, Tokenizing, load_model
from piste.sampling.records import Hidden

MakeModel = Callable[..., Path]

SENTIMENT = Path(__file__).parents[2] / "sampling" / "models" / "sentiment"

QUERIES: list[list[Any]] = [
    ["a good film", "", "the plot and the actor ! not very bad", "a bad film ."],
    [("a good film", "the plot"), ("", "a bad film ."), ("film " * 20, "good " * 9)],
    [Hidden("a good  raisins film", ((0, 2, 6), (0, 8, 15))), Hidden("a film", ((0, 0, 1),))],
    ["film good " * 20],
]


@pytest.fixture(scope="module")
def box(tiny_onnx_dir: Path) -> OnnxClassifier:
    """The tiny model in onnxruntime."""
    return OnnxClassifier(tiny_onnx_dir, threads=1)


@pytest.mark.parametrize("queries", QUERIES)
def test_answers_are_those_of_torch(
    box: OnnxClassifier, tiny_bert_dir: Path, queries: list[Any]
) -> None:
    ours, theirs = box.score(queries), load_model(f"hf:{tiny_bert_dir}").score(queries)
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-5)
    assert ours.values.dtype == np.float64
    assert (ours.labels, ours.kind) == (theirs.labels, theirs.kind)


def test_tokens_and_window_are_those_of_torch(box: OnnxClassifier, tiny_bert_dir: Path) -> None:
    other = load_model(f"hf:{tiny_bert_dir}")
    assert isinstance(box, BlackBox)
    assert isinstance(box, Tokenizing)
    assert isinstance(other, Tokenizing)
    assert box.mask_token == other.mask_token == "[MASK]"
    for text in ("i ate raisins  today", "film " * 40, ""):
        assert box.token_spans(text) == other.token_spans(text)
        assert box.seen_until([text]) == other.seen_until([text])
        assert box.seen_until([text, "film"]) == other.seen_until([text, "film"])


def test_same_bytes_every_time(tiny_onnx_dir: Path) -> None:
    answers = {OnnxClassifier(tiny_onnx_dir).score(QUERIES[0]).values.tobytes() for _ in range(3)}
    assert len(answers) == 1


def test_graph_gets_only_what_it_declares(
    make_onnx: MakeModel, tiny_bert_dir: Path, box: OnnxClassifier
) -> None:
    no_types = OnnxClassifier(make_onnx(tiny_bert_dir, ("input_ids", "attention_mask")), threads=1)
    np.testing.assert_allclose(
        no_types.score(QUERIES[0]).values, box.score(QUERIES[0]).values, atol=1e-5
    )


def test_graph_without_attention_mask_gets_no_padding(
    make_onnx: MakeModel, tiny_bert_dir: Path, box: OnnxClassifier
) -> None:
    unmasked = OnnxClassifier(make_onnx(tiny_bert_dir, ("input_ids",)), threads=1)
    np.testing.assert_allclose(
        unmasked.score(QUERIES[0]).values, box.score(QUERIES[0]).values, atol=1e-5
    )
    with pytest.raises(InputError, match="masking='attention' for a graph without an attention_mask"):
        unmasked.score(QUERIES[2])


def edited(folder: Path, target: Path, **changes: Any) -> Path:
    """A copy whose config differs."""
    copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


def test_config_and_option_decide_the_kind(tiny_onnx_dir: Path, tmp_path: Path) -> None:
    plain = OnnxClassifier(tiny_onnx_dir, kind="raw").score(["a good film"])
    assert plain.kind == "raw"
    multi = edited(tiny_onnx_dir, tmp_path / "multi", problem_type="multi_label_classification")
    scores = OnnxClassifier(multi).score(["a good film"])
    assert scores.kind == "logit"
    np.testing.assert_array_equal(scores.values, plain.values)
    regression = edited(tiny_onnx_dir, tmp_path / "regression", problem_type="regression", id2label={})
    assert OnnxClassifier(regression).score(["a"]).kind == "raw"
    assert OnnxClassifier(regression).score(["a"]).labels == ("0", "1", "2")


def test_window_respects_the_tokenizers_own(tiny_onnx_dir: Path, tmp_path: Path) -> None:
    copytree(tiny_onnx_dir, tmp_path / "short")
    (tmp_path / "short" / "tokenizer_config.json").write_text('{"model_max_length": 8}')
    assert OnnxClassifier(tmp_path / "short").seen_until(["film " * 20]) == (6 * 5,)
    endless = edited(tiny_onnx_dir, tmp_path / "endless", max_position_embeddings=-1)
    assert OnnxClassifier(endless).seen_until(["film " * 20]) == (20 * 5,)


def test_fingerprint_covers_weights_outside_the_graph(tiny_onnx_dir: Path, tmp_path: Path) -> None:
    import onnx

    external = tmp_path / "external"
    copytree(tiny_onnx_dir, external)
    model = onnx.load(str(external / "model.onnx"))
    onnx.save(
        model,
        str(external / "model.onnx"),
        save_as_external_data=True,
        location="model.safetensors",
        size_threshold=0,
    )
    box = OnnxClassifier(external, threads=1)
    np.testing.assert_array_equal(
        box.score(QUERIES[0]).values, OnnxClassifier(tiny_onnx_dir, threads=1).score(QUERIES[0]).values
    )
    first = box.fingerprint
    (external / "README.md").write_text("A model card does not answer queries.")
    assert OnnxClassifier(external).fingerprint == first
    assert OnnxClassifier(external, kind="raw").fingerprint != first
    weights = bytearray((external / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (external / "model.safetensors").write_bytes(weights)
    assert OnnxClassifier(external).fingerprint != first


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
def test_missing_file_is_named(tiny_onnx_dir: Path, tmp_path: Path, name: str) -> None:
    copytree(tiny_onnx_dir, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(
        InputError, match=rf"without {name}; expected model.onnx, tokenizer.json, config"
    ):
        load_model(f"onnx:{tmp_path / 'copy'}")


def test_missing_folder() -> None:
    with pytest.raises(InputError, match=r"Got the folder '/no/such/folder' without model\.onnx"):
        load_model("onnx:/no/such/folder")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.onnx", "x", "which onnxruntime cannot open"),
        ("tokenizer.json", "x", "which is not a tokenizer"),
        ("config.json", "{", "which is not JSON"),
        ("config.json", "[]", "with a list; expected a JSON object"),
    ],
)
def test_damaged_file_is_named(
    tiny_onnx_dir: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    copytree(tiny_onnx_dir, tmp_path / "copy")
    (tmp_path / "copy" / name).write_text(content)
    with pytest.raises(InputError, match=f"{name}', {message}".replace("', with", "' with")):
        OnnxClassifier(tmp_path / "copy")


def test_other_graphs_and_options(
    make_onnx: MakeModel, tiny_bert_dir: Path, tiny_onnx_dir: Path
) -> None:
    with pytest.raises(
        InputError, match=r"with inputs ids tensor\(int64\); expected integers input_ids and at most"
    ):
        OnnxClassifier(make_onnx(tiny_bert_dir, ("ids",)))
    with pytest.raises(
        InputError, match=r"Got provider Quantum; this onnxruntime has .*CPUExecutionProvider"
    ):
        OnnxClassifier(tiny_onnx_dir, providers=["Quantum"])
    with pytest.raises(InputError, match="Got kind='softmax'"):
        load_model(f"onnx:{tiny_onnx_dir}", kind="softmax")


def test_other_output_shape(tmp_path: Path, tiny_onnx_dir: Path) -> None:
    from onnx import TensorProto, checker, helper, save

    copytree(tiny_onnx_dir, tmp_path / "echo")
    graph = helper.make_graph(
        [helper.make_node("Shape", ["input_ids"], ["shape"])],
        "shape",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", "length"])],
        [helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    save(model, str(tmp_path / "echo" / "model.onnx"))
    with pytest.raises(ModelError, match=r"first output has shape \(2,\) for 1 texts; expected"):
        OnnxClassifier(tmp_path / "echo").score(["a"])


@pytest.mark.skipif(
    not (SENTIMENT / "model.onnx").is_file(), reason="the embedded model is not built yet"
)
def test_embedded_sentiment_model() -> None:
    model = load_model("builtin:sentiment", threads=1)
    assert isinstance(model, Tokenizing)
    scores = model.score(["A gripping film.", "A dull and boring mess."])
    assert scores.labels == ("negative", "positive")
    assert scores.kind == "logit"
    assert scores.values[0, 1] > 0 > scores.values[1, 1]
    np.testing.assert_allclose(scores.values[:, 0], -scores.values[:, 1])
    assert model.mask_token == "[MASK]"
    assert len(model.token_spans("film " * 200)) == 200
    assert model.seen_until(["film " * 200]) == (126 * 5,)
