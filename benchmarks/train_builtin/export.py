"""Write one copy of the weights that both torch and onnxruntime read."""

from __future__ import annotations

import json
import struct
import warnings
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from student import WINDOW
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertForSequenceClassification

WEIGHTS, GRAPH = "model.safetensors", "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17


class _Logits(nn.Module):
    """The model as a plain function of three tensors, which is what the exporter wants."""

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        answer = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        logits: Tensor = answer.logits
        return logits


def save_model(model: BertForSequenceClassification, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, tokenizer, 16-bit weights, and the graph that refers to those weights."""
    folder.mkdir(parents=True, exist_ok=True)
    _save_config(model, folder)
    _save_tokenizer(tokenizer, folder)
    halves = {name: p.detach().half().contiguous() for name, p in model.named_parameters()}
    save_file(halves, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(0o644)  # safetensors creates it readable by its owner only
    graph = _trace(model, folder / GRAPH)
    share_weights(graph, folder / WEIGHTS)
    onnx.save(graph, folder / GRAPH)
    onnx.checker.check_model(str(folder / GRAPH))


def _save_config(model: BertForSequenceClassification, folder: Path) -> None:
    """Declare 32 bits: the 16-bit file is only storage, and piste computes in 32 bits."""
    model.config.architectures = ["BertForSequenceClassification"]
    model.config.dtype = torch.float32
    model.config.save_pretrained(folder)


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": WINDOW,
        "model_input_names": list(INPUTS),
        "clean_up_tokenization_spaces": False,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _trace(model: BertForSequenceClassification, path: Path) -> onnx.ModelProto:
    """Export with every weight under its torch name and in its torch layout.

    Constant folding is off because it would store transposed copies; onnxruntime folds the
    transposes itself when it loads the graph.
    """
    model.eval()
    attention = model.config._attn_implementation
    model.set_attn_implementation("eager")
    example = torch.ones(2, 5, dtype=torch.int64)
    dynamic = {0: "batch", 1: "sequence"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracing exporter announces its own retirement
        torch.onnx.export(
            _Logits(model).eval(),
            (example, example, torch.zeros_like(example)),
            str(path),
            input_names=list(INPUTS),
            output_names=["logits"],
            dynamic_axes={**dict.fromkeys(INPUTS, dynamic), "logits": {0: "batch"}},
            opset_version=OPSET,
            do_constant_folding=False,
            dynamo=False,
        )
    model.set_attn_implementation(attention)
    model.eval()
    return onnx.load(str(path))


def share_weights(graph: onnx.ModelProto, weights: Path) -> None:
    """Replace the graph's weights, in place, by references into the safetensors file.

    A safetensors file is an 8-byte length, a JSON header, and raw tensors at offsets that the
    header lists, so ONNX external data can point at them. Each reference is followed by a cast
    to 32 bits.
    """
    places, data_start = _read_header(weights)
    casts, references = [], []
    for tensor in list(graph.graph.initializer):
        name = tensor.name.removeprefix("model.")
        if name not in places:
            continue
        place = places[name]
        if list(tensor.dims) != place["shape"]:
            raise ValueError(f"{name}: graph has {list(tensor.dims)}, file has {place['shape']}")
        start, stop = place["data_offsets"]
        stored = f"{name}.half"
        references.append(_reference(stored, place["shape"], data_start + start, stop - start))
        casts.append(helper.make_node("Cast", [stored], [tensor.name], to=TensorProto.FLOAT))
        graph.graph.initializer.remove(tensor)
        del places[name]
    if places:
        raise ValueError(f"the exporter renamed, merged or dropped {sorted(places)}")
    graph.graph.initializer.extend(references)
    old = list(graph.graph.node)
    del graph.graph.node[:]
    graph.graph.node.extend([*casts, *old])
    for node in graph.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]


def _read_header(weights: Path) -> tuple[dict[str, dict[str, list[int]]], int]:
    with weights.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def _reference(name: str, shape: list[int], offset: int, length: int) -> TensorProto:
    tensor = TensorProto(
        name=name,
        data_type=TensorProto.FLOAT16,
        dims=shape,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
