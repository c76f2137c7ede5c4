from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from piste._store_cli import app
from piste.sampling.models import Scores
from piste.sampling.store import default_location, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "answers.sqlite"
    with open_store(path) as store:
        store.of("openai:[bold]").put(
            ["a", "b"], Scores(np.array([[0.5], [np.nan]]), ("[red]",), "logit")
        )
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def test_info(path: Path) -> None:
    shown = run("info", "--store", path)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["openai:[bold]", "[red]", "logit", "", "2", "1"] in cells


def test_export_import_vacuum(path: Path, tmp_path: Path) -> None:
    table, other = tmp_path / "[a].csv", tmp_path / "other.sqlite"
    assert run("export", table, "--store", path) == f"Exported 2 answers to {table}.\n"
    assert run("import", table, "--store", other) == f"Imported 2 new answers from {table}.\n"
    assert run("import", table, "--store", other) == f"Imported 0 new answers from {table}.\n"
    assert run("vacuum", "--store", other) == f"Freed 0 bytes of {other}.\n"
    assert "Freed" in run("vacuum", "--store", other, "--drop-non-finite")
    with open_store(other) as store:
        assert store.models()[0].n_answers == 1


def test_the_default_store(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in (["info"], ["vacuum"], ["export", tmp_path / "a.csv"]):
        assert "Got no store at" in run(*command, code=2)
    run("export", tmp_path / "a.csv", "--store", path)
    run("import", tmp_path / "a.csv")
    assert default_location().exists()
    assert "openai" in run("info")


def test_errors_are_one_line(path: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("no store")
    for arguments in (
        ["info", "--store", tmp_path / "bad"],
        ["export", tmp_path / "a.txt", "--store", path],
        ["import", tmp_path / "missing.csv", "--store", path],
    ):
        shown = run(*arguments, code=2)
        assert shown.startswith("error: Got")
        assert shown.count("\n") == 1
