"""Texts from the command line: one text, or a file of them."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from piste._errors import InputError

_READERS = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = (*_READERS, ".jsonl", ".txt")


@dataclass(frozen=True)
class Inputs:
    """Texts and their names."""

    texts: list[str]
    text_ids: list[str]


def read_inputs(source: str, text_column: str, id_column: str | None) -> Inputs:
    """One text, or the texts of a .csv, .tsv, .jsonl (one object a line) or .txt (one text a line) file.

    Raises
    ------
    InputError
        If a file is missing, unreadable, empty or lacks a column.
    """
    path = Path(source)
    if not _names_file(path):
        return Inputs([source], ["0"])
    if not path.is_file():
        raise InputError(
            f"Got the file {source}, which does not exist; expected a file or a text. Check the path."
        )
    table = _read(path)
    if path.suffix == ".txt":
        text_column = "text"
    for column in (text_column, *([id_column] if id_column else [])):
        if column not in table:
            raise InputError(
                f"Got column {column!r} for {path.name}; it has {', '.join(map(repr, table.columns))}. Choose "
                "with --text-column and --id-column."
            )
    if table.empty:
        raise InputError(f"Got {path.name} without any row; expected at least one text.")
    ids = table[id_column] if id_column else pd.Series(range(len(table)))
    return Inputs(table[text_column].astype(str).tolist(), ids.astype(str).tolist())


def _names_file(path: Path) -> bool:
    """Whether the argument means a file: it exists, or looks like one and nothing else."""
    looks = path.suffix.lower() in _SUFFIXES and not any(c.isspace() for c in str(path))
    try:
        return looks or (path.suffix.lower() in _SUFFIXES and path.is_file())
    except OSError:  # a text longer than any path
        return False


def _read(path: Path) -> pd.DataFrame:
    suffix = path.suffix.lower()
    try:
        if suffix == ".txt":
            lines = path.read_text(encoding="utf-8").splitlines()
            return pd.DataFrame({"text": [line for line in lines if line.strip()]})
        if suffix == ".jsonl":
            return pd.read_json(path, lines=True, dtype=False, convert_dates=False)
        # Every field stays text: "null" and "NA" are words.
        return pd.read_csv(
            path, sep=_READERS[suffix], dtype=str, keep_default_na=False, encoding="utf-8"
        )
    except (OSError, ValueError) as error:
        raise InputError(f"Got {error} when reading {path}; expected UTF-8 {suffix[1:]}.") from error
