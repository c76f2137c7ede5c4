"""LIME as piste fits it against its limit on an attention classifier.

    python benchmarks/oracles/lime_limit.py [--texts 10] [--repetitions 5] [--masks 5000] [--render]

A layer of attention with the sizes of Lopardo, Precioso & Garreau (2024, arXiv 2402.03485) and random
weights, documents of 100 different words, every document with weights of its own. LIME without a kernel
or ridge is fitted to masks of uniform size that put UNK in a word's place, its coefficients averaged over
the repetitions, and compared with the integral of `piste.evaluation.oracles.lime_limit` and with the
published constant 3/2. The last two settings undo this step by step: LIME as published, with a kernel and a
ridge, and with words removed, so that the others move.

Writes docs/oracles.csv (documents) and docs/oracles.md (means with bootstrap intervals over documents,
and what all surrogates make of the built-in oracles). Three minutes on one core.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy.stats import bootstrap  # noqa: E402

import piste  # noqa: E402
from piste._typing import FloatArray  # noqa: E402
from piste.evaluation.oracles import (  # noqa: E402
    AttentionClassifier,
    evaluate_oracles,
    lime_limit,
    random_weights,
    three_halves,
)
from piste.surrogates import Lime  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs"
N_WORDS = 100
PUBLISHED_LENGTH = 256
HELD_OUT = 0.1  # of a budget, which piste sets aside


@dataclass(frozen=True)
class Setting:
    """A classifier and a LIME."""

    name: str
    length: int | None
    sharpness: float = 1.0
    masking: str = "UNK"
    kernel_width: float | None = None
    alpha: float = 0.0


SETTINGS = (
    Setting("no padding", None),
    Setting("filled up to 256", PUBLISHED_LENGTH),
    Setting("filled up to 256, queries x 4", PUBLISHED_LENGTH, sharpness=4.0),
    Setting("256, kernel width 25, ridge 1", PUBLISHED_LENGTH, kernel_width=25.0, alpha=1.0),
    Setting(
        "256, kernel width 25, ridge 1, words removed",
        PUBLISHED_LENGTH,
        masking="remove",
        kernel_width=25.0,
        alpha=1.0,
    ),
)


def fitted(model: AttentionClassifier, setting: Setting, seed: int, n_masks: int) -> FloatArray:
    """Coefficients of one fit."""
    study = piste.explain(
        model.black_box(),
        " ".join(model.words),
        surrogates=Lime(setting.kernel_width, setting.alpha),
        masking=setting.masking,
        design="uniform-size",
        budget=int(n_masks / (1 - HELD_OUT)) + 1,
        batch_size=1024,
        seed=seed,
    )
    coefficients: FloatArray = study.surrogate(0, "lime").attributions()
    return coefficients


def measured(options: argparse.Namespace) -> pd.DataFrame:
    """One row per setting and document."""
    words = tuple(f"word{number}" for number in range(N_WORDS))
    rows = []
    for setting in SETTINGS:
        start = time.perf_counter()
        for document in range(options.texts):
            weights = random_weights(N_WORDS + 2, sharpness=setting.sharpness, seed=document)
            model = AttentionClassifier(words, weights, setting.length)
            parts = model.limit_parts(" ".join(words))
            fits = [
                fitted(model, setting, repetition, options.masks)
                for repetition in range(options.repetitions)
            ]
            lime = np.mean(fits, axis=0)
            limit, constant = lime_limit(parts), three_halves(parts)
            masked, full = parts.masked_attention.sum(axis=1), parts.attention.sum(axis=1)
            rows.append(
                {
                    "setting": setting.name,
                    "document": document,
                    "integral": relative(lime, limit),
                    "integral_one_fit": float(np.mean([relative(fit, limit) for fit in fits])),
                    "three_halves": relative(lime, constant),
                    "integral_absolute": float(np.linalg.norm(lime - limit)),
                    "three_halves_absolute": float(np.linalg.norm(lime - constant)),
                    "size": float(np.linalg.norm(lime)),
                    "masked_attention": float(np.mean(masked / full)),
                }
            )
        print(f"{setting.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return pd.DataFrame(rows)


def relative(lime: FloatArray, theory: FloatArray) -> float:
    """``|lime - theory| / |lime|``: the fit is the yardstick, so that theories can be compared."""
    return float(np.linalg.norm(lime - theory) / np.linalg.norm(lime))


def cell(values: pd.Series, digits: int = 3) -> str:
    """Mean over documents with its bootstrap interval."""
    numbers = values.to_numpy()
    found = bootstrap((numbers,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return f"{numbers.mean():.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def limit_table(table: pd.DataFrame) -> list[str]:
    """Errors of both theories, per setting."""
    lines = [
        "| setting | integral | worst document | integral, one fit | 3/2 form | 3/2 form, absolute "
        "| size of LIME |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for setting, rows in table.groupby("setting", sort=False):
        cells = [
            cell(rows["integral"]),
            f"{rows['integral'].max():.3f}",
            cell(rows["integral_one_fit"]),
            cell(rows["three_halves"]),
            cell(rows["three_halves_absolute"], 4),
            cell(rows["size"], 4),
        ]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return lines


def oracle_table() -> list[str]:
    """What all surrogates make of the built-in oracles, at the default budget."""
    lines = [
        "| oracle | units | masks | surrogate | kind | error | R2 | must be exact | passed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in evaluate_oracles().itertuples():
        error = "< 1e-12" if row.error < 1e-12 else f"{row.error:.2g}"
        verdict = ("yes" if row.passed else "**no**") if row.must_pass else ""
        lines.append(
            f"| {row.oracle} | {row.n_units} | {row.n_masks} | {row.surrogate} | {row.kind} | {error} "
            f"| {row.r2:.3f} | {'yes' if row.must_pass else ''} | {verdict} |"
        )
    return lines


def page(table: pd.DataFrame, options: argparse.Namespace) -> str:
    """The page of the docs."""
    about = """# Models whose explanations are known

