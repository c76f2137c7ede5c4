"""From errors to a table: medians over texts, bootstrap intervals, tests against the best peer."""

import numpy as np
import pandas as pd
from scipy import stats

N_RESAMPLES = 5000
LEVEL = 0.95


def by_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds: one row per model, text, budget and estimator."""
    keys = ["model", "text", "n_units", "budget", "estimator"]
    return rows.groupby(keys, sort=False)[["error", "n_queries", "seconds"]].mean().reset_index()


def markdown(texts: pd.DataFrame, skipped: dict[str, str], n_seeds: int) -> str:
    """The report."""
    parts = [_INTRODUCTION.format(n_seeds=n_seeds, level=f"{LEVEL:.0%}")]
    for model, rows in texts.groupby("model", sort=False):
        sizes = rows.groupby("text")["n_units"].first()
        parts.append(
            f"## {model}: {len(sizes)} texts of {sizes.min()} to {sizes.max()} units\n\n"
            f"{_errors(rows)}\n\n{_ratios(rows)}\n"
        )
    parts.append(f"## Time\n\n{_times(texts)}\n")
    for name, reason in skipped.items():
        parts.append(f"Left out: {name} ({reason}).\n")
    return "\n".join(parts)


_INTRODUCTION = """# Error of Shapley values, at equal numbers of queries

Written by `benchmarks/shapley_error/run.py`; see the README beside it. Real sentences (SST-2,
development part) of 10 to 14 words; masked words are removed; the explained score is the log-odds of
the predicted class. Exact values are known, because each of the 2^n masked texts was scored once.
Error: relative squared error `|estimate - exact|² / |exact|²`, mean over {n_seeds} seeds, then the
median over texts with a bootstrap {level} interval over texts. Every estimator gets the same number of
distinct queries, the full and the empty text included; asking again for a known text is free, which
favours those that repeat themselves.

"Leverage sampling", RegressionMSR and piste draw the same masks (pairs of complements, uniform sizes,
without replacement) and differ in what they do with the answers. With a control, piste's regression
estimates only what the control leaves unexplained: a SLALOM, or a Gaussian process on the pairs.
"""


def _errors(rows: pd.DataFrame) -> str:
    table = {}
    rng = np.random.default_rng(0)
    for budget, of_budget in rows.groupby("budget"):
        errors = of_budget.pivot_table(index="text", columns="estimator", values="error", sort=False)
        picks = rng.integers(0, len(errors), (N_RESAMPLES, len(errors)))
        tail = (1.0 - LEVEL) / 2.0
        column = {}
        for name, values in errors.items():
            low, high = np.quantile(np.median(values.to_numpy()[picks], axis=1), [tail, 1.0 - tail])
            column[name] = f"{np.median(values):.5f} [{low:.5f}, {high:.5f}]"
        table[f"{budget} queries"] = column
    return _table(pd.DataFrame(table), "median error")


def _ratios(rows: pd.DataFrame) -> str:
    """Ours against the best peer of each budget, text by text, with Holm's correction over all."""
    found = []
    for budget, of_budget in rows.groupby("budget"):
        errors = of_budget.pivot_table(index="text", columns="estimator", values="error", sort=False)
        peers = errors[[name for name in errors if not name.startswith("piste")]]
        best = peers.median().idxmin()
        for name in errors.columns.difference(peers.columns, sort=False):
            difference = np.log(errors[name].to_numpy()) - np.log(peers[best].to_numpy())
            found.append(
                {
                    "estimator": name,
                    "budget": budget,
                    "best peer": best,
                    "of medians": errors[name].median() / peers[best].median(),
                    "of a text": np.exp(np.median(difference)),
                    "p": stats.wilcoxon(difference).pvalue,
                }
            )
    table = pd.DataFrame(found)
    table["p"] = _holm(table["p"].to_numpy())
    shown = {}
    for (name, budget), row in table.set_index(["estimator", "budget"]).iterrows():
        text = f"{row['of medians']:.2f}, {row['of a text']:.2f} (p {row['p']:.2g})"
        shown.setdefault(f"{budget} ({row['best peer']})", {})[name] = text
    return (
        "Error divided by that of the best peer (named in the head): ratio of the medians, median of "
        "the ratios text by text, and p of a paired Wilcoxon test on the logarithms, Holm-corrected "
        "over this table.\n\n" + _table(pd.DataFrame(shown), "ratio")
    )


def _times(texts: pd.DataFrame) -> str:
    seconds = texts.pivot_table(
        index="estimator", columns="budget", values="seconds", aggfunc="median", sort=False
    )
    shown = (1000.0 * seconds).map("{:.0f}".format)
    return (
        "Milliseconds per estimate beside the queries (median; answers come from a table; for shap "
        "Permutation the search for the number of permutations is included).\n\n"
        + _table(shown.rename(columns=lambda budget: f"{budget} queries"), "estimator")
    )


def _holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's (1979) adjusted p values."""
    order = np.argsort(p_values)
    steps = np.arange(len(p_values), 0, -1) * p_values[order]
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _table(frame: pd.DataFrame, corner: str) -> str:
    head = [corner, *map(str, frame.columns)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += [
        f"| {name} | " + " | ".join(row) + " |"
        for name, row in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    return "\n".join(lines)
