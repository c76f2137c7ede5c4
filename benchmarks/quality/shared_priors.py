"""Whether texts should lend each other what they say of a word: `python benchmarks/quality/shared_priors.py`.

    python benchmarks/quality/shared_priors.py --texts FILE [--model builtin:sentiment] [--n-texts 300]

Empirical Bayes across a corpus: a SLALOM is fitted to each text; what its words' values and importances
are on average in all *other* texts becomes the mean of their prior, and each text is fitted again. Both
fits have the same solver and each its best prior strengths of a grid, chosen by the held-out masks, which
flatters both alike. Values count from their text's mean, importances from the background's. Writes
docs/shared_priors.md.
"""

import argparse
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from answers import chosen_texts
from summary import interval

import piste
from piste._typing import BoolArray, FloatArray
from piste.sampling.collect import collect
from piste.sampling.designs import draw
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.segment import segment
from piste.sampling.space import to_space
from piste.surrogates import Slalom

DOCS = Path(__file__).resolve().parents[2] / "docs"
BUDGETS = (60, 120, 250)
N_HELD_OUT = 100
UNITS = (12, 32)
STRENGTHS = tuple(itertools.product((0.01, 0.03, 0.1), (0.03, 0.1, 0.3)))  # of values, of importances
OWN = 1.0  # how many texts the mean over all words weighs against a word's own
N_STEPS = 40


@dataclass(frozen=True)
class Asked:
    """Words of one text, masks (n, n_units) and log-odds (n,) to fit to and to judge by."""

    words: Sequence[str]
    masks: FloatArray
    scores: FloatArray
    held_masks: FloatArray
    held_scores: FloatArray


@dataclass(frozen=True)
class Means:
    """Prior means of a text's values and importances, each (n_units,)."""

    value: FloatArray
    importance: FloatArray


def main() -> None:
    """Ask, fit with and without what the others say, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default="builtin:sentiment")
    parser.add_argument("--n-texts", type=int, default=300)
    options = parser.parse_args()
    model = piste.load_model(options.model)
    texts = chosen_texts(options.texts, UNITS, options.n_texts, 0)
    lines = [
        "# Do texts help each other?\n",
        f"Written by `benchmarks/quality/shared_priors.py`: {len(texts)} texts of {UNITS[0]} to {UNITS[1]} "
        f"units, `{options.model}`, {N_HELD_OUT} fresh uniform-size masks to judge by. Ratios of held-out "
        "squared errors on the same masks, median over texts with its 95 % bootstrap interval: a SLALOM "
        "whose priors are centred on what its words are in the other texts, over one with ordinary priors.\n",
        "| queries | unexplained without | values | importances | both | both over `Slalom()` |",
        "| --- |" + " --- |" * 5,
    ]
    for budget in BUDGETS:
        asked = [_asked(model, text, budget, at) for at, text in enumerate(texts)]
        lines.append(f"| {budget} | " + " | ".join(_row(asked)) + " |")
    reading = (
        "\nTexts do help each other where queries are few, by a few per cent, which a few per cent more "
        "queries buy too. piste leaves it out: the attribution of a text would then depend on the file that "
        "it stands in, and no row could be written before the last text was asked.\n"
    )
    (DOCS / "shared_priors.md").write_text("\n".join(lines) + "\n" + reading, encoding="utf-8")


def _row(asked: Sequence[Asked]) -> list[str]:
    plain = [_plain(text) for text in asked]
    alone, fits = min((_fitted(asked, plain, strengths) for strengths in STRENGTHS), key=_typical)
    shared = _from_others(asked, fits)
    choices = {
        "values": [Means(s.value, p.importance) for s, p in zip(shared, plain, strict=True)],
        "importances": [Means(p.value, s.importance) for s, p in zip(shared, plain, strict=True)],
        "both": shared,
    }
    errors = {
        name: min((_fitted(asked, means, strengths) for strengths in STRENGTHS), key=_typical)[0]
        for name, means in choices.items()
    }
    default = np.array([_error(text, Slalom().fit(text.masks, text.scores).predict) for text in asked])
    spread = np.array([text.held_scores.var() for text in asked])
    return [
        f"{np.median(alone / spread):.3f}",
        *(interval(pd.Series(errors[name] / alone)) for name in choices),
        interval(pd.Series(errors["both"] / default)),
    ]


def _asked(model: BlackBox, text: str, budget: int, number: int) -> Asked:
    units = segment(text, "word", model=model)
    n_units = int(units.seen.sum())
    rng = np.random.default_rng([0, number])
    held = draw("uniform-size", n_units, N_HELD_OUT, rng).masks
    masks = draw("leverage", n_units, budget, rng, exclude=held).masks
    both: BoolArray = np.concatenate([masks, held])
    answers = collect(model, render(units, both, choose_masking("remove")))
    scores = to_space(answers.values, answers.kind, "logit").scores[:, -1]
    words = [str(word).lower() for word, seen in zip(units.tokens, units.seen, strict=True) if seen]
    fit, judge = np.split(both.astype(float), [len(masks)])
    return Asked(words, fit, scores[: len(fit)], judge, scores[len(fit) :])


def _plain(text: Asked) -> Means:
    n_units = len(text.words)
    return Means(np.full(n_units, text.scores.mean()), np.zeros(n_units))


def _from_others(asked: Sequence[Asked], fits: Sequence[Means]) -> list[Means]:
    """Means over the other texts that hold a word, drawn towards the mean over all words."""
    centred = [Means(f.value - f.value.mean(), f.importance - f.importance.mean()) for f in fits]
    found: defaultdict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for at, (text, own) in enumerate(zip(asked, centred, strict=True)):
        for word, value, importance in zip(text.words, own.value, own.importance, strict=True):
            found[word].append((at, value, importance))
    shared = []
    for at, text in enumerate(asked):
        others = [[entry[1:] for entry in found[word] if entry[0] != at] for word in text.words]
        sums = np.array([np.sum(entries, axis=0) if entries else (0.0, 0.0) for entries in others])
        counts = np.array([len(entries) for entries in others])
        means = sums / (counts + OWN)[:, None]
        shared.append(Means(text.scores.mean() + means[:, 0], means[:, 1]))
    return shared


def _fitted(
    asked: Sequence[Asked], means: Sequence[Means], strengths: tuple[float, float]
) -> tuple[FloatArray, list[Means]]:
    """Held-out errors, and each text's values and importances."""
    errors, fits = [], []
    for text, prior in zip(asked, means, strict=True):
        point = _solve(text, prior, strengths)
        errors.append(_error(text, lambda masks, point=point: _model(point, masks)[0]))
        n_units = len(text.words)
        fits.append(Means(point[:n_units], point[n_units : 2 * n_units]))
    return np.array(errors), fits


