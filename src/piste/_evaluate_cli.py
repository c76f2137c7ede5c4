"""``piste evaluate``: how good attributions are, by the model, by people, by words, by oracles."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from piste import _options as option
from piste._console import errors_as_one_line
from piste._errors import InputError
from piste._inputs import Inputs, read_inputs
from piste._setup import check_outputs, opened_model, read_context

if TYPE_CHECKING:
    import pandas as pd

    from piste.evaluation.rationales import Rationale
    from piste.evaluation.scorecard import Scorecard

SURROGATES = ["lime", "shap", "slalom"]
METRICS = ["comprehensiveness", "sufficiency", "deletion", "insertion"]
BASELINES = ["random"]
CURVES = ("deletion", "insertion")
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
    text_column: option.TextColumn = "text",
    id_column: option.IdColumn = None,
    out: option.Out = None,
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
        from piste.evaluation.explaining import explain
        from piste.evaluation.explanations import read_attributions
        from piste.evaluation.faithfulness import faithfulness
        from piste.evaluation.measures import Curve
        from piste.evaluation.scorecard import Scorecard
        from piste.sampling.collect import stderr_progress

        if oracle:
            _score_oracles(oracle, surrogate or [*SURROGATES, "interactions"], budget, seed, out, quiet)
            return
        if source is None:
            raise InputError(
                "Got nothing to evaluate; expected a text, a file of texts, or --oracle all."
            )
        beside = [out.with_suffix(f".{part}") for part in BESIDE] if out else []
        read = [source, context_file, store, attributions, rationales, lexicon]
        check_outputs(read, [out, *beside, html])
        if html is not None and attributions is not None:
            raise InputError("Got --html with --attributions; expected texts that are explained here.")
        inputs, marks = _inputs_and_marks(
            source, rationales, rationale_column, label_column, (text_column, id_column)
        )
        context = read_context(context_file)
        box = opened_model(
            model,
            base_url=base_url,
            concurrency=concurrency,
            rpm=rpm,
            price=price,
            max_cost=max_cost,
            others=model_option,
        )
        study = None
        with nullcontext() if quiet else stderr_progress() as progress:
            if attributions is not None:
                table = read_attributions(attributions)
            else:
                study = explain(
                    box,
                    inputs.texts,
                    surrogates=surrogate or SURROGATES,
                    units=units,
                    masking=masking,
                    budget=budget,
                    target=target,
                    space=space,
                    context=context,
                    batch_size=batch_size,
                    seed=seed,
                    store=store,
                    progress=progress,
                    confidence=confidence,
                    text_ids=inputs.text_ids,
                )
                table = study.attributions
        tables = _by_reference(table, inputs, marks, label_column, lexicon, seed)
        if chosen := _without_none(metric, METRICS):
            with nullcontext() if quiet else stderr_progress("Measuring texts") as progress:
                measured = faithfulness(
                    box,
                    inputs.texts,
                    table,
                    metrics=[
                        Curve(name, keep_points=True) if name in CURVES else name for name in chosen
                    ],
                    masking=masking,
                    baselines=_without_none(baseline, BASELINES),
                    rationales=marks,
                    context=context,
                    batch_size=batch_size,
                    seed=seed,
                    store=store,
                    text_ids=inputs.text_ids,
                    progress=progress,
                )
            tables.insert(0, measured)
        card = Scorecard.of(tables, confidence=confidence, seed=seed)
        if html is not None and study is not None:
            study.to_html(html, curves=card.curves())
        _give(card, table, out, quiet)


def _give(card: "Scorecard", table: "pd.DataFrame", out: Path | None, quiet: bool) -> None:
    """Files and the table of medians."""
    from piste.evaluation.agreement import method_agreement
    from piste.evaluation.export import csv_text, write_files
    from piste.evaluation.scorecard_report import scorecard_report

    if out is not None:
        card.to_csv(out)
        write_files({out.with_suffix(".agreement.csv"): csv_text(method_agreement(table)).encode()})
    if not quiet:
        Console().print(scorecard_report(card))


def _by_reference(
    table: "pd.DataFrame",
    inputs: Inputs,
    marks: "list[Rationale] | None",
    label_column: str | None,
    lexicon: Path | None,
    seed: int,
) -> "list[pd.DataFrame]":
    """Agreement with people's marks, with the words of each label, with a lexicon, as far as given."""
    from piste.evaluation.agreement import lexicon_agreement, rationale_agreement
    from piste.evaluation.lexicons import naive_bayes_log_odds, read_lexicon

    tables = []
    if marks is not None:
        tables.append(rationale_agreement(table, marks, seed=seed))
    if label_column is not None:
        weights = naive_bayes_log_odds(inputs.texts, inputs.columns[label_column])
        tables.append(lexicon_agreement(table, weights, name="naive Bayes"))
    if lexicon is not None:
        tables.append(lexicon_agreement(table, read_lexicon(lexicon), name=lexicon.name))
    return tables


def _inputs_and_marks(
    source: str,
    rationales: Path | None,
    rationale_column: str | None,
    label_column: str | None,
    columns: tuple[str, str | None],
) -> "tuple[Inputs, list[Rationale] | None]":
    """The texts, and what people marked in them; a file of marks can hold the texts itself."""
    from piste.evaluation.rationales import marked, read_rationales

    others = [name for name in (rationale_column, label_column) if name is not None]
    marks = None if rationales is None else read_rationales(rationales)
    if marks and Path(source) == rationales and not others and marks[0].text:
        return Inputs([each.text for each in marks], [each.text_id for each in marks]), marks
    inputs = read_inputs(source, *columns, others)
    if rationale_column is not None:
        fields = zip(inputs.text_ids, inputs.texts, inputs.columns[rationale_column], strict=True)
        marks = [marked(*each) for each in fields]
    return inputs, marks


def _without_none(given: list[str] | None, usual: list[str]) -> list[str]:
    """What was given, the usual where nothing was, and nothing for ``none``."""
    return [name for name in (usual if given is None else given) if name != "none"]


def _score_oracles(
    names: list[str], surrogates: list[str], budget: int, seed: int, out: Path | None, quiet: bool
) -> None:
    from piste.evaluation.export import csv_text, write_files
    from piste.evaluation.oracles import evaluate_oracles
    from piste.evaluation.scorecard_report import oracle_report

    check_outputs([], [out])
    table = evaluate_oracles(None if "all" in names else names, surrogates, budget=budget, seed=seed)
    if out is not None:
        write_files({out: csv_text(table).encode()})
    if not quiet:
        Console().print(oracle_report(table))
