import numpy as np
import pandas as pd
import pytest

from piste._errors import InputError
from piste.evaluation.compare import compare
from piste.evaluation.scorecard import HEADLINES, Scorecard

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
