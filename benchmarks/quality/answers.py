"""The answers that every model of a text is fitted to and judged by, kept in files."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from piste._typing import BoolArray, FloatArray
from piste.sampling.collect import collect
from piste.sampling.designs import draw, with_anchors
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.segment import segment
from piste.sampling.space import to_space


@dataclass(frozen=True)
class Answered:
    """Masks (n, n_units) and log-odds (n,) of one text, by the law that drew them.

    Fits are named by their design and number of masks.
    """

    name: str
    n_units: int
    fits: Mapping[tuple[str, int], tuple[BoolArray, FloatArray]]
    held_out: Mapping[str, tuple[BoolArray, FloatArray]]


def texts_of(path: Path) -> list[str]:
    """Texts of a file: one a line, before a tab, or JSON lines with ``text`` or ``tokens``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix != ".jsonl":
        return [line.split("\t")[0] for line in lines]
    rows = [json.loads(line) for line in lines]
    return [row["text"] if "text" in row else " ".join(row["tokens"]) for row in rows]


def chosen_texts(path: Path, units: tuple[int, int], n_texts: int, seed: int) -> list[str]:
    """The first texts, in a seeded order, whose number of units lies within bounds."""
    texts = texts_of(path)
    order = np.random.default_rng(seed).permutation(len(texts))
    fitting = (texts[at] for at in order if units[0] <= len(segment(texts[at]).tokens) <= units[1])
    return [text for text, _ in zip(fitting, range(n_texts), strict=False)]


def answered(
    model: BlackBox, texts: list[str], config: Mapping[str, Any], folder: Path, prefix: str
) -> Iterator[Answered]:
    """The answers to each text; what the folder already holds is not asked again.

    Fits may be added at the end of their list: the masks of those before them stay the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for at, text in enumerate(texts):
        path = folder / f"{prefix}{at:02}.npz"
        kept = dict(np.load(path)) if path.exists() else {}
        if any(f"{design} {budget}" not in kept for design, budget in config["fits"]):
            kept |= _asked(model, text, config, np.random.default_rng([config["seed"], at]), kept)
            partial = path.with_suffix(".part.npz")
            np.savez_compressed(partial, **kept)  # type: ignore[arg-type]
            os.replace(partial, path)
        fits = {
            (design, budget): (kept[f"{design} {budget} masks"], kept[f"{design} {budget}"])
            for design, budget in config["fits"]
        }
        held_out = {
            law: (kept[f"held-out {law} masks"], kept[f"held-out {law}"])
            for law in config["held_out_laws"]
        }
        n_units = next(iter(fits.values()))[0].shape[1]
        yield Answered(f"{prefix}{at:02}", n_units, fits, held_out)


def _asked(
    model: BlackBox,
    text: str,
    config: Mapping[str, Any],
    rng: np.random.Generator,
    kept: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Answers that are not kept yet: the predicted class's log-odds.

    Held-out masks are drawn first, and no fit is given them.
    """
    units = segment(text, "word", model=model)
    n_units = int(units.seen.sum())
    taken = np.repeat([[True], [False]], n_units, axis=1)
    drawn = {}
    for law in config["held_out_laws"]:
        drawn[f"held-out {law}"] = draw(law, n_units, config["n_held_out"], rng, exclude=taken).masks
        taken = np.concatenate([taken, drawn[f"held-out {law}"]])
    for design, budget in config["fits"]:
        inner = draw(design, n_units, budget - 2, rng, exclude=taken)
        drawn[f"{design} {budget}"] = with_anchors(inner).masks
    asked = {"full": taken[:1]} | {name: masks for name, masks in drawn.items() if name not in kept}
    answers = collect(model, render(units, np.concatenate([*asked.values()]), choose_masking("remove")))
    scores = to_space(answers.values, answers.kind, "logit").scores
    ends = np.cumsum([len(rows) for rows in asked.values()])[:-1]
    _, *of_class = np.split(scores[:, int(scores[0].argmax())], ends)
    names = [name for name in asked if name != "full"]
    return {f"{name} masks": drawn[name] for name in names} | dict(zip(names, of_class, strict=True))
