"""Attributions as they come, piste's own or computed elsewhere, one explanation at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.checks import check_attributions
from piste.evaluation.inputs import listed_texts, text_names
from piste.sampling.records import Text

DEFAULTS: Mapping[str, object] = {
    "text_id": "0",
    "segment": 0,
    "token": "",
    "start": pd.NA,
    "end": pd.NA,
    "target": "",
    "surrogate": "given",
    "kind": "score",
    "score": np.nan,
    "space": "",
    "status": "ok",
}
"""Columns that an evaluation reads, and what stands for one that is missing."""

IMPORTANCE = "importance"
"""The kind of score that has a size but no direction."""

_WHOLE = ("segment", "start", "end")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_KEY = ["text_id", "target", "surrogate", "kind"]
_FAILURE = "error: "
NO_ATTRIBUTIONS = "no attributions"

Span = tuple[int, int, int]
"""``(segment, start, end)``: character offsets into one text, or the first or second of a pair."""


@dataclass(frozen=True)
class Explanation:
    """One score per unit of one text, by one method, for one target.

    Parameters
    ----------
    text_id, target, surrogate, kind
        What it is of; an empty target is the predicted class.
    space
        What the scores are effects on: ``logit``, ``probability``, ``raw``; empty if not known.
    spans
        Of each unit, in reading order; None where only tokens are known.
    tokens
        Of each unit, in reading order.
    scores
        Shape (n_units,), float64; NaN where there is none.
    failure
        Why there are no units; empty where there are.
    """

    text_id: str
    target: str
    surrogate: str
    kind: str
    space: str
    spans: tuple[Span, ...] | None
    tokens: tuple[str, ...]
    scores: FloatArray
    failure: str = ""

    @property
    def key(self) -> dict[str, object]:
        """The columns that start a row about it."""
        return {
            "text": self.text_id,
            "target": self.target,
            "surrogate": self.surrogate,
            "kind": self.kind,
        }

    @property
    def undefined(self) -> str:
        """Why nothing can be measured; empty where something can."""
        if self.failure:
            return _FAILURE + self.failure
        missing = int((~np.isfinite(self.scores)).sum())
        if missing:
            return f"undefined: {missing} of {len(self.scores)} scores are not finite"
        return ""


def read_attributions(path: str | PathLike[str]) -> pd.DataFrame:
    r"""Attributions from a CSV or TSV file with a header, written by piste or by anything else.

    Needed are ``score`` and either ``start`` and ``end`` (character offsets) or ``token`` (in reading
    order). ``text_id`` (default "0"), ``segment`` (0), ``target`` (the predicted class), ``surrogate``
    or ``method`` ("given"), ``kind`` ("score"), ``space`` (unknown) and ``status`` ("ok") may be left
    out; further columns are kept.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a needed column or has an entry that is no number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("token,score\nnull,0.5\nand,0.1\n")
    ...     read_attributions(path)[["text_id", "token", "score", "kind"]].values.tolist()
    [['0', 'null', 0.5, 'score'], ['0', 'and', 0.1, 'score']]
    """
    return checked_attributions(read_table(path))


def read_table(path: str | PathLike[str]) -> pd.DataFrame:
    """A CSV or TSV file as text, nothing interpreted: "null" and "NA" are words.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() not in _SEPARATORS:
        raise InputError(f"Got the file {path}; expected one that ends in .csv or .tsv.")
    separator = _SEPARATORS[path.suffix.lower()]
    try:
        return pd.read_csv(
            path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"Got {error} when reading {path}; expected UTF-8 CSV with a header."
        ) from error


