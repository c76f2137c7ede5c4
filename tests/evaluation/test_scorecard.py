from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console, RenderableType

from piste._errors import InputError
from piste.evaluation.compare import compare
from piste.evaluation.scorecard import HEADLINES, Scorecard
from piste.evaluation.scorecard_report import oracle_report, scorecard_report

RNG = np.random.default_rng(0)


def rows(metric: str, setting: str, shift: float, n_texts: int = 12) -> pd.DataFrame:
    found = [
        {"text": str(text), "surrogate": name, "kind": "k", "metric": metric, "setting": setting}
        | {"value": RNG.normal() + better * shift, "status": "ok"}
        for text in range(n_texts)
        for name, better in (("a", 0), ("b", 1))
    ]
    return pd.DataFrame(found)


def test_each_metric_goes_its_own_way() -> None:
    card = Scorecard.of([rows("comprehensiveness", "aopc", 9), rows("sufficiency", "aopc", 9)])
    assert card.compare("comprehensiveness").ranking["method"].iloc[0] == "b k"
    assert card.compare("sufficiency").ranking["method"].iloc[0] == "a k"
    assert set(card.tests()["metric"]) == {"comprehensiveness", "sufficiency"}
    assert (card.tests()["verdict"] == "differs").all()


def test_only_the_headline_setting_is_compared() -> None:
    table = rows("comprehensiveness", "aopc", 9)
    noise = rows("comprehensiveness", "0.5", -9)
    card = Scorecard.of([table, noise])
    reference = compare(table, "value", method=["surrogate", "kind"], higher_is_better=True)
    pd.testing.assert_frame_equal(card.compare("comprehensiveness").pairs, reference.pairs)


def test_metrics_without_settings_and_spaces_fit_in() -> None:
    card = Scorecard.of(
        [rows("deletion", "most first", 1), rows("roc_auc", "", 1).drop(columns="setting")]
    )
    assert card.metrics == ["deletion", "roc_auc"]
    assert set(card.summary()["metric"]) == {"deletion", "roc_auc"}


def test_too_few_documents_have_no_tests_but_stay_in_the_table() -> None:
    card = Scorecard.of([rows("roc_auc", "", 1, n_texts=1)])
    assert card.tests().empty
    assert len(card.summary()) == 2


@pytest.mark.parametrize("metric", ["guess", "kendall"])
def test_an_unknown_metric_is_refused(metric: str) -> None:
    with pytest.raises(InputError, match=f"expected one of {', '.join(map(repr, HEADLINES))}"):
        Scorecard.of([rows("roc_auc", "", 1)]).compare(metric)


