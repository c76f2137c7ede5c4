"""How much explanations change with the seed, and when a unit that does not matter is removed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteError
from piste._typing import FloatArray
from piste.evaluation.asking import explained_units, text_generator
from piste.evaluation.explanations import Explanation, Span, explanations, texts_by_id
from piste.evaluation.perturbation import max_sensitivity
from piste.evaluation.rationales import Rationale, unit_flags
from piste.sampling.records import Text, Units
from piste.surrogates.records import check_whole

Explainer = Callable[[list[Text], int], pd.DataFrame]
"""From texts and a seed to attributions whose ``text_id`` is the position of the text."""

COLUMNS = ("text", "target", "surrogate", "kind", "metric", "value", "n_units", "n_others", "status")
SEED = "seed sensitivity"
REMOVAL = "removal sensitivity"

Key = tuple[str, str, str]


def stability(
    explain: Explainer,
    texts: Text | Sequence[Text] | Mapping[str, Text],
    *,
    n_seeds: int = 5,
    n_removals: int = 5,
    rationales: Sequence[Rationale] = (),
    seed: int = 0,
    text_ids: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Explain again, and give the largest relative change ``max_j |s_j - s| / |s|`` of each explanation.

    A text cannot be moved by a little, as Yeh et al. move an image. Two things are perturbed instead:

    - ``seed sensitivity``: nothing but the seed, ``seed + 1 .. seed + n_seeds``. What is left of the change
      is the explainer's own sampling noise.
    - ``removal sensitivity``: one unit is removed from the text, drawn at random from those outside the
      human rationale where one is given, and from all units elsewhere. The change is that of the scores of
      the units that are left. The seed is the same, but new texts have new masks, so the sampling noise is
      in it too: compare it with the above.

    Parameters
    ----------
    explain
        Called with a list of texts and a seed, once per seed and once with all shortened texts, such as
        ``lambda texts, seed: piste.explain(model, texts, target="positive", seed=seed).attributions``.
        With a fixed target: where a removal changes the predicted class there is nothing to compare.
    texts, text_ids
        By position, by ``text_ids``, or as a mapping from text_id.
    n_seeds, n_removals
        How many other explanations; a text with fewer removable units has fewer removals. 0 leaves the
        metric out.
    seed
        Of the explanation that the others are compared with, and of the choice of units.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`. NaN, with its reason in ``status``, where an explanation is all zero (which has
        no relative change), not finite, or has nothing to be compared with; ``n_others`` were compared.

    Raises
    ------
    InputError
        If a number is below 0, ``explain`` is no function or gives no table of attributions, or a rationale
        does not fit its text.

    References
    ----------
    Yeh et al. 2019, arXiv:1901.09392.

    Examples
    --------
    >>> def lengths(texts, seed):
    ...     rows = [(str(i), word, len(word)) for i, text in enumerate(texts) for word in text.split()]
    ...     return pd.DataFrame(rows, columns=["text_id", "token", "score"])
    >>> stability(lengths, "a good film")[["metric", "value", "n_others"]].values.tolist()
    [['seed sensitivity', 0.0, 5], ['removal sensitivity', 0.0, 3]]
    """
    if not callable(explain):
        raise InputError(
            f"Got explain of type {type(explain).__name__}; expected a function of texts and a seed: lambda "
            "texts, seed: piste.explain(model, texts, seed=seed).attributions."
        )
    for number, value in {"n_seeds": n_seeds, "n_removals": n_removals, "seed": seed}.items():
        check_whole(number, value)
    named = texts_by_id(texts, text_ids)
    listed = list(named.values())
    first = _by_position(explain(listed, seed), listed)
    again = [_by_position(explain(listed, seed + j + 1), listed) for j in range(n_seeds)]
    human = {each.text_id: each for each in rationales}
    shortened = [
        _shortened(text, found.values(), human.get(name), n_removals, seed)
        for (name, text), found in zip(named.items(), first, strict=True)
    ]
    flat = [text for removals in shortened for text, _ in removals]
    after = iter(_by_position(explain(flat, seed), flat) if flat else [])
    rows = []
    for position, (name, removals) in enumerate(zip(named, shortened, strict=True)):
        removed = [(next(after), span) for _, span in removals]
        for key, each in first[position].items():
            seeds = [(found[position].get(key), None) for found in again]
            others = [(found.get(key), span) for found, span in removed]
            about = each.key | {"text": name, "n_units": len(each.scores)}
            rows += [about | _change(each, seeds, SEED)] if n_seeds else []
            rows += [about | _change(each, others, REMOVAL)] if n_removals else []
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _by_position(table: pd.DataFrame, texts: Sequence[Text]) -> list[dict[Key, Explanation]]:
    """The explanations of each text, by target, surrogate and kind."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            f"Got a {type(table).__name__} from explain; expected its table: return study.attributions."
        )
    found: list[dict[Key, Explanation]] = [{} for _ in texts]
    names = {str(position): position for position in range(len(texts))}
    for each in explanations(table, names):
        if each.text_id not in names:
            raise InputError(
                f"Got attributions of text {each.text_id!r}; expected the positions 0 to {len(texts) - 1} "
                "as text_id. Pass no text_ids to the explainer."
            )
        position = names[each.text_id]
        located = _located(each, texts[position])
        found[position][each.target, each.surrogate, each.kind] = located
    return found


def _located(each: Explanation, text: Text) -> Explanation:
    """The explanation with the spans of its units, or why they are not in the text."""
    if each.failure:
        return each
    try:
        units = explained_units(each, text)
    except PisteError as error:
        return replace(each, failure=str(error))
    columns = (units.segments.tolist(), units.starts.tolist(), units.ends.tolist())
    return replace(each, spans=tuple(zip(*columns, strict=True)))


def _shortened(
    text: Text,
    found: Iterable[Explanation],
    rationale: Rationale | None,
    n_removals: int,
    seed: int,
) -> list[tuple[Text, Span]]:
    """The text without each of some units, and where that was; none of a text that has one unit."""
    for each in found:
        if each.failure or len(each.scores) < 2:
            continue
        try:
            units = explained_units(each, text)
            free = (
                ~unit_flags(rationale, units) if rationale else np.ones(units.n_units, dtype=np.bool_)
            )
        except PisteError:  # the explanation's own row will say that it fits no text
            continue
        rng = text_generator(seed, text, "removals")
        chosen = rng.permutation(np.flatnonzero(free))[:n_removals]
        return [_without(units, int(unit)) for unit in chosen]
    return []


def _without(units: Units, unit: int) -> tuple[Text, Span]:
    segment, start, end = (int(column[unit]) for column in (units.segments, units.starts, units.ends))
    parts = list(units.parts)
    parts[segment] = parts[segment][:start] + parts[segment][end:]
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0], (segment, start, end)


def _change(
    each: Explanation, others: Sequence[tuple[Explanation | None, Span | None]], metric: str
) -> dict[str, object]:
    """The largest change over the other explanations that there are."""
    pairs = [
        pair
        for other, removed in others
        if other is not None and not other.undefined
        if (pair := _common(each, other, removed)) is not None
    ]
    value, status = np.nan, each.undefined
    if not status and not pairs:
        status = "undefined: no other explanation with common units"
    if not status:
        value = float(np.max([max_sensitivity(scores, other[None]) for scores, other in pairs]))
        missing = f"{len(others) - len(pairs)} of {len(others)} not comparable"
        status = "ok" if len(pairs) == len(others) else missing
        if np.isnan(value):
            status = "undefined: the explanation is all zero"
    return {"metric": metric, "value": value, "n_others": len(pairs), "status": status}


def _common(
    each: Explanation, other: Explanation, removed: Span | None
) -> tuple[FloatArray, FloatArray] | None:
    """Both scores of the units that both have; None where there is none."""
    positions = {span: index for index, span in enumerate(other.spans or ())}
    pairs = [
        (index, positions[moved])
        for index, span in enumerate(each.spans or ())
        if span != removed and (moved := _moved(span, removed)) in positions
    ]
    if not pairs:
        return None
    own, theirs = np.array(pairs).T
    return each.scores[own], other.scores[theirs]


def _moved(span: Span, removed: Span | None) -> Span:
    """Where a unit is after the removal of another."""
    segment, start, end = span
    if removed is None or segment != removed[0] or start < removed[2]:
        return span
    length = removed[2] - removed[1]
    return segment, start - length, end - length
