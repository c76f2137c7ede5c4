"""Files: tables, their provenance, and whole studies, each written completely or not at all."""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from errno import EINVAL, EISDIR
from pathlib import Path

import numpy as np
import pandas as pd

from piste._errors import InputError


def csv_text(table: pd.DataFrame, *, header: bool = True) -> str:
    """RFC 4180: fields quoted where needed, CRLF between records, floats that read back bit for bit."""
    return table.to_csv(index=False, header=header, lineterminator="\r\n")


def json_text(content: object) -> str:
    """Indented JSON with sorted keys: equal contents, equal bytes. NaN and infinity become null."""
    text = json.dumps(
        _finite(content), indent=2, sort_keys=True, ensure_ascii=False, default=plain_number
    )
    return text + "\n"


def plain_number(value: object) -> object:
    """A numpy number as Python's own, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no number")


def _finite(content: object) -> object:
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def meta_path(path: Path) -> Path:
    """``out.csv`` has its provenance in ``out.meta.json`` beside it."""
    return path.with_suffix(".meta.json")


def write_files(files: Mapping[Path, bytes | Iterable[bytes]]) -> None:
    """Write all of these files, or none: each is completed beside its place before any is moved there.

    A file may come in pieces, which are made one after the other, those of the first file first.

    Raises
    ------
    InputError
        If a folder is missing or not writable.
    """
    ready: list[tuple[str, Path]] = []
    try:
        for path, content in files.items():
            path = path.resolve()  # through a link, to the file that it names
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            if path.exists() and not path.is_file():
                raise OSError(EINVAL, "a device, not a file,")
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            ready.append((temporary, path))
            with os.fdopen(handle, "wb") as file:
                file.writelines([content] if isinstance(content, bytes) else content)
            # Temporary files are private; a result is as readable as any new file.
            os.chmod(temporary, 0o666 & ~_umask())
        for temporary, path in ready:
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"Got {error.strerror or error} when writing {path}; expected an existing, writable "
            "folder. Create it or choose another path."
        ) from error
    finally:
        for temporary, _ in ready:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
