"""Answers that outlive the process: a run that was killed resumes, and nothing is asked twice.

>>> from piste.sampling.models.callable import CallableModel
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/answers.sqlite") as store:
...     model = Stored(CallableModel(lambda texts: [len(text) for text in texts]), store)
...     model.score(["a film", "a"]).values.tolist()
...     model.score(["a film", "film"]).values.tolist()
...     model.n_asked, model.n_known
[[6.0], [1.0]]
[[6.0], [4.0]]
(3, 1)

An answer is kept for an exact input of a model (its fingerprint) and the output kind asked for. NaN
and infinity were paid for as well: they are kept and given again, until `vacuum` is told to drop them.

Processes of one machine can share a store; a network drive cannot hold one, as SQLite's write-ahead log
needs shared memory. Copy a store after it was closed, or `export` it.
"""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from piste._errors import InputError
from piste.sampling._store_database import AnswerStore, StoredModel
from piste.sampling._store_models import (
    Stored,
    StoredOnly,
    StoredTokenizing,
    listed,
    with_store,
)
from piste.sampling._store_tables import export, load

__all__ = [
    "AnswerStore",
    "StoreInfo",
    "Stored",
    "StoredModel",
    "StoredOnly",
    "StoredTokenizing",
    "chosen_store",
    "default_location",
    "export",
    "info",
    "load",
    "open_answers",
    "open_store",
    "vacuum",
    "with_store",
]


def default_location() -> Path:
    """The file in the user's cache folder."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    else:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        folder = named if named.is_absolute() else home / ".cache"  # a relative one is to be ignored
    return folder / "piste" / "answers.sqlite"


def open_store(
    location: str | os.PathLike[str] | None = None,
    *,
    must_exist: bool = False,
    writable: bool = True,
) -> AnswerStore:
    """Open a store, or make one.

    Parameters
    ----------
    location
        A file in an existing folder; None for the one in the user's cache folder, which is made.
    must_exist
        Whether to refuse to make one.
    writable
        Whether to refuse one where nothing can be written.

    Raises
    ------
    InputError
        If the file is damaged, no store, of a newer piste, missing although it must exist, or cannot be
        written: all before the first query, and without touching it.
    """
    path = default_location() if location is None else Path(location).expanduser()
    if must_exist and not path.exists():
        raise InputError(
            f"Got no store at '{path}'; expected one made by an earlier run. Explain a model with "
            "store= (or --store) first, or give another path."
        )
    if location is None:
        _make_private(path.parent)
    return AnswerStore(path, writable=writable)


def chosen_store(
    store: str | os.PathLike[str] | AnswerStore | None, *, remote: bool
) -> AbstractContextManager[AnswerStore | None]:
    """The store that an option means, closed at the end if it was opened here.

    Parameters
    ----------
    store
        None for the one in the user's cache folder if the model is remote, and none otherwise; ``none``
        for none; a path; or an open store.
    remote
        Whether each query costs a request.

    Raises
    ------
    InputError
        As for :func:`open_store`.
    """
    if isinstance(store, AnswerStore):
        return nullcontext(store)
    if store == "none" or (store is None and not remote):
        return nullcontext()
    return open_store(store)


def open_answers(location: str | os.PathLike[str], *, fingerprint: str | None = None) -> StoredOnly:
    """The stored answers of a file as a model.

    Parameters
    ----------
    location
        The store.
    fingerprint
        Whose answers, where it holds those of several models; a part that only one has is enough.

    Raises
    ------
    InputError
        If there is no such store, or it does not hold just one such model.
    """
    store = open_store(location, must_exist=True, writable=False)
    models = store.models()
    if fingerprint is not None:
        models = [model for model in models if model.fingerprint == fingerprint] or [
            model for model in models if fingerprint in model.fingerprint
        ]
    if len(models) != 1:
        raise InputError(
            f"Got fingerprint={fingerprint!r}; the store '{store.path}' has answers of "
            f"{listed(store)}. Choose one of them, as in 'stored:{location}#FINGERPRINT'."
        )
    return StoredOnly(store, models[0].fingerprint, output=models[0].output)


@dataclass(frozen=True)
class StoreInfo:
    """What a store holds.

    Parameters
    ----------
    path
        Where it is.
    n_bytes
        Its size on disk.
    models
        What it holds of each model.
    """

    path: Path
    n_bytes: int
    models: tuple[StoredModel, ...]


def info(store: AnswerStore) -> StoreInfo:
    """What a store holds."""
    return StoreInfo(store.path, store.n_bytes, tuple(store.models()))


def vacuum(store: AnswerStore, *, drop_non_finite: bool = False) -> int:
    """Give unused space back to the disk; returns how many bytes.

    Parameters
    ----------
    store
        The store.
    drop_non_finite
        Whether to forget answers with NaN or infinity, so that they are asked again.
    """
    before = store.n_bytes
    store.compact(drop_non_finite=drop_non_finite)
    return before - store.n_bytes


def _make_private(folder: Path) -> None:
    """Answers come with the texts that were explained, which are nobody else's business."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Got {error.strerror or error} when making '{folder}'; expected a writable cache folder. "
            "Choose a file with store= (or --store), or 'none'."
        ) from error
