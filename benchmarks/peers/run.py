"""Time piste and its peers on the same model, text and number of queries.

    python benchmarks/peers/run.py --minilm FOLDER [--config peers.toml] [--out docs]

Writes a csv (one row per run) and a page of the configuration's name after each cell; cells that the csv
has are not measured again, so delete it to begin anew. `--render` makes the page from the rows that are there.
Needs `pip install shap lime captum shapiq slalom-explanations`; what is not installed is left out by name.
"""

import argparse
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subjects import Subject

HERE = Path(__file__).resolve().parent


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", type=Path, default=HERE / "peers.toml")
    parser.add_argument(
        "--minilm", type=Path, default=Path("minilm"), help="folder of a fine-tuned BERT-type model"
    )
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs")
    parser.add_argument("--render", action="store_true", help="only make the page")
    return parser.parse_args()


def main() -> None:
    """Measure the grid of the configuration, and write the tables."""
    options = _options()
    config = tomllib.loads(options.config.read_text(encoding="utf-8"))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
        os.environ[variable] = str(config["threads"])
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # all packages with as many threads
    import pandas as pd
    from tables import CELL, markdown

    path, page = (options.out / f"{options.config.stem}.{end}" for end in ("csv", "md"))
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=CELL)
    if not options.render:
        known = set(rows[CELL].itertuples(index=False, name=None))
        for measured in _measured(config, options.minilm, known):
            rows = pd.concat([rows, pd.DataFrame(measured)], ignore_index=True)
            rows.to_csv(path, index=False, float_format="%.4g")
            page.write_text(markdown(rows, config, options.config.stem), encoding="utf-8")
    page.write_text(markdown(rows, config, options.config.stem), encoding="utf-8")


def _measured(
    config: dict[str, Any], folder: Path, known: set[tuple[object, ...]]
) -> Iterator[list[dict[str, object]]]:
    """The rows of each cell that is not known: one per run, and one per explainer that could not run."""
    from subjects import embedded, minilm, oracle, text_of

    makers = {
        "embedded": lambda: embedded(config["threads"]),
        "minilm": lambda: minilm(folder, config["threads"]),
        "oracle": lambda: oracle(config["seed"]),
    }
    made: dict[str, Any] = {}
    for part in config["grid"]:
        name = part["model"]
        subject = made.setdefault(name, None) or makers[name]()
        made[name] = subject
        if isinstance(subject, str):
            print(f"Skipped {name}: {subject}.")
            continue
        for n_units, budget, batch in product(part["units"], part["budgets"], part["batches"]):
            cell = {"model": name, "units": n_units, "budget": budget, "batch": batch}
            if tuple(cell.values()) in known:
                continue
            start = time.perf_counter()
            yield [cell | row for row in _cell(subject, text_of(n_units), cell, part, config)]
            print(*cell.values(), f"{time.perf_counter() - start:.0f} s", flush=True)


def _cell(
    subject: "Subject", text: str, cell: dict[str, Any], part: dict[str, Any], config: dict[str, Any]
) -> Iterator[dict[str, object]]:
    """Every explainer so many times, in an order that turns from one repeat to the next."""
    from explainers import EXPLAINERS, silence, why_not
    from subjects import timed

    batch_size = config["best_batch"] if cell["batch"] == "best" else None
    able = []
    for name in part.get("explainers", EXPLAINERS):
        why = why_not(name, subject, cell["batch"])
        if not why:
            with silence():  # imports and compiles what it needs
                first = min(cell["budget"], 2 * cell["units"] + 10)
                why = _failure(name, subject, text, first, batch_size)
        if why:
            yield {"explainer": name, "skipped": why}
        else:
            able.append(name)
    bare = _bare(subject, text, cell["budget"], config)
    for repeat in range(part["repeats"]):
        turned = able[repeat % len(able) :] + able[: repeat % len(able)]
        for name in turned if repeat % 2 == 0 else reversed(turned):
            subject.n_queries, seconds = 0, {}
            with silence(), timed(seconds):
                EXPLAINERS[name](subject, text, cell["budget"], config["seed"] + repeat, batch_size)
            yield {"explainer": name, "repeat": repeat, "n_queries": subject.n_queries} | seconds
            if name == "piste slalom" and bare is not None:  # next to what it is compared with
                yield {"explainer": "bare forward passes", "repeat": repeat} | bare()


def _failure(name: str, subject: "Subject", text: str, n_queries: int, batch_size: int | None) -> str:
    """Why a first small run fails, in the package's own words."""
    from explainers import EXPLAINERS

    try:
        EXPLAINERS[name](subject, text, n_queries, 0, batch_size)
    except Exception as error:  # noqa: BLE001 - whatever a package raises is its result
        return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return ""


def _bare(
    subject: "Subject", text: str, budget: int, config: dict[str, Any]
) -> Callable[[], dict[str, float]] | None:
    """A function that runs piste's own queries and nothing else; None where nothing is run."""
    from subjects import Recorder, bare_forward, timed

    import piste

    if subject.forward is None:
        return None
    recorder = Recorder(subject.box)
    piste.explain(recorder, text, budget=budget, seed=config["seed"])

    def run() -> dict[str, float]:
        found = []
        for most_tokens in config["bare_tokens"]:
            seconds: dict[str, float] = {}
            with timed(seconds):
                bare_forward(subject, recorder.asked, most_tokens)
            found.append(seconds)
        return min(found, key=lambda each: each["cpu"]) | {"n_queries": len(recorder.asked)}

    return run


if __name__ == "__main__":
    main()
