"""Which attribution ranks words as a corpus does: the embedded model on held-out review snippets.

    python benchmarks/evaluator/class_words.py [--sdist vaderSentiment-3.3.2.tar.gz] [--texts 100]

The reference is each word's log-odds between the classes in the model's own training part (naive Bayes on its
8,000 labelled snippets), compared by Spearman over the distinct words of each held-out snippet of at least ten
words; importance, which has no direction, is compared with the size of the log-odds. Writes
docs/class_words.md.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import piste
from piste.evaluation import compare, lexicon_agreement, naive_bayes_log_odds

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "train_builtin"))
import snippets  # noqa: E402 - the split that the model was trained with

TRAINING_SEED, N_TEST, N_VALIDATION = 2014, 1400, 700
LEAST_WORDS, BUDGET = 10, 500


def main() -> None:
    """Run and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sdist", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = options.sdist or snippets.fetch_sdist(Path(folder))
        movies = snippets.read_domain(source, snippets.MOVIES)
    rng = np.random.default_rng(TRAINING_SEED)
    split = snippets.split_snippets(movies, n_test=N_TEST, n_validation=N_VALIDATION, rng=rng)
    known = [row for row in split.train if row.is_clear]
    weights = naive_bayes_log_odds(
        [row.text for row in known], ["positive" if row.label else "negative" for row in known]
    )
    asked = [row.text for row in split.test if row.is_clear and len(row.text.split()) >= LEAST_WORDS]
    study = piste.explain(
        "builtin:sentiment",
        asked[: options.texts],
        surrogates=("lime", "shap", "slalom"),
        budget=BUDGET,
    )
    found = compare(
        lexicon_agreement(study.attributions, weights),
        "value",
        method=["surrogate", "kind"],
        higher_is_better=True,
    )
    best = found.ranking["method"].iloc[0]
    lines = [
        "# Which attribution ranks words as a corpus does",
        "",
        f"Written by `python benchmarks/evaluator/class_words.py`: {found.n_units} held-out snippets, {BUDGET} "
        "queries each, Spearman with the words' log-odds in the training part; medians over snippets with 95 % "
        "bootstrap intervals, the best against each other kind by Wilcoxon's test with Holm's correction.",
        "",
        "| method | Spearman | the best is ahead by | p |",
        "|---|---|---|---|",
    ]
    pairs = found.pairs[found.pairs["better"] == best].set_index("worse")
    for row in found.ranking.to_dict(orient="records"):
        against = ["", ""]
        if row["method"] != best:
            pair = pairs.loc[row["method"]]
            against = [
                f"{pair['effect']:.3f} [{pair['low']:.3f}, {pair['high']:.3f}]",
                f"{pair['p_holm']:.2g}",
            ]
        numbers = f"{row['median']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        lines.append(f"| {row['method']} | {numbers} | {against[0]} | {against[1]} |")
    (ROOT / "docs" / "class_words.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
