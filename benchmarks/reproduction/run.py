"""The SLALOM paper's experiments with their faults mended, on models of this repository.

    python benchmarks/reproduction/run.py [--answers DIR] [--sdist FILE] [--minilm DIR] [--render]

Needs ``pip install 'piste[local]' shap lime`` and ``slalom-explanations`` (``--no-deps`` does). What is
measured stands in config.toml. Each part is kept in --answers and not measured again. Writes
docs/reproduction.md and docs/reproduction.csv.gz. About half an hour on one core.

Leemann, Fastowski, Pfeiffer & Kasneci (2025), TMLR, arXiv 2405.13536.
"""

import argparse
import os
import tomllib
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(variable, "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd  # noqa: E402
from page import markdown  # noqa: E402

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
OF_SNIPPETS = ("naive_bayes", "curves", "removals")


def main() -> None:
    """Measure what is not kept yet, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--answers", type=Path, default=Path("reproduction-answers"))
    parser.add_argument("--sdist", type=Path, help="of vaderSentiment 3.3.2; fetched by default")
    parser.add_argument("--minilm", type=Path, help="folder of a fine-tuned BERT-type model")
    parser.add_argument("--render", action="store_true", help="only make the page, from what is kept")
    options = parser.parse_args()
    config = tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))
    options.answers.mkdir(parents=True, exist_ok=True)
    if not options.render:
        _measure(config, options)
    parts = {path.stem: pd.read_csv(path) for path in sorted(options.answers.glob("*.csv"))}
    whole = pd.concat([table.assign(part=name) for name, table in parts.items()], ignore_index=True)
    whole.to_csv(DOCS / "reproduction.csv.gz", index=False, float_format="%.5g")
    reading = (HERE / "reading.md").read_text(encoding="utf-8")
    (DOCS / "reproduction.md").write_text(markdown(parts, config, reading), encoding="utf-8")


def _measure(config: dict[str, dict[str, object]], options: argparse.Namespace) -> None:
    """Each part that the folder lacks."""
    import fits
    import recovery
    import runtime
    import snippets_study
    import torch

    torch.set_num_threads(1)
    folder: Path = options.answers
    for name, measure in {"fits": fits.measure, "recovery": recovery.measure}.items():
        if not (folder / f"{name}.csv").exists():
            measure(config[name]).to_csv(folder / f"{name}.csv", index=False)
    if not all((folder / f"{name}.csv").exists() for name in OF_SNIPPETS):
        for name, table in snippets_study.measure(config["snippets"], options.sdist).items():
            table.to_csv(folder / f"{name}.csv", index=False)
    if not (folder / "runtime.csv").exists():
        runtime.measure(config["runtime"], options.minilm).to_csv(folder / "runtime.csv", index=False)


if __name__ == "__main__":
    main()
