"""What the report page shows, as plain records: the numbers in words, the text cut into marked pieces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit

from piste.evaluation.charts import Chart, scatter_chart
from piste.evaluation.fidelity import LOW, UNDEFINED
from piste.evaluation.highlights import (
    Layer,
    advice,
    highlighted,
    records,
    status_words,
    without_fidelity,
)
from piste.evaluation.provenance import remarks
from piste.evaluation.wording import interval, number
from piste.surrogates.records import Explained, Failed
from piste.surrogates.slalom import Slalom

if TYPE_CHECKING:
    from piste.evaluation.study import Study

SPACES = {"logit": "log-odds", "probability": "probability", "raw": "score"}
_PER_TEXT = ("texts", "fidelity", "versions", "surrogates", "schema_version")


@dataclass(frozen=True)
class Badge:
    """How far a fit can be trusted: ``good``, ``low`` or ``undefined``, and the rest of the sentence."""

    verdict: str
    words: str


@dataclass(frozen=True)
class Fit:
    """One surrogate of a text and target."""

    name: str
    badge: Badge
    layers: tuple[Layer, ...]
    chosen: int
    advice: tuple[str, ...]
    additivity: str
    chart: Chart | None


@dataclass(frozen=True)
class Row:
    """A unit's numbers: (score, interval, remark) for each column of the table."""

    token: str
    cells: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Section:
    """One text and target."""

    anchor: str
    text_id: str
    target: str
    score: str
    begin: str
    facts: str
    fits: tuple[Fit, ...]
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    failures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Failure:
    """A text that was not explained."""

    anchor: str
    text_id: str
    begin: str
    parts: tuple[str, ...]
    message: str
    target: str = "–"
    score: str = "not explained"


@dataclass(frozen=True)
class Page:
    """Everything on the page, in its order."""

    model: str
    level: str
    n_texts: int
    n_shown: int
    n_queries: int
    sections: tuple[Section | Failure, ...]
    fidelity: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


def page_of(study: "Study", texts: Sequence[int | str] | None, most: int) -> Page:
    """The whole page; see `piste.evaluation.html.report_html`."""
    sections = sections_of(study, texts, most)
    meta = study.meta
    return Page(
        model=study.fingerprint,
        level=_level(study),
        n_texts=len(study.outcomes),
        n_shown=len({section.text_id for section in sections}),
        n_queries=meta["n_queries"],
        sections=tuple(sections),
        fidelity=tuple(_fidelity_rows(study.fidelity)),
        remarks=tuple(remarks(study.outcomes).lines()),
        settings=tuple(_settings(meta)),
    )


def sections_of(
    study: "Study", texts: Sequence[int | str] | None, most: int
) -> list[Section | Failure]:
    """A section per text and target; no further text after the first `most` unless some are named."""
    chosen = study.outcomes[:most] if texts is None else [study.outcome(text) for text in texts]
    by_text = dict(list(study.attributions.groupby("text_id", sort=False)))
    sections: list[Section | Failure] = []
    for outcome in chosen:
        if texts is None and len(sections) >= most:
            break
        if isinstance(outcome, Failed):
            sections.append(_failure(outcome, f"text-{len(sections)}"))
            continue
        for output in range(len(outcome.targets)):
            anchor = f"text-{len(sections)}"
            sections.append(_section(study, outcome, output, by_text[outcome.text_id], anchor))
    return sections


def _failure(failed: Failed, anchor: str) -> Failure:
    text = failed.text if isinstance(failed.text, tuple) else (failed.text,)
    parts = tuple(part if isinstance(part, str) else repr(part) for part in text)
    return Failure(anchor, failed.text_id, _begin(parts), parts, failed.message)


def _begin(parts: Sequence[str]) -> str:
    whole = " / ".join(parts)
    return whole if len(whole) <= 80 else f"{whole[:79]}…"


def _section(
    study: "Study", explained: Explained, output: int, rows: pd.DataFrame, anchor: str
) -> Section:
    target = explained.targets[output]
    rows = rows[rows["target"] == target]
    columns = tuple(dict.fromkeys(zip(rows["surrogate"], rows["kind"], strict=True)))
    level = _level(study)
    return Section(
        anchor=anchor,
        text_id=explained.text_id,
        target=target,
        score=_score(explained, output),
        begin=_begin(explained.units.parts),
        facts=(
            f"{explained.units.n_units} units, {explained.n_queries} model queries, masks: "
            f"{explained.design}{', ' if explained.stopped else ''}{explained.stopped}"
        ),
        fits=tuple(
            _fit(study, explained, output, rows[rows["surrogate"] == name], level)
            for name in dict.fromkeys(rows["surrogate"])
        ),
        columns=columns,
        rows=tuple(_rows(rows, columns)),
        failures=tuple(explained.failures.items()),
    )


