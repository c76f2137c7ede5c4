"""Do 95 % intervals cover the truth 95 times in 100? Simulated black boxes with known answers.

    OPENBLAS_NUM_THREADS=1 python benchmarks/coverage/simulate.py [--repetitions 400] [--out docs]

Every repetition draws fresh masks (piste's default law: leverage, in pairs, with the full and the empty
text) and fresh noise, fits each surrogate, and notes for each unit, attribution kind and covariance
whether the interval holds the truth. 30 units, 500 masks (150 once), fixed seeds. Writes
``coverage.md`` (table) and ``coverage.csv`` (every number).

Truths. Where the surrogate is the black box's own model: its parameters and what follows from them.
Elsewhere the pseudo-true numbers: of LIME and SLALOM, those of a noise-free fit to 100,000 masks of the
same law, in which each size of mask weighs what it weighs among few; of KernelShap the exact Shapley
values, which are known for all boxes here.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter

import numpy as np

from piste._typing import BoolArray, FloatArray
from piste.fitting.shapley import slalom_shapley
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import KernelShap, Lime, Slalom

N_UNITS, N_MASKS, LEVEL, SEED = 30, 500, 0.95, 20261130
N_PSEUDO = 100_000
COVARIANCES = {
    "lime": ("CR2", "classical", "HC1", "HC2", "HC3", "CR3"),
    "lime (width 25)": ("CR2", "classical", "HC1", "HC2", "HC3", "CR3"),
    "shap": ("design", "classical", "HC1", "HC2", "HC3", "CR2", "CR3"),
    "slalom": ("HC2", "classical", "HC1", "HC3", "CR2", "CR3"),
}
"""The default first."""
Surrogate = Lime | KernelShap | Slalom


@dataclass(frozen=True)
class Box:
    """A black box: a SLALOM of 30 units (or its additive limit), with pairs, and noise on its answers.

    ``background`` None is the additive model ``b + sum_i v_i``; ``pair`` the coefficient of the
    products of units 0 and 1, 2 and 3, ...
    """

    name: str
    noise: float
    background: float | None
    pair: float = 0.0
    n_masks: int = N_MASKS

    @property
    def value(self) -> FloatArray:
        """Between 1 and 3, either sign: no unit's value is near a prediction."""
        rng = np.random.default_rng(SEED)
        signs: FloatArray = rng.choice([-1.0, 1.0], N_UNITS) * rng.uniform(1.0, 3.0, N_UNITS)
        return signs

    @property
    def importance(self) -> FloatArray:
        """Normal with standard deviation .7, mean zero."""
        importance = 0.7 * np.random.default_rng(SEED + 1).normal(size=N_UNITS)
        return importance - importance.mean()

    def __call__(self, masks: FloatArray) -> FloatArray:
        """Answers without noise, shape (n_masks,)."""
        pairs = self.pair * (masks[:, ::2] * masks[:, 1::2]).sum(axis=1)
        if self.background is None:
            additive: FloatArray = 0.5 + masks @ self.value + pairs
            return additive
        weight, own = np.exp(self.importance), np.exp(self.background)
        answers: FloatArray = (masks @ (weight * self.value) + own * 0.5) / (masks @ weight + own)
        return answers + pairs

    def shapley(self) -> FloatArray:
        """Exact, shape (n_units,)."""
        if self.background is None:
            return self.value + self.pair / 2
        return slalom_shapley(self.value, self.importance, 0.5, self.background) + self.pair / 2

    def removal(self) -> FloatArray:
        """Effect of leaving out each unit, shape (n_units,)."""
        full = np.ones((1, N_UNITS))
        return self(full) - self(full - np.eye(N_UNITS))


BOXES = (
    Box("linear", noise=0.5, background=None),
    Box("SLALOM", noise=0.01, background=0.5),
    Box("SLALOM and pairs (misspecified)", noise=0.01, background=0.5, pair=0.02),
    Box("SLALOM, 150 masks", noise=0.01, background=0.5, n_masks=150),
    Box("nearly additive SLALOM, noisy (ill-identified)", noise=0.1, background=2.0),
)


