"""What every command does before its first query: open the model, check what it was given."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from piste._errors import InputError
from piste.evaluation.report import dry_run_report
from piste.sampling.models import load_model
from piste.sampling.models.protocol import BlackBox
from piste.surrogates.named import named_surrogates
from piste.surrogates.records import Options
from piste.surrogates.rounds import AutoBudget

_LISTS = ("labels", "providers")  # model options that are several texts


def opened_model(
    uri: str,
    *,
    base_url: str | None = None,
    concurrency: int | None = None,
    rpm: float | None = None,
    price: str | None = None,
    max_cost: float | None = None,
    others: Sequence[str] | None = None,
    dry_run: bool = False,
) -> BlackBox:
    """The model, with the options that were given; one that is not its adapter's is refused.

    A dry run sends nothing, and so needs no key.
    """
    options = dict(map(_named_value, others or ())) | {
        "base_url": base_url,
        "concurrency": concurrency,
        "rpm": rpm,
        "price": _numbers(price),
        "max_cost": max_cost,
    }
    if dry_run and uri.startswith("openai:") and "OPENAI_API_KEY" not in os.environ:
        options["api_key"] = "none-needed"
    return load_model(uri, **{name: value for name, value in options.items() if value is not None})


def _named_value(given: str) -> tuple[str, object]:
    """NAME=VALUE: JSON where it is some, a list of texts between commas, or a text."""
    name, separator, value = given.partition("=")
    if not separator or not name.isidentifier():
        raise InputError(f"Got --model-option {given!r}; expected NAME=VALUE, such as labels=good,bad.")
    if name == "api_key":
        raise InputError(
            "Got a key on the command line, where others can read it; expected it in the environment. "
            "Set OPENAI_API_KEY, or what the adapter's page says."
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value.split(",") if name in _LISTS else value


def _numbers(given: str | None) -> list[float] | None:
    """Numbers between commas."""
    if given is None:
        return None
    try:
        return [float(number) for number in given.split(",")]
    except ValueError:
        raise InputError(f"Got --price {given!r}; expected numbers such as 0.15,0.6.") from None


def budget_of(given: str, automatic: AutoBudget) -> int | AutoBudget:
    """The number given, or the automatic budget."""
    if given == "auto":
        return automatic
    try:
        return int(given)
    except ValueError:
        raise InputError(
            f"Got --budget {given!r}; expected a number of model queries per text, or 'auto'."
        ) from None


def say_dry_run(
    box: BlackBox, texts: Sequence[str], units: str, context: str | None, most: int, more: str = ""
) -> None:
    """What so many queries per text would take at most, and a remark; nothing is sent."""
    options = Options(named_surrogates("lime"), units=units, context=context, budget=max(most, 2))
    Console().print(dry_run_report(box, texts, options))
    if more:
        Console().print(more)


def read_context(path: Path | None) -> str | None:
    """The template in a file, if there is one."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"Got {error} when reading {path}; expected a UTF-8 template with one {{text}}."
        ) from error


def beside(out: Path | None, endings: Sequence[str]) -> list[Path]:
    """The files that are written beside one, if there is one, as NAME.ENDING."""
    return [] if out is None else [out.with_suffix(f".{ending}") for ending in endings]


def check_outputs(read: Sequence[str | Path | None], written: Sequence[Path | None]) -> None:
    """Refuse before the first query what could not be written after the last, or would destroy an input."""
    inputs = {_resolved(path) for path in read if path is not None}
    outputs = [path for path in written if path is not None]
    for path in outputs:
        if (
            path.is_dir()
            or (path.exists() and not path.is_file())
            or not os.access(path.parent, os.W_OK)
        ):
            raise InputError(
                f"Got {path} to write to; expected a file in an existing, writable folder. Choose "
                "another path, or create the folder."
            )
        if _resolved(path) in inputs or [*map(_resolved, outputs)].count(_resolved(path)) > 1:
            raise InputError(
                f"Got {path} twice; expected another file for each input and output. Rename one."
            )


def _resolved(path: str | Path) -> str:
    """The one name of a file that may be written in several ways; a text stays as it is."""
    try:
        return str(Path(path).resolve())
    except (OSError, ValueError):  # a text longer than any path, or with a NUL
        return str(path)