def _score(explained: Explained, output: int) -> str:
    """What the model says of the whole text."""
    whole = np.flatnonzero(explained.responses.masks.all(axis=1))
    if not len(whole):
        return ""
    score = float(explained.scores[whole[0], output])
    words = f"{SPACES[explained.space]} {number(score, signed=explained.space != 'probability')}"
    if explained.space == "logit":
        words += f", probability {number(float(expit(score)), signed=False)}"
    return words


def _fit(study: "Study", explained: Explained, output: int, rows: pd.DataFrame, level: str) -> Fit:
    name = rows["surrogate"].iloc[0]
    kinds = list(dict.fromkeys(rows["kind"]))
    layers = tuple(
        highlighted(explained.units, rows[rows["kind"] == kind], kind, level) for kind in kinds
    )
    fitted = explained.fits.get(name)
    shown = kinds[0] if fitted is None else fitted.effect
    table = study.fidelity
    judged = table[
        (table["text"] == explained.text_id)
        & (table["surrogate"] == name)
        & (table["target"] == explained.targets[output])
    ]
    badge = Badge("undefined", "fidelity: not measured")
    if len(judged):
        badge = _badge(judged.iloc[0].to_dict())
    chart = scatter_chart(rows) if {"value", "importance"} <= set(kinds) else None
    additivity = _additivity(study, explained, output, name)
    return Fit(
        name=name,
        badge=badge,
        layers=layers,
        chosen=kinds.index(shown),
        advice=advice(rows["status"]),
        additivity=additivity,
        chart=chart,
    )


def _badge(row: Mapping[str, Any]) -> Badge:
    where = f"on {row['n_masks']} masks ({row['mask_law']})"
    if row["status"] == UNDEFINED:
        return Badge("undefined", f"fidelity: the model does not vary {where}")
    sampled = row["r2_low"] < row["r2_high"]
    between = f" [{interval(row['r2_low'], row['r2_high'])}]" if sampled else ""
    ceiling = row.get("ceiling")
    bound = "" if ceiling is None or np.isnan(ceiling) else f"; ceiling {number(ceiling, signed=False)}"
    verdict = "low" if row["status"] == LOW else "good"
    words = f"fidelity: R² {number(row['r2'], signed=False)}{between} {where}{bound}"
    return Badge(verdict, words)


def _additivity(study: "Study", explained: Explained, output: int, name: str) -> str:
    fit = explained.fits.get(name)
    if not isinstance(fit, Slalom) or fit.heads != 1:
        return ""
    found = fit.additivity(study.options.confidence)[output]
    return (
        f"Additivity index {number(found.index, signed=False)} "
        f"[{interval(found.low, found.high)}]: 1 where the model adds its units up, 0 where it pools them."
    )


def _rows(rows: pd.DataFrame, columns: Sequence[tuple[str, str]]) -> Iterator[Row]:
    cells: list[list[tuple[str, str, str]]] = []
    for surrogate, kind in columns:
        own = rows[(rows["surrogate"] == surrogate) & (rows["kind"] == kind)]
        cells.append(
            [
                (
                    number(row["score"]),
                    interval(row["ci_low"], row["ci_high"]),
                    "".join(status_words(without_fidelity(row["status"]))),
                )
                for row in records(own)
            ]
        )
    tokens = rows.drop_duplicates("unit")["token"]
    for token, *own_cells in zip(tokens, *cells, strict=True):
        yield Row(token, tuple(own_cells))


def _fidelity_rows(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Over all texts: surrogate, fits, median R2, low, undefined."""
    for name, rows in table.groupby("surrogate", sort=False):
        low, undefined = ((rows["status"] == status).sum() for status in (LOW, UNDEFINED))
        median = number(float(rows["r2"].median()), signed=False) if undefined < len(rows) else "–"
        yield str(name), str(len(rows)), median, str(low), str(undefined)


def _settings(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where the numbers come from; no date, so that equal studies give equal pages."""
    for key, value in meta.items():
        if key not in _PER_TEXT:
            yield key.replace("_", " "), "–" if value is None else str(value)
    for name, parameters in meta["surrogates"].items():
        yield name, ", ".join(f"{key}={value}" for key, value in parameters.items())
    for name, version in meta["versions"].items():
        yield name, str(version)


def _level(study: "Study") -> str:
    return f"{100 * study.options.confidence:.6g} %"
