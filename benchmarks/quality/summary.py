"""The tables of docs/quality.md."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from models import LINEAR, MODELS, READABLE

from piste.evaluation.paired import bootstrap_median

BEST_READABLE = "best readable"
Numbers = Mapping[str, pd.Series]


def markdown(results: pd.DataFrame, config: Mapping[str, Any], model: str) -> str:
    """The page: what was measured, errors of every model, ratios that were aimed at."""
    counts = results.groupby("length", sort=False)["text"].nunique()
    lengths = ", ".join(
        f"{counts[name]} {name} texts of {each['units'][0]} to {each['units'][1]} units"
        for name, each in config["lengths"].items()
        if name in counts
    )
    spared = [f"{name} at this number only" for name in config["at_budget_only"]]
    spared += [f"{name} on every {n}th text only" for name, n in config["every"].items()]
    parts = [
        "# Fidelity at equal numbers of queries\n",
        f"Written by `benchmarks/quality/run.py`: `{model}`, {lengths}; {config['budget']} masks to fit "
        f"to, {config['n_held_out']} fresh ones of each law to judge by ({'; '.join(spared)}). `leverage` is "
        'what `design="auto"` draws at these sizes. *Unexplained* is the squared error over the variance of '
        "the held-out answers, 1 - R², its median over texts; ratios are medians over texts of the "
        "ratio of errors on the same masks, with their 95 % bootstrap interval over texts.\n",
    ]
    usual = results[results["budget"] == config["budget"]]
    default_design = config["fits"][0][0]
    default = results[results["fit"] == default_design]
    for length in counts.index:
        of_length = usual[usual["length"] == length]
        parts += [
            f"## {length.capitalize()} texts\n",
            _errors(of_length),
            f"### {length.capitalize()} texts: unexplained against queries\n",
            _curves(default[default["length"] == length]),
            f"### {length.capitalize()} texts: other designs, error over that under {default_design}\n",
            _designs(results[results["length"] == length], default_design),
        ]
    parts += ["## Ratios aimed at\n", _targets(usual)]
    return "\n".join(parts) + "\n"


def _curves(rows: pd.DataFrame) -> str:
    """Median unexplained share of every model that was fitted to several budgets, with its interval."""
    settings = list(dict.fromkeys(zip(rows["law"], rows["budget"], strict=True)))
    settings.sort(key=lambda setting: (setting[0] != rows["law"].iloc[0], setting[1]))
    lines = [
        "| model | " + " | ".join(f"{law}, {budget:.0f}" for law, budget in settings) + " |",
        "| --- |" + " --- |" * len(settings),
    ]
    for model in MODELS:
        own = rows[rows["model"] == model]
        if own["budget"].nunique() < 2:
            continue
        cells = [
            interval(own[(own["law"] == law) & (own["budget"] == budget)]["unexplained"])
            for law, budget in settings
        ]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _designs(rows: pd.DataFrame, default: str) -> str:
    """Error under each design over that under the default one, median of the ratios over texts."""
    laws = dict.fromkeys(rows["law"])
    fits = dict.fromkeys(zip(rows["fit"], rows["budget"], strict=True))
    others = [(fit, budget, law) for fit, budget in fits if fit != default for law in laws]
    heads = [f"{fit} / {law}, {budget:.0f}" for fit, budget, law in others]
    lines = ["| model | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(others)]
    for model in MODELS:
        own = rows[rows["model"] == model]
        if own.empty:
            continue
        wide = own.pivot_table(index="text", columns=["fit", "budget", "law"], values="unexplained")
        cells = [
            interval(wide[fit, budget, law] / wide[default, budget, law], digits=2)
            if (fit, budget, law) in wide
            else "–"
            for fit, budget, law in others
        ]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _errors(rows: pd.DataFrame) -> str:
    settings = list(dict.fromkeys(zip(rows["fit"], rows["law"], strict=True)))
    heads = [f"{fit} / {law}: unexplained | ratio to linear" for fit, law in settings]
    lines = [
        "| model | seconds | " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * (1 + 2 * len(settings)),
    ]
    for model in MODELS:
        own = rows[rows["model"] == model]
        if own.empty:
            continue
        cells = [f"{own['seconds'].median():.2g}"]
        for fit, law in settings:
            errors = _of_setting(rows, fit, law)
            cells += [f"{errors[model].median():.3f}", _ratio(errors, model, LINEAR)]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _of_setting(rows: pd.DataFrame, fit: str, law: str) -> dict[str, pd.Series]:
    """Errors by model, indexed by text, and the best of the readable models text by text.

    The best is chosen by the held-out masks themselves, so that it is somewhat flattered.
    """
    chosen = rows[(rows["fit"] == fit) & (rows["law"] == law)]
    wide = chosen.pivot_table(index="text", columns="model", values="unexplained")
    errors = {name: wide[name].dropna() for name in wide}
    readable = [name for name in READABLE if name in wide]
    return errors | {BEST_READABLE: wide[readable].min(axis=1)}


def _ratio(errors: Numbers, model: str, other: str) -> str:
    if model not in errors or other not in errors:
        return "–"
    ratio = (errors[model] / errors[other]).dropna()
    return interval(ratio, digits=2)


def interval(values: pd.Series, digits: int = 3) -> str:
    """The median with its 95 % bootstrap interval over texts."""
    known = values.dropna()
    if known.empty:
        return "–"
    found = bootstrap_median(known.to_numpy())
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _targets(results: pd.DataFrame) -> str:
    pairs = [
        ("slalom", LINEAR, {"short": 0.75, "long": 0.75}),
        ("slalom, heads by CV", "slalom", {}),
        ("slalom, heads by CV", "slalom, 2 heads", {}),
        ("slalom with pairs", "slalom", {}),
        ("slalom with pairs", "slalom, heads by CV", {}),
        ("slalom with pairs", "trees", {"short": 1.0, "long": 0.9}),
        ("slalom with pairs", "ProxySPEX", {"short": 0.9, "long": 0.9}),
        ("slalom, then a ridge on pairs", "trees", {}),
        ("slalom, then trees", "trees", {}),
        (BEST_READABLE, "trees", {"short": 1.0, "long": 0.9}),
        (BEST_READABLE, "ProxySPEX", {"short": 0.9, "long": 0.9}),
        ("trees", "ProxySPEX", {}),
    ]
    lines = [
        "| length | fit / held out | " + " | ".join(f"{a} / {b}" for a, b, _ in pairs) + " |",
        "| --- | --- |" + " --- |" * len(pairs),
    ]
    for length, rows in results.groupby("length", sort=False):
        for fit, law in dict.fromkeys(zip(rows["fit"], rows["law"], strict=True)):
            errors = _of_setting(rows, fit, law)
            cells = []
            for model, other, aims in pairs:
                cell = _ratio(errors, model, other)
                aim = aims.get(str(length))
                if aim is not None and cell != "–":
                    median = np.median((errors[model] / errors[other]).dropna())
                    cell += f" (≤ {aim:g}: {'yes' if median <= aim else 'no'})"
                cells.append(cell)
            lines.append(f"| {length} | {fit} / {law} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
