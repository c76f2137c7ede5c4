"""How well each model of a model predicts masks that it has not seen, at equal numbers of queries.

    python benchmarks/quality/run.py --model hf:DIR --short FILE --long FILE [--answers DIR] [--jobs 2]

Needs ``pip install 'piste[local,trees]' shapiq``. FILE holds a text a line (up to a tab) or JSON lines
with ``text`` or ``tokens``; what is measured stands in config.toml. Answers and results of each text are
kept in --answers and not computed again. Writes docs/quality.csv and docs/quality.md.
"""

import argparse
import os
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(variable, "1")

import pandas as pd  # noqa: E402
from answers import Answered, answered, chosen_texts  # noqa: E402
from models import MODELS, OF_PAIRS  # noqa: E402
from summary import markdown  # noqa: E402

import piste  # noqa: E402

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"


def main() -> None:
    """Ask, fit, judge, write the docs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--short", type=Path, required=True)
    parser.add_argument("--long", type=Path, required=True)
    parser.add_argument("--answers", type=Path, default=Path("quality-answers"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    config = tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))
    model = piste.load_model(options.model)
    texts = [
        each
        for length, wanted in config["lengths"].items()
        for each in answered(
            model,
            chosen_texts(
                getattr(options, length), tuple(wanted["units"]), wanted["n_texts"], config["seed"]
            ),
            config,
            options.answers,
            length,
        )
    ]
    judge = partial(judged, config=config, folder=options.answers)
    with ProcessPoolExecutor(options.jobs) as pool:
        tables = []
        for table in pool.map(judge, texts):
            tables.append(table)
            print(f"{len(tables)} of {len(texts)} texts", flush=True)
    results = pd.concat(tables, ignore_index=True)
    results.to_csv(options.out / "quality.csv", index=False, float_format="%.6g")
    page = markdown(results, config, Path(options.model).name)
    reading = (HERE / "reading.md").read_text(
        encoding="utf-8"
    )  # by hand, of the numbers in the repository
    (options.out / "quality.md").write_text(f"{page}\n{reading}", encoding="utf-8")


def judged(text: Answered, config: Mapping[str, Any], folder: Path) -> pd.DataFrame:
    """One row per model, design and law of held-out masks; kept in the folder."""
    path = folder / f"{text.name}.csv"
    known = pd.read_csv(path) if path.exists() else pd.DataFrame({"fit": [], "budget": [], "model": []})
    done = set(zip(known["fit"], known["budget"], known["model"], strict=True))
    rows = [
        row
        for design, budget in config["fits"]
        for name in _models_for(text, budget, config)
        if (design, budget, name) not in done
        for row in _rows(text, design, budget, name)
    ]
    table = pd.concat([known, pd.DataFrame(rows)], ignore_index=True) if rows else known
    table.to_csv(path, index=False)
    return table


def _models_for(text: Answered, budget: int, config: Mapping[str, Any]) -> list[str]:
    """All models but pairs where they are as many as the masks, and what the configuration spares."""
    n_pairs, number = text.n_units * (text.n_units - 1) // 2, int(text.name[-2:])
    return [
        name
        for name in MODELS
        if (name not in OF_PAIRS or n_pairs < budget)
        and (name not in config["at_budget_only"] or budget == config["budget"])
        and number % config["every"].get(name, 1) == 0
    ]


def _rows(text: Answered, design: str, budget: int, name: str) -> list[dict[str, object]]:
    masks, scores = text.fits[design, budget]
    start = time.perf_counter()
    fitted = MODELS[name]()
    fitted.fit(masks.astype(float), scores)
    seconds = time.perf_counter() - start
    return [
        {
            "text": text.name,
            "length": text.name[:-2],
            "n_units": text.n_units,
            "fit": design,
            "budget": budget,
            "law": law,
            "model": name,
            "unexplained": float(
                ((fitted.predict(held.astype(float)) - truth) ** 2).mean() / truth.var()
            ),
            "seconds": seconds,
        }
        for law, (held, truth) in text.held_out.items()
    ]


if __name__ == "__main__":
    main()
