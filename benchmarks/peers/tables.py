"""The page: medians of the runs, and ratios to piste with intervals."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

CELL = ["model", "units", "budget", "batch"]
REFERENCE = "piste slalom"
PACKAGES = ("shap", "lime", "captum", "shapiq", "slalom-explanations", "torch", "onnxruntime")
LEVEL = 0.95
SUMMARISED = (
    "bare forward passes",
    "shap Partition",
    "shap Permutation",
    "shap pipeline",
    "shap Kernel",
    "lime",
    "captum KernelShap",
    "shapiq KernelSHAP",
    "slalom-explanations deletion",
    "slalom-explanations short",
)

HEAD = """# piste against its peers: time

Made by `python benchmarks/peers/run.py --minilm FOLDER --config {config}`; every run is a row of the
csv beside this page.

The same model object (torch module, onnxruntime session or Python function), the same text, the
same number of model queries asked for, {threads} for all, in an order that turns from one
repeat to the next. Peers ask the model through five plain lines, tokeniser with padding and one
forward pass, in the order they please. `default` leaves the batch size to the package (shap 10,
captum 1, lime, shapiq and shap Kernel everything in one call, slalom-explanations 16, piste 64);
`best` gives all of them {best} rows. Packages without a masker of text (shap Kernel, captum,
shapiq) get masks, which piste turns into text at their cost. slalom-explanations `short` asks about
three words at a time, other queries than the others', so much cheaper ones; `deletion` removes up
to five words.

{clock} `ratio` is the package's seconds per run over those of `{reference}` in the same repeat, the
geometric mean with a {level:.0%} t-interval of the logarithms; above 1 piste is faster. Bare
forward passes are the queries of `{reference}` cut into tokens, sorted by length and run in batches bounded
by tokens ({bare}; the fastest): nothing else. An oracle costs nothing to ask, so that only the package's
own work is left.

Not every package spends what it is given: shap Partition stops when its tree of the text is used up, shap
Permutation after the last whole permutation; compare such rows by their milliseconds per query. Whatever
asks the same queries cannot be faster than the bare forward passes: their ratio to piste is all that a
better engine could still gain.
"""


CLOCKS = {
    "cpu": "Seconds are those of the processor (user and system time of the process): the machine was "
    "shared, which stretches the wall clock (`other clock`, the median) far more than these.",
    "wall": "Seconds are those of the wall clock, on a machine that did nothing else; `other clock` has "
    "those of the processor.",
}
OTHER = {"cpu": "wall", "wall": "cpu"}


def markdown(rows: pd.DataFrame, config: dict[str, Any], name: str) -> str:
    """The page of these runs."""
    if "skipped" not in rows:
        rows = rows.assign(skipped=np.nan)
    head = HEAD.format(
        config=f"benchmarks/peers/{name}.toml",
        clock=CLOCKS[config["clock"]],
        threads=f"{config['threads']} thread" + "s" * (config["threads"] > 1),
        best=config["best_batch"],
        reference=REFERENCE,
        level=LEVEL,
        bare=" or ".join(map(str, config["bare_tokens"])),
    )
    known = rows[rows["skipped"].isna()]
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    parts = [head, f"Versions: {versions}.\n", _summary(known, config["clock"])]
    for cell, runs in rows.groupby(CELL, sort=False):
        model, units, budget, batch = cell
        parts.append(f"## {model}, {units} units, {budget:,} queries, {batch} batch size\n")
        parts.append(_table(runs[runs["skipped"].isna()], config["clock"]))
    parts.append("## Not run\n")
    skipped = rows.dropna(subset="skipped").drop_duplicates(["model", "explainer", "skipped"])
    parts += [f"- {row.explainer} on {row.model}: {row.skipped}" for row in skipped.itertuples()]
    return "\n".join(parts) + "\n"


def _summary(runs: pd.DataFrame, clock: str) -> str:
    """Seconds per query over those of the reference in every cell, medians, the shown explainers only."""
    each = runs.assign(per_query=runs[clock] / runs["n_queries"])
    medians = each.groupby([*CELL, "explainer"], sort=False)["per_query"].median().unstack()
    shown = [name for name in SUMMARISED if name in medians]
    lines = [
        f"## In short: seconds per query over those of `{REFERENCE}`\n",
        "| model | units | queries | batch | " + " | ".join(shown) + " |",
        "|---|--:|--:|---|" + "--:|" * len(shown),
    ]
    for cell, row in medians[shown].div(medians[REFERENCE], axis=0).iterrows():
        cells = ["–" if np.isnan(ratio) else f"{ratio:.2f}" for ratio in row]
        lines.append("| " + " | ".join([*map(str, cell), *cells]) + " |")
    return "\n".join(lines) + "\n"


def _table(runs: pd.DataFrame, clock: str) -> str:
    by_repeat = runs.pivot(index="repeat", columns="explainer", values=clock)
    medians = runs.groupby("explainer", sort=False)[["cpu", "wall", "n_queries"]].median()
    lines = [
        "| explainer | queries | seconds | ms per query | other clock | ratio |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, row in medians.sort_values(clock).iterrows():
        ratio = (
            ratio_with_interval(by_repeat[name] / by_repeat[REFERENCE]) if name != REFERENCE else "1"
        )
        seconds, other = row[clock], row[OTHER[clock]]
        each = f"{1000 * seconds / row.n_queries:.2f}"
        shown = f"| {name} | {row.n_queries:.0f} | {seconds:.3f} | {each} | {other:.3f} | {ratio} |"
        lines.append(shown)
    return "\n".join(lines) + "\n"


def ratio_with_interval(ratios: pd.Series) -> str:
    """The geometric mean of ratios with a t-interval of their logarithms."""
    logs = np.log(ratios.dropna().to_numpy())
    centre = np.exp(logs.mean())
    if len(logs) < 2:
        return f"{centre:.2f}"
    half = stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return f"{centre:.2f} ({np.exp(logs.mean() - half):.2f} to {np.exp(logs.mean() + half):.2f})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
