"""Corpora text by text: rows go to a file as they come, and what a run says as a whole is added up."""

from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from piste.evaluation.export import csv_text, json_text, meta_path, write_files
from piste.evaluation.fidelity import COLUMNS
from piste.evaluation.provenance import Remarks, provenance, text_meta
from piste.evaluation.spent import Spent, both
from piste.evaluation.study import Study, nothing_came_out
from piste.surrogates.records import Explained, Failed, Options

N_SHOWN = 3  # beyond these a table for each text would scroll away


class Digest:
    """What is left of studies when they are gone: some kilobytes a text, but no answer and no fit.

    Attributes
    ----------
    options, fingerprint
        Of the studies.
    tables
        Attributions of the first texts and targets, `N_SHOWN` at most, one table each.
    n_tables
        How many there would be of all.
    statuses
        Every status that a row has.
    """

    options: Options
    fingerprint: str

    def __init__(self) -> None:
        self.tables: list[pd.DataFrame] = []
        self.n_tables = 0
        self.statuses: set[str] = set()
        self._texts: list[dict[str, Any]] = []
        self._fidelity: list[dict[Hashable, Any]] = []
        self._remarks = Remarks()
        self._spent = Spent()
        self._nothing: Explained | Failed | None = None
        self._something = False

    @classmethod
    def of(cls, study: Study) -> "Digest":
        """That of one study."""
        digest = cls()
        digest.add(study)
        return digest

    @property
    def fidelity(self) -> pd.DataFrame:
        """As `Study.fidelity`."""
        return pd.DataFrame(self._fidelity, columns=list(COLUMNS))

    @property
    def meta(self) -> dict[str, Any]:
        """As `Study.meta`."""
        return provenance(self._texts, self.options, self.fingerprint, self.fidelity, self._spent)

    def add(self, study: Study) -> None:
        """Take in a study of further texts, explained with the same options."""
        self.options, self.fingerprint = study.options, study.fingerprint
        rows = study.attributions
        for _, table in rows[rows["target"] != ""].groupby(["text_id", "target"], sort=False):
            self.n_tables += 1
            if len(self.tables) < N_SHOWN:
                self.tables.append(table)
        self.statuses |= set(rows["status"])
        self._fidelity += study.fidelity.to_dict(orient="records")
        self._spent = both(self._spent, study.spent)
        for outcome in study.outcomes:
            self._texts.append(text_meta(outcome, self.options.confidence))
            self._remarks.add(outcome)
            self._something |= isinstance(outcome, Explained) and bool(outcome.fits)
            self._nothing = None if self._something else self._nothing or outcome

    def refuse_if_nothing_came_out(self) -> None:
        """The error of `piste.explain` where no surrogate was fitted to any text."""
        if self._nothing is not None:
            raise nothing_came_out(self._nothing, len(self._texts))

    def warn(self) -> None:
        """As `Study.warn`."""
        self._remarks.warn()


def write_each(studies: Iterable[Study], path: Path | None) -> Digest:
    """Write what `Study.to_csv` writes of a study of all these texts, each as soon as it is there.

    The files are completed beside their places and moved there in the end, as all others; without a
    path none is written. No study is kept.

    Raises
    ------
    InputError, ModelError
        As `piste.explain`, if nothing came out of any text; no file is written then.
    """
    digest = Digest()
    rows = _rows(studies, digest)
    if path is None:
        for _ in rows:
            pass
    else:
        write_files({path: rows, meta_path(path): _provenance(digest)})
    digest.warn()
    return digest


def _rows(studies: Iterable[Study], digest: Digest) -> Iterator[bytes]:
    """The table in pieces, each study taken in."""
    for index, study in enumerate(studies):
        digest.add(study)
        yield csv_text(study.attributions, header=index == 0).encode()
    digest.refuse_if_nothing_came_out()


def _provenance(digest: Digest) -> Iterator[bytes]:
    """What there is to say of all, when all are there."""
    yield json_text(digest.meta).encode()
