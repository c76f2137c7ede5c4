"""The command line: results to stdout or files, progress and errors to stderr.

Exit codes: 0 done, 1 the model failed, 2 wrong use.
"""

import sys
from contextlib import nullcontext
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from piste import _options as option
from piste._console import errors_as_one_line
from piste._evaluate_cli import EXAMPLES as EVALUATE_EXAMPLES
from piste._evaluate_cli import evaluate
from piste._fidelity_cli import EXAMPLES as FIDELITY_EXAMPLES
from piste._fidelity_cli import fidelity
from piste._inputs import read_inputs
from piste._setup import budget_of, check_outputs, opened_model, read_context
from piste._store_cli import app as store_app
from piste.evaluation.digest import Digest, write_each
from piste.evaluation.explaining import explain as explain_texts
from piste.evaluation.explaining import explain_each
from piste.evaluation.export import meta_path
from piste.evaluation.plots import check_ending
from piste.evaluation.report import dry_run_report, terminal_report
from piste.evaluation.study import Study
from piste.sampling.collect import stderr_progress
from piste.sampling.models import ADAPTERS
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

EXPLAIN_EXAMPLES = """
[bold]Examples[/bold]

  piste explain "A gripping film." --out attributions.csv

  piste explain reviews.csv --text-column text --model hf:DIR --surrogate lime --out a.csv

  piste explain reviews.txt --units sentence --masking mask-token --budget 500 --json a.json

  piste explain reviews.csv --html report.html --plot first.png
"""


def _say_version(wanted: bool) -> None:
    if wanted:
        Console(highlight=False).print(f"piste {version('piste')}")
        raise typer.Exit


@app.callback()
def _piste(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """Explain text classifiers with surrogate models: LIME, SHAP and SLALOM, as CSV."""


@app.command(epilog=EXPLAIN_EXAMPLES)
def explain(
    source: option.Source,
    model: option.Model = "builtin:sentiment",
    surrogate: option.Surrogate = None,
    units: option.Units = "word",
    masking: option.Masking = "remove",
    design: option.Design = "auto",
    budget: option.Budget = "1000",
    tolerance: option.Tolerance = 0.1,
    top_k: option.TopK = None,
    max_budget: option.MaxBudget = 5000,
    target: option.Target = None,
    space: option.Space = "logit",
    tie_repeats: option.TieRepeats = False,
    context_file: option.ContextFile = None,
    batch_size: option.BatchSize = 64,
    seed: option.Seed = 0,
    confidence: option.Confidence = 0.95,
    noise_probe: option.NoiseProbe = 0,
    fit_jobs: option.FitJobs = 1,
    store: option.Store = None,
    base_url: option.BaseUrl = None,
    concurrency: option.Concurrency = None,
    rpm: option.Rpm = None,
    price: option.Price = None,
    max_cost: option.MaxCost = None,
    model_option: option.ModelOption = None,
    dry_run: option.DryRun = False,
    text_column: option.TextColumn = "text",
    id_column: option.IdColumn = None,
    out: option.Out = None,
    json: option.Json = None,
    html: option.Html = None,
    plot: option.Plot = None,
    quiet: option.Quiet = False,
) -> None:
    """Attribute a model's answers on TEXT, or on each text of FILE, to its units."""
    with errors_as_one_line():
        inputs = read_inputs(source, text_column, id_column)
        context = read_context(context_file)
        check_outputs([source, context_file, store], [out, out and meta_path(out), json, html, plot])
        if plot is not None:
            check_ending(plot.suffix)
        allowed = budget_of(budget, AutoBudget(tolerance, top_k, max_budget))
        box = opened_model(
            model,
            base_url=base_url,
            concurrency=concurrency,
            rpm=rpm,
            price=price,
            max_cost=max_cost,
            others=model_option,
            dry_run=dry_run,
        )
        if dry_run:
            options = Options(
                named_surrogates(surrogate or option.SURROGATES),
                units=units,
                design=design,
                context=context,
                budget=allowed,
                noise_probe=noise_probe,
            )
            Console().print(dry_run_report(box, inputs.texts, options))
            return
        with nullcontext() if quiet else stderr_progress() as progress:
            chosen: dict[str, Any] = {
                "surrogates": surrogate or option.SURROGATES,
                "units": units,
                "masking": masking,
                "design": design,
                "budget": allowed,
                "target": target,
                "space": space,
                "tie_repeats": tie_repeats,
                "context": context,
                "batch_size": batch_size,
                "seed": seed,
                "store": store,
                "progress": progress,
                "confidence": confidence,
                "noise_probe": noise_probe,
                "fit_jobs": fit_jobs,
                "text_ids": inputs.text_ids,
            }
            made: Study | Digest
            if json or html or plot:  # which show texts that would be gone
                made = explain_texts(box, inputs.texts, **chosen)
            else:
                made = write_each(explain_each(box, inputs.texts, **chosen), out)
        if isinstance(made, Study):
            _write(made, out, json, html, plot)
        if not quiet:
            Console().print(terminal_report(made))


def _write(
    study: Study, out: Path | None, json: Path | None, html: Path | None, plot: Path | None
) -> None:
    """The files that are wanted of a study."""
    if out is not None:
        study.to_csv(out)
    if json is not None:
        study.to_json(json)
    if html is not None:
        study.to_html(html)
    if plot is not None:
        study.to_plot(plot)


app.command(epilog=FIDELITY_EXAMPLES)(fidelity)
app.command(epilog=EVALUATE_EXAMPLES)(evaluate)


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


def main() -> None:
    """Entry point of the ``piste`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without emoji shows "?" for them
    app(prog_name="piste")
