"""Held-out review snippets explained in the published ways and in piste's own, and what is asked of each.

The model is the embedded one (two layers of attention, trained in this repository), so that the words of its
own training part can be counted. `SLALOM-eff` sees texts of two or three words, `SLALOM-fidel` loses up to
five; both are the published model, without a background.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import piste
from piste._typing import BoolArray, FloatArray
from piste.evaluation import faithfulness, lexicon_agreement, naive_bayes_log_odds
from piste.sampling.collect import collect
from piste.sampling.designs import draw, with_anchors
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Units
from piste.sampling.segment import segment
from piste.sampling.space import to_space
from piste.surrogates import KernelShap, Lime, Slalom
from piste.surrogates.base import Surrogate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train_builtin"))
import snippets  # the split that the model was trained with

TRAINING_SEED, N_TEST, N_VALIDATION = 2014, 1400, 700
LEAST_WORDS = 11
MODEL = "builtin:sentiment"


@dataclass(frozen=True)
class Way:
    """How a text is explained: the law of its masks and the surrogate."""

    law: str
    max_units: int | None
    surrogate: Surrogate


WAYS = {
    "SLALOM-eff, 2 words": Way("short", 2, Slalom(background=False)),
    "SLALOM-eff, 3 words": Way("short", 3, Slalom(background=False)),
    "SLALOM-fidel": Way("deletions", 5, Slalom(background=False)),
    "SLALOM": Way("leverage", None, Slalom()),
    "LIME": Way("leverage", None, Lime()),
    "SHAP": Way("leverage", None, KernelShap()),
    "LIME, deletions": Way("deletions", 5, Lime()),
}


@dataclass(frozen=True)
class Snippet:
    """A text, its units, and the deletions that judge it (masks by number deleted) with their answers.

    ``change`` has, by class, how much the log-odds change for each of these masks in turn.
    """

    text_id: str
    text: str
    units: Units
    judged: dict[int, BoolArray]
    change: dict[str, FloatArray]


def measure(config: dict[str, Any], sdist: Path | None) -> dict[str, pd.DataFrame]:
    """Tables of the parts: naive Bayes, insertion and deletion, several removals."""
    known, test = _snippets(sdist)
    model = piste.load_model(MODEL, threads=1)
    chosen = list(_chosen(model, test, config))
    rows: list[dict[str, object]] = []
    tables = []
    for name, way in WAYS.items():
        explained = [_explained(model, each, way, config) for each in chosen]
        tables += [study.attributions.assign(surrogate=name) for study, _ in explained]
        for each, (study, target) in zip(chosen, explained, strict=True):
            rows += _removals(each, study, target, name)
    attributions = pd.concat(tables, ignore_index=True)
    weights = naive_bayes_log_odds([text for text, _ in known], [label for _, label in known])
    texts = {each.text_id: each.text for each in chosen}
    return {
        "naive_bayes": lexicon_agreement(attributions, weights),
        "curves": faithfulness(
            model,
            texts,
            attributions,
            metrics=("insertion", "deletion"),
            space="probability",
            baselines=("random",),
        ),
        "removals": pd.DataFrame(rows),
    }


def _snippets(sdist: Path | None) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The clear training and test rows of the embedded model: (text, class)."""
    with tempfile.TemporaryDirectory() as folder:
        source = sdist or snippets.fetch_sdist(Path(folder))
        movies = snippets.read_domain(source, snippets.MOVIES)
    rng = np.random.default_rng(TRAINING_SEED)
    split = snippets.split_snippets(movies, n_test=N_TEST, n_validation=N_VALIDATION, rng=rng)
    known, test = (
        [(row.text, "positive" if row.label else "negative") for row in part if row.is_clear]
        for part in (split.train, split.test)
    )
    return known, test


