"""What a fidelity study found, as tables: medians over texts, curves, paired comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste.evaluation.compare import Comparison, compare
from piste.evaluation.export import csv_text, json_text, meta_path, write_files
from piste.evaluation.paired import bootstrap_median, median_curve

COLUMNS = (
    "text",
    "target",
    "surrogate",
    "budget",
    "mask_law",
    "n_removed",
    "mse",
    "r2",
    "spearman",
    "ceiling",
    "n_masks",
    "n_units",
    "n_queries",
    "space",
    "status",
)
DELETIONS = "deletions"
ZERO, MEAN = "zero", "mean"  # baselines: no change, and the mean of the judged answers


@dataclass(frozen=True)
class FidelityStudy:
    """What every surrogate, and two baselines, got right on masks that no fit had seen.

    Parameters
    ----------
    table
        One row per text, target, surrogate, budget and law (and number removed), columns `COLUMNS`;
        numbers are NaN where ``status`` says why.
    failures
        Why a text could not be explained, by its name.
    confidence, seed
        Of the intervals over texts.
    meta
        Where the numbers come from: model, options, versions.
    """

    table: pd.DataFrame
    failures: Mapping[str, str]
    confidence: float
    seed: int
    meta: Mapping[str, object] = field(default_factory=dict)

    @property
    def budgets(self) -> list[int]:
        """What fits could spend, rising."""
        return sorted(self.table["budget"].unique())

    def per_text(self, budget: int | None = None) -> pd.DataFrame:
        """One row per text, surrogate and law: means over targets and numbers removed.

        Where a law has several rows of a text, R2 is ``1 - sum of their errors / sum of their variances``: R2
        of few removed units, where answers hardly vary, would swamp a mean. A text with an undefined error
        stays undefined. ``budget`` is the largest by default.
        """
        table = self.table[self.table["budget"] == (budget or self.budgets[-1])]
        groups = table.groupby(["text", "surrogate", "mask_law"], sort=False)
        found = groups[["mse", "spearman", "ceiling"]].agg(_strict_mean).reset_index()
        variance = found[found["surrogate"] == MEAN].set_index(["text", "mask_law"])["mse"]
        keys = pd.MultiIndex.from_frame(found[["text", "mask_law"]])
        varies = variance.where(variance > 0).reindex(keys).to_numpy()
        pooled = (1 - found["mse"] / varies).where(groups["r2"].count().to_numpy() > 0)
        plain = groups["r2"].agg(_strict_mean).to_numpy()
        return found.assign(r2=np.where(found["mask_law"] == DELETIONS, pooled, plain))

    def summary(self) -> pd.DataFrame:
        """One row per budget, law and surrogate: medians over texts with bootstrap intervals.

        Columns ``mse, r2, spearman`` with ``_low`` and ``_high``; ``ratio`` is the median over texts of the
        squared error over that of the zero baseline. Of ``n`` texts ``n_mse`` have an error and ``n_r2`` an
        R2, and make its median; the others failed, or were too short to be judged. ``ceiling`` is the
        median of what the model's own noise leaves of R2, NaN where not probed.
        """
        return pd.DataFrame(
            [
                {"budget": budget, "mask_law": law, "surrogate": name} | self._medians(rows, zero)
                for budget in self.budgets
                for law, own in self.per_text(budget).groupby("mask_law", sort=False)
                for zero in [own[own["surrogate"] == ZERO].set_index("text")["mse"]]
                for name, rows in own.groupby("surrogate", sort=False)
            ]
        )

    def compare(
        self,
        mask_law: str = "uniform-size",
        *,
        budget: int | None = None,
        value: str = "mse",
        margin: float | None = None,
    ) -> Comparison:
        """Surrogates and baselines ranked and tested against each other, paired by text.

        Errors are compared by their ratio (by difference where one is 0), R2 and Spearman by difference.
        """
        rows = self.per_text(budget)
        rows = rows[rows["mask_law"] == mask_law]
        error = value == "mse"
        return compare(
            rows,
            value,
            higher_is_better=not error,
            scale="ratio" if error and (rows["mse"].dropna() > 0).all() else "difference",
            margin=margin,
            confidence=self.confidence,
            seed=self.seed,
        )

    def budget_curve(self, mask_law: str = "uniform-size", value: str = "r2") -> pd.DataFrame:
        """Median over texts against queries: surrogate, x, y, low, high."""
        points = (
            (name, budget, own[value])
            for budget in self.budgets
            for rows in [self.per_text(budget)]
            for name, own in rows[rows["mask_law"] == mask_law].groupby("surrogate", sort=False)
        )
        return median_curve(points, self.confidence, self.seed)

    def deletion_curve(self, budget: int | None = None, value: str = "mse") -> pd.DataFrame:
        """Median over texts against the number of removed units: surrogate, x, y, low, high."""
        table = self.table[self.table["budget"] == (budget or self.budgets[-1])]
        removed = table[table["mask_law"] == DELETIONS]
        points = (
            (name, n_removed, own.groupby("text")[value].agg(_strict_mean))
            for (name, n_removed), own in removed.groupby(["surrogate", "n_removed"], sort=False)
        )
        return median_curve(points, self.confidence, self.seed)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the table; beside it `summary`, `meta` and, of several texts, `tests`, as ``NAME.….csv``."""
        path = Path(path)
        files = {path: self.table, path.with_suffix(".summary.csv"): self.summary()}
        tests = self.tests()
        if len(tests):
            files[path.with_suffix(".tests.csv")] = tests
        contents = {name: csv_text(table).encode() for name, table in files.items()}
        write_files(contents | {meta_path(path): json_text(dict(self.meta)).encode()})

    def tests(self) -> pd.DataFrame:
        """Every pair of methods, by law, at the largest budget; none where fewer than two texts are."""
        found = []
        for law in self.table["mask_law"].unique():
            try:
                compared = self.compare(law)
                found.append(compared.pairs.assign(mask_law=law, scale=compared.scale))
            except InputError:  # too few texts on which all are defined
                continue
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def _medians(self, rows: pd.DataFrame, zero: pd.Series) -> dict[str, Any]:
        ratio = rows.set_index("text")["mse"] / zero.where(zero > 0)
        known = {"n_mse": int(rows["mse"].notna().sum()), "n_r2": int(rows["r2"].notna().sum())}
        found: dict[str, Any] = {"n": len(rows)} | known
        found["ceiling"] = rows["ceiling"].median()
        for column, values in {**rows[["mse", "r2", "spearman"]], "ratio": ratio}.items():
            middle = bootstrap_median(values, self.confidence, self.seed)
            found |= {column: middle.median, f"{column}_low": middle.low, f"{column}_high": middle.high}
        return found


def _strict_mean(values: pd.Series) -> float:
    """The mean, undefined where one value is: an average over the rest would hide it."""
    return float(values.mean(skipna=False))
