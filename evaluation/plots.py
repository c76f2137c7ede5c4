"""Pictures by matplotlib; each function returns a figure of its own and touches no global state."""

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteWarning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from piste.evaluation.compare import Comparison

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""Told apart by readers with any colour vision (Okabe, Ito 2008)."""
_MARKERS = "osD^vPX"
ENDINGS = (".png", ".svg")
_LEFT_OUT = ("linear",)  # a crude number, which the tables hold


def critical_difference(comparison: "Comparison") -> "Figure":
    """Mean ranks on a line, best on the left; a bar joins methods that no corrected test tells apart.

    Parameters
    ----------
    comparison
        Of at least two methods, see `piste.evaluation.compare.compare`.

    References
    ----------
    Demšar 2006 (the picture); the tests are pairwise with Holm's correction in the place of Nemenyi's.
    """
    ranks = comparison.ranking.set_index("method")["mean_rank"].sort_values(kind="stable")
    names = list(ranks.index)
    alike = _cliques(comparison.pairs, names)
    figure, axes = _figure(height=1.2 + 0.28 * len(names) + 0.12 * len(alike))
    axes.set_xlim(1 - 0.05, len(names) + 0.05)
    bottom = -(len(names) + 1) / 2 - 0.4 * len(alike)
    axes.set_ylim(bottom, 0.6)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(1, len(names) + 1))
    axes.set_xlabel(f"mean rank by {comparison.value}, over {comparison.n_units} of {comparison.unit}")
    axes.yaxis.set_visible(False)
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    for line, group in enumerate(alike, 1):
        ends = [ranks[group[0]] - 0.02, ranks[group[-1]] + 0.02]
        axes.plot(ends, [0.6 - 0.4 * line] * 2, color="black", linewidth=3, solid_capstyle="butt")
    for place, name in enumerate(names):
        left = place < (len(names) + 1) // 2
        depth = place if left else len(names) - 1 - place
        height = 0.2 - 0.4 * len(alike) - 0.9 * (depth + 1)
        edge = 1 if left else len(names)
        axes.plot(
            [ranks[name], ranks[name], edge], [0.6, height, height], color="#888888", linewidth=0.8
        )
        label = f" {name} ({ranks[name]:.2f}) "
        axes.text(edge, height + 0.05, label, ha="left" if left else "right", va="bottom")
    return figure


def _cliques(pairs: pd.DataFrame, names: Sequence[str]) -> list[list[str]]:
    """Largest runs of neighbours in rank of which no pair differs."""
    differing = {
        frozenset(pair)
        for pair in pairs.loc[pairs["verdict"] == "differs", ["better", "worse"]].to_numpy().tolist()
    }
    found: list[list[str]] = []
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not any(
            frozenset((names[end], other)) in differing for other in names[start:end]
        ):
            end += 1
        run = list(names[start:end])
        if len(run) > 1 and not any(set(run) <= set(other) for other in found):
            found.append(run)
    return found


def curves(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str = "surrogate",
    log: bool = False,
    labels: tuple[str, str] | None = None,
) -> "Figure":
    """One line per method with a band, such as error against queries or score against removed share.

    Parameters
    ----------
    table
        One row per method and point; ``low`` and ``high`` columns make the band where there are any.
    x, y, by
        Its columns for the axes and the lines.
    log
        Whether both axes are logarithmic.
    labels
        Of the axes; the columns' names by default.

    Raises
    ------
    InputError
        If the table has no row.
    """
    if not len(table):
        raise InputError("Got an empty table; expected at least one point to draw.")
    figure, axes = _figure()
    for number, (name, rows) in enumerate(table.groupby(by, sort=False)):
        rows = rows.sort_values(x)
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        axes.plot(rows[x], rows[y], color=colour, marker=marker, markersize=4, label=str(name))
        if {"low", "high"} <= set(rows):
            axes.fill_between(rows[x], rows["low"], rows["high"], color=colour, alpha=0.15, linewidth=0)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(labels[0] if labels else x)
    axes.set_ylabel(labels[1] if labels else y)
    axes.legend(frameon=False)
    return figure


def scatter(rows: pd.DataFrame) -> "Figure":
    """Value against importance of every unit of one text, repeated tokens included.

    Parameters
    ----------
    rows
        The attribution table of one text, target and surrogate, kinds ``value`` and ``importance``.

    Raises
    ------
    InputError
        If one of these kinds is missing.
    """
    wide = rows.pivot_table(index=["unit", "token"], columns="kind", values="score").reset_index()
    if not {"value", "importance"} <= set(wide):
        raise InputError(
            f"Got the kinds {sorted(set(rows['kind']))}; expected 'value' and 'importance', as SLALOM has."
        )
    figure, axes = _figure()
    axes.axhline(0, color="#bbbbbb", linewidth=0.8)
    axes.axvline(0, color="#bbbbbb", linewidth=0.8)
    axes.scatter(wide["importance"], wide["value"], color=COLOURS[0], s=16)
    for unit in wide.to_dict(orient="records"):
        at = (unit["importance"], unit["value"])
        axes.annotate(_literal(str(unit["token"])), at, (3, 3), textcoords="offset points", fontsize=8)
    axes.set_xlabel("importance (log scale, mean 0)")
    axes.set_ylabel("value")
    return figure


def bars(rows: pd.DataFrame) -> "Figure":
    """Attributions of one text as bars with intervals: a panel per surrogate and kind.

    Green raises the score, orange lowers it, blue is importance, which has no direction; pale bars are
    not determined by the answers, as their status says.

    Parameters
    ----------
    rows
        The attribution table of one text and target, see `piste.evaluation.attributions`.

    Raises
    ------
    InputError
        If there is no row with a score.
    """
    rows = rows[rows["score"].notna()]
    panels = list(rows.groupby(["surrogate", "kind"], sort=False))
    if not panels:
        raise InputError("Got no attribution with a score; expected at least one to draw.")
    tokens = [_literal(str(token)) for token in rows.drop_duplicates("unit")["token"]]
    height = 1.2 + 0.22 * len(tokens)
    figure, _ = _figure(width=1.5 + 2.2 * len(panels), height=height)
    figure.clear()
    all_axes = np.ravel(figure.subplots(1, len(panels), sharey=True, squeeze=False))
    for axes, ((surrogate, kind), own) in zip(all_axes, panels, strict=True):
        _bar_panel(axes, own, str(kind))
        axes.set_title(f"{surrogate} {kind}", fontsize=9)
        axes.set_yticks(range(len(own)), tokens)
    all_axes[0].invert_yaxis()
    return figure


def bars_file(rows: pd.DataFrame, ending: str) -> bytes:
    """`bars` of the first text and target that have any, as the bytes of a file; equal rows, equal bytes.

    Parameters
    ----------
    rows
        The attribution table.
    ending
        ``.png``, or ``.svg`` whose words stay text.

    Raises
    ------
    InputError
        If the ending is another, or there is no row with a score.
    """
    check_ending(ending)
    rows = rows[rows["score"].notna() & ~rows["kind"].isin(_LEFT_OUT)]
    for _, first in rows.groupby(["text_id", "target"], sort=False):
        return _file(bars(first), ending.lower())
    raise InputError("Got no attribution with a score; expected at least one to draw.")


def check_ending(ending: str) -> None:
    """InputError unless a picture can be written under this ending."""
    if ending.lower() not in ENDINGS:
        raise InputError(
            f"Got a picture's path that ends in {ending!r}; expected {' or '.join(ENDINGS)}. Rename it."
        )


def _file(figure: "Figure", ending: str) -> bytes:
    from matplotlib import rc_context

    content = BytesIO()
    # Neither a date nor random ids: equal figures, equal bytes.
    with rc_context({"svg.hashsalt": "piste", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("error", r"Glyph \d+", UserWarning)
        try:
            _write(figure, content, ending)
        except UserWarning:
            warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)
            content = BytesIO()
            _write(figure, content, ending)
            lacking = ending == ".png"  # who opens an .svg has fonts of their own
        else:
            lacking = False
    if lacking:
        warnings.warn(
            "The picture's fonts lack some of the text's characters, which show as boxes. Write .svg or "
            "the HTML page instead.",
            PisteWarning,
            stacklevel=2,
        )
    return content.getvalue()


def _write(figure: "Figure", content: BytesIO, ending: str) -> None:
    about = {"Date": None} if ending == ".svg" else {"Software": None}
    figure.savefig(content, format=ending[1:], dpi=160, metadata=about)


def _bar_panel(axes: "Axes", own: pd.DataFrame, kind: str) -> None:
    score = own["score"].to_numpy(dtype=float)
    ends = own[["ci_low", "ci_high"]].to_numpy(dtype=float)
    known = np.isfinite(ends).all(axis=1)
    errors = np.where(known[:, None], np.abs(ends - score[:, None]), 0.0).T
    colours = [
        (COLOURS[0] if kind == "importance" else COLOURS[2] if number > 0 else COLOURS[1], strength)
        for number, strength in zip(score, np.where(known, 1.0, 0.35), strict=True)
    ]
    places = np.arange(len(own))
    axes.barh(places, score, color=colours, xerr=errors, ecolor="#555555", error_kw={"linewidth": 0.8})
    axes.axvline(0, color="#888888", linewidth=0.8)


def _figure(width: float = 6.4, height: float = 4.0) -> "tuple[Figure, Axes]":
    """A figure that no list of pyplot's keeps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _literal(token: str) -> str:
    """A token that matplotlib does not read as mathematics, on one line."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
    return shown.replace("$", r"\$")