def _chosen(model: BlackBox, test: list[tuple[str, str]], config: dict[str, Any]) -> Iterator[Snippet]:
    """The first held-out snippets of more than ten words, and deletions that no fit will see.

    At most half of the deletions of each number are set aside, so that the fits keep some too.
    """
    n_found = 0
    for text, _ in test:
        units = segment(text, "word", model=model)
        n_units = int(units.seen.sum())
        if n_units < LEAST_WORDS or n_found == config["texts"]:
            continue
        n_found += 1
        rng = np.random.default_rng([config["seed"], n_found])
        judged = {k: _deletions(n_units, k, config["judged"], rng) for k in config["removed"]}
        yield Snippet(str(n_found), text, units, judged, _changes(model, units, judged))


def _changes(model: BlackBox, units: Units, judged: dict[int, BoolArray]) -> dict[str, FloatArray]:
    """By class, the change of log-odds for each mask, shape (n_masks,)."""
    full = np.ones((1, int(units.seen.sum())), dtype=np.bool_)
    masks = np.concatenate([full, *judged.values()])
    answers = collect(model, render(units, masks, choose_masking("remove")))
    scores = to_space(answers.values, answers.kind, "logit").scores
    return dict(zip(answers.labels, (scores[1:] - scores[0]).T, strict=True))


def _deletions(n_units: int, n_removed: int, most: int, rng: np.random.Generator) -> BoolArray:
    """Distinct masks that remove so many units."""
    n_subsets = min(2 * most, comb(n_units, n_removed)) // 2
    found: dict[bytes, BoolArray] = {}
    while len(found) < n_subsets:
        mask = np.ones(n_units, dtype=np.bool_)
        mask[rng.choice(n_units, n_removed, replace=False)] = False
        found[mask.tobytes()] = mask
    return np.array(list(found.values()))


def _explained(
    model: BlackBox, each: Snippet, way: Way, config: dict[str, Any]
) -> tuple[piste.Study, int]:
    """A study of one text on masks of the way's law, none of them a judging one."""
    n_units = int(each.units.seen.sum())
    ends = np.repeat([[True], [False]], n_units, axis=1)
    taken = np.concatenate([ends, *each.judged.values()])
    rng = np.random.default_rng([config["seed"], int(each.text_id), 1])
    drawn = draw(way.law, n_units, config["budget"] - 2, rng, exclude=taken, max_units=way.max_units)
    design = with_anchors(drawn)
    study = piste.explain(
        model,
        each.text,
        surrogates=way.surrogate,
        design=design,
        budget=config["budget"],
        text_ids=[each.text_id],
    )
    return study, study.attributions["target"].iloc[0]


def _removals(each: Snippet, study: piste.Study, target: str, name: str) -> list[dict[str, object]]:
    """Squared errors of the predicted change of log-odds, by how many words are removed."""
    outcome = study.outcome(0)
    (fitted,) = outcome.fits.values()
    change, sizes = each.change[target], [len(masks) for masks in each.judged.values()]
    masks = np.concatenate([*each.judged.values()])
    n_units = masks.shape[1]
    removed = 1.0 - masks
    predicted = fitted.predict(np.vstack([np.ones(n_units), masks]))
    inner = outcome.responses.masks.sum(axis=1) < n_units
    shift = float(np.nanmean(outcome.scores[inner, 0]) - outcome.scores[~inner, 0][0])
    methods: dict[str, FloatArray] = {
        name: predicted[1:] - predicted[0],
        f"{name}, mean of its answers": np.full(len(change), shift),
    }
    if isinstance(fitted, Slalom):
        methods[f"{name}, linear scores added"] = -removed @ fitted.attributions("linear")
        methods[f"{name}, removal scores added"] = -removed @ fitted.attributions("removal")
    methods["zero"] = np.zeros(len(change))
    rows = []
    parts = np.split(np.arange(len(change)), np.cumsum(sizes)[:-1])
    for n_removed, part in zip(each.judged, parts, strict=True):
        for method, values in methods.items():
            error = float(((values[part] - change[part]) ** 2).mean())
            rows.append(
                {"text": each.text_id, "removed": n_removed, "method": method, "squared_error": error}
            )
    return rows
