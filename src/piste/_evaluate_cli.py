"""``piste evaluate``: how good attributions are, by the model, by people, by words, by oracles."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from piste import _options as option
from piste._console import errors_as_one_line
from piste._errors import InputError, ModelError
from piste._setup import beside, check_outputs, opened_model, read_context, say_dry_run

if TYPE_CHECKING:
    import pandas as pd

    from piste.evaluation.scorecard import Scorecard
    from piste.sampling.models.protocol import BlackBox

METRICS = ["comprehensiveness", "sufficiency", "deletion", "insertion"]
BASELINES = ["random"]
CURVES = ("deletion", "insertion")
ON_TOP = "The metrics come on top: bound them with --metric-budget."
BESIDE = ("summary.csv", "tests.csv", "agreement.csv", "meta.json")

EXAMPLES = """
[bold]Examples[/bold]

  piste evaluate reviews.csv --out metrics.csv

  piste evaluate reviews.jsonl --rationales reviews.jsonl --out metrics.csv

  piste evaluate reviews.csv --label-column label --attributions theirs.csv

  piste evaluate --oracle all
"""

Source = Annotated[
    str | None,
    typer.Argument(metavar="[TEXT|FILE]", help="What is explained; not needed for --oracle."),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        help="comprehensiveness, sufficiency, deletion, insertion, infidelity, sensitivity-n or none; "
        "repeat. The first four by default."
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(help="zero, random, leave-one-out or none, measured as well; repeat."),
]
Attributions = Annotated[
    Path | None,
    typer.Option(
        help="Attributions from elsewhere, as CSV with text_id, start, end (or token), score."
    ),
]
Rationales = Annotated[
    Path | None,
    typer.Option(help="What people marked, .jsonl or .csv: spans, flags, or tokens and maps."),
]
RationaleColumn = Annotated[
    str | None,
    typer.Option(help="Column of FILE with what people marked: [[start, end], …] or 0/1 flags."),
]
LabelColumn = Annotated[
    str | None, typer.Option(help="Column of FILE with labels: compares with the words' own log-odds.")
]
Lexicon = Annotated[Path | None, typer.Option(help="Words with weights, as CSV, to compare with.")]
Favours = Annotated[
    str | None, typer.Option(help="The target that positive weights of --lexicon speak for.")
]
AnnotatorsOption = Annotated[
    str, typer.Option("--annotators", help="Whose marks count of several maps: all, any or majority.")
]
Absolute = Annotated[
    bool, typer.Option("--absolute", help="Compare scores with marks without their sign.")
]
MetricBudget = Annotated[
    int | None,
    typer.Option(help="Most model queries per text for the metrics; --dry-run counts these alone."),
]
Oracle = Annotated[
    list[str] | None,
    typer.Option(help="Score surrogates on models with known answers: a name, or all; repeat."),
]


def evaluate(
    source: Source = None,
    model: option.Model = "builtin:sentiment",
    surrogate: option.Surrogate = None,
    metric: Metric = None,
    baseline: Baseline = None,
    attributions: Attributions = None,
    rationales: Rationales = None,
    rationale_column: RationaleColumn = None,
    label_column: LabelColumn = None,
    lexicon: Lexicon = None,
    favours: Favours = None,
    annotators: AnnotatorsOption = "all",
    absolute: Absolute = False,
    metric_budget: MetricBudget = None,
    oracle: Oracle = None,
    units: option.Units = "word",
    masking: option.Masking = "remove",
    budget: Annotated[
        int, typer.Option(help="Most model queries per text for the explanation.")
    ] = 1000,
    target: option.Target = None,
    space: option.Space = "logit",
    context_file: option.ContextFile = None,
    batch_size: option.BatchSize = 64,
    seed: option.Seed = 0,
    confidence: option.Confidence = 0.95,
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
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page: highlighted texts, deletion and insertion curves."),
    ] = None,
    quiet: option.Quiet = False,
) -> None:
    """Measure attributions: by what the model does without the units, by people's marks, by words.

    Explains the texts first, or takes attributions from elsewhere. Writes one row per text, method and
    metric; medians over texts as NAME.summary.csv, paired tests as NAME.tests.csv, agreement between methods
    as NAME.agreement.csv.
    """
    with errors_as_one_line():
        from piste._references import Asked, read_references
        from piste.evaluation.explaining import explain
        from piste.evaluation.explanations import read_attributions
        from piste.evaluation.scorecard import Scorecard
        from piste.sampling.collect import stderr_progress

        if oracle:
            _refuse_beside_oracles(source, html, attributions, dry_run)
            fitted = surrogate or [*option.SURROGATES, "interactions"]
            _score_oracles(oracle, fitted, budget, seed, out, quiet)
            return
        if source is None:
            raise InputError("Got nothing to evaluate; expected texts, or --oracle all.")
        read = [source, context_file, store, attributions, rationales, lexicon]
        check_outputs(read, [out, html, *beside(out, BESIDE)])
        if html is not None and attributions is not None:
            raise InputError("Got --html with --attributions; expected texts to be explained.")
        people = (rationales, rationale_column, annotators, absolute)
        asked = Asked(*people, label_column, lexicon, favours)
        references = read_references(source, text_column, id_column, asked)
        inputs = references.inputs
        asking: dict[str, Any] = {
            "masking": masking,
            "context": read_context(context_file),
            "batch_size": batch_size,
            "seed": seed,
            "store": store,
            "text_ids": inputs.text_ids,
        }
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
            on_top = metric_budget is None and bool(_without_none(metric, METRICS))
            most = (0 if attributions else budget) + (metric_budget or 0)
            say_dry_run(box, inputs.texts, units, asking["context"], most, ON_TOP if on_top else "")
            return
        study = None
        with nullcontext() if quiet else stderr_progress() as progress:
            if attributions is not None:
                table = read_attributions(attributions)
            else:
                study = explain(
                    box,
                    inputs.texts,
                    surrogates=surrogate or option.SURROGATES,
                    units=units,
                    budget=budget,
                    target=target,
                    space=space,
                    progress=progress,
                    confidence=confidence,
                    **asking,
                )
                table = study.attributions
        tables = references.tables(table, seed)
        if chosen := _without_none(metric, METRICS):
            compared: dict[str, Any] = {"rationales": references.marks, "budget": metric_budget}
            compared |= {"baselines": _without_none(baseline, BASELINES)}
            tables.insert(0, _measured(box, inputs.texts, table, chosen, asking | compared, quiet))
        card = Scorecard.of(tables, confidence=confidence, seed=seed)
        about = asking | {"model": box.fingerprint, "metrics": chosen, "metric_budget": metric_budget}
        about |= {"baselines": baseline or BASELINES, "references": asked.plain()}
        about["explanation"] = str(attributions) if study is None else study.meta
        if html is not None and study is not None:
            study.to_html(html, curves=card.curves())
        _give(card, table, out, quiet, about)


def _measured(
    box: "BlackBox",
    texts: list[str],
    table: "pd.DataFrame",
    metrics: list[str],
    options: dict[str, Any],
    quiet: bool,
) -> "pd.DataFrame":
    """What the model does without the units; curves keep their points, for the page."""
    from piste.evaluation.faithfulness import faithfulness
    from piste.evaluation.measures import Curve
    from piste.sampling.collect import stderr_progress

    chosen = [Curve(name, keep_points=True) if name in CURVES else name for name in metrics]
    with nullcontext() if quiet else stderr_progress("Measuring texts") as progress:
        return faithfulness(box, texts, table, metrics=chosen, progress=progress, **options)


def _give(
    card: "Scorecard", table: "pd.DataFrame", out: Path | None, quiet: bool, about: dict[str, object]
) -> None:
    """Files and the table of medians."""
    from piste.evaluation.agreement import method_agreement
    from piste.evaluation.export import csv_text, json_text, meta_path, write_files
    from piste.evaluation.provenance import versions
    from piste.evaluation.scorecard_report import scorecard_report

    if out is not None:
        card.to_csv(out)
        agreement = csv_text(method_agreement(table)).encode()
        write_files(
            {
                out.with_suffix(".agreement.csv"): agreement,
                meta_path(out): json_text(
                    {"command": "evaluate", **about, "versions": versions()}
                ).encode(),
            }
        )
    if not quiet:
        Console().print(scorecard_report(card))
    if card.table["value"].isna().all():
        raise ModelError(
            f"Got no value from any metric; the first says {card.table['status'].iloc[0]!r}. Every row says "
            "why."
        )


def _without_none(given: list[str] | None, usual: list[str]) -> list[str]:
    """What was given, the usual where nothing was, and nothing for ``none``."""
    return [name for name in (usual if given is None else given) if name != "none"]


def _refuse_beside_oracles(
    source: str | None, html: Path | None, attributions: Path | None, dry_run: bool
) -> None:
    """Oracles bring their own models and texts."""
    given = {"TEXT or FILE": source, "--html": html, "--attributions": attributions}
    for name, value in (given | {"--dry-run": dry_run or None}).items():
        if value is not None:
            raise InputError(
                f"Got {name} with --oracle, which has its own models and texts. Leave one out."
            )


def _score_oracles(
    names: list[str], surrogates: list[str], budget: int, seed: int, out: Path | None, quiet: bool
) -> None:
    from piste.evaluation.export import csv_text, json_text, meta_path, write_files
    from piste.evaluation.oracles import evaluate_oracles
    from piste.evaluation.provenance import versions
    from piste.evaluation.scorecard_report import oracle_report

    check_outputs([], [out, *beside(out, ["meta.json"])])
    table = evaluate_oracles(None if "all" in names else names, surrogates, budget=budget, seed=seed)
    if not len(table):
        raise InputError(
            f"Got surrogates {', '.join(surrogates)}, of which nothing is known on the oracles "
            f"{', '.join(names)}; expected others. Use --oracle all."
        )
    if out is not None:
        about: dict[str, Any] = {
            "command": "evaluate --oracle",
            "oracles": names,
            "surrogates": surrogates,
        }
        about |= {"budget": budget, "seed": seed, "versions": versions()}
        write_files({out: csv_text(table).encode(), meta_path(out): json_text(about).encode()})
    if not quiet:
        Console().print(oracle_report(table))