Written by `benchmarks/oracles/lime_limit.py`. `piste.evaluation.oracles` holds models for which the right
explanation follows from their weights; a surrogate of the right form has to find it.

## All surrogates on the built-in oracles

Error: relative 2-norm against the truth (absolute where that is 0), 1,000 queries. R2: on held-out masks, or
on all where every mask was asked. Rows that need not be exact show how far a surrogate of another form is.

"""
    middle = f"""
## LIME on an attention classifier

{options.texts} documents of {N_WORDS} different words, each with random weights of its own (6 heads, sizes of
Lopardo, Precioso & Garreau 2024, arXiv 2402.03485, variances of torch's default layers). LIME: mean of
{options.repetitions} fits to {options.masks:,} masks of uniform size. Errors: 2-norms relative to that of LIME,
means over documents with bootstrap 95 % intervals. "Filled up": with attended UNK tokens, as published.

"""
    end = """
The first two rows are the setting that both theories are about: UNK in a word's place, all masks alike, no
ridge. The integral is met there, and most of what is left is chance: single fits are off by about twice as
much, as the mean of five should be. With queries four times as large a few words hold much of the attention,
while the integral takes each to be a small part of the sum; averaging helps little and the worst documents miss
5 %. The constant 3/2 is off by half of LIME's size on these weights, more on some documents.

The published error of the 3/2 form against LIME is a 2-norm of .808 (standard deviation .219) over the IMDb
test set. It is neither confirmed nor refuted here: we have random weights, not the trained ones, and could not
establish whether that norm is relative. Besides, the released experiment departs from its theory. It passes a
mask string but leaves `bow=True`, so that words are removed and the others move, and it keeps LIME's kernel
(width 25) and ridge (1). The last two rows undo our choices step by step. Kernel and ridge change little here;
removing words is another intervention, and neither theory describes it. Part of the published error may
therefore be this mismatch and part the constant; from .808 alone they cannot be told apart. Nor does the
integral, which holds under its own assumptions, describe LIME as that experiment uses it.
"""
    return "\n".join([about + "\n".join(oracle_table()), middle + "\n".join(limit_table(table)), end])


def main() -> None:
    """Measure and write the docs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--masks", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--render", action="store_true", help="write the page again from the CSV")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    csv = options.out / "oracles.csv"
    if not options.render:
        measured(options).to_csv(csv, index=False, float_format="%.6g")
    table = pd.read_csv(csv)
    (options.out / "oracles.md").write_text(page(table, options), encoding="utf-8")
    print("\n".join(limit_table(table)))


if __name__ == "__main__":
    main()
