"""The command line: results to stdout or files, progress and errors to stderr.

Exit codes: 0 done, 1 the model failed, 2 wrong use.
"""

import os
import sys
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from piste._console import errors_as_one_line
from piste._errors import InputError
from piste._inputs import read_inputs
from piste._store_cli import app as store_app
from piste.evaluation.export import meta_path
from piste.evaluation.report import dry_run_report, terminal_report
from piste.evaluation.study import explain as explain_texts
from piste.sampling.collect import stderr_progress
from piste.sampling.models import ADAPTERS, load_model
from piste.sampling.models.protocol import BlackBox
from piste.surrogates.named import named_surrogates
from piste.surrogates.records import Options
from piste.surrogates.rounds import AutoBudget

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Explain text classifiers with surrogate models: LIME, SHAP and SLALOM, as CSV.",
)

app.add_typer(store_app, name="store")

SURROGATES = ["lime", "shap", "slalom"]

EXPLAIN_EXAMPLES = """
[bold]Examples[/bold]

  piste explain "A gripping film." --out attributions.csv

  piste explain reviews.csv --text-column text --model hf:DIR --surrogate lime --out a.csv

  piste explain reviews.txt --units sentence --masking mask-token --budget 500 --json a.json
"""


@app.callback()
def _piste() -> None:
    """Explain text classifiers with surrogate models: LIME, SHAP and SLALOM, as CSV."""


@app.command(epilog=EXPLAIN_EXAMPLES)
def explain(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="A text, or a .csv, .tsv, .jsonl or .txt file of texts."
        ),
    ],
    model: Annotated[
        str, typer.Option(help="A model URI; `piste models` lists the kinds.")
    ] = "builtin:sentiment",
    surrogate: Annotated[
        list[str] | None,
        typer.Option(help="lime, shap or slalom; repeat for several. All three by default."),
    ] = None,
    units: Annotated[str, typer.Option(help="word, token or sentence.")] = "word",
    masking: Annotated[
        str, typer.Option(help="remove, mask-token, attention, or a string to put in a unit's place.")
    ] = "remove",
    design: Annotated[
        str, typer.Option(help="Law of the masks: auto, uniform-size, leverage, identify, …")
    ] = "auto",
    budget: Annotated[
        str, typer.Option(help="Most model queries per text, or auto: until the intervals are narrow.")
    ] = "1000",
    tolerance: Annotated[
        float,
        typer.Option(help="For --budget auto: half-width of an interval over the largest effect."),
    ] = 0.1,
    top_k: Annotated[
        int | None, typer.Option(help="For --budget auto: settle the K largest effects instead.")
    ] = None,
    max_budget: Annotated[
        int, typer.Option(help="For --budget auto: most model queries per text.")
    ] = 5000,
    target: Annotated[
        str | None, typer.Option(help="A label, an index or 'all'; the predicted class by default.")
    ] = None,
    space: Annotated[str, typer.Option(help="logit, probability or raw.")] = "logit",
    tie_repeats: Annotated[
        bool, typer.Option("--tie-repeats", help="Units of equal text share parameters.")
    ] = False,
    context_file: Annotated[
        Path | None, typer.Option(help="A template with one {text} around each text; never masked.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Most texts in one model call.")] = 64,
    seed: Annotated[int, typer.Option(help="The only source of randomness.")] = 0,
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    store: Annotated[
        str | None,
        typer.Option(help="A file for the answers, or none; your cache folder for remote models."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="For openai: models: where the server is.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="For remote models: most requests under way at a time.")
    ] = None,
    rpm: Annotated[
        int | None, typer.Option(help="For remote models: most requests per minute.")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(help="For remote models: per million tokens, as IN,OUT; and a third per request."),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="For remote models: spend at most this; needs --price.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take, and ask nothing.")
    ] = False,
    text_column: Annotated[str, typer.Option(help="Column of FILE that holds the texts.")] = "text",
    id_column: Annotated[str | None, typer.Option(help="Column of FILE that names the texts.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write attributions as CSV, provenance as .meta.json.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write attributions and provenance as JSON.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No table, no progress; only files and errors.")
    ] = False,
) -> None:
    """Attribute a model's answers on TEXT, or on each text of FILE, to its units."""
    with errors_as_one_line():
        inputs = read_inputs(source, text_column, id_column)
        context = _read_context(context_file)
        _check_outputs(source, out, json)
        remote = {"base_url": base_url, "concurrency": concurrency, "rpm": rpm, "max_cost": max_cost}
        allowed = _budget(budget, AutoBudget(tolerance, top_k, max_budget))
        box = _opened(model, remote | {"price": _numbers(price)})
        if dry_run:
            options = Options(
                named_surrogates(surrogate or SURROGATES),
                units=units,
                context=context,
                budget=allowed,
            )
            Console().print(dry_run_report(box, inputs.texts, options))
            return
        with nullcontext() if quiet else stderr_progress() as progress:
            study = explain_texts(
                box,
                inputs.texts,
                surrogates=surrogate or SURROGATES,
                units=units,
                masking=masking,
                design=design,
                budget=allowed,
                target=target,
                space=space,
                tie_repeats=tie_repeats,
                context=context,
                batch_size=batch_size,
                seed=seed,
                store=store,
                progress=progress,
                confidence=confidence,
                text_ids=inputs.text_ids,
            )
        if out is not None:
            study.to_csv(out)
        if json is not None:
            study.to_json(json)
        if not quiet:
            Console().print(terminal_report(study))


@app.command()
def models() -> None:
    """List the kinds of model, a URI for each, and whether what it needs is installed."""
    table = Table()
    for heading in ("model", "what it is", "installed"):
        table.add_column(heading, overflow="fold")
    for adapter in ADAPTERS:
        missing = f"no: pip install 'piste[{adapter.extra}]'" if adapter.extra else "no"
        state = "yes" if adapter.installed else missing
        table.add_row(*map(escape, (adapter.example, adapter.about, state)))
    Console().print(table)


def _opened(uri: str, options: dict[str, object]) -> BlackBox:
    """The model, with the options that were given; one that is not its adapter's is refused."""
    return load_model(uri, **{name: value for name, value in options.items() if value is not None})


def _numbers(given: str | None) -> list[float] | None:
    """Numbers between commas."""
    if given is None:
        return None
    try:
        return [float(number) for number in given.split(",")]
    except ValueError:
        raise InputError(f"Got --price {given!r}; expected numbers such as 0.15,0.6.") from None


def _budget(given: str, automatic: AutoBudget) -> int | AutoBudget:
    """The number given, or the automatic budget."""
    if given == "auto":
        return automatic
    try:
        return int(given)
    except ValueError:
        raise InputError(
            f"Got --budget {given!r}; expected a number of model queries per text, or 'auto'."
        ) from None


def _read_context(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"Got {error} when reading {path}; expected a UTF-8 template with one {{text}}."
        ) from error


def _check_outputs(source: str, out: Path | None, json: Path | None) -> None:
    """Refuse before the first query what could not be written after the last."""
    written = [path for path in (out, out and meta_path(out), json) if path is not None]
    for path in written:
        if (
            path.is_dir()
            or (path.exists() and not path.is_file())
            or not os.access(path.parent, os.W_OK)
        ):
            raise InputError(
                f"Got {path} to write to; expected a file in an existing, writable folder. Choose "
                "another path, or create the folder."
            )
        if path == Path(source) or written.count(path) > 1:
            raise InputError(
                f"Got {path} twice; expected another file for each input and output. Rename one."
            )


def main() -> None:
    """Entry point of the ``piste`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without emoji shows "?" for them
    app(prog_name="piste")
