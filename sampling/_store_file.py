"""The SQLite file under a store: opened only where it is intact and writable, and its errors said.

Write-ahead log and ``synchronous=NORMAL``: a committed answer is with the operating system, so that it
outlives the process however that ends. A power failure can cost the last commits, never the file.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from piste._errors import InputError
from piste.sampling._store_bytes import finite

VERSION = 1
_APPLICATION = 0x50495354  # "PIST" in the file's header tells a store from another program's database
_TIMEOUT = 60.0  # seconds to wait for another process; its transactions take milliseconds

# A row's checksum, as SQLite would not notice a changed byte inside a value.
_SCHEMA = (
    """CREATE TABLE models (
        id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL, output TEXT NOT NULL,
        labels BLOB NOT NULL, kind TEXT NOT NULL, checksum INTEGER NOT NULL,
        UNIQUE (fingerprint, output))""",
    """CREATE TABLE answers (
        key BLOB PRIMARY KEY, model INTEGER NOT NULL REFERENCES models, query BLOB NOT NULL,
        scores BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID""",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
_WRITE_NOTHING = ("DELETE FROM answers WHERE false",)  # an error where the file is read-only
DAMAGED = (
    "expected an intact store of piste. It was left as it is: restore a copy, or choose another file"
)
_UNWRITABLE = (
    "expected a file and a folder that can be written, as answers that were paid for must be kept. "
    "Choose another place, or copy the store to one"
)
_SAFE = "every answer stored before is safe"
_ADVICE = {
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
    sqlite3.SQLITE_FULL: f"{_SAFE}. Free some space and run again: only what is missing is asked",
    sqlite3.SQLITE_IOERR: f"{_SAFE}. Check the disk and run again: only what is missing is asked",
    sqlite3.SQLITE_BUSY: f"another process has held it for {_TIMEOUT:.0f} s. Run again after it",
}


def connect(path: Path, *, writable: bool = True) -> sqlite3.Connection:
    """A connection to a store that was found intact and writable, or made; for any thread.

    Parameters
    ----------
    path
        The file.
    writable
        Whether it must be; otherwise a store where nothing can be written is opened all the same.

    Raises
    ------
    InputError
        If it is damaged, or not writable where it must be.
    """
    path = path.absolute()
    with errors("opening", path):
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(
                f"Got the store '{path}'; expected a file in an existing folder. Create "
                f"'{path.parent}' first or choose another place."
            )
        if not writable and path.exists() and not _can_write(path):
            return _frozen(path)
        # A journal is left where the making of a store was cut short: there is nothing in it yet.
        if _size(path) and not Path(f"{path}-journal").exists():
            _inspect(path)
        connection = _connection(str(path))
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep what is written inside as a whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def errors(doing: str, path: Path) -> Iterator[None]:
    """SQLite's and the file system's errors as piste's."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Got '{error}' when {doing} the store '{path}'; {_UNWRITABLE}.") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        advice = _ADVICE.get(code, "expected an open store of piste. Open it again")
        raise InputError(f"Got '{error}' when {doing} the store '{path}'; {advice}.") from error


def _connection(database: str) -> sqlite3.Connection:
    return sqlite3.connect(
        database,
        timeout=_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
        uri=database.startswith("file:"),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _can_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path, path.parent))


def _frozen(path: Path) -> sqlite3.Connection:
    """A connection to a store that nobody writes to, as nothing can be written there."""
    log = Path(f"{path}-wal")
    if _size(log):
        raise InputError(
            f"Got the store '{path}' with answers in its log '{log.name}', where nothing can be written; "
            "expected a store that was closed before it was copied. Copy both to a folder that can be "
            "written."
        )
    _inspect(path, "&immutable=1")
    connection = _connection(f"{path.as_uri()}?mode=ro&immutable=1")
    connection.create_function("finite", 1, finite, deterministic=True)
    return connection


def _inspect(path: Path, how: str = "") -> None:
    """Refuse what is damaged or no store, by a connection that cannot write to it even when closed."""
    with closing(_connection(f"{path.as_uri()}?mode=ro{how}")) as connection:
        _is_new(connection, path)
        fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    # SQLite takes what is missing of the last page for zeros. A write-ahead log may hold that page.
    if _size(path) % page_size and not _size(Path(f"{path}-wal")):
        fault = "its last page is cut"
    if fault != "ok":
        reason = fault.splitlines()[-1]  # the first says only which database
        raise InputError(f"Got '{reason}' when opening the store '{path}'; {DAMAGED}.")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.create_function("finite", 1, finite, deterministic=True)
    with transaction(connection):
        for statement in _SCHEMA if _is_new(connection, path) else _WRITE_NOTHING:
            connection.execute(statement)
    _patiently(connection, "PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing was ever written here; if something was, it must be a store of this version."""
    application, version, schema = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "schema_version")
    )
    if not application and not schema:
        return True
    if application != _APPLICATION:
        raise InputError(
            f"Got '{path}', another program's database; expected a store of piste. It was left as it "
            "is: choose another file."
        )
    if version > VERSION:
        raise InputError(
            f"Got the store '{path}' of version {version}; expected {VERSION} at most. Upgrade piste, "
            "or choose another file."
        )
    return False


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement for which SQLite does not always wait by itself."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
