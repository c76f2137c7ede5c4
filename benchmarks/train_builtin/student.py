"""The student: a small BERT that learns to give the teacher's log-odds."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from teacher import length_batches, log_odds, one_cycle
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

WINDOW = 128
EMBEDDING_SCALE = 0.05  # standard deviation of the initial word embeddings
LOGIT_WEIGHT = 0.1  # piste explains log-odds, so they must match where probabilities saturate
WEIGHT_DECAY_OF_AVERAGE = 0.999


@dataclass(frozen=True)
class Shape:
    """Size of the student; chosen so that all shipped files stay below 4 MB."""

    vocabulary: int = 9000
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    intermediate: int = 384


@dataclass(frozen=True)
class Lessons:
    """Token ids with the log-odds to learn for each text."""

    sequences: list[list[int]]
    targets: Tensor


def build_student(shape: Shape) -> BertForSequenceClassification:
    """Build an untrained student whose config loads without special cases in transformers."""
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=WINDOW,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
        pad_token_id=0,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    return BertForSequenceClassification(config)


@torch.no_grad()
def borrow_embeddings(student: BertForSequenceClassification, teacher_rows: Tensor) -> float:
    """Start from the principal components of the teacher's word embeddings.

    Returns the share of variance that they keep.
    """
    rows = teacher_rows.float()
    rows = rows - rows.mean(dim=0)
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    target = student.bert.embeddings.word_embeddings.weight
    components = rows @ vectors[:, -target.shape[1] :]
    target.copy_(components * (EMBEDDING_SCALE / components.std()))
    return float(values[-target.shape[1] :].sum() / values.sum())


def lesson_loss(odds: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with the teacher's probability, plus a robust distance of the log-odds."""
    entropy = nn.functional.binary_cross_entropy_with_logits(odds, torch.sigmoid(targets))
    return entropy + LOGIT_WEIGHT * nn.functional.smooth_l1_loss(odds, targets)


def train_student(
    student: BertForSequenceClassification,
    lessons: Lessons,
    *,
    n_epochs: int,
    rng: np.random.Generator,
    peak_rate: float = 1e-3,
    batch_size: int = 64,
) -> BertForSequenceClassification:
    """Train in place and return the running average of the weights, which answers better."""
    lengths = np.array([len(ids) for ids in lessons.sequences])
    optimizer = torch.optim.AdamW(student.parameters(), lr=peak_rate, weight_decay=0.01)
    average: BertForSequenceClassification = copy.deepcopy(student)
    average.eval()
    n_steps = n_epochs * math.ceil(len(lengths) / batch_size)
    started, step, total = time.perf_counter(), 0, 0.0
    student.train()
    for _ in range(n_epochs):
        for batch in length_batches(lengths, batch_size, rng):
            for group in optimizer.param_groups:
                group["lr"] = peak_rate * one_cycle(step, n_steps)
            odds = log_odds(student, [lessons.sequences[i] for i in batch])
            loss = lesson_loss(odds, lessons.targets[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            _move_average(average, student, min(WEIGHT_DECAY_OF_AVERAGE, step / (step + 10)))
            step, total = step + 1, total + loss.item()
            if step % 500 == 0:
                seconds = time.perf_counter() - started
                print(f"  student step {step}/{n_steps}: loss {total / 500:.4f}, {seconds:.0f} s")
                total = 0.0
    return average


@torch.no_grad()
def _move_average(average: nn.Module, current: nn.Module, decay: float) -> None:
    own: list[Tensor] = list(average.parameters())
    new: list[Tensor] = list(current.parameters())
    torch._foreach_lerp_(own, new, 1.0 - decay)


@torch.no_grad()
def tidy(student: BertForSequenceClassification) -> None:
    """Settle what training leaves open, without changing any answer about a single text.

    The two logits become exact opposites (only their difference was trained), and the second
    segment of a pair gets the type embedding of the first, for it never occurred in training.
    """
    head = student.classifier
    head.weight.sub_(head.weight.mean(dim=0))
    head.bias.sub_(head.bias.mean())
    types = student.bert.embeddings.token_type_embeddings.weight
    types[1] = types[0]


@torch.no_grad()
def round_to_half(student: BertForSequenceClassification) -> None:
    """Round every weight to 16 bits before anything is measured or written."""
    for parameter in student.parameters():
        parameter.copy_(parameter.half().float())
