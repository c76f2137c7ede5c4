"""Texts from the command line: one text, or a file of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from piste._errors import InputError

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = (*_SEPARATORS, ".jsonl", ".txt")

Row = dict[str, object]


@dataclass(frozen=True)
class Inputs:
    """Texts, their names, and what else the file says of each, by column."""

    texts: list[str]
    text_ids: list[str]
    columns: Mapping[str, list[object]] = field(default_factory=dict)


def read_inputs(
    source: str, text_column: str, id_column: str | None, others: Sequence[str] = ()
) -> Inputs:
    """One text, or those of a .csv, .tsv, .jsonl (one object a line) or .txt (one text a line) file.

    A missing field is an empty text: its row says so and the others are explained. Other columns are given
    as they are, None where a field is missing.

    Raises
    ------
    InputError
        If a file is missing, unreadable, empty or lacks a column.
    """
    path = Path(source)
    if not _names_file(path):
        if others:
            raise InputError(f"Got a text for column {others[0]!r}; expected a file that has it.")
        return Inputs([source], ["0"])
    if not path.is_file():
        raise InputError(
            f"Got the file {source}, which does not exist; expected a file or a text. Check the path."
        )
    if path.suffix.lower() == ".txt":
        text_column = "text"
    rows = _rows(path)
    if not rows:
        raise InputError(f"Got {path.name} without any text; expected at least one.")
    for column in (text_column, id_column, *others):
        if column is not None and not any(column in row for row in rows):
            known = ", ".join(map(repr, dict.fromkeys(name for row in rows for name in row)))
            raise InputError(
                f"Got column {column!r} for {path.name}; expected one of {known}. Choose with "
                "--text-column and --id-column."
            )
    texts = [_field(row, text_column) for row in rows]
    numbers = [str(number) for number in range(len(rows))]
    names = numbers if id_column is None else [_field(row, id_column) for row in rows]
    return Inputs(texts, names, {column: [row.get(column) for row in rows] for column in others})


def _names_file(path: Path) -> bool:
    """Whether the argument means a file: it has an ending, and exists or looks like one of ours."""
    looks = path.suffix.lower() in _SUFFIXES and not any(map(str.isspace, str(path)))
    try:
        return bool(path.suffix) and (looks or path.is_file())
    except (OSError, ValueError):  # a text longer than any path, or with a NUL
        return False


def _field(row: Row, column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def _rows(path: Path) -> list[Row]:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"Got the file {path}; expected one that ends in {', '.join(_SUFFIXES)}.")
    try:
        if suffix in _SEPARATORS:
            return _table_rows(path, _SEPARATORS[suffix])
        # Only a line feed ends a text: other line separators of Unicode may stand inside one.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        if suffix == ".txt":
            return [{"text": line} for line in lines if line.strip()]
        return [_json_row(line, number) for number, line in enumerate(lines, 1) if line.strip()]
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"Got {error} when reading {path}; expected UTF-8 {suffix[1:]}.") from error


def _table_rows(path: Path, separator: str) -> list[Row]:
    # Every field stays text: "null" and "NA" are words. The header is read as a row, since pandas would
    # take the first field of rows longer than the header for an index instead of refusing them.
    table = pd.read_csv(
        path, sep=separator, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig"
    )
    header, *rows = table.astype(object).where(table.notna(), None).to_numpy().tolist()
    if len(set(header)) < len(header):
        raise InputError(
            f"Got {path.name} with columns {', '.join(map(repr, header))}; expected each name once."
        )
    return [dict(zip(header, row, strict=True)) for row in rows]


def _json_row(line: str, number: int) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise InputError(
            f'Got {line:.60} in line {number}; expected an object such as {{"text": "…"}}.'
        )
    return row
