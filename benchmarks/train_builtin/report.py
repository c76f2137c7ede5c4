"""Measure the finished files: accuracy, answers to masked texts, agreement, speed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from export import GRAPH
from snippets import Snippet
from student import WINDOW
from teacher import pad
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

Z_95 = 1.959964
N_AGREEMENT = 500
N_SPEED, WORDS_SPEED = 1000, 25
PROBES = (
    "",
    "the film",
    "good",
    "not good",
    "bad",
    "not bad",
    "a good film",
    "not a good film",
    "a bad film",
    "not a bad film",
    "boring",
    "never boring",
    "funny",
    "not funny",
    "too long and without any charm",
    "charm",
    "without charm",
    "It is funny, but it has no heart.",
    "It has no heart, but it is funny.",
    "A gripping, beautifully acted film.",
    "The actors are great; the script is a mess.",
    "The script is a mess; the actors are great.",
    "Don't miss it.",
    "You won't miss it.",
)


def wilson(n_right: int, n_rows: int) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""
    share, z2 = n_right / n_rows, Z_95**2
    centre = (share + z2 / (2 * n_rows)) / (1 + z2 / n_rows)
    half = Z_95 * math.sqrt(share * (1 - share) / n_rows + z2 / (4 * n_rows**2))
    half /= 1 + z2 / n_rows
    return centre - half, centre + half


def score(odds: np.ndarray, snippets: Sequence[Snippet]) -> dict[str, Any]:
    """Accuracy with its interval; the label is the sign of the human rating."""
    labels = np.array([s.label for s in snippets])
    n_right, n_rows = int(np.sum((odds > 0) == (labels == 1))), len(labels)
    low, high = wilson(n_right, n_rows)
    return {
        "rows": n_rows,
        "right": n_right,
        "accuracy": round(n_right / n_rows, 4),
        "wilson_95": [round(low, 4), round(high, 4)],
        "majority_share": round(max(labels.mean(), 1 - labels.mean()), 4),
    }


class Runtime:
    """The shipped folder under onnxruntime, with the tokenizer it ships with."""

    def __init__(self, folder: Path, *, n_threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        self.session = onnxruntime.InferenceSession(
            str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
        )
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def logits(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        """Logits of one padded batch, shape (n_texts, 2)."""
        ids, mask = (tensor.numpy() for tensor in pad(sequences))
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        answer: np.ndarray = self.session.run(["logits"], feed)[0]
        return answer

    def log_odds(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Log-odds of the positive class, computed in batches of similar length."""
        sequences = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        odds = np.empty(len(sequences), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            logits = self.logits([sequences[i] for i in batch])
            odds[batch] = logits[:, 1] - logits[:, 0]
        return odds


def texts_of_all_lengths(
    snippets: Sequence[Snippet], tokenizer: Tokenizer, rng: np.random.Generator
) -> list[str]:
    """Join held-out words to texts from the empty one up to the full window."""
    words = [word for s in snippets for word in s.text.split()]
    texts = []
    for number in range(N_AGREEMENT):
        start = int(rng.integers(len(words) - WINDOW))
        n_words = number * WINDOW // N_AGREEMENT
        while len(tokenizer.encode(" ".join(words[start : start + n_words]))) > WINDOW:
            n_words -= 1
        texts.append(" ".join(words[start : start + n_words]))
    return texts


@torch.no_grad()
def agreement(folder: Path, texts: Sequence[str], rng: np.random.Generator) -> dict[str, Any]:
    """Largest differences of a logit: between the runtimes, and between padded and single."""
    runtime = Runtime(folder, n_threads=2)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    fast = AutoTokenizer.from_pretrained(folder)
    sequences = [e.ids for e in runtime.tokenizer.encode_batch(list(texts))]
    if fast(list(texts))["input_ids"] != sequences:
        raise ValueError("AutoTokenizer and tokenizer.json disagree")

    def torch_logits(batch: Sequence[Sequence[int]]) -> np.ndarray:
        ids, mask = pad(batch)
        answer: np.ndarray = model(input_ids=ids, attention_mask=mask).logits.numpy()
        return answer

    order = rng.permutation(len(sequences))  # mixed lengths, so that padding is heavy
    batches = [order[i : i + 16] for i in range(0, len(order), 16)]
    single = {"torch": torch_logits, "onnx": runtime.logits}
    alone = {k: np.concatenate([run([ids]) for ids in sequences]) for k, run in single.items()}
    padded = {k: np.empty_like(v) for k, v in alone.items()}
    for batch in batches:
        for name, run in single.items():
            padded[name][batch] = run([sequences[i] for i in batch])

    def largest(left: np.ndarray, right: np.ndarray) -> float:
        return float(np.abs(left - right).max())

    return {
        "texts": len(texts),
        "tokens_shortest": min(map(len, sequences)),
        "tokens_longest": max(map(len, sequences)),
        "onnx_vs_torch_single": largest(alone["onnx"], alone["torch"]),
        "onnx_vs_torch_padded": largest(padded["onnx"], padded["torch"]),
        "torch_padded_vs_single": largest(padded["torch"], alone["torch"]),
        "onnx_padded_vs_single": largest(padded["onnx"], alone["onnx"]),
        "logit_largest": float(np.abs(alone["torch"]).max()),
    }


def speed(folder: Path, snippets: Sequence[Snippet]) -> dict[str, float]:
    """Seconds for 1,000 texts of 25 words, tokenizer included, best of three."""
    words = [word for s in snippets for word in s.text.split()]
    texts = [
        " ".join(words[i * WORDS_SPEED : (i + 1) * WORDS_SPEED])
        for i in range(min(N_SPEED, len(words) // WORDS_SPEED))
    ]
    seconds = {}
    for n_threads in (1, 2):
        runtime = Runtime(folder, n_threads=n_threads)
        runtime.log_odds(texts[:64])
        seconds[f"threads_{n_threads}"] = round(min(_timed(runtime, texts) for _ in range(3)), 3)
    return {"texts": len(texts), "words": WORDS_SPEED, **seconds, "cpus": os.cpu_count() or 0}


def _timed(runtime: Runtime, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    runtime.log_odds(texts)
    return time.perf_counter() - started


def word_order(
    runtime: Runtime, snippets: Sequence[Snippet], rng: np.random.Generator
) -> dict[str, float]:
    """Shuffle the words of held-out snippets: a bag of words would not notice."""
    plain = [s.text.split() for s in snippets]
    shuffled = [" ".join(rng.permutation(words)) for words in plain]
    before = runtime.log_odds([" ".join(words) for words in plain])
    after = runtime.log_odds(shuffled)
    return {
        "mean_change_of_log_odds": round(float(np.abs(after - before).mean()), 3),
        "labels_changed": round(float(np.mean((after > 0) != (before > 0))), 4),
        "accuracy_shuffled": score(after, snippets)["accuracy"],
    }


def compare_odds(student: np.ndarray, teacher: np.ndarray) -> dict[str, float]:
    """How closely the student follows the teacher on the same texts."""
    return {
        "texts": len(student),
        "correlation": round(float(np.corrcoef(student, teacher)[0, 1]), 4),
        "same_label": round(float(np.mean((student > 0) == (teacher > 0))), 4),
        "mean_difference_of_log_odds": round(float(np.abs(student - teacher).mean()), 3),
        "spread_of_teacher": round(float(teacher.std()), 3),
    }


def probe(runtime: Runtime) -> dict[str, float]:
    """Log-odds of hand-written texts, chosen before the model was trained and never filtered."""
    return {text: round(float(runtime.log_odds([text])[0]), 2) for text in PROBES}
