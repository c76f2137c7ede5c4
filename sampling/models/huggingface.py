"""Hugging Face sequence classifiers, run by torch where they are and left as they were."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

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
from piste.sampling.models._foreign import is_a, model_errors, tensor_to_float64
from piste.sampling.models._outputs import Head
from piste.sampling.models._prefix import Prefix, Prefixes
from piste.sampling.models._tokens import (
    attention,
    plain_texts,
    transformers_subwords,
    window_of,
    without_batching,
)
from piste.sampling.models._words import Words
from piste.sampling.models.protocol import Scores
from piste.sampling.records import Hidden, OutputKind, Query

if TYPE_CHECKING:
    import torch
    from transformers import Pipeline, PreTrainedModel, PreTrainedTokenizerBase

_logger = logging.getLogger(__name__)

_DTYPES = ("float32", "bfloat16", "auto")
_BOOKKEEPING = ("_name_or_path", "architectures", "dtype", "transformers_version")  # not the function


class HuggingFaceClassifier:
    """A transformers sequence classifier with its tokenizer as a black box.

    Softmax heads answer one-vs-rest log-odds computed from float64 logits, multi-label and one-output
    heads their logits, regressions their numbers. Texts are cut to the model's window. A text without
    any token (the empty text, where the tokenizer adds no special ones) is asked as the tokenizer's
    beginning-of-sequence token, since a Transformer cannot take none.

    Parameters
    ----------
    model
        A transformers model whose output has ``logits`` of shape (n, k). Its training flags are put
        back after each batch.
    tokenizer
        The model's own tokenizer.
    kind
        What to answer instead: ``logit``, ``probability`` or ``raw``.
    device
        Where to move the model, such as ``cuda``; None leaves it where it is.

    Raises
    ------
    InputError
        If torch or transformers is not installed, or an option is unknown.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        *,
        tokenizer: "PreTrainedTokenizerBase",
        kind: OutputKind | None = None,
        device: str | None = None,
    ) -> None:
        _require_torch()
        self._head = Head(model.config.id2label or {}, model.config.problem_type, kind)
        self._model = model if device is None else _moved(model, device)
        self._tokenizer = tokenizer
        config = model.config.get_text_config().to_dict()
        self._subwords = transformers_subwords(tokenizer, window_of(config, tokenizer.model_max_length))
        self._words = _words_of(tokenizer, self._subwords.window)
        tokens = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        self._padding = Padding(
            pad_id=config.get("pad_token_id"),
            pad_type_id=tokenizer.pad_token_type_id,
            blank_id=next((token for token in tokens if isinstance(token, int)), None),
            on_the_left=tokenizer.padding_side == "left",
        )
        self._prefixes = Prefixes(model, self._padding)

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        kind: OutputKind | None = None,
    ) -> Self:
        """Load a classifier from a folder, or by its name from the Hugging Face hub.

        Parameters
        ----------
        path
            A folder written by ``save_pretrained``, or ``owner/name``.
        device
            ``cpu``, ``cuda``, ``cuda:1``, …
        dtype
            ``float32``, ``bfloat16``, or ``auto`` for the type the weights were saved in.
        kind
            As for the class.

        Raises
        ------
        InputError
            If there is nothing to load, or what is there has no trained classification head.
        """
        _require_torch()
        if dtype not in _DTYPES:
            raise InputError(f"Got dtype={dtype!r}; expected {', '.join(map(repr, _DTYPES))}.")
        folder = Path(path).expanduser()
        if not folder.is_dir() and (folder.is_absolute() or path.startswith((".", "~"))):
            raise InputError(
                f"Got 'hf:{path}', but there is no such folder; expected config.json in it."
            )
        model, tokenizer = _load(str(folder), dtype)
        return cls(model, tokenizer=tokenizer, kind=kind, device=device)

    @classmethod
    def from_pipeline(cls, pipeline: "Pipeline", *, kind: OutputKind | None = None) -> Self:
        """The model and tokenizer of a text-classification pipeline, without its post-processing.

        Raises
        ------
        InputError
            If the pipeline is for another task.
        """
        if not is_a(pipeline, "transformers", "TextClassificationPipeline"):
            raise InputError(
                f"Got a pipeline for {pipeline.task!r}; expected one for 'text-classification'. For "
                "other tasks pass a function from a list of texts to numbers."
            )
        return cls(pipeline.model, tokenizer=pipeline.tokenizer, kind=kind)  # type: ignore[arg-type]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the config, all weights, the tokenizer, the window and the output kind; made once."""
        import torch

        digest = sha256()
        config = self._model.config.to_dict()
        facts = {key: value for key, value in config.items() if key not in _BOOKKEEPING}
        about = [type(self._model).__name__, facts, self._subwords.window, self._head.kind]
        digest.update(json.dumps(about, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy())
        digest.update(_tokenizer_state(self._tokenizer).encode())
        return f"hf:{digest.hexdigest()}"

    @property
    def mask_token(self) -> str | None:
        """The tokenizer's own mask token."""
        return self._subwords.mask_token

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets of each subword of one segment, without special tokens, never truncated.

        Raises
        ------
        InputError
            If the tokenizer is a slow one, which knows no offsets.
        """
        return self._subwords.token_spans(text)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment the offset where the window ends, or its length.

        Raises
        ------
        InputError
            If the text is too long for a tokenizer that truncates on the left.
        """
        ends = self._subwords.seen_until(parts)
        if self._tokenizer.truncation_side == "left" and ends != tuple(map(len, parts)):
            raise InputError(
                f"Got a text beyond the window of {self._subwords.window} tokens and a tokenizer that "
                "truncates on the left; expected 'right'. Shorten the text or set its truncation_side."
            )
        return ends

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer all inputs, in batches of similar lengths.

        Raises
        ------
        InputError
            If tokens are to be hidden but the tokenizer is a slow one.
        ModelError
            If the model raises, or is no sequence classifier.
        """
        return in_order(self.score_batches(inputs, len(inputs)), len(inputs))

    def score_batches(self, inputs: Sequence[Query], most: int) -> Iterator[tuple[IntArray, Scores]]:
        """Answer batch by batch, each of similar lengths, or in halves where the memory does not suffice.

        Parameters
        ----------
        inputs
            What to ask; answered in windows of a thousand, so that memory does not grow with them.
        most
            The most inputs in one forward pass; fewer where its tokens fill the processor's cache.

        Yields
        ------
        tuple of (ndarray, Scores)
            Positions among the inputs, shape (n_batch,), int64, and their answers.

        Raises
        ------
        InputError, ModelError
            As for :meth:`score`.
        """
        device = next(self._model.parameters()).device
        most_tokens = CPU_TOKENS if device.type == "cpu" else ACCELERATOR_TOKENS
        for start in range(0, len(inputs), WINDOW):
            window = inputs[start : start + WINDOW]
            with model_errors(window), _evaluating(self._model):
                rows = self._encode(window)
                prefix = self._prefixes.of(rows)
            rows = rows if prefix is None else prefix.rest(rows)
            for batch in self._padding.batches(rows.lengths, most_tokens=most_tokens, most_rows=most):
                with model_errors([window[position] for position in batch]), _evaluating(self._model):
                    scores = self._head.scores(self._logits(rows.take(batch), prefix))
                yield start + batch, scores

    def _logits(self, rows: Rows, prefix: Prefix | None) -> FloatArray:
        n_rows = len(rows.ids)
        try:
            return self._forward(rows, prefix)
        except RuntimeError as error:
            if n_rows == 1 or not _is_out_of_memory(error):
                raise
        # Outside the handler, so that the failed pass's tensors are no longer held by its traceback.
        half = n_rows // 2
        _logger.warning("Out of memory with a batch of %d; going on with %d.", n_rows, half)
        _release_memory()
        halves = rows.take(range(half)), rows.take(range(half, n_rows))
        return np.concatenate([self._logits(part, prefix) for part in halves])

    def _forward(self, rows: Rows, prefix: Prefix | None) -> FloatArray:
        import torch

        n_rows = len(rows.ids)
        with torch.inference_mode():
            device = next(self._model.parameters()).device
            arrays = self._padding.arrays(rows)
            given: dict[str, Any] = {
                name: torch.from_numpy(array).to(device) for name, array in arrays.items()
            }
            if prefix is not None:
                given |= prefix.arguments(given["attention_mask"])
            output = self._model(**given)
        logits = getattr(output, "logits", None)
        if logits is None or logits.ndim != 2 or len(logits) != n_rows:
            got = "no logits" if logits is None else f"logits of shape {tuple(logits.shape)}"
            raise ModelError(
                f"{type(self._model).__name__} returned {got} for {n_rows} texts; expected shape "
                "(n_texts, n_labels). Pass a sequence classifier, or a function that returns scores."
            )
        return tensor_to_float64(logits)

    def _encode(self, inputs: Sequence[Query]) -> Rows:
        if self._words is not None and all(isinstance(query, str) for query in inputs):
            ids = self._words.ids(inputs)  # type: ignore[arg-type]
            told = "token_type_ids" in self._tokenizer.model_input_names
            return Rows(ids, None, [[0] * len(row) for row in ids] if told else None)
        texts = plain_texts(inputs)
        pairs = [text for text in texts if isinstance(text, tuple)]
        encoded = self._tokenizer(
            [first for first, _ in pairs] or texts,
            [second for _, second in pairs] or None,
            truncation=self._subwords.window is not None,
            max_length=self._subwords.window,
            verbose=False,
        )
        attended = None
        if any(isinstance(query, Hidden) for query in inputs):
            if encoded.encodings is None:
                raise InputError(
                    f"Got masking='attention' for {type(self._tokenizer).__name__}, a slow tokenizer, "
                    "which does not say where its tokens lie; expected a fast one. Use masking='remove'."
                )
            attended = [attention(*each) for each in zip(inputs, encoded.encodings, strict=True)]
        return Rows(encoded["input_ids"], attended, encoded.get("token_type_ids"))


def _require_torch() -> None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"A Hugging Face model needs {' and '.join(missing)}; install it with: "
            "pip install 'piste[local]'"
        )


def _load(path: str, dtype: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=dtype, output_loading_info=True
        )
    except Exception as error:  # whatever the files' formats raise
        raise InputError(
            f"Got 'hf:{path}', which does not load as a sequence classifier: {error}. Expected a "
            "folder with config.json, weights and tokenizer, or a name on the Hugging Face hub."
        ) from error
    if report["missing_keys"]:
        raise InputError(
            f"Got 'hf:{path}' without trained {', '.join(sorted(report['missing_keys'])[:3])}; "
            "expected a sequence classifier with all its weights. Fine-tune it first."
        )
    return model, tokenizer


def _moved(model: "PreTrainedModel", device: str) -> "PreTrainedModel":
    try:
        moved: PreTrainedModel = model.to(device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:  # the latter from a torch built without CUDA
        raise InputError(
            f"Got device={device!r}, which torch cannot use here: {error}. Use device='cpu', or "
            "install a torch for it."
        ) from error
    return moved


def _words_of(tokenizer: "PreTrainedTokenizerBase", window: int | None) -> Words | None:
    """The tokenizer as one that cuts at spaces, where it is one and nothing is done around it."""
    plain = tokenizer.is_fast and tokenizer.truncation_side == "right"
    if not plain or getattr(tokenizer, "split_special_tokens", False):
        return None
    words = Words.of(without_batching(tokenizer.backend_tokenizer), window)
    probe = "a [MASK]  Test, déjà vu" + str(tokenizer.cls_token)
    plainly = tokenizer(probe, truncation=window is not None, max_length=window, verbose=False)
    return words if words is not None and words.ids([probe]) == [plainly["input_ids"]] else None


def _tokenizer_state(tokenizer: "PreTrainedTokenizerBase") -> str:
    if tokenizer.is_fast:
        cutting = without_batching(tokenizer.backend_tokenizer)
    else:
        cutting = json.dumps(
            [tokenizer.get_vocab(), tokenizer.special_tokens_map], sort_keys=True, default=str
        )
    names = (tokenizer.padding_side, tokenizer.truncation_side, *tokenizer.model_input_names)
    return " ".join((*names, cutting))


@contextmanager
def _evaluating(model: "torch.nn.Module") -> Iterator[None]:
    """Dropout off, then every module's own flag as it was."""
    flags = [(module, module.training) for module in model.modules()]
    if any(training for _, training in flags):  # else torch would take milliseconds to change nothing
        model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            if module.training != training:
                module.training = training


def _is_out_of_memory(error: RuntimeError) -> bool:
    message = str(error).lower()
    return any(sign in message for sign in ("out of memory", "can't allocate memory"))


def _release_memory() -> None:
    import torch

    torch.cuda.empty_cache()  # does nothing where CUDA is not in use
