"""Coordinates of small inline pictures; the page's template draws them as SVG in the reader's colours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.wording import number

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 40
_MOST_LABELS = 14
_ACROSS, _LINE = 6.6, 12.0  # of a label's letters, in the picture's units
N_COLOURS = 6


@dataclass(frozen=True)
class Axis:
    """One axis: where its ticks lie in the picture, and what they say."""

    label: str
    ticks: tuple[tuple[float, str], ...]
    zero: float | None


@dataclass(frozen=True)
class Point:
    """A unit in the picture; `label` is empty where it would cover another's."""

    x: float
    y: float
    token: str
    label: str
    title: str
    settled: bool
    anchor: str


@dataclass(frozen=True)
class Line:
    """A method's curve and its band, as lists of SVG coordinates; `again` where the colour is another's too."""

    name: str
    colour: int
    again: bool
    points: str
    band: str


@dataclass(frozen=True)
class Chart:
    """What a picture holds: axes, and points or lines."""

    title: str
    across: Axis
    up: Axis
    points: tuple[Point, ...] = ()
    lines: tuple[Line, ...] = ()


def scatter_chart(rows: pd.DataFrame) -> Chart | None:
    """Value against importance of every unit, repeated tokens included; None where a kind is missing.

    A unit whose value the answers do not settle (its interval holds 0) must not stretch the frame: it is
    drawn hollow, at the frame's edge if it lies beyond.

    Parameters
    ----------
    rows
        Attributions of one text, target and surrogate.
    """
    value, importance = (rows[rows["kind"] == kind] for kind in ("value", "importance"))
    up, across = value["score"].to_numpy(float), importance["score"].to_numpy(float)
    if not len(up) or len(up) != len(across) or not np.isfinite([up, across]).all():
        return None
    known = settled(value)
    xs, x_axis = _scaled(across, across, LEFT, WIDTH - RIGHT, "importance (log weight, mean 0)")
    ys, y_axis = _scaled(up, up[known], HEIGHT - BOTTOM, TOP, "value")
    tokens = value["token"].tolist()
    order = np.argsort(-np.exp(across - across.max()) * np.where(known, abs(up), 0), kind="stable")
    labels = _labels(xs, ys, tokens, order)
    points = tuple(
        Point(
            x=_rounded(xs[i]),
            y=_rounded(ys[i]),
            token=token,
            label=labels[i][0] if i in labels else "",
            title=f"value {number(up[i])}, importance {number(across[i])}",
            settled=bool(known[i]),
            anchor=labels[i][1] if i in labels else "",
        )
        for i, token in enumerate(tokens)
    )
    return Chart("Value against importance", x_axis, y_axis, points)


def settled(rows: pd.DataFrame) -> np.ndarray:
    """Whether each score is finite and its interval on one side of 0, shape (n_rows,), bool.

    A surrogate that knows no intervals at all leaves only the score to go by.
    """
    score, low, high = (rows[column].to_numpy(float) for column in ("score", "ci_low", "ci_high"))
    known: np.ndarray = np.isfinite(score)
    if has_intervals(rows):
        known &= (low > 0) | (high < 0)
    return known


def has_intervals(rows: pd.DataFrame) -> bool:
    """Whether the interval of any unit is known and bounded."""
    return bool(np.isfinite(rows[["ci_low", "ci_high"]].to_numpy(float)).any())