def test_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to evaluate by"):
        Scorecard.of([])


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (rows("roc_auc", "", 1), {}, r"one table; expected a list"),
        (["metrics.csv"], {}, "a str among the tables"),
        ([rows("roc_auc", "", 1).drop(columns="kind")], {}, "without 'kind'"),
        ([rows("roc_auc", "", 1)], {"confidence": 95}, "confidence=95"),
        ([rows("roc_auc", "", 1)], {"seed": -1}, "seed=-1"),
    ],
)
def test_what_is_no_list_of_metrics_is_refused(tables: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Scorecard.of(tables, **options)


# Several lexicons -----------------------------------------------------------------------------------


def against(lexicon: str, shift: float, n_texts: int = 12) -> pd.DataFrame:
    return rows("spearman", "", shift, n_texts).assign(lexicon=lexicon)


def test_each_lexicon_has_its_own_test() -> None:
    one, other = against("one", 9), against("other", -9)
    card = Scorecard.of([one, other, rows("roc_auc", "", 9)])
    with pytest.raises(InputError, match=r"the lexicons 'one', 'other'.*lexicon='one'"):
        card.compare("spearman")
    for name, table in (("one", one), ("other", other)):
        alone = compare(table, "value", method=["surrogate", "kind"], higher_is_better=True)
        pd.testing.assert_frame_equal(card.compare("spearman", lexicon=name).pairs, alone.pairs)
    found = card.tests()[["metric", "lexicon", "better"]].to_numpy().tolist()
    assert found == [["roc_auc", "", "b k"], ["spearman", "one", "b k"], ["spearman", "other", "a k"]]


def test_lexicons_need_names_of_their_own() -> None:
    with pytest.raises(InputError, match=r"the lexicon 'lexicon' twice.*name="):
        Scorecard.of([against("lexicon", 9), against("lexicon", -9)])


def test_a_table_is_taken_once() -> None:
    table = rows("roc_auc", "", 1)
    message = "'roc_auc' of text '0' by a k twice; .* 24 rows are repeated. Give every table once"
    with pytest.raises(InputError, match=message):
        Scorecard.of([table, table])
    each = [table.assign(masking=masking) for masking in ("remove", "[MASK]")]
    assert len(Scorecard.of(each).table) == 48
    assert len(Scorecard.of([table, table.assign(target="other")]).table) == 48


# What a terminal shows ------------------------------------------------------------------------------


def printed(shown: RenderableType) -> list[str]:
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(shown)
    return captured.get().splitlines()


def test_each_lexicon_has_its_own_column() -> None:
    lines = printed(scorecard_report(Scorecard.of([against("one", 9), against("other", -9)])))
    heading = lines[2].replace("┃", "").split()
    assert heading == ["method", "one", "other"]
    assert lines[1].count("spearman ↑") == 2


def test_headings_count_the_texts_with_a_value() -> None:
    table = rows("roc_auc", "", 1, n_texts=5)
    half = rows("deletion", "most first", 1, n_texts=5)
    half.loc[half["text"] == "0", ["value", "status"]] = (np.nan, "undefined: no variation")
    half.loc[half.index[-1], ["value", "status"]] = (np.nan, "error: none")
    lines = printed(scorecard_report(Scorecard.of([table, half])))
    assert lines[3].replace("┃", "").split() == ["method", "n", "=", "3–4"]
    text = "\n".join(lines)
    assert "medians over 5 texts, or the n that have a value" in text
    assert "3 of 20 values are undefined: 2 × undefined: no variation; 1 × error: none" in text
    whole = printed(scorecard_report(Scorecard.of([table])))
    assert "n =" not in "\n".join(whole)
    assert "flagged" not in "\n".join(whole)


def test_flags_are_counted() -> None:
    table = rows("deletion", "most first", 1, n_texts=5)
    table["status"] = ["ok"] * 6 + ["ties", "constant model; ties", "clipped", "undefined: none"]
    table.loc[9, "value"] = np.nan
    text = "\n".join(printed(scorecard_report(Scorecard.of([table]))))
    assert "3 of 9 values are flagged: 2 × ties; 1 × constant model; 1 × clipped" in text


def test_oracles_show_what_must_pass_apart() -> None:
    table = pd.DataFrame(
        [
            ("linear", "shap", "shapley", 1e-12, 1.0, True, True),
            ("linear", "shap", "shapley", 0.75, 0.25, False, pd.NA),
            ("linear", "lime", "coefficient", 0.5, 0.5, False, pd.NA),
            ("pairs", "shap", "shapley", 0.125, 0.5, True, False),
        ],
        columns=["oracle", "surrogate", "kind", "error", "r2", "must_pass", "passed"],
    ).astype({"passed": "boolean"})
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in printed(oracle_report(table))
        if line.startswith("│")
    ]
    assert cells == [
        ["linear", "shap", "shapley", "1", "1e-12", "1.000", "yes", "yes"],
        ["linear", "shap", "shapley", "1", "0.75", "0.250", "", ""],
        ["linear", "lime", "coefficient", "1", "0.5", "0.500", "", ""],
        ["pairs", "shap", "shapley", "1", "0.12", "0.500", "yes", "NO"],
    ]
