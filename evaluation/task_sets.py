"""Sets of units that keep or flip a model's prediction, for every text of a study."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from piste._typing import BoolArray, FloatArray
from piste.evaluation.erasure import relevance_order
from piste.evaluation.sets import FoundSet, Goal, Scored, find_set, prefix_set
from piste.evaluation.task_measures import judged, predicted
from piste.sampling.collect import Memory, collect
from piste.sampling.masking import choose_masking, render
from piste.sampling.models.protocol import BlackBox, Scores
from piste.sampling.space import to_space
from piste.surrogates.explain import EPSILON
from piste.surrogates.records import Explained, Options

SET_COLUMNS = (
    "text",
    "target",
    "surrogate",
    "size",
    "units",
    "tokens",
    "threshold",
    "predicted",
    "score",
    "exact",
    "n_calls",
    "status",
)
SEARCH = "(search)"
"""The kind of the set that was searched on a fit, beside the prefixes of rankings."""


def derive_sets(
    explained: Sequence[Explained],
    options: Options,
    attributions: pd.DataFrame,
    goal: Goal,
    model: BlackBox | None,
    max_calls: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """For each text and target the smallest set found, and the sizes that rankings reach.

    The prediction holds while the score is at least 0 (log-odds) or 1/2 (probability); where the full
    text is below that, or its scores are raw, while the score is nearer the full text's than the empty
    text's. Sets are searched on the fit that predicts the held-out masks best, with its error there as
    slack, and verified by the model, as is the smallest prefix of every ranking.

    Returns
    -------
    sets, alternatives
        Columns `SET_COLUMNS`, ``status`` as in `piste.evaluation.sets.FoundSet`, and those of
        `piste.evaluation.tasks.ALTERNATIVE_COLUMNS`.
    """
    sets: list[dict[str, object]] = []
    alternatives: list[dict[str, object]] = []
    for text in explained:
        if not text.fits:
            continue
        scored = None if model is None else _asker(model, text, options)
        for output, target in enumerate(text.targets):
            about = {"text": text.text_id, "target": target}
            ask = None if scored is None else partial(_column, scored, output)
            threshold = _threshold(text, output)
            name, found = _searched(text, output, goal, threshold, ask, max_calls)
            sets.append(about | {"surrogate": name, "threshold": threshold} | _set_row(text, found))
            alternatives.append(about | {"surrogate": name, "kind": SEARCH} | _size(found))
            rows = attributions[
                (attributions["text_id"] == text.text_id) & (attributions["target"] == target)
            ]
            for (surrogate, kind), own in rows.groupby(["surrogate", "kind"], sort=False):
                size = _prefix_size(text, own, goal, threshold, ask, options.seed)
                alternatives.append(about | {"surrogate": surrogate, "kind": kind} | size)
    return pd.DataFrame(sets, columns=list(SET_COLUMNS)), pd.DataFrame(alternatives)


def _searched(
    text: Explained, output: int, goal: Goal, threshold: float, ask: Scored | None, max_calls: int
) -> tuple[str, FoundSet]:
    masks, scores = judged(text)
    errors = {
        name: float(np.sqrt(((predicted(text, fit, masks) - scores)[:, output] ** 2).mean()))
        for name, fit in text.fits.items()
    }
    name = min(errors, key=lambda each: errors[each])
    fit = text.fits[name]

    def predict(kept: BoolArray) -> FloatArray:
        return predicted(text, fit, kept)[:, output]

    n_units = masks.shape[1]
    slack = errors[name]
    return name, find_set(predict, ask, n_units, goal, threshold, slack=slack, max_calls=max_calls)


def _threshold(text: Explained, output: int) -> float:
    """What the score must reach for the prediction to hold."""
    masks = text.responses.masks
    full = float(text.scores[masks.all(axis=1)][0, output])
    usual = {"logit": 0.0, "probability": 0.5}.get(text.space, np.inf)
    if full >= usual:
        return usual
    empty = text.scores[~masks.any(axis=1)]
    return (full + float(empty[0, output])) / 2 if len(empty) else full / 2


def _asker(model: BlackBox, text: Explained, options: Options) -> Scored:
    """The model's scores of masks, a column for each target; what the study has asked is known."""
    masking = choose_masking(options.masking, model)
    known = text.responses
    memory = Memory()
    queries = render(text.units, known.masks, masking, options.context)
    memory.put(queries, Scores(known.values, known.labels, known.kind))

    def ask(masks: BoolArray) -> FloatArray:
        asked = render(text.units, masks, masking, options.context)
        answers = collect(model, asked, store=memory, batch_size=options.batch_size)
        # With the known ones, since a model that does not say what its numbers are is judged by all.
        values = np.concatenate([known.values, answers.values])
        scores = to_space(values, answers.kind, options.space, EPSILON).scores[len(known.values) :]
        columns: FloatArray = scores[:, [answers.labels.index(target) for target in text.targets]]
        return columns

    return ask


def _column(scored: Scored, output: int, masks: BoolArray) -> FloatArray:
    """One target's scores."""
    column: FloatArray = scored(masks)[:, output]
    return column


def _prefix_size(
    text: Explained, rows: pd.DataFrame, goal: Goal, threshold: float, ask: Scored | None, seed: int
) -> dict[str, object]:
    seen = rows[text.units.seen[rows["unit"].to_numpy(dtype=int)]]
    scores = seen["score"].to_numpy(dtype=float)
    if ask is None:
        return {"metric": "set size", "value": np.nan, "status": "undefined: needs model="}
    if not np.isfinite(scores).all():
        return {
            "metric": "set size",
            "value": np.nan,
            "status": "undefined: scores that are not finite",
        }
    order = relevance_order(scores, np.random.default_rng(seed))
    return _size(prefix_set(order, ask, goal, threshold))


def _size(found: FoundSet) -> dict[str, object]:
    if not found.found:
        return {"metric": "set size", "value": np.nan, "status": f"undefined: {found.status}"}
    return {"metric": "set size", "value": float(len(found.units)), "status": found.status}


def _set_row(text: Explained, found: FoundSet) -> dict[str, object]:
    seen = np.flatnonzero(text.units.seen)
    units = [int(seen[column]) for column in found.units]
    return {
        "size": len(units) if found.found else np.nan,
        "units": units,
        "tokens": [text.units.tokens[unit] for unit in units],
        "predicted": found.predicted,
        "score": found.score,
        "exact": found.exact,
        "n_calls": found.n_calls,
        "status": found.status,
    }
