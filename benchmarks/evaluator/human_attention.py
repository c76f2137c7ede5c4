"""Which attribution is nearest to what people look at: Yelp reviews with maps of human attention.

    python benchmarks/evaluator/human_attention.py --maps yelp_hat.jsonl --model hf:FOLDER [--texts 100]

`--maps` is a file with one object a line, ``tokens`` and several ``maps`` of 0 and 1 (Sen et al. 2020,
Yelp-HAT). A word counts as marked where every annotator marked it, as Leemann et al. (2025) count; the
first reviews with at least two maps and a common mark are taken. Scores speak for the class that the model
predicts. Writes docs/human_attention.csv (every document and metric) and docs/human_attention.md, which
`--render` writes again from it. No text is written.
"""

import argparse
from pathlib import Path

import pandas as pd

import piste
from piste.evaluation import Rationale, Scorecard, rationale_agreement, read_rationales
from piste.surrogates import KernelShap, Lime, Slalom, SlalomPairs

DOCS = Path(__file__).resolve().parents[2] / "docs"
BUDGET = 500
METRICS = ("roc_auc", "average_precision")
SURROGATES = (Lime(), KernelShap(), Slalom(), Slalom(heads=2), SlalomPairs())
ABSOLUTE = " (absolute)"
NAMES = {"slalom-2": "slalom, two heads", "slalom-pairs": "slalom with pairs"}


def marked_reviews(path: Path, n_texts: int) -> list[Rationale]:
    """The first reviews that several people marked, with a mark in common."""
    found = [each for each in read_rationales(path) if each.n_annotators >= 2 and each.spans]
    return found[:n_texts]


def measure(marks: list[Rationale], model: str) -> tuple[pd.DataFrame, dict[str, object]]:
    """Explain every review, with the class that the model predicts, and compare with the marks."""
    study = piste.explain(
        model,
        [each.text for each in marks],
        surrogates=SURROGATES,
        budget=BUDGET,
        text_ids=[each.text_id for each in marks],
    )
    table = study.attributions
    plain = rationale_agreement(table, marks)
    unsigned = rationale_agreement(table, marks, absolute=True)
    unsigned = unsigned[unsigned["kind"] != "importance"]
    both = pd.concat([plain, unsigned.assign(kind=unsigned["kind"] + ABSOLUTE)])
    fidelity = study.fidelity.groupby("surrogate")["r2"].median()
    return both[both["metric"].isin(METRICS)], {str(name): float(r2) for name, r2 in fidelity.items()}


def render(card: Scorecard, fidelity: dict[str, object] | None) -> str:
    """The page."""
    summary = card.summary()
    n_texts = card.table["text"].nunique()
    lines = [
        "# Which attribution is nearest to human attention",
        "",
        "Written by `python benchmarks/evaluator/human_attention.py`; of your own texts `piste evaluate FILE "
        "--rationales FILE --metric none` makes the same table.",
        "",
        f"{n_texts} Yelp reviews with the common marks of two to four people, a fine-tuned 6-layer MiniLM, "
        f"{BUDGET} queries per review, words as units, removed where masked. Medians over reviews with 95 % "
        "bootstrap intervals; ROC-AUC .5 is chance. *absolute* takes scores without their sign.",
        "",
        "| surrogate | kind | ROC-AUC | average precision | reviews |",
        "|---|---|---|---|---|",
    ]
    by_metric = {
        metric: summary[summary["metric"] == metric].set_index(["surrogate", "kind"])
        for metric in METRICS
    }
    # The tests are about scores as they are: twice as many methods would cost power for nothing.
    signed = Scorecard(card.table[~card.table["kind"].str.endswith(ABSOLUTE)])
    tested = signed.compare("roc_auc")
    order = by_metric["roc_auc"].sort_values("median", ascending=False).index
    for key in order:
        cells = [_cell(by_metric[metric].loc[key]) for metric in METRICS]
        n = int(by_metric["roc_auc"].loc[key, "n_texts"])
        lines.append(f"| {NAMES.get(key[0], key[0])} | {key[1]} | {cells[0]} | {cells[1]} | {n} |")
    best, pairs = tested.ranking["method"].iloc[0], tested.pairs
    lines += [
        "",
        f"Best by ROC-AUC: **{best}**. Against it, paired by review (difference of ROC-AUC, Holm):",
        "",
    ]
    for row in pairs[pairs["better"] == best].to_dict(orient="records"):
        lines.append(
            f"- {row['worse']}: {row['effect']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}], "
            f"p = {row['p_holm']:.2g}, {row['verdict']}"
        )
    if fidelity:
        shown = ", ".join(f"{NAMES.get(name, name)} {r2:.2f}" for name, r2 in fidelity.items())
        lines += ["", f"Median held-out R² of the fits: {shown}."]
    return "\n".join(lines) + "\n"


def _cell(row: pd.Series) -> str:
    return f"{row['median']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def main() -> None:
    """Run, or render what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--maps", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument(
        "--render", action="store_true", help="rewrite the page from docs/human_attention.csv"
    )
    options = parser.parse_args()
    path = DOCS / "human_attention.csv"
    fidelity = None
    if options.render:
        card = Scorecard.of(
            [pd.read_csv(path, dtype={"text": str}, keep_default_na=False, na_values={"value": ""})]
        )
    else:
        table, fidelity = measure(marked_reviews(options.maps, options.texts), options.model)
        card = Scorecard.of([table])
        card.table.to_csv(path, index=False, float_format="%.6g")
    (DOCS / "human_attention.md").write_text(render(card, fidelity), encoding="utf-8")


if __name__ == "__main__":
    main()
