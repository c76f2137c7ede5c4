"""Metrics of attributions side by side: medians over documents, who beats whom, files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from piste._errors import InputError
from piste.evaluation.checks import check_level
from piste.evaluation.compare import Comparison, compare
from piste.evaluation.erasure_curves import erasure_curve, is_point
from piste.evaluation.export import csv_text, write_files
from piste.evaluation.summaries import summary


class Headline(NamedTuple):
    """The setting by which a metric is compared, and which way it goes."""

    setting: str
    higher_is_better: bool


HEADLINES: Mapping[str, Headline] = MappingProxyType(
    {
        "comprehensiveness": Headline("aopc", True),
        "sufficiency": Headline("aopc", False),
        "deletion": Headline("most first", False),
        "insertion": Headline("most first", True),
        "infidelity": Headline("scaled", False),
        "sensitivity-n": Headline("mean", True),
        "roc_auc": Headline("", True),
        "average_precision": Headline("", True),
        "auprc": Headline("", True),
        "token_f1": Headline("", True),
        "iou_f1": Headline("", True),
        "spearman": Headline("", True),
    }
)

_NEEDED = ("text", "surrogate", "kind", "metric", "value", "status")
_ONE_VALUE = (
    "text",
    "target",
    "surrogate",
    "kind",
    "metric",
    "setting",
    "space",
    "lexicon",
    "masking",
)


@dataclass(frozen=True)
class Scorecard:
    """Every number of an evaluation, document by document.

    Parameters
    ----------
    table
        Rows of `piste.evaluation.faithfulness`, `rationale_agreement` and `lexicon_agreement`, one below
        the other; undefined values are NaN and their ``status`` says why.
    confidence, seed
        Of the intervals over documents.
    points
        Points of deletion and insertion curves, which are no metrics; see `curves`.
    """

    table: pd.DataFrame
    confidence: float = 0.95
    seed: int = 0
    points: pd.DataFrame | None = None

    @classmethod
    def of(
        cls, tables: Sequence[pd.DataFrame], *, confidence: float = 0.95, seed: int = 0
    ) -> "Scorecard":
        """The tables as one, with empty settings, spaces and lexicons where a metric has none.

        Raises
        ------
        InputError
            If there is none, one is no table of metrics, two lexicons have the same name, a value is there
            twice, or the level or the seed cannot be used.
        """
        check_level(confidence, seed)
        if isinstance(tables, pd.DataFrame):
            raise InputError("Got one table; expected a list of them: Scorecard.of([table]).")
        listed = list(tables)
        if not listed:
            raise InputError("Got nothing to evaluate by; expected at least one metric or reference.")
        for table in listed:
            _refuse_no_metrics(table)
        whole = pd.concat(listed, ignore_index=True)
        for column in ("setting", "space", "lexicon"):
            whole[column] = whole[column].fillna("") if column in whole else ""
        _refuse_repeated(whole)
        points = is_point(whole)
        return cls(whole[~points].reset_index(drop=True), confidence, seed, whole[points])

    def curves(self) -> dict[str, pd.DataFrame]:
        """Deletion and insertion curves by title, as `Study.to_html` takes them, where points were kept."""
        if self.points is None:
            return {}
        found = {
            f"{metric.capitalize()} of the most relevant units first: score against their share": erasure_curve(
                self.points, metric, confidence=self.confidence, seed=self.seed
            )
            for metric in ("deletion", "insertion")
        }
        return {title: curve for title, curve in found.items() if len(curve)}

    def summary(self) -> pd.DataFrame:
        """Medians over documents with intervals, and how many are undefined or flagged."""
        return summary(self.table, confidence=self.confidence, seed=self.seed)

    def compare(
        self,
        metric: str,
        *,
        space: str | None = None,
        lexicon: str | None = None,
        margin: float | None = None,
    ) -> Comparison:
        """Every surrogate and kind ranked by a metric and tested against each other, paired by document.

        Parameters
        ----------
        metric
            One of `HEADLINES`, compared in its headline setting.
        space
            Of metrics that are measured in several; the first in the table by default.
        lexicon
            The name of the one that scores are held against; needed where there are several.
        margin
            The largest difference that does not matter, for equivalence.

        Raises
        ------
        InputError
            If the table has no such metric, several lexicons of which none is named, or too few documents
            on which all are defined.
        """
        if metric not in HEADLINES:
            raise InputError(
                f"Got metric={metric!r}; expected one of {', '.join(map(repr, HEADLINES))}."
            )
        headline = HEADLINES[metric]
        rows = self.headline(metric, space, lexicon)
        names = rows["lexicon"].unique().tolist()
        if len(names) > 1:
            raise InputError(
                f"Got the lexicons {', '.join(map(repr, names))} for {metric!r}; expected one of them: "
                f"lexicon={names[0]!r}."
            )
        return compare(
            rows,
            "value",
            method=["surrogate", "kind"],
            higher_is_better=headline.higher_is_better,
            margin=margin,
            confidence=self.confidence,
            seed=self.seed,
        )

    def headline(
        self, metric: str, space: str | None = None, lexicon: str | None = None
    ) -> pd.DataFrame:
        """Rows of a metric in its headline setting and one space, against one lexicon or all."""
        rows = self.table[self.table["metric"] == metric]
        rows = rows[rows["setting"] == HEADLINES[metric].setting]
        if space is None and len(rows):
            space = rows["space"].iloc[0]
        rows = rows[rows["space"] == space]
        return rows if lexicon is None else rows[rows["lexicon"] == lexicon]

    @property
    def metrics(self) -> list[str]:
        """The metrics that the table has, as `HEADLINES` orders them."""
        present = set(self.table["metric"])
        return [metric for metric in HEADLINES if metric in present]

    def tests(self) -> pd.DataFrame:
        """Every pair of methods by every metric and lexicon; one with too few documents has none."""
        found = list(self._pairs())
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the table, and beside it ``NAME.summary.csv`` and, where there are any, ``NAME.tests.csv``."""
        path = Path(path)
        files = {path: self.table, path.with_suffix(".summary.csv"): self.summary()}
        tests = self.tests()
        if len(tests):
            files[path.with_suffix(".tests.csv")] = tests
        write_files({name: csv_text(table).encode() for name, table in files.items()})

    def _pairs(self) -> Iterator[pd.DataFrame]:
        for metric in self.metrics:
            rows = self.headline(metric)
            for space, lexicon in rows[["space", "lexicon"]].drop_duplicates().itertuples(index=False):
                about = {"space": space, "lexicon": lexicon}
                try:
                    yield self.compare(metric, **about).pairs.assign(metric=metric, **about)
                except InputError:  # one method, or fewer than two documents on which all are defined
                    continue


def _refuse_no_metrics(table: object) -> None:
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            f"Got a {type(table).__name__} among the tables; expected those of faithfulness, "
            "rationale_agreement or lexicon_agreement."
        )
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise InputError(
            f"Got a table without {', '.join(map(repr, missing))}; expected one of metrics, such as that "
            "of faithfulness."
        )


def _refuse_repeated(whole: pd.DataFrame) -> None:
    """An error where a value is there twice, which would count double, or two lexicons look the same."""
    repeated = whole[whole.duplicated([name for name in _ONE_VALUE if name in whole])]
    if not len(repeated):
        return
    row = repeated.iloc[0]
    if row["lexicon"] != "":
        raise InputError(
            f"Got the lexicon {row['lexicon']!r} twice; expected a name of its own for each: "
            "lexicon_agreement(attributions, lexicon, name=...)."
        )
    raise InputError(
        f"Got {row['metric']!r} of text {row['text']!r} by {row['surrogate']} {row['kind']} twice; expected "
        f"one value each, but {len(repeated)} rows are repeated. Give every table once."
    )
