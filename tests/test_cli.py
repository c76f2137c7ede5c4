"""The command line, on the embedded model wherever a real one is needed."""

import csv
import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from piste._errors import InputError
from piste._inputs import read_inputs
from piste.cli import app
from piste.evaluation.report import dry_run_report
from piste.sampling.models.callable import CallableModel
from piste.surrogates import Lime
from piste.surrogates.records import Options

SENTENCE = "A gripping film."


def piste(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, [str(a) for a in arguments])


def explain(*arguments: object) -> Result:
    return piste("explain", *arguments)


def written(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refused(result: Result, code: int, *parts: str) -> None:
    """One line on stderr that says all of these, nothing else, no traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


# What a run gives -----------------------------------------------------------------------------------


def test_a_table_and_two_files(tmp_path: Path) -> None:
    result = explain(SENTENCE, "--out", tmp_path / "a.csv")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for word in ("gripping", "film", "lime", "shapley", "importance", "positive", "logit"):
        assert word in result.stdout
    assert re.search(r"shap: R² \S+ on 8 masks \(all masks\)", result.stdout)
    assert "8 model queries, at most 1000 per text" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.meta.json"]
    rows = written(tmp_path / "a.csv")
    assert {row["surrogate"] for row in rows} == {"lime", "shap", "slalom"}
    assert {row["token"] for row in rows} == {"A", "gripping", "film"}
    meta = json.loads((tmp_path / "a.meta.json").read_text(encoding="utf-8"))
    assert meta["n_queries"] == 8
    assert meta["model"].startswith("onnx:")


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    text = "A long and winding film that somehow never quite loses its way, or ours."
    for name in ("a", "b"):
        run = explain(text, "--out", tmp_path / f"{name}.csv", "--budget", 60, "--seed", 5, "--quiet")
        assert run.exit_code == 0
    for ending in (".csv", ".meta.json"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    explain(text, "--out", tmp_path / "c.csv", "--budget", 60, "--seed", 6, "--quiet")
    assert (tmp_path / "a.csv").read_bytes() != (tmp_path / "c.csv").read_bytes()


def test_quiet_says_nothing(tmp_path: Path) -> None:
    result = explain(SENTENCE, "--quiet", "--json", tmp_path / "a.json", "--surrogate", "shap")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [row["token"] for row in content["attributions"]] == ["A", "gripping", "film"]
    assert content["meta"]["surrogates"].keys() == {"shap"}


def test_every_option_reaches_the_study(tmp_path: Path) -> None:
    context = tmp_path / "context.txt"
    context.write_text("Review: {text}", encoding="utf-8")
    options = {
        "--surrogate": "lime",
        "--units": "token",
        "--masking": "mask-token",
        "--design": "permutation",
        "--budget": 40,
        "--target": "negative",
        "--space": "probability",
        "--context-file": context,
        "--batch-size": 8,
        "--seed": 3,
        "--confidence": 0.9,
        "--json": tmp_path / "a.json",
    }
    result = explain(SENTENCE, "--tie-repeats", *(part for pair in options.items() for part in pair))
    assert result.exit_code == 0, result.output
    meta = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["meta"]
    expected = {
        "units": "token",
        "masking": "mask-token",
        "design": "permutation",
        "budget": 40,
        "target": "negative",
        "space": "probability",
        "context": "Review: {text}",
        "batch_size": 8,
        "seed": 3,
        "confidence": 0.9,
        "tie_repeats": True,
    }
    assert {name: meta[name] for name in expected} == expected
    assert meta["texts"][0]["targets"] == ["negative"]


def test_surrogates_are_repeatable(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    result = explain(SENTENCE, "--surrogate", "lime", "--surrogate", "lime", "--out", out)
    assert result.exit_code == 0
    assert {row["surrogate"] for row in written(out)} == {"lime", "lime-2"}


def test_a_target_may_be_a_number_or_all(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    for target, labels in (("0", {"negative"}), ("1", {"positive"}), ("all", {"negative", "positive"})):
        result = explain(SENTENCE, "--target", target, "--surrogate", "shap", "--out", out)
        assert result.exit_code == 0
        assert {row["target"] for row in written(out)} == labels


def test_labels_that_are_digits_come_before_indices(make_tiny_bert: Any, tmp_path: Path) -> None:
    folder = make_tiny_bert(id2label={0: "1", 1: "2", 2: "3"})
    out = tmp_path / "a.csv"
    result = explain(
        "the good film", "--model", f"hf:{folder}", "--target", "1", "--surrogate", "shap", "--out", out
    )
    assert result.exit_code == 0, result.output
    assert {row["target"] for row in written(out)} == {"1"}


def test_any_script_survives(tmp_path: Path) -> None:
    text = 'She said "no, never",\nthen 😀 — שלום, مرحبا بالعالم; 5 < 6 [bold]markup[/bold] null'
    result = explain(text, "--out", tmp_path / "a.csv", "--surrogate", "shap", "--budget", 40)
    assert result.exit_code == 0, result.output
    rows = written(tmp_path / "a.csv")
    assert {"😀", "שלום", "مرحبا", "بالعالم", "null", "bold", "markup"} <= {
        row["token"] for row in rows
    }
    for row in rows:
        assert row["token"] == text[int(row["start"]) : int(row["end"])]


def test_markup_in_names_is_shown_as_it_is(make_tiny_bert: Any, tmp_path: Path) -> None:
    folder = make_tiny_bert(id2label={0: "[red]a[/red]", 1: "b", 2: "c"})
    (tmp_path / "t.jsonl").write_text('{"text": "the good film", "id": "[bold]x[/bold]"}\n')
    result = explain(
        *(tmp_path / "t.jsonl", "--id-column", "id", "--model", f"hf:{folder}"),
        *("--target", "0", "--surrogate", "shap"),
    )
    assert "text [bold]x[/bold] · [red]a[/red] · logit" in result.stdout


def test_many_texts_show_the_first_and_a_summary(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("good film\n" * 5)
    result = explain(tmp_path / "t.txt", "--surrogate", "shap")
    assert result.exit_code == 0
    assert "… and 2 more" in result.stdout
    assert re.search(r"shap: median R² \S+ over 5 fits, \d of them low, 0 undefined", result.stdout)


def test_words_beyond_the_window_are_said_once(tmp_path: Path) -> None:
    text = " ".join(["an uneven but honest film"] * 30)
    result = explain(text, "--out", tmp_path / "a.csv", "--surrogate", "shap", "--budget", 30)
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: ")
    assert "units lie beyond the model's window" in line
    unseen = [row for row in written(tmp_path / "a.csv") if row["status"] == "unseen"]
    assert unseen
    assert {row["score"] for row in unseen} == {"0.0"}


# Files of texts -------------------------------------------------------------------------------------


FILES = {
    "t.csv": 'id,text\r\n7,"A gripping, ""fine"" film"\r\n8,null\r\n',
    "t.tsv": "id\ttext\n7\tA gripping film\n8\tNA\n",
    "t.jsonl": '{"id": 7, "text": "A \\u2028 gripping film"}\n\n{"id": 8, "text": "null"}\n',
    "T.TXT": "A gripping film\r\n\r\nnull\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "bom"])
def test_files(name: str, mark: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes((mark + FILES[name]).encode())
    columns = [] if name == "T.TXT" else ["--id-column", "id"]
    out = tmp_path / "out.csv"
    result = explain(tmp_path / name, *columns, "--out", out, "--surrogate", "shap")
    assert result.exit_code == 0, result.output
    rows = written(out)
    assert [row["token"] for row in rows][:2] == ["A", "gripping"]
    assert rows[-1]["token"] in ("null", "NA")
    ids = list(dict.fromkeys(row["text_id"] for row in rows))
    assert ids == (["0", "1"] if name == "T.TXT" else ["7", "8"])


def test_fields_are_read_exactly(tmp_path: Path) -> None:
    texts = [
        'a "quoted", text',
        "two\nlines",
        "two\r\nlines",
        " spaced ",
        "null",
        "1e3",
        "007",
        "=1+1",
        "NaN",
    ]
    path = tmp_path / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([text] for text in texts)
    assert read_inputs(str(path), "text", None).texts == texts
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    assert read_inputs(str(path), "text", None).texts == texts


def test_missing_fields_spoil_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,good\n2,\n3\n")
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{"text": null}\n{"other": 1}\n{"text": 5}\n')
    assert read_inputs(str(tmp_path / "a.csv"), "text", "id").texts == ["good", "", ""]
    assert read_inputs(str(tmp_path / "a.jsonl"), "text", None).texts == ["good", "", "", "5"]
    result = explain(tmp_path / "a.csv", "--out", tmp_path / "out.csv", "--surrogate", "shap")
    assert result.exit_code == 0
    assert (
        "2 of 3 texts could not be explained; the first is text 1: Got an empty text" in result.stderr
    )
    rows = written(tmp_path / "out.csv")
    assert [row["status"].startswith("error: Got an empty text") for row in rows] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "expected UTF-8 csv"),
        ("t.csv", b"text\n", "without any text"),
        ("t.csv", b"text\nA gripping, slow film\n", "expected UTF-8 csv"),
        ("t.csv", b"id,text\n1,a gripping, slow, film\n", "expected UTF-8 csv"),
        ("t.csv", b"text,text\na,b\n", "expected each name once"),
        ("t.csv", b"review\ngood\n", "Got column 'text' for t.csv; expected one of 'review'"),
        ("t.csv", "text\nnaïve\n".encode("latin-1"), "expected UTF-8 csv"),
        ("t.txt", "naïve".encode("latin-1"), "expected UTF-8 txt"),
        ("t.txt", b" \n\n", "without any text"),
        ("t.jsonl", b'{"text": "a"\n', "expected UTF-8 jsonl"),
        ("t.jsonl", b'["a"]\n', "in line 1; expected an object"),
        ("t.jsonl", b'{"review": "a"}\n', "Got column 'text' for t.jsonl; expected one of 'review'"),
        ("t.xlsx", b"PK", "expected one that ends in .csv, .tsv, .jsonl, .txt"),
    ],
)
def test_unusable_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refused(explain(tmp_path / name, "--out", tmp_path / "o.csv"), 2, "Got ", message)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("source", ["missing.csv", "no/such/folder.jsonl", "reviews.TXT"])
def test_missing_files(source: str) -> None:
    refused(explain(source), 2, f"Got the file {source}, which does not exist", "Check the path")


@pytest.mark.parametrize(
    "text",
    ["I read reviews.csv", "Really?!...", "a/b", "1.5", "x" * 5000 + ".txt y", "no.way"],
)
def test_texts_that_look_a_little_like_files(text: str) -> None:
    assert read_inputs(text, "text", None).texts == [text]


def test_an_unknown_id_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\na\n")
    result = explain(tmp_path / "t.csv", "--id-column", "name")
    refused(result, 2, "Got column 'name' for t.csv; expected one of 'text'", "--id-column")
    with pytest.raises(InputError, match="Got column 'b'"):
        read_inputs(str(tmp_path / "t.csv"), "b", None)


def test_repeated_ids(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text\n1,a\n1,b\n")
    refused(explain(tmp_path / "t.csv", "--id-column", "id"), 2, "repeated: ['1']")


# Wrong use ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nothing:x"], "Got the model 'nothing:x'; expected 'builtin:sentiment'"),
        (["--model", "builtin:nothing"], "Got 'builtin:nothing'; expected"),
        (["--model", "hf:/no/such/folder"], "no such folder; expected config.json"),
        (["--model", "onnx:/no/such/folder"], "without model.onnx; expected"),
        (["--budget", "0"], "Got budget=0; expected a whole number of at least 2"),
        (["--budget", "-5"], "Got budget=-5"),
        (["--batch-size", "0"], "Got batch_size=0; expected a whole number of at least 1"),
        (["--seed", "-1"], "Got seed=-1"),
        (["--confidence", "95"], "Got confidence=95.0; expected a number between 0 and 1"),
        (["--space", "odds"], "Got space='odds'; expected one of 'logit', 'probability', 'raw'"),
        (["--units", "letter"], "Got units='letter'; expected 'word'"),
        (["--design", "latin"], "Got design='latin'; expected 'auto'"),
        (["--masking", ""], "Got an empty masking; expected"),
        (["--masking", "REMOVE"], "Got masking='REMOVE'; expected 'remove'"),
        (["--surrogate", "tree"], "Got surrogate 'tree'; expected 'lime', 'shap', 'slalom'"),
        (["--target", "neutral"], "expected one of the outputs 0 'negative', 1 'positive', or 'all'"),
        (["--target", "2"], "expected one of the outputs 0 'negative'"),
        (["--context-file", "missing.txt"], "No such file"),
        (["--out", "no/such/a.csv"], "Got no/such/a.csv to write to; expected a file in an existing"),
        (["--json", "."], "Got . to write to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--out" not in arguments:
        arguments = [*arguments, "--out", "a.csv"]
    refused(explain(SENTENCE, *arguments), 2, message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b", "\u00a0"])
def test_empty_texts(text: str, tmp_path: Path) -> None:
    refused(
        explain(text, "--out", tmp_path / "a.csv"), 2, "Got an empty text; expected at least one unit"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["gripping", "?", "😀", "映画"])
def test_one_word_texts(text: str, tmp_path: Path) -> None:
    result = explain(text, "--out", tmp_path / "a.csv")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert {row["token"] for row in written(tmp_path / "a.csv")} <= set(text) | {text}


@pytest.mark.parametrize("arguments", [["--budget", "many"], ["--nothing"], ["--seed"], []])
def test_typers_own_complaints(arguments: list[str]) -> None:
    result = piste("explain", *([SENTENCE, *arguments] if arguments else []))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "error" in result.stderr.lower()
    assert "Traceback" not in result.stderr


def test_nothing_overwrites_its_own_input_or_output(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("text\ngood\n")
    refused(explain(table, "--out", table), 2, f"Got {table} twice")
    refused(
        explain(SENTENCE, "--out", tmp_path / "o.csv", "--json", tmp_path / "o.meta.json"), 2, "twice"
    )
    assert table.read_text() == "text\ngood\n"
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


# Models that fail -----------------------------------------------------------------------------------


@pytest.fixture
def broken_bert(tiny_bert: tuple[Any, Any], torch: Any, tmp_path: Path) -> dict[str, Path]:
    """Folders of a model whose answers are NaN, and of one that raises at most words."""
    model, tokenizer = deepcopy(tiny_bert[0]), tiny_bert[1]
    folders = {name: tmp_path / name for name in ("nan", "raises")}
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    model.save_pretrained(folders["nan"])
    model.resize_token_embeddings(5)
    model.save_pretrained(folders["raises"])
    for folder in folders.values():
        tokenizer.save_pretrained(folder)
    return folders


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("nan", "Got [nan] for the unmasked text; expected finite"),
        ("raises", "The model raised IndexError"),
    ],
)
def test_a_failing_model(
    failure: str, message: str, broken_bert: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    arguments = (
        "--model",
        f"hf:{broken_bert[failure]}",
        "--out",
        out / "a.csv",
        "--json",
        out / "a.json",
    )
    refused(explain("the good film", *arguments), 1, message)
    assert not list(out.iterdir())


# The other commands ---------------------------------------------------------------------------------


def test_models_are_listed() -> None:
    result = piste("models")
    assert result.exit_code == 0
    for part in ("builtin:sentiment", "hf:path/to/folder", "onnx:path/to/folder", "yes"):
        assert part in result.stdout


def test_models_that_lack_something_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piste.sampling.models.find_spec", lambda name: None)
    assert "pip install 'piste[local]'" in piste("models").stdout


def test_help() -> None:
    whole = piste("--help")
    assert whole.exit_code == 0
    assert "explain" in whole.stdout
    assert "models" in whole.stdout
    one = explain("--help")
    assert one.exit_code == 0
    for part in ("Examples", 'piste explain "A gripping film." --out attributions.csv', "--surrogate"):
        assert part in one.stdout
    assert piste().exit_code == 2  # no command is wrong use, and shows the help
    assert "explain" in piste().output


# As a program ---------------------------------------------------------------------------------------


def program(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "error::DeprecationWarning:piste",
        "-c",
        "from piste.cli import main; main()",
    ]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


def test_the_readme_command_as_a_program(tmp_path: Path) -> None:
    done = program("explain", SENTENCE, "--out", "attributions.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "gripping" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"attributions.csv", "attributions.meta.json"}
    here = tmp_path / "here.csv"
    assert explain(SENTENCE, "--out", here, "--quiet").exit_code == 0
    assert here.read_bytes() == (tmp_path / "attributions.csv").read_bytes()


def test_wrong_use_as_a_program(tmp_path: Path) -> None:
    done = program("explain", "😀.csv", "--out", "a.csv", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: Got the file ?.csv, which does not exist; expected a file or a text. Check the path.\n"
    )
    assert not list(tmp_path.iterdir())


def test_version() -> None:
    result = piste("--version")
    assert result.exit_code == 0
    assert re.fullmatch(r"piste \d+\.\d+\S*\n", result.stdout)


def test_the_noise_probe_is_counted_and_kept(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    result = explain("A gripping film.", "--noise-probe", "5", "--surrogate", "lime", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "13 model queries, at most 1000 per text\n" in result.stdout
    meta = json.loads((tmp_path / "a.meta.json").read_text())
    assert meta["noise_probe"] == 5
    assert meta["texts"][0]["noise_variance"] == [0.0]
    assert meta["fidelity"][0]["ceiling"] == 1.0
    planned = explain("A gripping film.", "--noise-probe", "5", "--dry-run")
    assert planned.stdout.startswith("13 model queries at most")
    refused(explain("A gripping film.", "--noise-probe", "2"), 2, "Got noise_probe=2; expected 0")


def test_a_store_that_knows_is_said(tmp_path: Path) -> None:
    again = [explain("A gripping film.", "--store", tmp_path / "a.sqlite") for _ in range(2)]
    assert again[0].stdout.endswith("8 model queries, at most 1000 per text\n")
    assert again[1].stdout.endswith(
        "8 model queries, at most 1000 per text; 8 of them known from the store\n"
    )


def test_a_dry_run_says_what_would_be_refused() -> None:
    options = Options({"lime": Lime()})
    model = CallableModel(lambda texts: [0.0 for _ in texts])
    report = dry_run_report(model, ["a good film", "word " * 2000, ""], options).plain
    assert report.startswith(
        "8 model queries at most, for 1 text; nothing was sent\n2 of 3 texts would"
    )
    assert "refused; first: Got a text of 2000 units; expected at most 1500" in report


def test_any_option_of_an_adapter(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    result = explain(SENTENCE, "--model-option", "threads=1", "--quiet", "--out", out)
    assert result.exit_code == 0, result.output
    assert written(out)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("threads", ("NAME=VALUE",)),
        ("api_key=sk-123", ("on the command line", "OPENAI_API_KEY")),
        ("colour=blue", ("'colour'", "expected threads")),
    ],
)
def test_a_wrong_model_option_is_refused(given: str, parts: tuple[str, ...]) -> None:
    result = explain(SENTENCE, "--model-option", given)
    refused(result, 2, *parts)
    assert "sk-123" not in result.output


def test_as_a_module() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "piste", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("piste ")
