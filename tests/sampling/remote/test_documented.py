"""Every command and program in the documentation of adapters and costs, run against a fake server."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from piste.cli import app
from piste.sampling.models import ADAPTERS

pytest.importorskip("httpx")
pytest.importorskip("openai")
pytest.importorskip("tenacity")

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [
    "adapters/builtin.md",
    "adapters/http.md",
    "adapters/openai.md",
    "adapters/stored.md",
    "costs.md",
]
ADDRESS = re.compile(r"http://localhost:\d+")
REVIEWS = "text\nA gripping film with a dull end.\nThe battery lasts two days.\n"
SHELL = ("piste ", "pip ", "export ", "python ", "# ")


def blocks(page: str) -> Iterator[list[str]]:
    """The indented blocks of a page."""
    for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE):
        yield [line[4:] for line in block.strip("\n").splitlines()]


def answer(body: Any) -> Any:
    """What any of the servers says, for any text."""
    if "messages" in body or "prompt" in body:
        names = ("positive", "negative", "yes", "no")
        shift = len(str(body)) % 7 / 7
        top = [{"token": name, "logprob": -1 - n * shift} for n, name in enumerate(names)]
        return {"choices": [{"logprobs": {"content": [{"token": "yes", "top_logprobs": top}]}}]}
    texts = [" ".join(text) for text in body["inputs"]]
    scores = [(1 + len(text)) / 200 for text in texts]
    return [
        [{"label": "positive", "score": score}, {"label": "negative", "score": 1 - score}]
        for score in scores
    ]


def run_shell(line: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(ADDRESS.sub(base, line), comments=True) or [""]
    if program == "export":
        monkeypatch.setenv(*arguments[0].split("=", 1))
    if program == "piste":
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_documented_runs(
    name: str, server: Any, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = answer
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-at-all")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base}/v1")
    Path("reviews.csv").write_text(REVIEWS, encoding="utf-8")
    page = (DOCS / name).read_text(encoding="utf-8")
    page = re.sub(r"(?<=[#\"])8080(?=/predict)", server.base.rpartition(":")[2], page)
    known: dict[str, Any] = {}
    n_run = 0
    for block in blocks(page):
        code = "\n".join(block)
        if block[0].startswith("{"):
            json.loads(code)
            Path("rate.json").write_text(code, encoding="utf-8")
        elif block[0].startswith(SHELL):
            for line in block:
                run_shell(line, server.base, monkeypatch)
        elif not re.match(r"[\d,]+ ×", code):  # a calculation
            exec(compile(ADDRESS.sub(server.base, code), name, "exec"), known)
        n_run += 1
    assert n_run


def test_every_adapter_is_documented() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("adapters/*.md"))
    for adapter in ADAPTERS:
        assert f"`{adapter.scheme}:" in pages
        assert adapter.extra is None or f"piste[{adapter.extra}]" in pages
