"""Measure how far Shapley values are off, side by side with other packages.

    python benchmarks/shapley_error/run.py --models-folder DIR --data-folder DIR

See the README beside this file.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(variable, "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from estimators import Asked, Estimator, estimators, quiet  # noqa: E402
from summary import by_text, markdown  # noqa: E402
from tables import Game, games, texts  # noqa: E402

BUDGETS = (100, 200, 400, 800)
MINILM = "minilm-movie-sentiment"
DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> None:
    """Score what is not scored yet, estimate, and write the table."""
    options = chosen_options()
    quiet()
    if not (options.data_folder / "sst2_dev.tsv").is_file():
        print(f"Skipped: no sst2_dev.tsv in {options.data_folder}. Give its folder with --data-folder.")
        return
    chosen = texts(options.data_folder)[:: options.every]
    models = {"builtin-sentiment": "builtin:sentiment"}
    if (options.models_folder / MINILM).is_dir():
        models["minilm"] = f"hf:{options.models_folder / MINILM}"
    else:
        print(
            f"Skipped {MINILM}: not in {options.models_folder}. Give its folder with --models-folder."
        )
    found, skipped = estimators()
    rows: list[dict[str, object]] = []
    for name, uri in models.items():
        for at, game in enumerate(games(uri, name, chosen, options.cache)):
            here = {"model": name, "text": at, "n_units": game.n_units}
            rows += [here | row for row in _estimates(game, found, options.seeds)]
            print(f"{name}: text {at + 1} of {len(chosen)}, {game.n_units} units", flush=True)
    means = by_text(pd.DataFrame(rows))
    options.out.mkdir(parents=True, exist_ok=True)
    means.to_csv(options.out / "shapley_error.csv", index=False, float_format="%.6g")
    report = markdown(means, skipped, options.seeds)
    (options.out / "shapley_error.md").write_text(report, encoding="utf-8")
    print(report)


def _estimates(game: Game, found: dict[str, Estimator], n_seeds: int) -> Iterator[dict[str, object]]:
    """Errors of every estimator at every budget."""
    asked = Asked(game)
    for name, estimate in found.items():
        for budget in BUDGETS:
            for seed in range(n_seeds):
                asked.forget()
                start = time.perf_counter()
                values = estimate(asked, budget, seed)
                seconds = time.perf_counter() - start
                assert asked.n_queries <= budget, f"{name} asked {asked.n_queries} of {budget}"
                difference = values - game.shapley
                yield {
                    "budget": budget,
                    "estimator": name,
                    "error": float(difference @ difference / (game.shapley @ game.shapley)),
                    "n_queries": asked.n_queries,
                    "seconds": seconds,
                }


def chosen_options() -> argparse.Namespace:
    """Where models, data and answers are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models-folder", type=Path, default=Path("models"), help=f"holds {MINILM}/")
    parser.add_argument("--data-folder", type=Path, default=Path("data"), help="holds sst2_dev.tsv")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "piste" / "shapley_error",
        help="where the models' answers are kept (5 MB)",
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="where .md and .csv are written")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="take every n-th text only")
    return parser.parse_args()


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
