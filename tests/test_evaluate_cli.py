"""``piste evaluate`` as a user types it."""

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from piste.cli import app

TEXTS = [
    "A gripping film with a fine cast and a clever plot.",
    "One long string of cliches that nobody will want.",
    "Not a bad way to spend an evening, though too long.",
]
SPANS = [[[2, 10], [23, 32]], [[16, 23]], [[0, 9]]]


def piste(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    marks = [json.dumps(spans) for spans in SPANS]
    table = pd.DataFrame({"text": TEXTS, "marks": marks, "label": ["pos", "neg", "pos"]})
    table.to_csv(path, index=False)
    return path


def test_a_page_with_curves(reviews: Path) -> None:
    page = reviews.with_name("page.html")
    found = piste(
        *(
            "evaluate",
            reviews,
            "--budget",
            40,
            "--surrogate",
            "lime",
            "--metric",
            "deletion",
            "--html",
            page,
        )
    )
    assert found.exit_code == 0, found.output
    content = page.read_text(encoding="utf-8")
    assert "Deletion of the most relevant units first" in content
    assert "gripping" in content
    refused = piste("evaluate", reviews, "--attributions", reviews, "--html", page)
    assert refused.exit_code == 2


def test_everything_at_once_and_all_files(reviews: Path) -> None:
    out = reviews.with_name("metrics.csv")
    found = piste(
        *("evaluate", reviews, "--budget", 60, "--surrogate", "lime", "--surrogate", "slalom"),
        *("--rationale-column", "marks", "--label-column", "label", "--out", out),
    )
    assert found.exit_code == 0, found.output
    table = pd.read_csv(out, keep_default_na=False)
    assert {"comprehensiveness", "sufficiency", "deletion", "insertion", "roc_auc", "spearman"} <= set(
        table["metric"]
    )
    assert "random" in set(table["surrogate"])
    summary = pd.read_csv(out.with_suffix(".summary.csv"))
    tests = pd.read_csv(out.with_suffix(".tests.csv"))
    assert set(tests["metric"]) >= {"comprehensiveness", "roc_auc"}
    assert (tests["p_holm"] >= tests["p"]).all()
    agreement = pd.read_csv(out.with_suffix(".agreement.csv"))
    assert {"kendall", "top_overlap", "sign_agreement"} <= set(agreement["metric"])
    # What the terminal says is what the file holds.
    rows = summary.query("metric == 'roc_auc' and surrogate == 'slalom' and kind == 'removal'")
    assert f"{rows['median'].iloc[0]:.2f}" in found.output
    assert "medians over 3 texts" in found.output


def test_human_attention_maps_bring_their_own_texts(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl"
    lines = []
    for number, (text, spans) in enumerate(zip(TEXTS, SPANS, strict=True)):
        tokens = text.split()
        starts = [sum(len(token) + 1 for token in tokens[:index]) for index in range(len(tokens))]
        marked = [
            int(any(a < at + len(t) and at < b for a, b in spans))
            for at, t in zip(starts, tokens, strict=True)
        ]
        lines.append(
            json.dumps({"id": f"m{number}", "tokens": tokens, "maps": ["".join(map(str, marked))] * 2})
        )
    path.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "metrics.csv"
    found = piste(
        "evaluate", path, "--rationales", path, "--metric", "none", "--budget", 60, "--out", out
    )
    assert found.exit_code == 0, found.output
    table = pd.read_csv(out)
    assert set(table["text"]) == {"m0", "m1", "m2"}
    assert set(table["metric"]) >= {"roc_auc", "auprc", "token_f1", "iou_f1"}


def test_attributions_from_elsewhere(reviews: Path) -> None:
    theirs = reviews.with_name("theirs.csv")
    rows = [
        {"text_id": number, "token": token.strip("."), "score": float(len(token))}
        for number, text in enumerate(TEXTS)
        for token in text.replace(",", "").split()
    ]
    pd.DataFrame(rows).to_csv(theirs, index=False)
    out = reviews.with_name("metrics.csv")
    found = piste("evaluate", reviews, "--attributions", theirs, "--metric", "deletion", "--out", out)
    assert found.exit_code == 0, found.output
    table = pd.read_csv(out)
    assert set(table["surrogate"]) == {"given", "random"}
    assert set(table["metric"]) == {"deletion"}


def test_oracles(tmp_path: Path) -> None:
    out = tmp_path / "oracles.csv"
    found = piste(
        "evaluate", "--oracle", "linear", "--surrogate", "shap", "--budget", 100, "--out", out
    )
    assert found.exit_code == 0, found.output
    table = pd.read_csv(out)
    assert table.loc[table["must_pass"], "passed"].all()
    assert "must pass" in found.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate"], "expected texts, or --oracle all"),
        (["evaluate", "--oracle", "delphi"], "expected one of 'linear'"),
        (["evaluate", "A film.", "--rationale-column", "marks"], "expected a file that has it"),
        (["evaluate", "A film.", "--rationales", "missing.jsonl"], "missing.jsonl"),
        (["evaluate", "A film.", "--metric", "guess"], "expected some of 'comprehensiveness'"),
        (["evaluate", "A film.", "--metric", "none"], "nothing to evaluate by"),
        (["evaluate", "A film.", "--attributions", "missing.csv"], "missing.csv"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str) -> None:
    found = piste(*arguments)
    assert found.exit_code == 2, found.output
    assert message in " ".join(found.output.split())
    assert "Traceback" not in found.output


def test_marks_that_cannot_be_read_name_the_text(reviews: Path) -> None:
    table = pd.read_csv(reviews)
    table.loc[1, "marks"] = "[[1]]"
    table.to_csv(reviews, index=False)
    found = piste("evaluate", reviews, "--rationale-column", "marks")
    assert found.exit_code == 2
    assert "the marks of text '1'" in " ".join(found.output.split())


def test_nothing_is_overwritten(reviews: Path) -> None:
    theirs = reviews.with_name("theirs.csv")
    theirs.write_text("text_id,token,score\n0,film,1\n", encoding="utf-8")
    before = theirs.read_bytes()
    found = piste("evaluate", reviews, "--attributions", theirs, "--out", theirs)
    assert found.exit_code == 2
    assert "twice" in found.output
    assert theirs.read_bytes() == before


def test_where_the_numbers_come_from_is_beside_them(reviews: Path) -> None:
    out = reviews.with_name("metrics.csv")
    found = piste(
        "evaluate", reviews, "--budget", 40, "--metric", "deletion", "--out", out, "--seed", 3
    )
    assert found.exit_code == 0, found.output
    meta = json.loads(out.with_suffix(".meta.json").read_text(encoding="utf-8"))
    assert (meta["seed"], meta["metrics"], meta["explanation"]["budget"]) == (3, ["deletion"], 40)


def test_a_metric_budget_is_kept(reviews: Path) -> None:
    out = reviews.with_name("metrics.csv")
    found = piste("evaluate", reviews, "--budget", 40, "--metric-budget", 1, "--out", out)
    assert found.exit_code == 2
    assert "budget of 1 queries" in " ".join(found.output.split())
    found = piste("evaluate", reviews, "--budget", 40, "--metric-budget", 500, "--out", out)
    assert found.exit_code == 0, found.output


def test_marks_of_other_texts_are_refused_before_the_first_query(reviews: Path) -> None:
    marks = reviews.with_name("marks.jsonl")
    marks.write_text('{"text_id": "x", "spans": [[0, 1]]}\n', encoding="utf-8")
    found = piste("evaluate", reviews, "--rationales", marks)
    assert found.exit_code == 2
    assert "expected the same ids" in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["r.csv", "--oracle", "linear"], "TEXT or FILE with --oracle"),
        (["--oracle", "linear", "--html", "z.html"], "--html with --oracle"),
        (["--oracle", "linear", "--dry-run"], "--dry-run with --oracle"),
        (["--oracle", "linear", "--surrogate", "trees"], "nothing is known"),
        (["A film.", "--favours", "positive"], "--favours without --lexicon"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: list[str], message: str) -> None:
    found = piste("evaluate", *options)
    assert found.exit_code == 2, found.output
    assert message in " ".join(found.output.split())
