"""What a terminal shows of a study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from piste._errors import InputError
from piste.evaluation.attributions import UNSEEN
from piste.evaluation.digest import Digest
from piste.evaluation.fidelity import LOW, UNDEFINED
from piste.evaluation.study import Study
from piste.sampling.masking import split_context
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Concurrent, estimate
from piste.surrogates.preparation import planned_queries
from piste.surrogates.records import Options

LEFT_OUT = ("linear",)  # a crude number that the file holds; without it the table fits 80 columns


def terminal_report(study: Study | Digest) -> RenderableType:
    """Coloured tables of the first texts, and fidelity of every surrogate below.

    Green raises the explained score, red lowers it, and blue marks importances above the mean; the
    strongest colour of a column belongs to its largest magnitude.
    """
    digest = study if isinstance(study, Digest) else Digest.of(study)
    shown: list[RenderableType] = []
    for table in digest.tables:
        text_id, target, space = table[["text_id", "target", "space"]].iloc[0]
        # Above the table, not as its title, which would be wrapped to the table's width.
        shown.append(Text(_one_line(f"text {text_id} · {target} · {space}"), style="italic"))
        shown.append(_text_table(table[~table["kind"].isin(LEFT_OUT)]))
    if digest.n_tables > len(digest.tables):
        shown.append(Text(f"… and {digest.n_tables - len(digest.tables)} more", style="dim"))
    return Group(*shown, _fidelity_lines(digest))


def _text_table(rows: pd.DataFrame) -> Table:
    """One text and target: a row per unit, a column per surrogate and kind."""
    table = Table()
    units = rows.drop_duplicates("unit")
    words = zip(units["token"], units["status"], strict=True)
    table.add_column("unit")
    columns = [
        [Text(_one_line(token), style="dim" if status == UNSEEN else "") for token, status in words]
    ]
    for surrogate, kind in dict.fromkeys(zip(rows["surrogate"], rows["kind"], strict=True)):
        table.add_column(Text(f"{surrogate}\n{kind}"), justify="right")
        own = rows[(rows["surrogate"] == surrogate) & (rows["kind"] == kind)]
        largest = own["score"].abs().max()
        shown = zip(own["score"], own["status"], strict=True)
        columns.append([_cell(score, largest, kind, status) for score, status in shown])
    for cells in zip(*columns, strict=True):
        table.add_row(*cells)
    return table


def _cell(score: float, largest: float, kind: str, status: str) -> Text:
    """A coloured number; one that its status says to distrust is grey, with a question mark."""
    if status not in ("ok", UNSEEN):
        return Text(f"{score:+.3f}?", style="dim")
    strength = abs(score) / largest if largest > 0 else 0.0
    hue = (90, 150, 255) if kind == "importance" else (60, 200, 90) if score > 0 else (240, 90, 90)
    strong = kind != "importance" or score > 0
    colour = [round(150 + (part - 150) * strength) for part in hue] if strong else [150, 150, 150]
    return Text(f"{score:+.3f}", style=Style(color="rgb({},{},{})".format(*colour)))


def _one_line(token: str) -> str:
    """White space and control characters as visible escapes, so that a cell stays one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


def dry_run_report(model: BlackBox, texts: Sequence[str], options: Options) -> Text:
    """What explaining would take at most: queries and, of a remote model, requests, tokens and cost."""
    asked: list[str] = []
    planned: list[int] = []
    refusals: list[str] = []
    for text in texts:
        try:
            planned.append(planned_queries(model, text, options))
            asked.append(text)
        except InputError as error:
            refusals.append(str(error))
    of = "1 text" if len(asked) == 1 else f"{len(asked)} texts"
    lines = Text(f"{sum(planned)} model queries at most, for {of}; nothing was sent")
    if refusals:
        lines.append(f"\n{len(refusals)} of {len(texts)} texts would be refused; first: {refusals[0]}")
    if isinstance(model, Concurrent):
        before, after = split_context(options.context, "")
        whole = [f"{before}{text}{after}" for text in asked]
        found = estimate(model, whole, planned)
        lines.append(
            f"\n{found.n_requests} requests, about {found.input_tokens:.0f} tokens in (a fourth of the "
            f"characters) and {found.output_tokens:.0f} out"
        )
        cost = "unknown without --price" if found.cost is None else f"{found.cost:.4g}"
        lines.append(f"\ncost at most about {cost}; at least {found.seconds:.0f} s at the given rates")
    return lines


def _fidelity_lines(digest: Digest) -> Text:
    lines = Text()
    doubtful = digest.statuses - {"ok", UNSEEN}
    if doubtful:
        lines.append(f"? {'; '.join(sorted(doubtful))}\n", style="dim")
    for line in _fidelity_of_surrogates(digest.fidelity):
        lines.append(line + "\n", style="dim")
    lines.append(_spent(digest.meta, digest.options.cap), style="dim")
    return lines


def _fidelity_of_surrogates(fidelity: pd.DataFrame) -> Iterator[str]:
    for name in fidelity["surrogate"].unique():
        rows = fidelity[fidelity["surrogate"] == name]
        if len(rows) == 1:
            yield f"{name}: {_fidelity_of_one(rows.iloc[0])}"
        else:
            low, undefined = ((rows["status"] == status).sum() for status in (LOW, UNDEFINED))
            most = _at_most(rows["ceiling"].median())
            yield (
                f"{name}: median R² {rows['r2'].median():.2f}{most} over {len(rows)} fits, {low} of "
                f"them low, {undefined} undefined"
            )


def _fidelity_of_one(row: pd.Series) -> str:
    where = f"on {row['n_masks']} masks ({row['mask_law']})"
    if np.isnan(row["r2"]):
        return f"R² undefined {where}: the model does not vary there"
    sampled = row["r2_low"] < row["r2_high"]
    interval = f" [{row['r2_low']:.2f}, {row['r2_high']:.2f}]" if sampled else ""
    return f"R² {row['r2']:.2f}{_at_most(row['ceiling'])}{interval} {where}"


def _at_most(ceiling: float) -> str:
    """What noise leaves to be reached; nothing where that is all, or not known."""
    return f" of at most {ceiling:.2f}" if ceiling < 0.995 else ""


def _spent(meta: Mapping[str, Any], cap: int) -> str:
    """How many queries it took, how many of them the store spared, and what the others cost."""
    line = f"{meta['n_queries']} model queries, at most {cap} per text"
    if meta["n_known"]:
        line += f"; {meta['n_known']} of them known from the store"
    usage = meta["usage"]
    if usage is not None:
        line += f"; {usage['n_requests']} requests"
        line += f", cost {usage['cost']:.4g}" if usage["cost"] else ""
    return line
