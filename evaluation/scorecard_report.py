"""What a terminal shows of a scorecard and of oracles."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from piste.evaluation.scorecard import HEADLINES, Scorecard

MOST_LISTED = 4


def scorecard_report(card: Scorecard) -> RenderableType:
    """Medians of each method by metric, an arrow for the better direction; what is undefined below.

    A column for each lexicon. Where fewer texts than there are have a value the heading says how many: n, or
    from the least to the most of any method.
    """
    table = Table()
    table.add_column("method")
    n_texts = card.table["text"].nunique()
    columns = list(_columns(card))
    for heading, rows in columns:
        table.add_column("\n".join([*heading, *_counted(rows, n_texts)]), justify="right")
    methods = list(dict.fromkeys(key for _, rows in columns for key in rows.index))
    for method in methods:
        cells = [_cell(rows.loc[method]) if method in rows.index else "" for _, rows in columns]
        table.add_row(" ".join(map(str, method)), *cells)
    return Group(table, Text("\n".join(_remarks(card, n_texts)), style="dim"))


def oracle_report(table: pd.DataFrame) -> RenderableType:
    """Each oracle and surrogate: its largest error over texts by kind, and whether it passes what it must.

    Texts on which it must pass and others have a row each: error and R² are those of the texts of the row.
    """
    shown = Table()
    for heading in ("oracle", "surrogate", "kind", "texts", "error", "R²", "must pass", "passed"):
        shown.add_column(heading, justify="right" if heading in ("texts", "error", "R²") else "left")
    for (*names, must), rows in table.groupby(["oracle", "surrogate", "kind", "must_pass"], sort=False):
        numbers = [str(len(rows)), f"{rows['error'].max():.2g}", f"{rows['r2'].min():.3f}"]
        shown.add_row(*map(str, names), *numbers, *(_passed(rows) if must else ("", "")))
    return shown


def _passed(rows: pd.DataFrame) -> tuple[str, Text]:
    passed = bool(rows["passed"].all())
    return "yes", Text("yes" if passed else "NO", style="green" if passed else "red")


def _columns(card: Scorecard) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """The lines of each column's heading, and its medians by surrogate and kind."""
    medians = card.summary()
    for metric in card.metrics:
        headline = HEADLINES[metric]
        rows = medians[(medians["metric"] == metric) & (medians["setting"] == headline.setting)]
        rows = rows[rows["space"] == rows["space"].iloc[0]] if len(rows) else rows
        for lexicon, own in rows.groupby("lexicon", sort=False):
            name = f"{metric.replace('_', ' ')} {'↑' if headline.higher_is_better else '↓'}"
            about = str(lexicon) or str(own["space"].iloc[0])
            yield [name, about], own.set_index(["surrogate", "kind"])


def _counted(rows: pd.DataFrame, n_texts: int) -> list[str]:
    """How many texts the medians of a column are of, where that is not all."""
    least, most = int(rows["n_texts"].min()), int(rows["n_texts"].max())
    if least == n_texts:
        return []
    return [f"n = {least}" if least == most else f"n = {least}–{most}"]


def _cell(row: pd.Series) -> str:
    if np.isnan(row["median"]):
        return "–"
    interval = "" if np.isnan(row["low"]) else f"\n[{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['median']:.2f}{interval}"


def _remarks(card: Scorecard, n_texts: int) -> Iterator[str]:
    if n_texts == 1:
        yield "one text: no medians, no intervals"
    else:
        yield (
            f"medians over {n_texts} texts, or the n that have a value; {card.confidence:.0%} bootstrap "
            "intervals"
        )
    undefined = card.table["value"].isna()
    if undefined.any():
        reasons = Counter(card.table.loc[undefined, "status"])
        yield f"{undefined.sum()} of {len(card.table)} values are undefined: {_listed(reasons)}"
    flagged = card.table.loc[~undefined & (card.table["status"] != "ok"), "status"]
    if len(flagged):
        flags = Counter(flag for status in flagged for flag in str(status).split("; "))
        yield f"{len(flagged)} of {(~undefined).sum()} values are flagged: {_listed(flags)}"


def _listed(counts: Counter[str]) -> str:
    """The most frequent, and how often."""
    shown = [f"{count} × {name}" for name, count in counts.most_common(MOST_LISTED)]
    return "; ".join([*shown, *(["…"] if len(counts) > MOST_LISTED else [])])
