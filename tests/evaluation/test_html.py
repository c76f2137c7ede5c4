"""The report page as a parser reads it: nothing foreign, nothing lost, nothing from elsewhere."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import piste
from piste._errors import InputError, PisteWarning
from piste.cli import app
from piste.evaluation import html
from piste.evaluation.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, curve_chart, scatter_chart
from piste.evaluation.highlights import WITHOUT_INTERVALS
from piste.evaluation.html import report_html
from piste.evaluation.study import Study
from piste.surrogates import Lime

NASTY = (
    "<b>5 < 6 & 7</b> </script><script>alert(1)</script> \"double\" 'single' &amp; \x01\x1b\r\ntab\t"
    "😀 e\u0301 \u2028 שלום 123 abc مرحبا ٤٥ \u202eevil\u202c end"
)
VOID = {"meta", "input", "br", "rect", "path", "polygon"}
OPTIONAL = {"td", "th", "tr"}


class Page(HTMLParser):
    """Elements with their attributes, and the text inside those of class ``words``."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.everything = ""
        self.scripts: list[str] = []
        self.open: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag not in VOID | OPTIONAL:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if found.get("class") == "words":
            self._inside = True
            self.words.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID | OPTIONAL:
            assert self.open.pop() == tag
        if tag == "p":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.everything += data
        if self._inside:
            self.words[-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def length(texts: Sequence[str]) -> list[float]:
    """A model that each unit changes, each by its own size."""
    return [float(sum(ord(letter) for letter in text) % 1009) for text in texts]


def three_labels(texts: Sequence[str]) -> np.ndarray:
    numbers = np.array(length(texts))
    return np.stack([numbers, -numbers, 1009 - 2 * numbers], axis=1) / 1009


def explained(
    texts: Any, surrogates: Any = ("lime", "shap", "slalom"), model: Any = length, **options: Any
) -> Study:
    return piste.explain(model, texts, surrogates=surrogates, space="raw", **{"budget": 64, **options})


@pytest.fixture(scope="module")
def nasty() -> Study:
    model = piste.load_model(three_labels, labels=["</script><b>", "'\"&", "plain"], kind="raw")
    return explained([NASTY, "a b"], model=model, text_ids=['"><img src=x onerror=alert(1)>', "b"])


# Escaping -------------------------------------------------------------------------------------------


def test_nothing_of_a_text_becomes_markup(nasty: Study) -> None:
    page = Page(report_html(nasty))
    assert page.open == []
    names = {name for name, _ in page.elements}
    assert not names & {"img", "a b", "iframe", "link", "object"}
    assert len(page.scripts) == 1
    assert "alert" not in page.scripts[0]
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    for literal in ('"><img src=x onerror=alert(1)>', nasty.attributions["target"].iloc[0]):
        assert literal in page.everything


def test_a_text_is_rebuilt_exactly(nasty: Study) -> None:
    page = Page(report_html(nasty))
    layers = 1 + 1 + 5  # LIME, SHAP, SLALOM
    assert page.words == [NASTY] * layers + ["a b"] * layers


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_every_text_is_rebuilt_exactly(text: str) -> None:
    study = explained("one " + text, "lime")
    assert Page(report_html(study)).words == ["one " + text]


def test_what_html_cannot_write_is_shown(tmp_path: Path) -> None:
    study = explained(["a \0 b"], "lime")
    study.to_html(tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_bytes().decode("utf-8"))
    assert page.words == ["a ␀ b"]


def test_pairs_have_two_parts() -> None:
    def overlap(pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [float(len(a) + 2 * len(b)) for a, b in pairs]

    page = Page(report_html(explained([("it <rains>", "wet & cold")], "shap", model=overlap)))
    assert page.words == ["it <rains>", "wet & cold"]
    assert "second text" in page.everything


# From nowhere else ----------------------------------------------------------------------------------


def test_nothing_is_fetched(nasty: Study) -> None:
    text = report_html(nasty)
    page = Page(text)
    for _, attributes in page.elements:
        assert not {"src", "srcset", "data", "action", "style"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in "".join(page.scripts)


def test_the_policy_lets_only_this_script_run(nasty: Study) -> None:
    page = Page(report_html(nasty))
    (policy,) = [m["content"] for m in page.all("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'; ")
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        study = explained(["one two", "four"], ["lime", "slalom"])
        study.to_html(tmp_path / f"{name}.html")
        study.to_plot(tmp_path / f"{name}.svg")
        study.to_plot(tmp_path / f"{name}.png")
    for ending in ("html", "svg", "png"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_a_saved_study_gives_the_same_page(tmp_path: Path) -> None:
    study = explained("one two three")
    study.save(tmp_path / "s.piste")
    assert report_html(piste.load_study(tmp_path / "s.piste")) == report_html(study)


def test_a_page_stays_small() -> None:
    text = (
        "The first hour is slow and the plot makes little sense, but both leads are a joy, the songs "
        "are lovely, and by the end I cried like a child."
    )
    assert len(text.split()) == 30
    explain = partial(piste.explain, "builtin:sentiment", surrogates=("lime", "shap", "slalom"))
    one, two = (report_html(explain([text] * n, budget=400)) for n in (1, 2))
    assert len(two.encode()) - len(one.encode()) < 40_000
    assert len(one.encode()) < 60_000


# What it says ---------------------------------------------------------------------------------------


def marks(page: str) -> list[tuple[str, str, str]]:
    found = re.findall(r'<mark(?: class="([^"]*)")? title="([^"]*)">([^<]*)</mark>', page)
    return [(classes, title, token) for classes, title, token in found]


def test_numbers_of_every_unit_are_in_its_title_and_in_the_table() -> None:
    study = explained("good good bad", "shap", model=lambda texts: [len(t) ** 2 / 3 for t in texts])
    page = report_html(study)
    for row, (_, title, token) in zip(study.attributions.itertuples(), marks(page), strict=True):
        assert token == row.token
        assert title.split("\n")[0] == f"{row.score:+.1f}"
    assert page.count("<td>") == 3


def with_rows(**columns: list[Any]) -> Study:
    """A study of three units whose table says this."""
    study = explained("one two three", "shap")
    study.__dict__["attributions"] = study.attributions.assign(**columns)
    return study


def test_marks_tell_settled_from_not() -> None:
    study = with_rows(score=[2.0, -1.0, 9.0], ci_low=[1.0, -2.0, -1.0], ci_high=[3.0, -0.5, 19.0])
    classes = [found[0] for found in marks(report_html(study))]
    # Nine tenths of nothing known: the unsettled 9 does not pale the settled 2.
    assert classes == ["r s9", "l s4", "q"]


def test_without_any_interval_the_score_gives_the_colour_and_the_page_says_so() -> None:
    endless = {"std_error": [np.inf] * 3, "ci_low": [-np.inf] * 3, "ci_high": [np.inf] * 3}
    study = with_rows(score=[2.0, -1.0, 0.0], **endless)
    page = report_html(study)
    assert [found[0] for found in marks(page)] == ["r s9", "l s4", ""]
    assert page.count(WITHOUT_INTERVALS) == 1
    known = with_rows(score=[2.0, -1.0, 0.0], **endless | {"ci_low": [1.0, -np.inf, -np.inf]})
    page = report_html(known)
    assert [found[0] for found in marks(page)] == ["r s9", "q", ""]
    assert WITHOUT_INTERVALS not in page


def test_doubtful_and_unseen_units_have_patterns_and_reasons() -> None:
    study = with_rows(status=["unseen", "underdetermined; low fidelity", "low fidelity"])
    found = marks(report_html(study))
    assert [classes for classes, _, _ in found][:2] == ["x", "d"]
    assert found[2][0].startswith(("r", "l", "q"))  # a low fidelity is the badge's matter
    assert found[0][1].endswith("\nunseen")


def test_advice_is_given_once() -> None:
    study = explained("one two three four five six seven eight nine ten", "slalom", budget=16)
    (advice,) = {status for status in study.attributions["status"] if ":" in status}
    assert report_html(study).count(advice.split("; ")[0].replace("'", "&#39;")) == 1


def test_missing_and_infinite_numbers_are_shown() -> None:
    study = with_rows(score=[np.nan, 1.0, 0.0], std_error=[np.inf] * 3, ci_low=[np.nan, -np.inf, 0.0])
    titles = [title for _, title, _ in marks(report_html(study))]
    assert titles[0].startswith("–\n95 %: unknown\nstd. error ∞")
    assert "−∞ to" in titles[1]


@pytest.mark.parametrize(
    ("space", "says"),
    [("probability", "probability 0.800"), ("logit", "log-odds +1.39, probability 0.800")],
)
def test_the_score_of_the_whole_text(space: str, says: str) -> None:
    model = piste.load_model(
        lambda texts: [[0.2, 0.8] if text == "a good film" else [0.6, 0.4] for text in texts],
        labels=["bad", "fine"],
        kind="probability",
    )
    study = piste.explain(model, "a good film", surrogates="lime", space=space)
    assert f"answer to the whole text: {says}." in Page(report_html(study)).everything


def test_every_target_has_a_section() -> None:
    model = piste.load_model(three_labels, labels=["x", "y", "z"], kind="raw")
    page = Page(report_html(explained(["one two", "three"], "lime", model=model, target="all")))
    headings = [a["id"] for a in page.all("section") if "id" in a]
    assert headings == [f"text-{number}" for number in range(6)]
    assert page.words == ["one two"] * 3 + ["three"] * 3
    links = [a["href"] for a in page.all("a")]
    assert links == ["#main", *(f"#{heading}" for heading in headings)]


@pytest.mark.filterwarnings("ignore::piste.PisteWarning")
def test_failed_texts_and_fits_say_why() -> None:
    study = explained(["one two three", " ", 5, "four"], ["slalom", Lime(alpha=-1)])
    page = Page(report_html(study))
    text = page.everything
    assert text.count("not explained") == 4  # the list of texts, and a section each
    assert "Got an empty text" in text
    assert "alpha" in text
    assert "2 of 4 texts could not be explained" in text
    ids = [attributes["id"] for attributes in page.all("section") if "id" in attributes]
    assert len(ids) == 4


def test_fidelity_in_words() -> None:
    constant = Page(report_html(explained("one two", "lime", model=lambda texts: [1.0 for _ in texts])))
    assert "undefined fidelity: the model does not vary" in " ".join(constant.everything.split())
    linear = Page(
        report_html(explained("one two", "lime", model=lambda t: [len(x.split()) for x in t]))
    )
    assert "good fidelity: R² 1.00 on 4 masks (all masks)" in " ".join(linear.everything.split())


def test_low_fidelity_and_ceiling_are_shown() -> None:
    study = explained("one two", "lime")
    study.__dict__["fidelity"] = study.fidelity.assign(
        r2=0.3, r2_low=0.2, r2_high=0.4, ceiling=0.9, status="low"
    )
    text = " ".join(Page(report_html(study)).everything.split())
    assert "low fidelity: R² 0.300 [0.200 to 0.400]" in text
    assert "ceiling 0.900" in text


def test_additivity_and_provenance() -> None:
    study = explained("one two three four")
    found = study.surrogate(0, "slalom").additivity()[0]  # type: ignore[attr-defined]
    text = Page(report_html(study)).everything
    assert f"Additivity index {found.index:#.3g}" in text or f"{found.index:.3f}" in text
    assert study.fingerprint in text
    for setting in ("masking", "seed", "budget", "n queries", "numpy"):
        assert setting in text


def test_a_page_of_many_texts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MOST_TEXTS", 2)
    study = explained(["one two", "three", "four five"], "lime")
    page = Page(report_html(study))
    assert page.words == ["one two", "three"]
    assert "This page shows 2 of 3 texts." in page.everything
    assert Page(report_html(study, texts=["2", 0])).words == ["four five", "one two"]
    model = piste.load_model(three_labels, labels=["x", "y", "z"], kind="raw")
    study = explained(["one two", "three"], "lime", model=model, target="all")
    assert Page(report_html(study)).words == ["one two"] * 3  # all targets of a text, or none
    with pytest.raises(InputError, match="Got text 'nine'"):
        report_html(study, texts=["nine"])


def test_the_structure_helps_a_screen_reader(nasty: Study) -> None:
    page = Page(report_html(nasty))
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("a")[0]["href"] == "#main"
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in attributes for attributes in page.all("th"))
    assert all(a["dir"] == "auto" for a in page.all("p") if a.get("class") == "words")
    assert all(attributes.get("aria-label") for attributes in page.all("svg"))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
    assert set(named) <= set(ids)
    groups = {a["name"] for a in page.all("input")}
    chosen = [a["name"] for a in page.all("input") if "checked" in a]
    assert sorted(groups) == sorted(chosen)


# Notebooks ------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_first_text(nasty: Study) -> None:
    shown = nasty._repr_html_()
    page = Page(shown)
    assert page.words == [NASTY] * 3
    assert page.scripts == []
    style = shown[shown.index("<style>") : shown.index("</style>")]
    rules = re.findall(r"([^{}]+)\{", style.removeprefix("<style>"))
    for rule in rules:
        assert all(part.strip().startswith(".piste") for part in rule.split(","))
    assert {name for name, _ in page.elements} <= {"div", "style", "p", "b", "bdi", "mark", "code"}


@pytest.mark.filterwarnings("ignore::piste.PisteWarning")
def test_a_notebook_shows_what_failed() -> None:
    page = Page(explained(["", "a b"], "lime")._repr_html_())
    assert page.words == ["a b"]
    assert "1 of 2 texts could not be explained" in page.everything


# Pictures -------------------------------------------------------------------------------------------


def test_the_scatter_keeps_repeats_and_its_frame() -> None:
    rows = explained("one two one three").attributions.query("surrogate == 'slalom'")
    chart = scatter_chart(rows)
    assert chart is not None
    assert [point.token for point in chart.points] == ["one", "two", "one", "three"]
    for point in chart.points:
        assert LEFT <= point.x <= WIDTH - RIGHT
        assert TOP <= point.y <= HEIGHT - BOTTOM
    values = rows[rows["kind"] == "value"]["score"].to_numpy(float)
    known = [i for i, point in enumerate(chart.points) if point.settled]
    order = sorted(known, key=lambda i: values[i])
    heights = [chart.points[i].y for i in order]
    assert heights == sorted(heights, reverse=True)  # SVG counts downwards
    assert scatter_chart(rows[rows["kind"] == "value"]) is None


def test_curves_are_drawn_in_order() -> None:
    table = pd.DataFrame({"x": [1.0, 0.0, np.nan], "y": [0.0, 1.0, 5.0], "surrogate": ["<lime>"] * 3})
    chart = curve_chart("Deletion", table)
    assert chart is not None
    (line,) = chart.lines
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in line.points.split())
    margin = 0.06 / 1.12
    assert [x0, x1] == pytest.approx(
        [LEFT + share * (WIDTH - RIGHT - LEFT) for share in (margin, 1 - margin)], abs=0.05
    )
    assert [y0, y1] == pytest.approx(
        [TOP + share * (HEIGHT - BOTTOM - TOP) for share in (margin, 1 - margin)], abs=0.05
    )
    assert line.band == ""
    banded = curve_chart("Deletion", table.assign(low=table["y"] - 1, high=table["y"] + 1))
    assert banded is not None
    assert len(banded.lines[0].band.split()) == 4
    assert curve_chart("none", table[:0]) is None
    with pytest.raises(InputError, match="without surrogate"):
        curve_chart("Deletion", table[["x", "y"]])
    page = Page(report_html(explained("one two", "lime"), curves={"<Deletion>": table}))
    assert "<lime>" in page.everything
    assert page.everything.count("<Deletion>") == 2
    assert len(page.all("polyline")) == 1


@pytest.mark.filterwarnings("ignore::piste.PisteWarning")
def test_plots_of_the_first_text_that_worked(tmp_path: Path) -> None:
    study = explained(["", "one $x^ two"], "lime")
    study.to_plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG\r\n")
    study.to_plot(tmp_path / "p.SVG", text=1)
    drawn = ElementTree.fromstring((tmp_path / "p.SVG").read_bytes())
    words = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"one", "two"} <= words
    with pytest.raises(InputError, match="no attribution"):
        study.to_plot(tmp_path / "q.png", text=0)
    with pytest.raises(InputError, match=r"ends in '.pdf'; expected .png or .svg"):
        study.to_plot(tmp_path / "p.pdf")


def test_a_picture_says_which_letters_its_fonts_lack(tmp_path: Path) -> None:
    study = explained("\U00013000 \U00013001", "lime")  # hieroglyphs
    with pytest.warns(PisteWarning, match="fonts lack"):
        study.to_plot(tmp_path / "p.png")
    study.to_plot(tmp_path / "p.svg")


# The command line -----------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, ["explain", *map(str, arguments)])


def test_the_command_writes_page_and_picture(tmp_path: Path) -> None:
    page, picture = tmp_path / "r.html", tmp_path / "p.svg"
    result = run("A gripping film.", "--quiet", "--html", page, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert set(Page(page.read_bytes().decode()).words) == {"A gripping film."}
    assert b"gripping" in picture.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--html", "missing/r.html"], "existing, writable folder"),
        (["--plot", "missing/p.png"], "existing, writable folder"),
        (["--plot", "p.pdf"], "ends in '.pdf'"),
        (["--html", "same", "--json", "same"], "twice"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_first_query(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("A film.", *arguments, "--model", "openai:nothing-is-asked")
    assert result.exit_code == 2
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_methods_beyond_the_colours_are_still_told_apart() -> None:
    table = pd.DataFrame({"surrogate": list("abcdefgh") * 2, "x": [0] * 8 + [1] * 8, "y": range(16)})
    chart = curve_chart("curves", table)
    assert chart is not None
    assert len({(line.colour, line.again) for line in chart.lines}) == 8
