"""Answers of any number of models in one file."""

import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from json import loads
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling._store_bytes import (
    checksum,
    decode_query,
    decode_text,
    decode_values,
    encode_json,
    encode_query,
    encode_text,
    encode_values,
)
from piste.sampling._store_file import DAMAGED, connect, errors, transaction
from piste.sampling.models.protocol import Scores
from piste.sampling.records import OutputKind, Query


class Answer(NamedTuple):
    """One stored answer, with all that is needed to store it elsewhere."""

    fingerprint: str
    output: OutputKind | None
    labels: tuple[str, ...]
    kind: OutputKind
    query: Query
    values: FloatArray


@dataclass(frozen=True)
class StoredModel:
    """What a store holds of one model.

    Parameters
    ----------
    fingerprint
        What identifies the model.
    output
        The output kind asked for; None where the fingerprint tells it.
    labels, kind
        What its numbers are.
    n_answers
        Distinct inputs with an answer.
    n_non_finite
        Those of them with a NaN or infinite output.
    """

    fingerprint: str
    output: OutputKind | None
    labels: tuple[str, ...]
    kind: OutputKind
    n_answers: int
    n_non_finite: int


class AnswerStore:
    """An open store, made by `piste.sampling.store.open_store`; threads can share it.

    Close it or use it as a context manager; otherwise it is closed when it is no longer used.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.path = path
        self._lock = Lock()
        self._connection = connect(path, writable=writable)
        self._finalizer = weakref.finalize(self, self._connection.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; once is enough."""
        with self._lock:
            self._finalizer()

    def of(self, fingerprint: str, output: OutputKind | None = None) -> "ModelAnswers":
        """One model's answers, as a `piste.sampling.collect.Store`."""
        return ModelAnswers(self, fingerprint, output)

    @property
    def n_bytes(self) -> int:
        """Size of the file and its write-ahead log."""
        log = self.path.with_name(self.path.name + "-wal")
        return sum(path.stat().st_size for path in (self.path, log) if path.exists())

    def models(self) -> list[StoredModel]:
        """What is kept of each model, by fingerprint."""
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT fingerprint, output, labels, kind, models.checksum, count(key), "
                "total(NOT finite(scores)) FROM models LEFT JOIN answers ON model = id "
                "GROUP BY id ORDER BY fingerprint, output"
            ).fetchall()
        models = []
        for fingerprint, output, labels, kind, about, n, n_bad in rows:
            self.check(about, fingerprint, output, labels, kind)
            names = tuple(loads(decode_text(labels)))
            models.append(
                StoredModel(decode_text(fingerprint), output or None, names, kind, n, int(n_bad))
            )
        return models

    def answers(self) -> Iterator[Answer]:
        """Every answer, in an order that does not depend on when it was stored."""
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT fingerprint, output, labels, kind, models.checksum, key, query, scores, "
                "answers.checksum FROM answers JOIN models ON model = id "
                "ORDER BY fingerprint, output, key"
            ).fetchall()
        for fingerprint, output, labels, kind, about, key, query, scores, own in rows:
            self.check(about, fingerprint, output, labels, kind)
            self.check(own, key, query, scores)
            yield Answer(
                decode_text(fingerprint),
                output or None,
                tuple(loads(decode_text(labels))),
                kind,
                decode_query(query),
                decode_values(scores),
            )

    def compact(self, *, drop_non_finite: bool) -> None:
        """Give unused space back; forget answers that are not finite if so wished."""
        if drop_non_finite:
            with self.writing() as connection:
                connection.execute("DELETE FROM answers WHERE NOT finite(scores)")
                connection.execute("DELETE FROM models WHERE id NOT IN (SELECT model FROM answers)")
        with self.reading() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._lock, errors("reading", self.path):
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time, in one transaction."""
        with self._lock, errors("writing to", self.path), transaction(self._connection):
            yield self._connection

    def check(self, expected: int, *fields: bytes | str) -> None:
        """Refuse a row that is not as it was written."""
        if checksum(*fields) != expected:
            raise InputError(f"Got the store '{self.path}' with an altered row; {DAMAGED}.")


class ModelAnswers:
    """One model's answers in a file: the `Store` of `piste.sampling.collect` that lasts."""

    def __init__(self, store: AnswerStore, fingerprint: str, output: OutputKind | None) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._name = (encode_text(fingerprint), output or "")
        self._key_prefix = encode_json([fingerprint, output or ""])

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the outputs kept; None while there are none."""
        with self._store.reading() as connection:
            model = self._model(connection)
        return None if model is None else model[1]

    @property
    def kind(self) -> OutputKind | None:
        """What the numbers kept are; None while there are none."""
        with self._store.reading() as connection:
            model = self._model(connection)
        return None if model is None else model[2]

    def get(self, queries: Sequence[Query]) -> list[FloatArray | None]:
        """The row of each query, shape (n_outputs,), or None where it has not been asked."""
        encoded = [encode_query(query) for query in queries]
        keys = [self._key(query) for query in encoded]
        find = "SELECT scores, checksum FROM answers WHERE key = ?"
        with self._store.reading() as connection:
            rows = [connection.execute(find, (key,)).fetchone() for key in keys]
        for key, query, row in zip(keys, encoded, rows, strict=True):
            if row is not None:
                self._store.check(row[1], key, query, row[0])
        return [None if row is None else decode_values(row[0]) for row in rows]

    def put(self, queries: Sequence[Query], scores: Scores) -> None:
        """Commit a batch of answers, one row per query; an answer that is there already stays.

        Raises
        ------
        ModelError
            If the labels or the kind are not those of the answers kept before.
        InputError
            If the batch cannot be written; then no row of it is.
        """
        rows = []
        for query, values in zip(map(encode_query, queries), scores.values, strict=True):
            row = (self._key(query), query, encode_values(values))
            rows.append((*row, checksum(*row)))
        with self._store.writing() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO answers (model, key, query, scores, checksum) "
                f"VALUES ({self._registered(connection, scores)}, ?, ?, ?, ?)",
                sorted(rows),  # in the order of the file, which saves half the time of a large import
            )

    def _registered(self, connection: sqlite3.Connection, scores: Scores) -> int:
        model = self._model(connection)
        if model is None:
            row = (*self._name, encode_json(scores.labels), scores.kind)
            connection.execute(
                "INSERT INTO models (fingerprint, output, labels, kind, checksum) "
                "VALUES (?, ?, ?, ?, ?)",
                (*row, checksum(*row)),
            )
            return self._registered(connection, scores)
        number, labels, kind = model
        if (labels, kind) != (scores.labels, scores.kind):
            raise ModelError(
                f"The model returned {', '.join(scores.labels)} ({scores.kind}); expected "
                f"{', '.join(labels)} ({kind}), which the store '{self._store.path}' holds of "
                f"'{self._fingerprint}'. Use another store for another model, or give it another "
                "fingerprint."
            )
        return number

    def _model(self, connection: sqlite3.Connection) -> tuple[int, tuple[str, ...], OutputKind] | None:
        find = "SELECT id, labels, kind, checksum FROM models WHERE fingerprint = ? AND output = ?"
        row = connection.execute(find, self._name).fetchone()
        if row is None:
            return None
        number, labels, kind, expected = row
        self._store.check(expected, *self._name, labels, kind)
        return number, tuple(loads(decode_text(labels))), kind

    def _key(self, query: bytes) -> bytes:
        return sha256(self._key_prefix + query).digest()
