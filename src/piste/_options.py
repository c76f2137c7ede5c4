"""The options of the command line; commands that take the same thing call it the same."""

from pathlib import Path
from typing import Annotated

import typer

SURROGATES = ["lime", "shap", "slalom"]
"""What is fitted where no --surrogate is given."""

Source = Annotated[
    str,
    typer.Argument(metavar="TEXT|FILE", help="A text, or a .csv, .tsv, .jsonl or .txt file of texts."),
]
Model = Annotated[str, typer.Option(help="A model URI; `piste models` lists the kinds.")]
Surrogate = Annotated[
    list[str] | None,
    typer.Option(
        help="lime, shap, slalom, slalom-pairs, interactions or trees; repeat for several. The first three "
        "by default."
    ),
]
Units = Annotated[str, typer.Option(help="word, token or sentence.")]
Masking = Annotated[
    str, typer.Option(help="remove, mask-token, attention, or a string to put in a unit's place.")
]
Design = Annotated[
    str, typer.Option(help="Law of the masks: auto, uniform-size, leverage, identify, …")
]
Budget = Annotated[
    str, typer.Option(help="Most model queries per text, or auto: until the intervals are narrow.")
]
Tolerance = Annotated[
    float,
    typer.Option(help="For --budget auto: half-width of an interval over the largest effect."),
]
TopK = Annotated[
    int | None, typer.Option(help="For --budget auto: settle the K largest effects instead.")
]
MaxBudget = Annotated[int, typer.Option(help="For --budget auto: most model queries per text.")]
Target = Annotated[
    str | None, typer.Option(help="A label, an index or 'all'; the predicted class by default.")
]
Space = Annotated[str, typer.Option(help="logit, probability or raw.")]
TieRepeats = Annotated[
    bool, typer.Option("--tie-repeats", help="Units of equal text share parameters.")
]
ContextFile = Annotated[
    Path | None, typer.Option(help="A template with one {text} around each text; never masked.")
]
BatchSize = Annotated[int, typer.Option(help="Most texts in one model call.")]
Seed = Annotated[int, typer.Option(help="The only source of randomness.")]
Confidence = Annotated[float, typer.Option(help="Level of the intervals.")]
NoiseProbe = Annotated[
    int,
    typer.Option(help="Repeat each unmasked text so often to learn the answers' own noise, e.g. 10."),
]
FitJobs = Annotated[
    int,
    typer.Option(help="Processes that fit while the model is asked on: for slow fits of many texts."),
]
Store = Annotated[
    str | None,
    typer.Option(help="A file for the answers, or none; your cache folder for remote models."),
]
BaseUrl = Annotated[str | None, typer.Option(help="For openai: models: where the server is.")]
Concurrency = Annotated[
    int | None, typer.Option(help="For remote models: most requests under way at a time.")
]
Rpm = Annotated[int | None, typer.Option(help="For remote models: most requests per minute.")]
Price = Annotated[
    str | None,
    typer.Option(help="For remote models: per million tokens, as IN,OUT; and a third per request."),
]
MaxCost = Annotated[
    float | None, typer.Option(help="For remote models: spend at most this; needs --price.")
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Any other option of the model's adapter, as NAME=VALUE, such as labels=no,yes; repeat."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and ask nothing.")]
TextColumn = Annotated[str, typer.Option(help="Column of FILE that holds the texts.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of FILE that names the texts.")]
Out = Annotated[Path | None, typer.Option(help="Write attributions as CSV, provenance as .meta.json.")]
OutTables = Annotated[
    Path | None,
    typer.Option(help="Write the table as CSV; medians, tests and provenance beside it."),
]
Json = Annotated[Path | None, typer.Option(help="Write attributions and provenance as JSON.")]
Html = Annotated[
    Path | None, typer.Option(help="Write a stand-alone page: highlighted texts and all numbers.")
]
Plot = Annotated[Path | None, typer.Option(help="Draw the first text's attributions, as .png or .svg.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No table, no progress; only files and errors.")]
