"""What a terminal shows of a study."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from piste.evaluation.study import Study

MOST_TEXTS = 3  # beyond these a table for each text would scroll away


def terminal_report(study: Study) -> RenderableType:
    """Coloured tables of the first texts, and fidelity of every surrogate below.

    Green raises the explained score, red lowers it, and blue marks importances above the mean; the
    strongest colour of a column belongs to its largest magnitude.
    """
    shown: list[RenderableType] = []
    groups = study.attributions[study.attributions["surrogate"] != ""].groupby(
        ["text_id", "target"], sort=False
    )
    for (text_id, target), rows in groups:
        if len(shown) == MOST_TEXTS:
            shown.append(Text(f"… and {groups.ngroups - MOST_TEXTS} more", style="dim"))
            break
        shown.append(_text_table(f"text {text_id} · {target} · {rows['space'].iloc[0]}", rows))
    return Group(*shown, _fidelity_lines(study))


def _text_table(title: str, rows: pd.DataFrame) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("unit")
    wide = rows.pivot(index="unit", columns=["surrogate", "kind"], values="score")
    for surrogate, kind in wide.columns:
        table.add_column(f"{surrogate}\n{kind}", justify="right")
    largest = wide.abs().max()
    # Pivoting repeats tokens for each column; the first column's rows hold each unit once.
    units = rows.drop_duplicates("unit").set_index("unit")
    for unit, scores in wide.iterrows():
        token, unseen = units.loc[unit, "token"], units.loc[unit, "status"] == "unseen"
        table.add_row(
            Text(_one_line(str(token)), style="dim" if unseen else ""),
            *(_cell(score, largest[column], column[1]) for column, score in scores.items()),
        )
    return table


def _cell(score: float, largest: float, kind: str) -> Text:
    strength = abs(score) / largest if largest > 0 else 0.0
    hue = (90, 150, 255) if kind == "importance" else (60, 200, 90) if score > 0 else (240, 90, 90)
    strong = kind != "importance" or score > 0
    colour = [round(150 + (part - 150) * strength) for part in hue] if strong else [150, 150, 150]
    return Text(f"{score:+.3f}", style=Style(color="rgb({},{},{})".format(*colour)))


def _one_line(token: str) -> str:
    """White space and control characters as visible escapes, so that a cell stays one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


def _fidelity_lines(study: Study) -> Text:
    lines = Text()
    for line in _fidelity_of_surrogates(study.fidelity):
        lines.append(line + "\n", style="dim")
    n_queries = study.meta["n_queries"]
    lines.append(f"{n_queries} model queries, at most {study.options.budget} per text", style="dim")
    return lines


def _fidelity_of_surrogates(fidelity: pd.DataFrame) -> Iterator[str]:
    for name, rows in fidelity.groupby("surrogate", sort=False):
        if len(rows) == 1:
            row = rows.iloc[0]
            sampled = row["r2_low"] < row["r2_high"]
            interval = f" [{row['r2_low']:.2f}, {row['r2_high']:.2f}]" if sampled else ""
            value = (
                "undefined: the model does not vary"
                if np.isnan(row["r2"])
                else f"{row['r2']:.2f}{interval}"
            )
            yield f"{name}: R² {value} on {row['n_masks']} masks ({row['mask_law']})"
        else:
            low = int((rows["status"] == "low").sum())
            yield f"{name}: median R² {rows['r2'].median():.2f} over {len(rows)} fits, {low} of them low"
