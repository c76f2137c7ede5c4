"""Queries that an automatic budget saves against the fixed one that is safe for nine texts of ten.

    python benchmarks/auto_budget/run.py --texts FILE [--n-texts 30] [--model builtin:sentiment]

For each surrogate and text: the queries that `AutoBudget(tolerance)` spends, and the smallest fixed
budget of a geometric grid at which every interval is as narrow. The fixed budget to beat is the one
that reaches the width on nine texts of ten; what an automatic budget spends is compared by text,
with a bootstrap interval over texts. Writes docs/auto_budget.csv and docs/auto_budget.md.

FILE holds one text a line, or TEXT<tab>LABEL.
"""

import argparse
import logging
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

import piste
from piste.surrogates.rounds import relative_width

GRID = [int(120 * 1.25**step) for step in range(20)]
# Largest half-width over the largest effect. A SLALOM's misfit keeps its intervals wider: on many texts no
# number of answers would bring them to a tenth.
TOLERANCES = {"lime": 0.1, "shap": 0.1, "slalom": 0.3}
DOCS = Path(__file__).resolve().parents[2] / "docs"


def texts_of(path: Path, n_texts: int, words: tuple[int, int]) -> list[str]:
    """The first texts of the file, in a seeded order, whose number of words lies within bounds."""
    lines = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    fitting = [line for line in lines if words[0] <= len(line.split()) <= words[1]]
    order = np.random.default_rng(0).permutation(len(fitting))
    return [fitting[index] for index in order[:n_texts]]


def fixed_budget(model: object, text: str, surrogate: str, tolerance: float) -> float:
    """The smallest budget of the grid whose intervals are all narrow enough; NaN if none is."""
    for budget in GRID:
        study = piste.explain(model, text, surrogates=surrogate, budget=budget)
        if relative_width(study.surrogate(0, surrogate), 0.95) <= tolerance:
            return budget
    return np.nan


def measured(model: object, texts: list[str]) -> pd.DataFrame:
    """One row per text and surrogate."""
    rows = []
    for index, text in enumerate(texts):
        for surrogate, tolerance in TOLERANCES.items():
            rule = piste.AutoBudget(tolerance=tolerance, cap=GRID[-1])
            study = piste.explain(model, text, surrogates=surrogate, budget=rule)
            fitted = study.surrogate(0, surrogate)
            rows.append(
                {
                    "text": index,
                    "n_units": len(text.split()),
                    "surrogate": surrogate,
                    "automatic": int(study.fidelity["n_queries"].iloc[0]),
                    "width": relative_width(fitted, 0.95),
                    "fixed": fixed_budget(model, text, surrogate, tolerance),
                }
            )
        logging.info("text %d of %d", index + 1, len(texts))
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> str:
    """The table of the docs."""
    lines = [
        "| surrogate | half-width | fixed budget, nine texts of ten | automatic, mean | automatic, median "
        "| mean saved | reached by automatic |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for surrogate, tolerance in TOLERANCES.items():
        rows = table[table["surrogate"] == surrogate]
        reaching = np.sort(rows["fixed"].fillna(np.inf).to_numpy())
        safe = reaching[int(np.ceil(0.9 * len(reaching))) - 1]
        spent = rows["automatic"].to_numpy(dtype=float)
        saved = 1 - spent / safe if np.isfinite(safe) else np.full(len(spent), np.nan)
        interval = ""
        if np.isfinite(safe):
            found = bootstrap((saved,), np.mean, rng=np.random.default_rng(0)).confidence_interval
            interval = f" [{found.low:.0%}, {found.high:.0%}]"
        known = f"{safe:.0f}" if np.isfinite(safe) else f"more than {GRID[-1]}"
        lines.append(
            f"| {surrogate} | {tolerance:g} | {known} | {spent.mean():.0f} | {np.median(spent):.0f} "
            f"| {saved.mean():.0%}{interval} | {(rows['width'] <= tolerance).mean():.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and write the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--n-texts", type=int, default=30)
    parser.add_argument("--words", type=int, nargs=2, default=(10, 25))
    parser.add_argument("--model", default="builtin:sentiment")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    texts = texts_of(options.texts, options.n_texts, tuple(options.words))
    table = measured(piste.load_model(options.model), texts)
    table.to_csv(DOCS / "auto_budget.csv", index=False)
    page = (
        "# What an automatic budget saves\n\n"
        f"Written by `benchmarks/auto_budget/run.py` on {len(texts)} texts of {options.words[0]} to "
        f"{options.words[1]} words, model `{options.model}`. The half-width of every interval (95 %) is to "
        "be at most the given share of the largest effect; held-out masks are included in all numbers. "
        "Brackets: bootstrap interval over texts.\n\n"
        f"{summary(table)}\n"
    )
    (DOCS / "auto_budget.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
