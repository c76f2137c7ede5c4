"""What every command of the command line does with warnings and errors."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from piste._errors import InputError, PisteError


@contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Warnings and deliberate errors as one line each on stderr; other errors are bugs and stay whole."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def show(message: Warning | str, *_: object, **__: object) -> None:
        console.print(f"warning: {message}", style="yellow", markup=False)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        try:
            yield
        except PisteError as error:
            console.print(f"error: {error}", style="red", markup=False)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from error
