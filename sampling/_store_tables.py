"""Stored answers as a table, to be read by anything and stored elsewhere."""

import json
import os
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteError
from piste.sampling._store_bytes import decode_query, decode_text, encode_query, encode_text
from piste.sampling._store_database import Answer, AnswerStore
from piste.sampling.models.protocol import Scores
from piste.sampling.records import OutputKind

FORMAT = "1"
_COLUMNS = ("format", "model", "output", "kind", "labels", "query", "scores")
_EXPECTED = "expected a table written by `piste store export`. Export it again"


def export(store: AnswerStore, path: str | os.PathLike[str]) -> int:
    """Write every answer to a new table; returns how many.

    One row per answer: format version, model fingerprint, output kind asked for, kind, and as JSON
    labels, query and scores (numbers that read back bit for bit). Equal answers make equal files.

    Parameters
    ----------
    store
        The store.
    path
        A ``.csv`` file (UTF-8, RFC 4180), or ``.parquet`` with pyarrow installed; replaced as a whole.

    Raises
    ------
    InputError
        If the file cannot be written, has another suffix, or pyarrow is missing.
    """
    path = Path(path).expanduser()
    suffix = _suffix(path)
    table = pd.DataFrame(
        [_row(answer) for answer in store.answers()], columns=list(_COLUMNS), dtype=object
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if suffix == ".csv":
            temporary.write_bytes(encode_text(table.to_csv(index=False, lineterminator="\r\n")))
        else:
            table.to_parquet(temporary, engine="pyarrow", index=False)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:  # the latter: half a character, which Parquet cannot hold
        reason = getattr(error, "strerror", None) or error
        why = str(reason).replace(str(temporary), str(path))  # nobody asked for that name
        raise InputError(
            f"Got {why} when writing '{path}'; expected an existing, writable folder. Choose another "
            "path, or .csv for texts with lone surrogates."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return len(table)


def load(path: str | os.PathLike[str], store: AnswerStore) -> int:
    """Store the answers of a table written by :func:`export`; returns how many were new.

    What the store knows already stays as it is. The whole table is read before anything is stored.

    Raises
    ------
    InputError
        If the file is no such table, or pyarrow is missing.
    ModelError
        If a model's labels or kind differ from those in the store.
    """
    path = Path(path).expanduser()
    answers = _read(path)
    before = sum(model.n_answers for model in store.models())
    for (fingerprint, output, labels, kind), group in groupby(answers, key=lambda answer: answer[:4]):
        rows = list(group)
        scores = Scores(np.stack([row.values for row in rows]), labels, kind)
        store.of(fingerprint, output).put([row.query for row in rows], scores)
    return sum(model.n_answers for model in store.models()) - before


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InputError(f"Got '{path}'; expected a name that ends in .csv or .parquet.")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError(
            f"Got '{path}' without pyarrow, which reads and writes Parquet. Install it with: pip "
            "install 'piste[parquet]', or use .csv."
        )
    return suffix


def _row(answer: Answer) -> tuple[str, ...]:
    return (
        FORMAT,
        answer.fingerprint,
        answer.output or "",
        answer.kind,
        json.dumps(answer.labels, ensure_ascii=False),
        decode_text(encode_query(answer.query)),
        json.dumps(answer.values.tolist()),
    )


def _read(path: Path) -> list[Answer]:
    """The answers of a table, each model's in one stretch."""
    suffix = _suffix(path)
    try:
        if suffix == ".csv":
            table = pd.read_csv(path, dtype=object, na_filter=False, encoding_errors="surrogatepass")
        else:
            table = pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as error:
        raise InputError(f"Got {error} when reading '{path}'; {_EXPECTED}.") from error
    if tuple(table.columns) != _COLUMNS:
        raise InputError(f"Got '{path}' with columns {', '.join(table.columns)}; {_EXPECTED}.")
    answers = []
    for number, row in enumerate(table.itertuples(index=False, name=None), start=1):
        try:
            answers.append(_answer(row))
        except (PisteError, ValueError, TypeError) as error:
            raise InputError(
                f"Got row {number} of '{path}', which cannot be used ({error}); {_EXPECTED}."
            ) from error
    return sorted(answers, key=lambda answer: (answer.fingerprint, answer.output or ""))


def _answer(row: tuple[str, ...]) -> Answer:
    version, fingerprint, output, kind, labels, query, scores = row
    if version != FORMAT:
        raise ValueError(f"format {version!r} instead of {FORMAT!r}")
    names = tuple(str(label) for label in json.loads(labels))
    checked = Scores(np.array([json.loads(scores)], np.float64), names, _output_kind(kind))
    return Answer(
        fingerprint,
        _output_kind(output) if output else None,
        checked.labels,
        checked.kind,
        decode_query(encode_text(query)),
        checked.values[0],
    )


def _output_kind(name: str) -> OutputKind:
    for kind in get_args(OutputKind):
        if name == kind:
            return cast("OutputKind", kind)
    raise ValueError(f"the output kind {name!r}")