def _solve(text: Asked, prior: Means, strengths: tuple[float, float]) -> FloatArray:
    """Levenberg-Marquardt on values, importances (the background's is 0), background value and a shift.

    The shift moves all importances against the background's, all but freely.
    """
    n_units = len(text.words)
    value, importance = strengths
    centre = np.concatenate([prior.value, prior.importance, [text.scores.mean(), -np.log(n_units)]])
    ridge = np.concatenate([np.repeat(strengths, n_units), [1e-3 * value, 1e-3 * importance]])
    point, damping = centre, 1e-2
    predicted, jacobian = _model(point, text.masks)
    least = ((text.scores - predicted) ** 2).sum()  # the point is the centre: no penalty yet
    for _ in range(N_STEPS):
        normal = jacobian.T @ jacobian + np.diag(ridge)
        downhill = jacobian.T @ (text.scores - predicted) - ridge * (point - centre)
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        trial = point + np.clip(step, -3, 3)
        predicted_there, jacobian_there = _model(trial, text.masks)
        error = ((text.scores - predicted_there) ** 2).sum() + ridge @ (trial - centre) ** 2
        gained = least - error
        if gained <= 0:
            damping *= 4
            continue
        point, predicted, jacobian, least = trial, predicted_there, jacobian_there, error
        damping /= 5
        if gained < 1e-5 * least:
            break
    return point


def _model(point: FloatArray, masks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions (n,) and their derivatives by the point (n, 2 n_units + 2)."""
    n_units = masks.shape[1]
    values, background, shift = point[:n_units], point[-2], point[-1]
    weights = masks * np.exp(np.clip(shift + point[n_units : 2 * n_units], -20, 20))
    total = 1 + weights.sum(axis=1)
    share = weights / total[:, None]
    predicted = share @ values + background / total
    by_importance = share * (values - predicted[:, None])
    columns = [share, by_importance, 1 / total[:, None], by_importance.sum(axis=1, keepdims=True)]
    return predicted, np.hstack(columns)


def _error(text: Asked, predict: Callable[[FloatArray], FloatArray]) -> float:
    return float(((predict(text.held_masks) - text.held_scores) ** 2).mean())


def _typical(fitted: tuple[FloatArray, list[Means]]) -> float:
    return float(np.log(fitted[0]).mean())


if __name__ == "__main__":
    main()
