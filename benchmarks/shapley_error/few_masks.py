"""Which masks serve Shapley values best when there are few: `python benchmarks/shapley_error/few_masks.py`.

    python benchmarks/shapley_error/few_masks.py --models-folder DIR --data-folder DIR [--cache DIR]

Random pairs of complements (``leverage``) against those of a few orders of the units and their reverses
(``permutation``), by masks per unit, with the sentences and exact values of run.py beside it. Writes
docs/few_masks.md: it is why design ``auto`` draws permutations for `KernelShap` below 3.5 masks a unit.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from run import DOCS, MINILM, chosen_options  # noqa: E402
from tables import Game, games, texts  # noqa: E402

from piste.evaluation.paired import bootstrap_median  # noqa: E402
from piste.sampling.designs import draw, with_anchors  # noqa: E402
from piste.surrogates import KernelShap  # noqa: E402

PER_UNIT = (2.25, 2.5, 3.0, 3.5, 4.0, 6.0)
ESTIMATORS = {"KernelShap": None, 'KernelShap(control="gaussian-process")': "gaussian-process"}


def main() -> None:
    """Estimate and write the page."""
    options = chosen_options()
    found = list(
        games(
            f"hf:{options.models_folder / MINILM}", "minilm", texts(options.data_folder), options.cache
        )
    )
    lines = [
        "# Shapley values from few masks\n",
        f"Written by `benchmarks/shapley_error/few_masks.py`: {len(found)} sentences of 10 to 14 words, "
        f"MiniLM; relative squared error (mean of {options.seeds} seeds), median over sentences with its 95 % "
        "bootstrap interval, and of the ratio of the two designs.\n",
        "| estimator | masks per unit | leverage | permutation | permutation / leverage |",
        "|---|--:|---|---|---|",
    ]
    for name, control in ESTIMATORS.items():
        for per_unit in PER_UNIT:
            errors = {
                law: np.array([_error(game, law, per_unit, control, options.seeds) for game in found])
                for law in ("leverage", "permutation")
            }
            ratio = errors["permutation"] / errors["leverage"]
            cells = [_interval(values) for values in (*errors.values(), ratio)]
            lines.append(f"| {name} | {per_unit:g} | " + " | ".join(cells) + " |")
    (DOCS / "few_masks.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _error(game: Game, law: str, per_unit: float, control: str | None, n_seeds: int) -> float:
    """Mean relative squared error over seeds."""
    ends = np.repeat([[True], [False]], game.n_units, axis=1)
    n_inner = int(per_unit * game.n_units) - len(ends)
    found = []
    for seed in range(n_seeds):
        drawn = draw(law, game.n_units, n_inner, np.random.default_rng(seed), exclude=ends)
        masks = with_anchors(drawn).masks
        values = KernelShap(control).fit(masks, game.score(masks)).values_  # type: ignore[arg-type]
        found.append(((values - game.shapley) ** 2).sum() / (game.shapley**2).sum())
    return float(np.mean(found))


def _interval(values: np.ndarray) -> str:
    found = bootstrap_median(values)
    return f"{found.median:.3f} [{found.low:.3f}, {found.high:.3f}]"


if __name__ == "__main__":
    main()
