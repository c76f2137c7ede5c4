"""The report page: what a study holds as one stand-alone HTML file, and in short for a notebook."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from piste.evaluation.charts import curve_chart
from piste.evaluation.page import page_of, sections_of
from piste.evaluation.provenance import remarks
from piste.surrogates.records import Explained

if TYPE_CHECKING:
    from jinja2 import Environment

    from piste.evaluation.study import Study

MOST_TEXTS = 50
"""A page of more texts, or texts and targets, is slow to open; the others can be asked for."""
_NO_NUL = "\N{SYMBOL FOR NULL}"  # HTML has no way to write U+0000


def report_html(
    study: "Study",
    *,
    texts: Sequence[int | str] | None = None,
    curves: Mapping[str, pd.DataFrame] | None = None,
) -> str:
    """A page that needs no network, no script and no other file; equal studies give equal bytes.

    Parameters
    ----------
    study
        What `piste.explain` returned.
    texts
        Positions or text_ids to show; the first `MOST_TEXTS` by default.
    curves
        Tables by title, such as deletion curves: columns ``x``, ``y``, ``surrogate`` and, where there is
        a band, ``low`` and ``high``.

    Raises
    ------
    InputError
        If there is no such text, or a table of curves lacks a column.
    """
    page = page_of(study, texts, MOST_TEXTS)
    drawn = [(title, table, curve_chart(title, table)) for title, table in (curves or {}).items()]
    return _rendered("report.html.j2", {"page": page, "curves": drawn})


def compact_html(study: "Study") -> str:
    """The first explained text, for a notebook's output cell: no script, and styles that stay inside."""
    first = next(each.text_id for each in study.outcomes if isinstance(each, Explained))
    content = {
        "section": sections_of(study, [first], 1)[0],
        "n_texts": len(study.outcomes),
        "remarks": list(remarks(study.outcomes).lines()),
    }
    return _rendered("compact.html.j2", content)


def _rendered(name: str, content: Mapping[str, object]) -> str:
    environment = _environment()
    script = environment.get_template("page.js").render()
    # The page's policy lets this one script run and no other.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(name).render(content, script=script, script_hash=digest)


def _environment() -> "Environment":
    """Templates in which every inserted value is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("piste.evaluation"),
        autoescape=True,
        finalize=_as_read,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def _as_read(value: object) -> object:
    """What a browser reads back as the same characters.

    It turns a bare carriage return into a line feed and refuses U+0000 and lone surrogates.
    """
    from markupsafe import Markup, escape

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    known = value.replace("\0", _NO_NUL).encode("utf-8", "replace").decode()
    return Markup(str(escape(known)).replace("\r", "&#13;"))