def surrogates() -> dict[str, Surrogate]:
    """Fresh estimators, with piste's defaults but for LIME without its kernel."""
    return {
        "lime": Lime(kernel_width=None),
        "lime (width 25)": Lime(),
        "shap": KernelShap(),
        "slalom": Slalom(),
    }


def draw_masks(n_masks: int, rng: np.random.Generator) -> FloatArray:
    """Default design with its two anchors."""
    return with_anchors(draw("leverage", N_UNITS, n_masks - 2, rng)).masks.astype(np.float64)


def law_weights(masks: FloatArray, n_drawn: int) -> FloatArray:
    """Weights of mean one that give each size the share it has among few masks, shape (n_masks,).

    Among 500 the sizes 1 to 29 are equally frequent and the two anchors come once; the smallest sizes
    do not have enough masks to be as frequent among 100,000.
    """
    sizes = masks.sum(axis=1).astype(np.int64)
    expected = np.full(N_UNITS + 1, (n_drawn - 2) / (N_UNITS - 1))
    expected[[0, -1]] = 1.0
    weights = (expected / np.bincount(sizes))[sizes]
    return weights / weights.mean()


def truths(box: Box) -> dict[tuple[str, str], FloatArray]:
    """By surrogate and kind; additive SLALOMs have no values and importances to be right about."""
    masks = draw_masks(N_PSEUDO, np.random.default_rng(SEED + 2))
    weights = law_weights(masks, box.n_masks)
    answers = box(masks)
    found = {("shap", "shapley"): box.shapley()}
    fits = surrogates()
    for name in ("lime", "lime (width 25)"):
        found[name, "coefficient"] = fits[name].fit(masks, answers, weights).attributions()
    if box.pair:
        slalom = fits["slalom"].fit(masks, answers, weights)
        return found | {("slalom", kind): slalom.attributions(kind) for kind in Slalom.kinds}
    found |= {("slalom", "removal"): box.removal(), ("slalom", "shapley"): box.shapley()}
    if box.background is not None:
        found["slalom", "value"] = box.value
        found["slalom", "importance"] = box.importance
        found["slalom", "linear"] = box.value * np.exp(box.importance)
    return found


Outcome = dict[tuple[str, str, str], tuple[BoolArray, FloatArray, FloatArray]]
"""By surrogate, kind and covariance: whether covered, distance from the truth, standard error."""


@dataclass(frozen=True)
class Repetition:
    """Draws one data set, fits every surrogate to it and compares with the truth."""

    box: Box
    truth: dict[tuple[str, str], FloatArray]

    def __call__(
        self, number: int
    ) -> dict[tuple[str, str, str], tuple[BoolArray, FloatArray, FloatArray]]:
        """One repetition."""
        rng = np.random.default_rng([SEED, BOXES.index(self.box), number])
        masks = draw_masks(self.box.n_masks, rng)
        scores = self.box(masks) + self.box.noise * rng.normal(size=len(masks))
        fits = {name: fit.fit(masks, scores) for name, fit in surrogates().items()}
        found = {}
        for (name, kind), truth in self.truth.items():
            for covariance in COVARIANCES[name]:
                low, high = fits[name].confidence_interval(kind, LEVEL, covariance=covariance)
                error = fits[name].std_errors(kind, covariance=covariance)
                covered = (low <= truth) & (truth <= high)
                found[name, kind, covariance] = covered, fits[name].attributions(kind) - truth, error
        return found


def rows(box: Box, repetitions: int, spread: Callable[..., Iterator[dict]]) -> list[dict[str, object]]:
    """One row per surrogate, kind and covariance."""
    truth = truths(box)
    results = list(spread(Repetition(box, truth), range(repetitions)))
    table = []
    for key in results[0]:
        covered, off, errors = (np.stack([result[key][at] for result in results]) for at in range(3))
        by_unit = covered.mean(axis=0)
        table.append(
            {
                "box": box.name,
                "surrogate": key[0],
                "kind": key[1],
                "covariance": key[2],
                "default": COVARIANCES[key[0]][0] == key[2],
                "coverage": by_unit.mean(),
                "lowest": by_unit.min(),
                "highest": by_unit.max(),
                "median_error": np.median(errors),
                "actual_error": np.median(np.sqrt((off**2).mean(axis=0))),
                "infinite": np.isinf(errors).mean(),
            }
        )
    return table


