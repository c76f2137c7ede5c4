"""``piste store``: look into a store of answers, take it elsewhere, tidy it up."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from piste._console import errors_as_one_line

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look into the store of answers, export and import them, give unused space back.",
)

Location = Annotated[
    Path | None, typer.Option("--store", help="The store; by default the one in your cache folder.")
]


@app.callback()
def _store() -> None:
    """Look into the store of answers, export and import them, give unused space back."""


@app.command()
def info(store: Location = None) -> None:
    """Show whose answers a store holds, and how many."""
    with errors_as_one_line():
        from piste.sampling.store import info as describe
        from piste.sampling.store import open_store

        with open_store(store, must_exist=True, writable=False) as opened:
            about = describe(opened)
        table = Table(
            title=f"{escape(str(about.path))} ({decimal(about.n_bytes)})", title_justify="left"
        )
        for heading in ("model", "labels", "kind", "asked for", "answers", "not finite"):
            table.add_column(heading, overflow="fold")
        for model in about.models:
            table.add_row(
                escape(model.fingerprint),
                escape(", ".join(model.labels)),
                model.kind,
                model.output or "",
                str(model.n_answers),
                str(model.n_non_finite),
            )
        Console().print(table)


@app.command(epilog="[bold]Example[/bold]  piste store export answers.csv")
def export(
    path: Annotated[Path, typer.Argument(help="A .csv file, or .parquet with pyarrow installed.")],
    store: Location = None,
) -> None:
    """Write every answer to a table that `piste store import` reads bit for bit."""
    with errors_as_one_line():
        from piste.sampling.store import export as write
        from piste.sampling.store import open_store

        with open_store(store, must_exist=True, writable=False) as opened:
            n_answers = write(opened, path)
        _say(f"Exported {n_answers} answers to {path}.")


@app.command("import", epilog="[bold]Example[/bold]  piste store import answers.csv --store my.sqlite")
def import_(
    path: Annotated[Path, typer.Argument(help="A table written by `piste store export`.")],
    store: Location = None,
) -> None:
    """Add the answers of a table to a store; what it knows already stays as it is."""
    with errors_as_one_line():
        from piste.sampling.store import load, open_store

        with open_store(store) as opened:
            n_new = load(path, opened)
        _say(f"Imported {n_new} new answers from {path}.")


@app.command()
def vacuum(
    store: Location = None,
    drop_non_finite: Annotated[
        bool,
        typer.Option("--drop-non-finite", help="Forget NaN and infinite answers: ask them again."),
    ] = False,
) -> None:
    """Give unused space back to the disk."""
    with errors_as_one_line():
        from piste.sampling.store import open_store
        from piste.sampling.store import vacuum as tidy

        with open_store(store, must_exist=True) as opened:
            freed = tidy(opened, drop_non_finite=drop_non_finite)
            _say(f"Freed {decimal(max(freed, 0))} of {opened.path}.")


def _say(message: str) -> None:
    Console(soft_wrap=True, highlight=False).print(message, markup=False)
