"""Explanations without information, or as plain as can be, to hold others against."""

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteError
from piste._typing import FloatArray
from piste.evaluation.asking import Asking, asking, text_generator
from piste.evaluation.attributions import UNSEEN
from piste.evaluation.explanations import (
    Explanation,
    checked_attributions,
    explanations,
    texts_by_id,
)
from piste.sampling.records import Text, Units
from piste.sampling.space import choose_targets, to_space
from piste.sampling.store import AnswerStore
from piste.surrogates.explain import EPSILON

KINDS: Mapping[str, str] = {"zero": "constant", "random": "permutation", "leave-one-out": "removal"}
"""The baselines, and the kind of their scores."""


def with_baselines(  # noqa: PLR0913 - what is asked, and how
    model: object,
    texts: Text | Sequence[Text] | Mapping[str, Text],
    attributions: pd.DataFrame,
    *,
    baselines: Sequence[str] = ("random", "leave-one-out"),
    masking: str = "remove",
    context: str | None = None,
    batch_size: int = 64,
    seed: int = 0,
    store: str | PathLike[str] | AnswerStore | None = None,
    text_ids: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The attributions and, as further surrogates, baselines on the same units and targets.

    ``zero``: all scores 0. ``random``: the scores of the text's first explanation, permuted.
    ``leave-one-out``: ``y(x) - y(x without the unit)``, which costs a query per unit; in the space of the
    text's first explanation, log-odds where that is not known.

    Parameters
    ----------
    model, texts, text_ids, masking, context, batch_size, store
        As in `piste.evaluation.faithfulness.faithfulness`.
    attributions
        As from `piste.explain`; with the columns of `piste.evaluation.explanations.DEFAULTS` added.
    baselines
        Some of ``zero``, ``random`` and ``leave-one-out``.
    seed
        Of the permutations.

    Raises
    ------
    InputError
        If a baseline is unknown. A text on which the model fails has a row that says so.

    Examples
    --------
    >>> table = pd.DataFrame({"token": ["good", "film"], "score": [0.7, 0.2]})
    >>> model = lambda texts: [0.5 + 0.25 * ("good" in text) for text in texts]
    >>> with_baselines(model, "good film", table.assign(space="probability"),
    ...                baselines=["leave-one-out"])[["surrogate", "score"]].values.tolist()
    [['given', 0.7], ['given', 0.2], ['leave-one-out', 0.25], ['leave-one-out', 0.0]]
    """
    named = texts_by_id(texts, text_ids)
    options = {"masking": masking, "context": context, "batch_size": batch_size}
    with asking(model, **options, store=store) as asked:  # type: ignore[arg-type]
        return add_baselines(asked, named, attributions, baselines, seed)


def add_baselines(
    model: Asking,
    texts: Mapping[str, Text],
    attributions: pd.DataFrame,
    baselines: Sequence[str],
    seed: int,
) -> pd.DataFrame:
    """As `with_baselines`, of a model that is being asked."""
    unknown = [name for name in baselines if name not in KINDS]
    if unknown or isinstance(baselines, str):
        raise InputError(
            f"Got baselines {baselines!r}; expected a list of some of {', '.join(map(repr, KINDS))}."
        )
    table = checked_attributions(attributions)
    added = [
        _rows(model, texts[each.text_id], each, name, seed).assign(kind=KINDS[name] + suffix)
        for each, suffix in _first_explanations(table, texts)
        for name in baselines
    ]
    # As objects, so that a column which only some tables have, or have empty, decides no type.
    whole = pd.concat([frame.astype(object) for frame in (table, *added)], ignore_index=True)
    return checked_attributions(whole)


def _first_explanations(
    table: pd.DataFrame, texts: Mapping[str, Text]
) -> list[tuple[Explanation, str]]:
    """The first explanation of each text, target and cut into units; of a second cut with whose it is."""
    first: dict[object, Explanation] = {}
    for each in explanations(table):
        if not each.failure and each.text_id in texts:
            first.setdefault((each.text_id, each.target, each.spans, each.tokens), each)
    seen: set[tuple[str, str]] = set()
    found = []
    for each in first.values():
        again = (each.text_id, each.target) in seen
        found.append((each, f" of {each.surrogate}'s units" if again else ""))
        seen.add((each.text_id, each.target))
    return found


def _rows(model: Asking, text: Text, each: Explanation, name: str, seed: int) -> pd.DataFrame:
    own = {
        "text_id": each.text_id,
        "target": each.target,
        "surrogate": name,
        "space": each.space,
        "status": "ok",
    }
    try:
        units = model.units(each, text)
        if name == "leave-one-out":
            scores, own["space"] = _leave_one_out(model, units, each)
        elif name == "random":
            scores = text_generator(seed, text, name).permutation(each.scores)
        else:
            scores = np.zeros(units.n_units)
    except PisteError as error:
        return pd.DataFrame([own | {"status": f"error: {error}"}])
    columns = {
        "unit": np.arange(units.n_units),
        "segment": units.segments,
        "token": pd.array(units.tokens, dtype=object),
        "start": units.starts,
        "end": units.ends,
        "score": scores,
    }
    status = np.where(units.seen, own["status"], UNSEEN)
    return pd.DataFrame(own | columns | {"status": status})


def _leave_one_out(model: Asking, units: Units, each: Explanation) -> tuple[FloatArray, str]:
    """What the model loses with each unit, and in which space; 0 beyond the model's window."""
    n_seen = int(units.seen.sum())
    masks = np.concatenate([np.ones((1, n_seen), dtype=np.bool_), ~np.eye(n_seen, dtype=np.bool_)])
    answers = model.answers(model.queries(units, masks), each.text_id)
    column = choose_targets(answers.values[0], answers.labels, each.target or None)[0]
    in_space = to_space(answers.values, answers.kind, each.space or "logit", EPSILON)
    scores = np.zeros(units.n_units)
    scores[units.seen] = in_space.scores[0, column] - in_space.scores[1:, column]
    return scores, in_space.space
