"""``piste fidelity`` as a user types it."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from piste.cli import app

RUNNER = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"})
TEXTS = (
    "A gripping film with a fine cast and a very clever plot.\n"
    "One long string of cliches that nobody will want to see.\n"
    "Not a bad way to spend an evening, though it is far too long.\n"
)


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.txt"
    path.write_text(TEXTS, encoding="utf-8")
    return path


def test_tables_and_picture_are_written(reviews: Path) -> None:
    out, picture = reviews.with_name("fidelity.csv"), reviews.with_name("curves.svg")
    command = ["fidelity", str(reviews), "--budget", "40", "--budget", "80", "--surrogate", "lime"]
    command += ["--surrogate", "slalom", "--out", str(out), "--plot", str(picture)]
    found = RUNNER.invoke(app, command)
    assert found.exit_code == 0, found.output
    table = pd.read_csv(out)
    assert set(table["surrogate"]) == {"lime", "slalom", "zero", "mean"}
    assert set(table["budget"]) == {40, 80}
    assert "ratio" in pd.read_csv(out.with_suffix(".summary.csv"))
    tests = pd.read_csv(out.with_suffix(".tests.csv"))
    assert len(tests) == 3 * 6  # laws and pairs of four methods
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    assert "80 queries per fit" in found.output
    assert "slalom against lime" in found.output or "lime against slalom" in found.output
    # What the terminal says is what the file holds.
    summary = pd.read_csv(out.with_suffix(".summary.csv"))
    shown = summary.query("surrogate == 'slalom' and budget == 80 and mask_law == 'short'")
    assert f"{shown['ratio'].iloc[0]:.2f}" in found.output


def test_one_short_text_says_that_nothing_is_left_to_judge_by() -> None:
    found = RUNNER.invoke(app, ["fidelity", "A film."])
    assert found.exit_code == 0, found.output
    assert "no fresh masks" in found.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--law", "leverage"], "expected some of 'deletions'"),
        (["--budget", "1"], "whole numbers of at least 2"),
        (["--out", "no/such/folder/f.csv"], "existing, writable folder"),
        (["--plot", "curves.docx"], ".png"),
        (["--model", "nothing:here"], "expected 'builtin:sentiment'"),
        (["--design", "optimal"], "drawn at random"),
    ],
)
def test_wrong_use_is_one_line(reviews: Path, options: list[str], message: str) -> None:
    found = RUNNER.invoke(app, ["fidelity", str(reviews), *options])
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())
    assert "Traceback" not in found.output


def test_no_input_is_overwritten(reviews: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reviews.parent)
    for written in (reviews.name, str(reviews), f"./{reviews.name}"):
        found = RUNNER.invoke(app, ["fidelity", reviews.name, "--out", written])
        assert found.exit_code == 2
        assert "twice" in found.output
    store = reviews.with_name("answers.sqlite")
    found = RUNNER.invoke(app, ["fidelity", reviews.name, "--store", str(store), "--out", store.name])
    assert found.exit_code == 2
    assert reviews.read_text(encoding="utf-8") == TEXTS


def test_a_text_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text('id,text\nx,"A gripping film with a fine cast."\ny,\n', encoding="utf-8")
    command = ["fidelity", str(path), "--id-column", "id", "--budget", "40"]
    found = RUNNER.invoke(app, command)
    assert found.exit_code == 0, found.output
    assert "1 text failed; the first is text y" in found.output


def test_a_dry_run_counts_and_asks_nothing(reviews: Path) -> None:
    found = RUNNER.invoke(
        app, ["fidelity", str(reviews), "--dry-run", "--budget", "60", "--law", "short"]
    )
    assert found.exit_code == 0, found.output
    # 60 to fit and 50 to judge, of each of three texts
    assert "330 model queries at most, for 3 texts; nothing was sent" in found.output
    evaluated = RUNNER.invoke(
        app, ["evaluate", str(reviews), "--dry-run", "--budget", "60", "--metric-budget", "40"]
    )
    assert "300 model queries at most" in evaluated.output
