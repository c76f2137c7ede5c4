"""The command line against a server on loopback: what goes wrong, and answers taken elsewhere."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from piste.cli import app
from piste.sampling.store import open_store

pytest.importorskip("httpx")
pytest.importorskip("openai")
pytest.importorskip("tenacity")

SIX_WORDS = "One of the best films yet"
N_MASKS = 64
ELEVEN_WORDS = "Dull, and much too long for what little it has to say"
KEY = "sk-wrong-and-secret"


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; what it says on stderr."""
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.stderr


def explaining(address: str, *arguments: object) -> list[object]:
    return ["explain", SIX_WORDS, "--model", address, "--quiet", "--surrogate", "shap", *arguments]


def line(*arguments: object, code: int) -> str:
    """The one line that a run ends with."""
    (said,) = run(*arguments, code=code).splitlines()
    assert said.startswith("error: ")
    return said


@contextmanager
def disk_of(n_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def n_answers(path: Path) -> int:
    with open_store(path) as store:
        return sum(model.n_answers for model in store.models())


# Answers taken elsewhere ----------------------------------------------------------------------------


def test_explained_elsewhere_without_the_model(server: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    texts = here / "t.txt"
    texts.write_text(f"{SIX_WORDS}\n{ELEVEN_WORDS}\n")
    common = ("--quiet", "--budget", 150, "--surrogate", "shap")
    run(
        *("explain", texts, "--model", f"{server.base}/predict", *common),
        *("--store", here / "a.sqlite", "--out", here / "a.csv"),
    )
    assert server.n_requests > 0
    run("store", "export", here / "answers.csv", "--store", here / "a.sqlite")
    server.close()
    run("store", "import", here / "answers.csv", "--store", there / "b.sqlite")
    model = f"stored:{there / 'b.sqlite'}"
    run("explain", texts, "--model", model, *common, "--out", there / "a.csv")
    assert (there / "a.csv").read_bytes() == (here / "a.csv").read_bytes()
    first, again = (json.loads((each / "a.meta.json").read_text()) for each in (here, there))
    taken = {"usage": None, "n_known": 0}  # what the requests cost, and none
    assert first | taken == again | taken
    # Another seed draws masks that nobody was asked about.
    said = line("explain", ELEVEN_WORDS, "--model", model, *common, "--seed", 5, code=1)
    assert "without a stored answer, first '" in said
    assert "Explain the same texts with the options and seed of the run that stored" in said


def test_which_of_several_models_is_said_by_a_part_of_its_name(server: Any, tmp_path: Path) -> None:
    store, outs = tmp_path / "a#1.sqlite", {}
    server.always = lambda answer: answer
    for number, name in enumerate(("first", "second")):
        server.answer = lambda body, p=0.25 * (number + 1): [
            [{"label": "good", "score": p * len(text[0]) / 99}, {"label": "bad", "score": 0.1}]
            for text in body["inputs"]
        ]
        outs[name] = tmp_path / f"{name}.csv"
        address = f"{server.base}/predict?{name}"
        run(*explaining(address, "--store", store, "--out", outs[name]))
    said = line(*explaining(f"stored:{store}"), code=2)
    assert "Choose one of them, as in 'stored:" in said
    names = [part for part in said.split("'") if part.startswith("http:")]
    assert len(names) == 2
    again = [tmp_path / f"{number}.csv" for number in range(2)]
    for name, out in zip(names, again, strict=True):
        run(*explaining(f"stored:{store}#{name.partition('#')[2]}", "--out", out))
    assert {out.read_bytes() for out in again} == {out.read_bytes() for out in outs.values()}


@pytest.mark.parametrize(
    ("name", "part"),
    [("missing.sqlite", "Got no store at"), ("damaged.sqlite", "expected an intact store of piste")],
)
def test_a_stored_model_needs_a_store(tmp_path: Path, name: str, part: str) -> None:
    (tmp_path / "damaged.sqlite").write_text("no store")
    assert part in line(*explaining(f"stored:{tmp_path / name}"), code=2)


# What goes wrong ------------------------------------------------------------------------------------


def test_a_wrong_key(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "right"
    monkeypatch.setenv("PISTE_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for arguments in (
        explaining(f"{server.base}/predict"),
        explaining("openai:m", "--base-url", f"{server.base}/v1"),
    ):
        said = line(*arguments, code=1)
        assert "answered 401 Unauthorized: Incorrect key: Bearer ***. Check the key" in said
        assert KEY not in said
    assert server.n_requests == 2


def test_an_unknown_model(server: Any) -> None:
    server.always = (404, {}, {"error": {"message": "The model 'gpt-0' does not exist"}})
    said = line(*explaining("openai:gpt-0", "--base-url", f"{server.base}/v1"), code=1)
    assert "404 Not Found: The model 'gpt-0' does not exist. Check the address and the mod" in said


def test_a_host_that_cannot_be_reached(waits: list[float]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        said = line(*explaining(f"http://127.0.0.1:{closed.getsockname()[1]}/predict"), code=1)
    assert "cannot be reached" in said
    assert "Check the address, and that it runs. (sent 3 times)" in said
    assert len(waits) == 2


def test_a_store_that_cannot_be_opened_is_said_before_the_first_request(
    server: Any, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(5000))
    cases = [(damaged, "an intact store"), (tmp_path, "expected a file in an existing folder")]
    if sys.platform == "linux":  # where permissions do not bind the user who runs the tests
        cases.append((Path("/proc/answers.sqlite"), "expected a file and a folder that can be written"))
    for store, part in cases:
        assert part in line(*explaining(f"{server.base}/predict", "--store", store), code=2)
    assert damaged.read_bytes() == b"SQLite format 3\0" + bytes(5000)
    assert server.n_requests == 0


def test_a_full_disk_keeps_what_was_answered(server: Any, tmp_path: Path) -> None:
    store, out = tmp_path / "a.sqlite", tmp_path / "a.csv"
    arguments = explaining(f"{server.base}/predict", "--store", store, "--concurrency", 1, "--out", out)
    with disk_of(40_000):  # the store's log ends there, after a few requests
        said = line(*arguments, code=2)
    assert "every answer stored before is safe" in said
    assert not out.exists()
    kept, sent = n_answers(store), server.answered.total()
    assert 0 < kept < N_MASKS
    assert sent - kept <= 8  # the last request, whose answers did not fit
    run(*arguments)
    assert n_answers(store) == N_MASKS
    assert server.answered.total() == N_MASKS + sent - kept  # nothing that was kept is asked again


def test_two_processes_share_a_store(server: Any, tmp_path: Path) -> None:
    server.delay = 0.05
    outs = [tmp_path / "a.csv", tmp_path / "b.csv"]
    commands = [
        [
            *explaining(f"{server.base}/predict", "--store", tmp_path / "a.sqlite"),
            *("--concurrency", 2, "--out", out),
        ]
        for out in outs
    ]
    code = "import sys; from piste.cli import main; sys.argv[0] = 'piste'; main()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, commands[0])], stderr=subprocess.PIPE, text=True
    )
    while server.n_requests == 0 and other.poll() is None:
        time.sleep(0.01)
    assert run(*commands[1]) == ""
    assert other.communicate()[1] == ""
    assert other.returncode == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert n_answers(tmp_path / "a.sqlite") == len(server.answered) == N_MASKS
    assert max(server.answered.values()) <= 2
