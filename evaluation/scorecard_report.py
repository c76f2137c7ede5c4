"""What a terminal shows of a scorecard and of oracles."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from piste.evaluation.scorecard import HEADLINES, Scorecard


def scorecard_report(card: Scorecard) -> RenderableType:
    """Medians of each method by metric, an arrow for the better direction; what is undefined below."""
    table = Table()
    table.add_column("method")
    medians = card.summary()
    columns = []
    for metric in card.metrics:
        rows = medians[
            (medians["metric"] == metric) & (medians["setting"] == HEADLINES[metric].setting)
        ]
        if not len(rows):
            continue
        rows = rows[rows["space"] == rows["space"].iloc[0]]
        arrow = "↑" if HEADLINES[metric].higher_is_better else "↓"
        table.add_column(
            f"{metric.replace('_', ' ')} {arrow}\n{rows['space'].iloc[0]}", justify="right"
        )
        columns.append(rows.set_index(["surrogate", "kind"]))
    methods = list(dict.fromkeys(key for rows in columns for key in rows.index))
    for method in methods:
        cells = [_cell(rows.loc[method]) if method in rows.index else "" for rows in columns]
        table.add_row(" ".join(map(str, method)), *cells)
    return Group(table, Text("\n".join(_remarks(card)), style="dim"))


def oracle_report(table: pd.DataFrame) -> RenderableType:
    """Each oracle and surrogate: its largest error over texts by kind, and whether it passes what it must."""
    shown = Table()
    for heading in ("oracle", "surrogate", "kind", "error", "R²", "must pass", "passed"):
        shown.add_column(heading, justify="right" if heading in ("error", "R²") else "left")
    keys = ["oracle", "surrogate", "kind"]
    for names, rows in table.groupby(keys, sort=False):
        must = bool(rows["must_pass"].any())
        passed = (
            bool(rows.loc[rows["must_pass"], "passed"].all()) if must else bool(rows["passed"].all())
        )
        word = "yes" if passed else "NO" if must else "no"
        colour = "green" if passed else "red" if must else "dim"
        numbers = [f"{rows['error'].max():.2g}", f"{rows['r2'].min():.3f}"]
        shown.add_row(*map(str, names), *numbers, "yes" if must else "", Text(word, style=colour))
    return shown


def _cell(row: pd.Series) -> str:
    if np.isnan(row["median"]):
        return "–"
    interval = "" if np.isnan(row["low"]) else f"\n[{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['median']:.2f}{interval}"


def _remarks(card: Scorecard) -> Iterator[str]:
    n_texts = card.table["text"].nunique()
    yield f"medians over {n_texts} texts, {card.confidence:.0%} bootstrap intervals"
    undefined = card.table[card.table["value"].isna()]
    if len(undefined):
        reasons = undefined["status"].value_counts()
        listed = "; ".join(f"{count} × {status}" for status, count in list(reasons.items())[:4])
        yield f"{len(undefined)} of {len(card.table)} values are undefined: {listed}"
