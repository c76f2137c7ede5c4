"""Sequence classifiers exported to ONNX, run by onnxruntime without torch."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from piste._errors import InputError, ModelError
from piste._typing import FloatArray, IntArray
from piste.sampling.models._batches import (
    ACCELERATOR_TOKENS,
    CPU_TOKENS,
    WINDOW,
    Padding,
    Rows,
    in_order,
)
from piste.sampling.models._foreign import model_errors
from piste.sampling.models._outputs import Head
from piste.sampling.models._tokens import (
    attention,
    plain_texts,
    tokenizers_subwords,
    window_of,
    without_batching,
)
from piste.sampling.models._words import Words
from piste.sampling.models.protocol import Scores
from piste.sampling.records import Hidden, OutputKind, Query

if TYPE_CHECKING:
    import onnxruntime

_FILES = ("model.onnx", "tokenizer.json", "config.json")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class OnnxClassifier:
    """A folder with ``model.onnx``, ``tokenizer.json`` and ``config.json`` as a black box.

    Scores, labels, window and hidden tokens are those of the torch model that was exported (see
    :class:`HuggingFaceClassifier`).

    Parameters
    ----------
    folder
        Where the files are. The graph takes ``input_ids`` and, if it declares them, ``attention_mask``
        and ``token_type_ids``; its first output holds the logits, shape (n, k). The config says
        ``id2label``, ``problem_type``, ``max_position_embeddings`` and ``pad_token_id``; the window
        also respects ``model_max_length`` of a ``tokenizer_config.json``.
    threads
        CPU threads of one operation; by default all that the process may use.
    providers
        Names of onnxruntime's execution providers; by default the CPU.
    kind
        What to answer instead: ``logit``, ``probability`` or ``raw``.

    Raises
    ------
    InputError
        If a file is missing or cannot be read, or an option is unknown.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        kind: OutputKind | None = None,
    ) -> None:
        self._folder = _complete(Path(folder).expanduser())
        self._config = _read_json(self._folder / "config.json")
        self._head = Head(self._config.get("id2label", {}), self._config.get("problem_type"), kind)
        self._tokenizer = _read_tokenizer(self._folder / "tokenizer.json")
        limit = _read_json(self._folder / "tokenizer_config.json", {}).get("model_max_length")
        self._subwords = tokenizers_subwords(self._tokenizer, window_of(self._config, limit))
        if self._subwords.window is not None:
            self._tokenizer.enable_truncation(self._subwords.window)
        self._words = Words.of(without_batching(self._tokenizer), self._subwords.window)
        self._session = _session(self._folder / "model.onnx", threads, providers)
        self._inputs = {each.name: _INTEGERS[each.type] for each in self._session.get_inputs()}
        on_cpu = self._session.get_providers() == ["CPUExecutionProvider"]
        self._most_tokens = CPU_TOKENS if on_cpu else ACCELERATOR_TOKENS
        tokens = (self._config.get("bos_token_id"), self._config.get("eos_token_id"))
        self._padding = Padding(
            pad_id=self._config.get("pad_token_id") if "attention_mask" in self._inputs else None,
            blank_id=next((token for token in tokens if isinstance(token, int)), None),
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the graph, its weights, the tokenizer, the config, the window and the output kind."""
        digest = sha256(json.dumps([self._config, self._subwords.window, self._head.kind]).encode())
        digest.update(without_batching(self._tokenizer).encode())
        graph = (self._folder / "model.onnx").read_bytes()
        digest.update(graph)
        # Weights outside the graph are files beside it whose names the graph mentions.
        for path in sorted(self._folder.iterdir()):
            if path.name not in _FILES and path.is_file() and path.name.encode() in graph:
                with path.open("rb") as weights:
                    digest.update(file_digest(weights, "sha256").digest())
        return f"onnx:{digest.hexdigest()}"

    @property
    def mask_token(self) -> str | None:
        """The tokenizer's own mask token."""
        return self._subwords.mask_token

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets of each subword of one segment, without special tokens, never truncated."""
        return self._subwords.token_spans(text)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment the offset where the window ends, or its length."""
        return self._subwords.seen_until(parts)

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer all inputs, in batches of similar lengths.

        Raises
        ------
        InputError
            If tokens are to be hidden but the graph takes no attention mask.
        ModelError
            If onnxruntime raises, or the graph's first output is no (n, k) array.
        """
        return in_order(self.score_batches(inputs, len(inputs)), len(inputs))

    def score_batches(self, inputs: Sequence[Query], most: int) -> Iterator[tuple[IntArray, Scores]]:
        """Answer batch by batch, as :meth:`HuggingFaceClassifier.score_batches` does."""
        for start in range(0, len(inputs), WINDOW):
            window = inputs[start : start + WINDOW]
            with model_errors(window):
                rows = self._encode(window)
            for batch in self._padding.batches(
                rows.lengths, most_tokens=self._most_tokens, most_rows=most
            ):
                with model_errors([window[position] for position in batch]):
                    scores = self._head.scores(self._logits(rows.take(batch)))
                yield start + batch, scores

    def _encode(self, inputs: Sequence[Query]) -> Rows:
        any_hidden = any(isinstance(query, Hidden) for query in inputs)
        if any_hidden and "attention_mask" not in self._inputs:
            raise InputError(
                "Got masking='attention' for a graph without an attention_mask input. Use "
                "masking='remove' or a replacement string."
            )
        if self._words is not None and all(isinstance(query, str) for query in inputs):
            ids = self._words.ids(inputs)  # type: ignore[arg-type]
            return Rows(ids, None, [[0] * len(row) for row in ids])
        encodings = self._tokenizer.encode_batch(plain_texts(inputs))
        return Rows(
            [encoding.ids for encoding in encodings],
            [attention(*each) for each in zip(inputs, encodings, strict=True)] if any_hidden else None,
            [encoding.type_ids for encoding in encodings],
        )

    def _logits(self, rows: Rows) -> FloatArray:
        arrays = self._padding.arrays(rows)
        feed = {name: arrays[name].astype(integer) for name, integer in self._inputs.items()}
        logits = np.asarray(self._session.run(None, feed)[0], np.float64)
        if logits.ndim != 2 or len(logits) != len(rows.ids):
            raise ModelError(
                f"The graph's first output has shape {logits.shape} for {len(rows.ids)} texts; expected "
                "(n_texts, n_labels). Export a sequence classifier's logits first."
            )
        return logits


def _complete(folder: Path) -> Path:
    for name in _FILES:
        if not (folder / name).is_file():
            raise InputError(
                f"Got the folder '{folder}' without {name}; expected {', '.join(_FILES)} in it. Export "
                "the model to ONNX and copy its tokenizer.json and config.json beside it."
            )
    return folder.resolve()  # onnxruntime refuses weights behind a link that leaves the folder


def _read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    if default is not None and not path.is_file():
        return default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"Got '{path}', which is not JSON: {error}. Copy it again.") from error
    if not isinstance(content, dict):
        raise InputError(f"Got '{path}' with a {type(content).__name__}; expected a JSON object.")
    return content


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(without_batching(Tokenizer.from_file(str(path))))
    except Exception as error:  # the library has no class of its own for this
        raise InputError(
            f"Got '{path}', which is not a tokenizer: {error}. Save it with a fast tokenizer."
        ) from error


def _session(
    path: Path, threads: int | None, providers: Sequence[str] | None
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or _available_cores()
    options.use_deterministic_compute = True
    options.log_severity_level = 3  # errors only: the others are about the graph, not about the user
    chosen = list(providers or ["CPUExecutionProvider"])
    unknown = set(chosen) - set(onnxruntime.get_available_providers())
    if unknown:
        raise InputError(
            f"Got provider {', '.join(sorted(unknown))}; this onnxruntime has "
            f"{', '.join(onnxruntime.get_available_providers())}."
        )
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=chosen)
    except Exception as error:  # onnxruntime's errors share no base class
        raise InputError(
            f"Got '{path}', which onnxruntime cannot open: {error}. Export the model again."
        ) from error
    types = {each.name: each.type for each in session.get_inputs()}
    declared = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    if "input_ids" not in types or types.keys() - _INPUTS or set(types.values()) - _INTEGERS.keys():
        raise InputError(
            f"Got '{path}' with inputs {declared}; expected integers input_ids and at most "
            f"{' and '.join(_INPUTS[1:])}. Export the sequence classifier alone."
        )
    return session


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
