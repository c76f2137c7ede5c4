"""The full fidelity study of the embedded model on review snippets that it was not trained on.

    python benchmarks/evaluator/fidelity.py [--sdist vaderSentiment-3.3.2.tar.gz] [--texts 100] [--render]

The snippets are from the held-out part of the data that the model was trained on (see
benchmarks/train_builtin; downloaded from PyPI where no --sdist is given), of at least eight words. Every
surrogate has the same queries, is judged by the same fresh masks of four laws, and stands beside two
baselines. Writes docs/fidelity.csv.gz (every text), docs/fidelity.summary.csv and docs/fidelity.md, which
`--render` writes again from the first. Text ids are row numbers of the held-out part; no text is written.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from piste.evaluation import FidelityStudy, fidelity_study

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "train_builtin"))
import snippets  # noqa: E402 - the split that the model was trained with

DOCS = ROOT / "docs"
LAWS = ("deletions", "uniform-size", "short", "bernoulli")
BUDGETS = (100, 200, 500)
LEAST_WORDS = 8
TRAINING_SEED, N_TEST, N_VALIDATION, N_CLEAR = 2014, 1400, 700, 1334
METHODS = {"zero": "no change", "mean": "the mean"}


def held_out_texts(sdist: Path | None, n_texts: int) -> dict[str, str]:
    """The first long enough snippets of the held-out part, by row number."""
    with tempfile.TemporaryDirectory() as folder:
        source = sdist or snippets.fetch_sdist(Path(folder))
        movies = snippets.read_domain(source, snippets.MOVIES)
    # As benchmarks/train_builtin/train.py split them, whose model card counts the clear ones held out.
    rng = np.random.default_rng(TRAINING_SEED)
    rows = snippets.split_snippets(movies, n_test=N_TEST, n_validation=N_VALIDATION, rng=rng).test
    assert sum(row.is_clear for row in rows) == N_CLEAR
    long_enough = {
        str(number): row.text for number, row in enumerate(rows) if len(row.text.split()) >= LEAST_WORDS
    }
    return dict(list(long_enough.items())[:n_texts])


def render(study: FidelityStudy, seconds: float | None) -> str:
    """The page."""
    n_texts = study.table["text"].nunique()
    words = study.table.groupby("text")["n_units"].first().median()
    took = "" if seconds is None else f" The whole study took {seconds / 60:.1f} minutes on two cores."
    parts = [
        "# How well surrogates predict the embedded model",
        "",
        "Written by `python benchmarks/evaluator/fidelity.py`; the same study of your own texts is "
        "`piste fidelity FILE --out fidelity.csv`.",
        "",
        f"{n_texts} held-out review snippets of {words:.0f} words in the median. Every surrogate is fitted to "
        f"the same number of answers (queries) and judged by the same masks, which no fit has seen.{took} "
        "Numbers are medians over texts with 95 % bootstrap intervals: the squared error as a share of "
        "that of *no change* (predicting the unmasked text's score), and R².",
    ]
    for law in study.table["mask_law"].unique():
        parts += ["", f"## Masks: {law}", "", *_law_table(study, law), "", *_tests(study, law)]
    lost = study.table[study.table["r2"].isna()]
    if len(lost):
        parts += ["", f"{len(lost)} of {len(study.table)} rows have no R²: " + _reasons(lost) + "."]
    return "\n".join(parts) + "\n"


def _law_table(study: FidelityStudy, law: str) -> list[str]:
    rows = study.summary().query("mask_law == @law")
    lines = ["| method | queries | error / no change | R² | texts |", "|---|---|---|---|---|"]
    for row in rows.to_dict(orient="records"):
        baseline = row["surrogate"] in METHODS
        if baseline and row["budget"] != study.budgets[0]:
            continue
        queries = "" if baseline else str(row["budget"])
        name = METHODS.get(row["surrogate"], row["surrogate"])
        ratio, r2 = (_cell(row, column) for column in ("ratio", "r2"))
        lines.append(f"| {name} | {queries} | {ratio} | {r2} | {row['n_mse']} |")
    return lines


def _cell(row: dict[str, float], column: str) -> str:
    middle, low, high = (row[column + end] for end in ("", "_low", "_high"))
    return f"{middle:.2f}" if low == high else f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def _tests(study: FidelityStudy, law: str) -> list[str]:
    found = study.compare(law)
    compared = [
        row
        for row in found.pairs.to_dict(orient="records")
        if not {row["better"], row["worse"]} & set(METHODS)
    ]
    return [
        f"Ratios of squared errors within texts at {study.budgets[-1]} queries, {found.n_units} texts "
        "(Wilcoxon, Holm over all pairs, baselines included):",
        "",
        *(
            f"- {row['better']} / {row['worse']}: {row['effect']:.2f} [{row['low']:.2f}, {row['high']:.2f}], "
            f"p = {row['p_holm']:.2g}, rank-biserial {row['rank_biserial']:.2f}: {row['verdict']}"
            for row in compared
        ),
    ]


def _reasons(lost: pd.DataFrame) -> str:
    return ", ".join(f"{count} {status}" for status, count in lost["status"].value_counts().items())


def main() -> None:
    """Run, or render what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sdist", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument(
        "--render", action="store_true", help="rewrite the page from docs/fidelity.csv.gz"
    )
    options = parser.parse_args()
    path = DOCS / "fidelity.csv.gz"
    if options.render:
        table = pd.read_csv(path, dtype={"text": str}).astype({"n_removed": "Int64"})
        study, seconds = FidelityStudy(table, {}, 0.95, 0), None
    else:
        texts = held_out_texts(options.sdist, options.texts)
        start = time.perf_counter()
        study = fidelity_study(
            "builtin:sentiment",
            list(texts.values()),
            budgets=BUDGETS,
            laws=LAWS,
            text_ids=list(texts),
        )
        study.table.to_csv(
            path, index=False, float_format="%.6g", compression={"method": "gzip", "mtime": 0}
        )
        study.summary().to_csv(DOCS / "fidelity.summary.csv", index=False, float_format="%.4g")
        seconds = time.perf_counter() - start
    (DOCS / "fidelity.md").write_text(render(study, seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