def curve_chart(title: str, table: pd.DataFrame) -> Chart | None:
    """A line per surrogate with its band; None where there is no finite point.

    Parameters
    ----------
    table
        Columns ``x``, ``y``, ``surrogate`` and, where there is a band, ``low`` and ``high``.

    Raises
    ------
    InputError
        If a column is missing.
    """
    missing = {"x", "y", "surrogate"} - set(table)
    if missing:
        raise InputError(
            f"Got curves {title!r} without {', '.join(sorted(missing))}; expected the columns x, y, "
            "surrogate and, for a band, low and high. Rename them."
        )
    table = table[np.isfinite(table[["x", "y"]].to_numpy(float)).all(axis=1)]
    if not len(table):
        return None
    banded = {"low", "high"} <= set(table)
    ends = table[["low", "high"] if banded else ["y"]].to_numpy(float).ravel()
    table = table.sort_values(["x"], kind="stable")
    all_y = np.concatenate([table["y"].to_numpy(float), ends[np.isfinite(ends)]])
    x, across = _scaled(table["x"].to_numpy(float), None, LEFT, WIDTH - RIGHT, "")
    _, up = _scaled(all_y, None, HEIGHT - BOTTOM, TOP, "")
    places = {"x": x}
    for column in ("y", "low", "high") if banded else ("y",):
        places[column], _ = _scaled(table[column].to_numpy(float), all_y, HEIGHT - BOTTOM, TOP, "")
    drawn = pd.DataFrame(places).assign(surrogate=table["surrogate"].to_numpy())
    lines = tuple(
        Line(
            str(name),
            place % N_COLOURS,
            place >= N_COLOURS,
            _path(own, "y"),
            _band(own) if banded else "",
        )
        for place, (name, own) in enumerate(drawn.groupby("surrogate", sort=True))
    )
    return Chart(title, across, up, lines=lines)


def _path(rows: pd.DataFrame, column: str) -> str:
    places = zip(rows["x"], rows[column], strict=True)
    return " ".join(f"{_rounded(x)},{_rounded(y)}" for x, y in places)


def _band(rows: pd.DataFrame) -> str:
    rows = rows[np.isfinite(rows[["low", "high"]].to_numpy(float)).all(axis=1)]
    return f"{_path(rows, 'low')} {_path(rows[::-1], 'high')}" if len(rows) else ""


def _scaled(
    values: FloatArray, framed: FloatArray | None, start: float, end: float, label: str
) -> tuple[FloatArray, Axis]:
    """Places of values between two ends of the picture, and the axis; `framed` must fit in."""
    framed = values if framed is None or not len(framed) else framed
    low, high = float(framed.min()), float(framed.max())
    if label:  # 0 has a meaning on the axes of attributions
        low, high = min(low, 0.0), max(high, 0.0)
    if not high > low:
        low, high = low - 1, high + 1
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin

    def place(value: FloatArray) -> FloatArray:
        share = (np.clip(value, low, high) - low) / (high - low)
        return np.asarray(start + share * (end - start), dtype=np.float64)

    ticks = _ticks(low, high)
    named = tuple((_rounded(at), _tick(tick)) for at, tick in zip(place(ticks), ticks, strict=True))
    zero = _rounded(place(np.zeros(1))[0]) if low <= 0 <= high else None
    return place(values), Axis(label, named, zero)


def _ticks(low: float, high: float) -> FloatArray:
    """Round numbers, three to seven of them."""
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda each: abs(each * power - rough))
    return np.asarray(
        np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step, dtype=np.float64
    )


def _tick(value: float) -> str:
    return f"{value + 0.0:.6g}".replace("-", "−")  # no minus before zero


def _labels(
    xs: FloatArray, ys: FloatArray, tokens: Sequence[str], order: np.ndarray
) -> dict[int, tuple[str, str]]:
    """Words that fit left or right of their points without covering others', weightiest first."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in zip(xs, ys, strict=True)]
    labels: dict[int, tuple[str, str]] = {}
    for i in order[:_MOST_LABELS]:
        label = tokens[i] if len(tokens[i]) <= 18 else f"{tokens[i][:17]}…"
        width = _ACROSS * len(label)
        for anchor, left in (("start", xs[i] + 5), ("end", xs[i] - 5 - width)):
            box = (left, ys[i] - _LINE / 2, left + width, ys[i] + _LINE / 2)
            inside = left > LEFT and left + width < WIDTH - RIGHT
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                labels[int(i)] = (label, anchor)
                break
    return labels


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _rounded(value: float) -> float:
    return round(float(value), 1)