def checked_attributions(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every column of `DEFAULTS`, of the right types; others are kept as they are.

    Raises
    ------
    InputError
        If it is no table, a needed column is missing, or an entry is no number.
    """
    check_attributions(table)
    if "surrogate" not in table and "method" in table:
        table = table.rename(columns={"method": "surrogate"})
    spans = {"start", "end"} <= set(table.columns)
    if "score" not in table or not (spans or "token" in table):
        raise InputError(
            f"Got attributions with columns {', '.join(map(repr, table.columns))}; expected 'score', and "
            "'start' and 'end' (or 'token', in reading order). Rename them."
        )
    table = table.reset_index(drop=True)
    for name, value in DEFAULTS.items():
        column = table[name] if name in table else pd.Series([value] * len(table), dtype=object)
        if name in _WHOLE:
            table[name] = _numbers(column).astype("Int64")
        else:
            table[name] = _numbers(column).astype("float64") if name == "score" else _words(column)
    return table


def _words(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return column.astype(object).where(column.notna(), "").map(str)


def _numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """A column of numbers; what is empty stays missing."""
    whole = column.name in _WHOLE
    written = column.astype(str).str.strip()
    given = column.notna() & (written != "")
    numbers = pd.to_numeric(column.where(given), errors="coerce")
    wrong = given & numbers.isna() & (written.str.lower() != "nan")
    if whole:
        wrong |= numbers.notna() & (numbers % 1 != 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"Got {column.iloc[row]!r} in column {column.name!r}, row {row + 1}; expected a "
            f"{'whole ' if whole else ''}number or nothing."
        )
    return numbers


def explanations(table: pd.DataFrame, text_ids: Iterable[str] = ()) -> list[Explanation]:
    """Every explanation of a table of attributions, in its order.

    A text that failed, or has no attributions at all, has one failed explanation for each surrogate and
    kind of the others, so that it is counted wherever they are.

    Parameters
    ----------
    table
        As from `piste.explain` or `read_attributions`.
    text_ids
        Of the texts that should be in it.

    Raises
    ------
    InputError
        As `checked_attributions`, or if a unit is there twice, or offsets are there in part.
    """
    checked = checked_attributions(table)
    found = [_explanation(*group) for group in _groups(checked)]
    named = {each.text_id for each in found}
    found += [_missing(name) for name in text_ids if name not in named]
    methods = list(dict.fromkeys((each.surrogate, each.kind) for each in found if each.kind))
    return [one for each in found for one in _spread(each, methods)]


def _spread(each: Explanation, methods: Sequence[tuple[str, str]]) -> list[Explanation]:
    """A failure as one of each method that it concerns."""
    if each.kind:
        return [each]
    concerned = [method for method in methods if each.surrogate in ("", method[0])]
    return [replace(each, surrogate=surrogate, kind=kind) for surrogate, kind in concerned] or [each]


def _missing(text_id: str) -> Explanation:
    return Explanation(text_id, "", "", "", "", None, (), np.zeros(0), NO_ATTRIBUTIONS)


def _groups(table: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], dict[str, np.ndarray]]]:
    """Key and columns of each explanation, in the order of the table."""
    # Plain arrays: thousands of small tables would take minutes.
    columns = {name: table[name].to_numpy(dtype=object) for name in DEFAULTS}
    columns["score"] = table["score"].to_numpy(dtype=np.float64)
    numbers = table.groupby(_KEY, sort=False).ngroup().to_numpy()
    order = np.argsort(numbers, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []:
        key = tuple(str(columns[name][rows[0]]) for name in _KEY)
        yield key, {name: column[rows] for name, column in columns.items()}


def _explanation(key: Sequence[str], rows: Mapping[str, np.ndarray]) -> Explanation:
    text_id, target, surrogate, kind = key
    status, space = str(rows["status"][0]), str(rows["space"][0])
    scores, tokens = rows["score"], tuple(rows["token"])
    about = f"{surrogate!r} ({kind}) of text {text_id!r}"
    known = np.array(
        [
            not (start is pd.NA or end is pd.NA)
            for start, end in zip(rows["start"], rows["end"], strict=True)
        ]
    )
    if status.startswith(_FAILURE) and np.isnan(scores).all() and not known.any():
        why = status.removeprefix(_FAILURE)
        return Explanation(text_id, target, surrogate, kind, space, None, (), np.zeros(0), why)
    if not known.any():
        return Explanation(text_id, target, surrogate, kind, space, None, tokens, scores)
    if not known.all():
        raise InputError(
            f"Got {int((~known).sum())} units without start and end for {about}; expected both for "
            "every unit or for none."
        )
    spans = list(zip(*(map(int, rows[name]) for name in _WHOLE), strict=True))
    if len(set(spans)) < len(spans):
        raise InputError(
            f"Got a unit twice for {about}; expected one score each. Tell methods apart in columns "
            "'surrogate' and 'kind', targets in 'target'."
        )
    order = sorted(range(len(spans)), key=spans.__getitem__)
    return Explanation(
        text_id,
        target,
        surrogate,
        kind,
        space,
        tuple(spans[index] for index in order),
        tuple(tokens[index] for index in order),
        scores[order],
    )


def texts_by_id(
    texts: Text | Sequence[Text] | Mapping[str, Text], text_ids: Sequence[str] | None = None
) -> dict[str, Text]:
    """Texts by name: their positions where no names are given, as in `piste.explain`.

    Raises
    ------
    InputError
        If there are none, or names are repeated or not as many as texts.

    >>> texts_by_id(["A film.", "No film."])
    {'0': 'A film.', '1': 'No film.'}
    """
    if isinstance(texts, Mapping):
        return {str(name): text for name, text in texts.items()}
    listed = listed_texts(texts)
    return dict(zip(text_names(text_ids, len(listed)), listed, strict=True))
