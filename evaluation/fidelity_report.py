"""What a terminal shows of a fidelity study: medians by mask law, then who beats whom."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from piste._errors import InputError
from piste.evaluation.fidelity_tables import MEAN, ZERO, FidelityStudy
from piste.evaluation.judging import LAWS


def fidelity_report(study: FidelityStudy) -> RenderableType:
    """Errors relative to "no change" and R2 for each budget, and the tests between surrogates."""
    summary = study.summary()
    tables = [_table(rows, int(str(budget))) for budget, rows in summary.groupby("budget")]
    lines = [*_tests(study), *_remarks(study)]
    return Group(*tables, Text("\n".join(lines), style="dim"))


def _table(summary: pd.DataFrame, budget: int) -> Table:
    title = f"{budget} queries per fit · medians over texts of MSE / MSE of no change"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    laws = [law for law in LAWS if law in set(summary["mask_law"])]
    for law in laws:
        n = summary.loc[summary["mask_law"] == law, "n_mse"].max()
        table.add_column(f"{law}\n{n} texts", justify="right")
    # R2 is unstable where few units are removed: the answers hardly vary. It is shown for one law.
    table.add_column(f"R² {_main(laws)}", justify="right")
    for name, rows in summary.groupby("surrogate", sort=False):
        by_law = rows.set_index("mask_law").to_dict(orient="index")
        ratios = [_cell(by_law[law], "ratio") for law in laws]
        table.add_row(str(name), *ratios, _cell(by_law[_main(laws)], "r2"))
    return table


def _main(laws: list[str]) -> str:
    return "uniform-size" if "uniform-size" in laws else laws[0]


def _cell(row: dict[object, float], column: str) -> str:
    middle, low, high = (row[column + end] for end in ("", "_low", "_high"))
    if np.isnan(middle):
        return "–"
    return f"{middle:.2f}" + ("" if np.isnan(low) or low == high else f"\n[{low:.2f}, {high:.2f}]")


def _tests(study: FidelityStudy) -> Iterator[str]:
    law = _main(list(study.table["mask_law"].unique()))
    try:
        found = study.compare(law)
    except InputError:  # one text, or none on which all methods are defined
        return
    others = [
        row
        for row in found.pairs.to_dict(orient="records")
        if not {row["better"], row["worse"]} & {ZERO, MEAN}
    ]
    if others:
        yield (
            f"Median {found.scale} of MSE within texts, {law} masks, {study.budgets[-1]} queries, "
            f"{found.n_units} texts; p by Wilcoxon and Holm"
        )
    for row in others:
        yield (
            f"  {row['better']} against {row['worse']}: {row['effect']:.2f} "
            f"[{row['low']:.2f}, {row['high']:.2f}], p {row['p_holm']:.2g}, {row['verdict']}"
        )


def _remarks(study: FidelityStudy) -> Iterator[str]:
    law = _main(list(study.table["mask_law"].unique()))
    ceilings = study.table.loc[study.table["mask_law"] == law, "ceiling"].dropna()
    if len(ceilings):
        yield f"the model's own noise leaves an R² of at most {ceilings.median():.2f} on {law} masks (median)"
    undefined = study.table.loc[study.table["r2"].isna(), "status"]
    if len(undefined):
        statuses = ", ".join(f"{count} {status}" for status, count in undefined.value_counts().items())
        yield f"{len(undefined)} of {len(study.table)} rows have no R²: {statuses}"
    if study.table["mse"].isna().all():
        yield "Nothing could be judged: texts this short leave no masks that a fit does not need."
    if study.failures:
        name, why = next(iter(study.failures.items()))
        texts = "text" if len(study.failures) == 1 else "texts"
        yield f"{len(study.failures)} {texts} failed; the first is text {name}: {why}"
