"""What every command of the command line does with warnings and errors."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from piste._errors import InputError, PisteError, PisteWarning


@contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Warnings and deliberate errors as one line each on stderr; others are bugs and stay whole."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(sort: str, message: object, colour: str) -> None:
        console.print(f"{sort}: {' '.join(str(message).split())}", style=colour, markup=False)

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say("warning", message, "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always", PisteWarning)
        warnings.showwarning = show
        try:
            yield
        except PisteError as error:
            say("error", error, "red")
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from error
