"""What is explained: one model object behind each subject, asked by piste and by its peers alike."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from piste import load_model
from piste._typing import BoolArray, FloatArray
from piste.sampling.masking import choose_masking, render
from piste.sampling.models import CallableModel, HuggingFaceClassifier, OnnxClassifier
from piste.sampling.models.protocol import BlackBox, Scores
from piste.sampling.records import Query
from piste.sampling.segment import segment

PARAGRAPH = (
    "The film opens with a quiet scene at the edge of a small town and slowly builds into a tense story "
    "about two brothers who no longer trust each other. Its middle act drags a little, yet the acting stays "
    "honest, the music never shouts, and the final hour is both surprising and deeply moving for anyone who "
    "has ever lost a friend. I would not call it perfect, because some jokes fall flat and the camera "
    "wanders too often, but the writing is sharp, the cast is wonderful, and the last ten minutes alone are "
    "worth the price of a ticket on a rainy evening. "
)

Plain = Callable[[Sequence[str]], FloatArray]
"""Texts to logits (n, 2) as a user would write it: one padded batch, in the order given."""


@dataclass
class Subject:
    """A model and a text, and what it costs to ask.

    Parameters
    ----------
    name
        In the configuration.
    box
        What piste is given.
    plain
        What a peer is given; it runs the same torch module, graph or function.
    encode
        Texts to token ids; None where the model has no tokens.
    forward
        Token ids and attention, both (n, longest), to logits.
    tokenizer, module
        For peers that insist on them.
    """

    name: str
    box: BlackBox
    plain: Plain
    encode: Callable[[Sequence[str]], list[list[int]]] | None = None
    forward: Callable[[np.ndarray, np.ndarray], FloatArray] | None = None
    tokenizer: Any = None
    module: Any = None
    n_queries: int = field(default=0, init=False)

    def texts(self, texts: Sequence[str], batch_size: int) -> FloatArray:
        """Log-odds of the second label, shape (n,); counted."""
        listed = [str(text) for text in texts]
        self.n_queries += len(listed)
        parts = [self.plain(listed[at : at + batch_size]) for at in range(0, len(listed), batch_size)]
        logits = np.concatenate(parts)
        return logits[:, 1] - logits[:, 0]

    def masks(self, text: str, masks: BoolArray, batch_size: int) -> FloatArray:
        """The same of a text without the units that each mask (n, n_units) drops."""
        queries = render(segment(text, "word"), np.asarray(masks) != 0, choose_masking("remove"))
        return self.texts([str(query) for query in queries], batch_size)


def text_of(n_units: int) -> str:
    """So many words of plain English, punctuation left with its word."""
    words = (PARAGRAPH * (n_units // 90 + 1)).split()
    return " ".join(words[:n_units])


def padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and attention, each (n, longest), int64, filled with 0."""
    longest = max(map(len, rows))
    ids = np.zeros((len(rows), longest), np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    attended = np.arange(longest) < np.array([[len(row)] for row in rows])
    return ids, attended.astype(np.int64)


def embedded(threads: int) -> Subject:
    """The model that ships with piste, in onnxruntime."""
    box = load_model("builtin:sentiment", threads=threads)
    session, tokenizer = box._session, box._tokenizer  # the very objects that piste runs

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]

    def forward(ids: np.ndarray, attended: np.ndarray) -> FloatArray:
        feed = {"input_ids": ids, "attention_mask": attended, "token_type_ids": np.zeros_like(ids)}
        wanted = {name: feed[name].astype(type_) for name, type_ in box._inputs.items()}
        return np.asarray(session.run(None, wanted)[0], np.float64)

    return Subject("embedded", box, lambda texts: forward(*padded(encode(texts))), encode, forward)


def minilm(folder: Path, threads: int) -> Subject | str:
    """A fine-tuned 6-layer MiniLM in torch, or why not."""
    if not (folder / "config.json").is_file():
        return f"no model in {folder.name}: give its folder with --minilm"
    import torch

    torch.set_num_threads(threads)
    box = load_model(f"hf:{folder}")
    tokenizer, module = box._tokenizer, box._model.eval()

    def encode(texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(list(texts), truncation=True, max_length=512)["input_ids"]
        return ids

    def forward(ids: np.ndarray, attended: np.ndarray) -> FloatArray:
        with torch.inference_mode():
            out = module(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(attended))
        return out.logits.double().numpy()

    def plain(texts: Sequence[str]) -> FloatArray:
        given = tokenizer(
            list(texts), truncation=True, max_length=512, padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            return module(**given).logits.double().numpy()

    return Subject("minilm", box, plain, encode, forward, tokenizer, module)


def oracle(seed: int) -> Subject:
    """An additive function of the words that takes no time: what is left is the packages' own."""
    words = sorted(set(PARAGRAPH.split()))
    weight = dict(zip(words, np.random.default_rng(seed).normal(size=len(words)).tolist(), strict=True))

    def log_odds(texts: Sequence[str]) -> FloatArray:
        return np.array([sum(weight.get(word, 0.0) for word in text.split()) for text in texts])

    def plain(texts: Sequence[str]) -> FloatArray:
        values = log_odds(texts)
        return np.column_stack([np.zeros_like(values), values])

    return Subject("oracle", CallableModel(log_odds, kind="logit"), plain)


class Recorder:
    """A model that remembers what it was asked, for the bare forward passes."""

    def __init__(self, box: OnnxClassifier | HuggingFaceClassifier) -> None:
        self._box = box
        self.asked: list[str] = []

    @property
    def fingerprint(self) -> str:
        """That of the model."""
        return self._box.fingerprint

    @property
    def mask_token(self) -> str | None:
        """That of the model."""
        return self._box.mask_token

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Those of the model."""
        return self._box.token_spans(text)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """Those of the model."""
        return self._box.seen_until(parts)

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Pass on."""
        self.asked += map(str, inputs)
        return self._box.score(inputs)


def bare_forward(subject: Subject, texts: Sequence[str], most_tokens: int) -> None:
    """The texts cut into tokens and run, longest first, as many per batch as the tokens allow."""
    assert subject.encode is not None
    assert subject.forward is not None
    rows = sorted(subject.encode(texts), key=len, reverse=True)
    start = 0
    while start < len(rows):
        batch = rows[start : start + max(1, most_tokens // len(rows[start]))]
        subject.forward(*padded(batch))
        start += len(batch)


@contextmanager
def timed(into: dict[str, float]) -> Iterator[None]:
    """Seconds of the wall and of this process's processors."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into["wall"], into["cpu"] = time.perf_counter() - wall, time.process_time() - cpu
