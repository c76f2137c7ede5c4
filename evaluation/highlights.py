"""A text cut into marked pieces: hue and strength where a sign is settled, a pattern where it is not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from piste.evaluation.attributions import LOW_FIDELITY, UNSEEN
from piste.evaluation.charts import has_intervals, settled
from piste.evaluation.wording import interval, number
from piste.sampling.records import Units

LEVELS = 9
"""Strengths of a highlight."""
KINDS = {
    "coefficient": "effect of keeping the unit, near the full text.",
    "shapley": "the unit's fair share of the score's distance from that of nothing.",
    "value": "the score that the unit pulls the text towards.",
    "importance": "log weight of the unit in the pooling; the mean is 0.",
    "main": "the unit's effect in the absence of all others.",
    "total": "the unit's effect with half of each of its interactions.",
    "linear": "value times weight: a crude single number.",
    "removal": "predicted fall of the score when this unit is removed.",
}
WITHOUT_INTERVALS = "No intervals are known here, so the colours show scores that may not be settled."
_UNSIGNED = ("importance",)


@dataclass(frozen=True)
class Piece:
    """A stretch of the text; `mark` holds the classes of a unit and is None between units."""

    text: str
    mark: str | None = None
    title: str = ""


@dataclass(frozen=True)
class Layer:
    """The text, highlighted by one kind of attribution; a pair has two parts."""

    kind: str
    about: str
    parts: tuple[tuple[Piece, ...], ...]


def highlighted(units: Units, rows: pd.DataFrame, kind: str, level: str) -> Layer:
    """The text with every unit marked by its row; what lies between units stays as it is.

    Parameters
    ----------
    units
        How the text was cut.
    rows
        Attributions of one target, surrogate and kind: a row per unit, in their order.
    kind
        Which.
    level
        Of the intervals, in words.
    """
    marks = _marks(rows, kind)
    titles = [_title(row, level) for row in records(rows)]
    parts = []
    for segment, part in enumerate(units.parts):
        pieces: list[Piece] = []
        done = 0
        for i in np.flatnonzero(units.segments == segment):
            start, end = int(units.starts[i]), int(units.ends[i])
            if start > done:
                pieces.append(Piece(part[done:start]))
            pieces.append(Piece(part[start:end], marks[i], titles[i]))
            done = end
        if done < len(part):
            pieces.append(Piece(part[done:]))
        parts.append(tuple(pieces))
    about = [KINDS.get(kind, ""), "" if has_intervals(rows) else WITHOUT_INTERVALS]
    return Layer(kind, " ".join(filter(None, about)), tuple(parts))


def _marks(rows: pd.DataFrame, kind: str) -> list[str]:
    """Classes of each unit: hue and strength where the sign is settled, a pattern where it is not.

    The strongest highlight belongs to the largest settled magnitude, so that a number of which nothing
    is known does not pale the others.
    """
    score = rows["score"].to_numpy(float)
    known = settled(rows)
    doubts = [_doubt(status) for status in rows["status"]]
    trusted = known & np.array([not doubt for doubt in doubts], dtype=bool)
    largest = abs(score[trusted]).max(initial=0.0)
    return [
        doubt or _mark(own, largest, kind, certain)
        for own, doubt, certain in zip(score, doubts, known, strict=True)
    ]


def _mark(score: float, largest: float, kind: str, certain: bool) -> str:
    """``q`` for a sign that is not settled, else ``r``aises, ``l``owers or ``i``mportant and a strength."""
    if score == 0 or (kind in _UNSIGNED and certain and score < 0):
        return ""
    if not certain:
        return "q"
    strength = min(max(round(LEVELS * abs(score) / largest), 1), LEVELS)
    return f"{'i' if kind in _UNSIGNED else 'r' if score > 0 else 'l'} s{strength}"


def _doubt(status: str) -> str:
    """``x`` beyond the model's window, ``d`` not determined; low fidelity is the badge's matter."""
    if status == UNSEEN:
        return "x"
    return "d" if without_fidelity(status) != "ok" else ""


def without_fidelity(status: str) -> str:
    """A unit's own status: that of its fit stands on the badge."""
    return status.removesuffix(LOW_FIDELITY).removesuffix("; ") or "ok"


def _title(row: Mapping[str, Any], level: str) -> str:
    """What a unit says when pointed at, a line each."""
    lines = [
        number(row["score"]),
        f"{level}: {interval(row['ci_low'], row['ci_high'])}",
        f"std. error {number(row['std_error'], signed=False)}",
    ]
    return "\n".join([*lines, *status_words(row["status"])])


def status_words(status: str) -> list[str]:
    """What a status says in a word or two; none for ``ok``."""
    return [] if status == "ok" else ["; ".join(part.split(":")[0] for part in status.split("; "))]


def advice(statuses: pd.Series) -> tuple[str, ...]:
    """What the statuses say in full, each once: repeated at every unit it would fill the page."""
    parts = (part for status in statuses for part in status.split("; "))
    return tuple(dict.fromkeys(part for part in parts if ":" in part))


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries with its columns' names."""
    return [{str(key): value for key, value in row.items()} for row in rows.to_dict(orient="records")]
