"""Texts whose rows are written as they come: the bytes of a study of all of them."""

import gc
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import piste
from piste import InputError, ModelError, PisteWarning, Study
from piste.evaluation.digest import Digest, write_each
from piste.evaluation.report import terminal_report

TEXTS = ["a good film", 'bad, "not" good', "", "good", "a long text\nabout nothing good at all"]
FAILURE = "1 of 5 texts could not be explained"
OPTIONS: dict[str, Any] = {
    "surrogates": ("shap", "slalom"),
    "space": "raw",
    "budget": 40,
    "target": "all",
}


def score(texts: Sequence[str]) -> list[list[float]]:
    return [[float("good" in text), -2.0 * ("bad" in text) + 0.01 * len(text)] for text in texts]


def shown(made: Study | Digest) -> str:
    console = Console(width=120, record=True, quiet=True)
    console.print(terminal_report(made))
    return console.export_text()


def test_the_bytes_of_a_study(tmp_path: Path) -> None:
    with pytest.warns(PisteWarning, match=FAILURE):
        study = piste.explain(score, TEXTS, **OPTIONS)
    study.to_csv(tmp_path / "whole.csv")
    with pytest.warns(PisteWarning, match=FAILURE) as said:
        digest = write_each(piste.explain_each(score, TEXTS, **OPTIONS), tmp_path / "each.csv")
    assert len(said) == 1
    for ending in (".csv", ".meta.json"):
        each, whole = (tmp_path / f"{name}{ending}" for name in ("each", "whole"))
        assert each.read_bytes() == whole.read_bytes()
    assert shown(digest) == shown(study)
    assert digest.n_tables == 8  # four texts, two targets


def test_nothing_is_written_where_nothing_came_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"text 0; none of 2 texts worked"):
        write_each(piste.explain_each(score, ["", " "], space="raw"), tmp_path / "a.csv")

    def broken(texts: Sequence[str]) -> list[float]:
        raise ValueError("gone")

    with pytest.raises(ModelError, match="gone"):
        write_each(piste.explain_each(broken, "good", space="raw"), tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_a_run_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    def studies() -> Iterator[Study]:
        yield from piste.explain_each(score, TEXTS[:2], **OPTIONS)
        assert len(list(tmp_path.iterdir())) == 2  # begun beside its place
        raise KeyboardInterrupt

    out = tmp_path / "a.csv"
    out.write_text("an earlier run")
    with pytest.raises(KeyboardInterrupt):
        write_each(studies(), out)
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_text() == "an earlier run"


def test_a_missing_folder_is_refused_before_the_first_query(tmp_path: Path) -> None:
    def never(texts: Sequence[str]) -> list[float]:
        raise AssertionError(texts)

    with pytest.raises(InputError, match="writable folder"):
        write_each(piste.explain_each(never, "good", space="raw"), tmp_path / "none" / "a.csv")


def test_keeps_no_answers_of_texts_that_are_done() -> None:
    alive: list[int] = []
    outcomes: list[weakref.ref[object]] = []

    def watched() -> Iterator[Study]:
        for study in piste.explain_each(score, TEXTS[:2] + TEXTS[3:], **OPTIONS):
            gc.collect()
            alive.append(sum(outcome() is not None for outcome in outcomes))
            outcomes.append(weakref.ref(study.outcomes[0]))
            yield study
            del study

    digest = write_each(watched(), None)
    assert digest.n_tables == 8
    assert max(alive) <= 1