HEADER = f"""# Coverage of intervals

Written by `benchmarks/coverage/simulate.py`; do not edit. Share of {LEVEL:.0%} intervals that hold the
truth: {{repetitions}} repetitions, {N_UNITS} units, {N_MASKS} masks unless said otherwise (leverage
sampling in pairs, with the full and the empty text); mean over units, then the lowest and the highest
unit. A unit's own share has a Monte-Carlo error of about {{error:.1%}}, so that exact intervals would
give a lowest unit of about {{low:.0%}}. `error` is the median standard error, `actual` the median root
mean square error about the truth. The columns after it are the mean coverage with other covariances.
"""
NOTES = """
- **linear**: noise of standard deviation .5 on scores whose coefficients are 1 to 3. A SLALOM fitted to
  additive answers has no true values and importances; its effects are right all the same.
- **SLALOM**: values ±1 to 3, importances of standard deviation .7, background importance .5, noise .01:
  chosen so that parameters are identified (errors of importances near .03; with 150 masks near .1).
- **SLALOM and pairs**: 15 pairs of units add .02 each when both are there; no surrogate fits it. Truth
  is pseudo-true (the surrogate's best fit over the law of the masks) and, for KernelShap, the exact
  Shapley value.
- **ill-identified**: the background takes more attention and the noise is .1, so that values and
  importances can be traded for each other. The prior decides between them; intervals hold on average
  over units, but the values of some are covered in two repetitions of three only (`min`). Without a
  prior most importances have no finite interval at all. Effects (removal, shapley) stay well covered.
- LIME's default `CR2` takes a mask and its complement as one. Row by row (`HC2`, `HC3`) its intervals
  are up to twice too wide wherever the black box is not linear: a pair's errors cancel in part.
- `HC3` and `CR3` are too careful where there are few masks per parameter (150 masks: 99 % and more).
- KernelShap's `design` errors hold for a model that answers without noise. Here answers are noisy, also
  those to the full and the empty text, whose noise (a 30th part in each value) is not counted.
"""


def markdown(table: list[dict[str, object]], repetitions: int) -> str:
    """The defaults as rows, other covariances as columns."""
    others = ("classical", "HC1", "HC2", "HC3", "CR2", "CR3")
    error = np.sqrt(LEVEL * (1 - LEVEL) / repetitions)
    head = ["black box", "surrogate", "kind", "default", "coverage", "min", "max", "error", "actual"]
    lines = [
        HEADER.format(repetitions=repetitions, error=error, low=LEVEL - 2.1 * error),
        _row([*head, *others]),
        _row(["---"] * 4 + ["--:"] * (5 + len(others))),
    ]
    by_key = {(r["box"], r["surrogate"], r["kind"], r["covariance"]): r for r in table}
    for row in (row for row in table if row["default"]):
        key = row["box"], row["surrogate"], row["kind"]
        found = [by_key.get((*key, covariance)) for covariance in others]
        numbers = [f"{row[name]:.3f}" for name in ("coverage", "lowest", "highest")]
        numbers += [f"{row[name]:.2g}" for name in ("median_error", "actual_error")]
        means = [f"{other['coverage']:.3f}" if other else "" for other in found]
        lines.append(_row([*map(str, key), str(row["covariance"]), *numbers, *means]))
    return "\n".join(lines) + "\n" + NOTES


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run all boxes on two processes and write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    table = []
    with Pool(options.processes) as pool:
        for box in BOXES:
            start = perf_counter()
            table += rows(box, options.repetitions, lambda f, n: pool.imap(f, n, chunksize=5))
            print(f"{box.name}: {perf_counter() - start:.0f} s", flush=True)
    with (options.out / "coverage.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    (options.out / "coverage.md").write_text(markdown(table, options.repetitions), encoding="utf-8")


if __name__ == "__main__":
    main()
