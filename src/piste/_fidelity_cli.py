"""``piste fidelity``: which surrogate predicts the model best on masks that none has seen."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from piste import _options as option
from piste._console import errors_as_one_line
from piste._inputs import read_inputs
from piste._setup import beside, check_outputs, opened_model, read_context, say_dry_run

BESIDE = ("summary.csv", "tests.csv", "meta.json")

EXAMPLES = """
[bold]Examples[/bold]

  piste fidelity reviews.csv --out fidelity.csv

  piste fidelity reviews.txt --budget 100 --budget 500 --law uniform-size --plot curves.png
"""

Budgets = Annotated[
    list[int] | None,
    typer.Option("--budget", help="Queries per fit; repeat for a curve. 100 and 500 by default."),
]
Laws = Annotated[
    list[str] | None,
    typer.Option(
        "--law",
        help="Masks that judge: deletions, uniform-size, short or bernoulli; repeat. The first three.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Draw R² against queries as .png or .svg; needs several --budget.")
]


def fidelity(
    source: option.Source,
    model: option.Model = "builtin:sentiment",
    surrogate: option.Surrogate = None,
    budget: Budgets = None,
    law: Laws = None,
    units: option.Units = "word",
    masking: option.Masking = "remove",
    design: option.Design = "auto",
    target: option.Target = None,
    space: option.Space = "logit",
    tie_repeats: option.TieRepeats = False,
    context_file: option.ContextFile = None,
    batch_size: option.BatchSize = 64,
    seed: option.Seed = 0,
    confidence: option.Confidence = 0.95,
    noise_probe: option.NoiseProbe = 0,
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
    out: option.OutTables = None,
    plot: Plot = None,
    quiet: option.Quiet = False,
) -> None:
    """Measure how well each surrogate predicts a model's answers to fresh masks of TEXT or FILE.

    Writes one row per text, surrogate, budget and mask law; medians over texts as NAME.summary.csv and
    paired tests as NAME.tests.csv.
    """
    with errors_as_one_line():
        from piste.evaluation.fidelity_report import fidelity_report
        from piste.evaluation.held_out import DEFAULT_LAWS, fidelity_study, most_queries
        from piste.evaluation.plots import check_ending, curves
        from piste.sampling.collect import stderr_progress

        inputs = read_inputs(source, text_column, id_column)
        check_outputs([source, context_file, store], [out, *beside(out, BESIDE), plot])
        if plot is not None:
            check_ending(plot.suffix)
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
        spent, judging = budget or (100, 500), law or DEFAULT_LAWS
        if dry_run:
            most = most_queries(spent, judging) + noise_probe
            say_dry_run(box, inputs.texts, units, read_context(context_file), most)
            return
        with nullcontext() if quiet else stderr_progress("Judging texts") as progress:
            study = fidelity_study(
                box,
                inputs.texts,
                surrogates=surrogate or option.SURROGATES,
                budgets=spent,
                laws=judging,
                units=units,
                masking=masking,
                design=design,
                target=target,
                space=space,
                tie_repeats=tie_repeats,
                context=read_context(context_file),
                batch_size=batch_size,
                seed=seed,
                store=store,
                progress=progress,
                confidence=confidence,
                text_ids=inputs.text_ids,
                noise_probe=noise_probe,
            )
        if out is not None:
            study.to_csv(out)
        if plot is not None:
            first = study.table["mask_law"].iloc[0]
            drawn = study.budget_curve("uniform-size" if "uniform-size" in judging else first)
            curves(drawn, "x", "y", labels=("queries per fit", "R² on held-out masks")).savefig(plot)
        if not quiet:
            Console().print(fidelity_report(study))
