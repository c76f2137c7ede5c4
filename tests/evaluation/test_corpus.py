import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import piste
from piste._errors import InputError
from piste.evaluation.corpus import token_table

RNG = np.random.default_rng(5)
TEXTS = RNG.integers(0, 12, size=80)
SCORES = RNG.normal(size=12)[TEXTS] + RNG.normal(size=80)


def table(**columns: object) -> pd.DataFrame:
    known = {"text_id": TEXTS.astype(str), "token": "good", "target": "positive", "surrogate": "lime"}
    known |= {"kind": "coefficient", "score": SCORES, "status": "ok"}
    return pd.DataFrame(known | columns)


def test_intervals_are_statsmodels_cluster_robust_ones() -> None:
    row = token_table(table()).iloc[0]
    reference = sm.OLS(SCORES, np.ones(80)).fit(
        cov_type="cluster",
        cov_kwds={"groups": TEXTS, "use_correction": True, "df_correction": True},
        use_t=True,
    )
    low, high = reference.conf_int(0.05)[0]
    # statsmodels also scales by (n - 1) / (n - k), which is 1 for a mean.
    np.testing.assert_allclose([row["mean"], row["low"], row["high"]], [SCORES.mean(), low, high])
    assert (row["n"], row["n_texts"]) == (80, len(set(TEXTS)))


def test_a_word_that_one_text_repeats_is_one_observation() -> None:
    once = pd.DataFrame(table()[:3]).assign(text_id=["a", "b", "c"], score=[1.0, 2.0, 3.0])
    repeated = pd.concat([once] * 5)
    first, again = token_table(once).iloc[0], token_table(repeated).iloc[0]
    assert again["n"] == 15
    np.testing.assert_allclose([again["low"], again["high"]], [first["low"], first["high"]])


def test_case_is_folded_unless_told_otherwise() -> None:
    mixed = table(token=["Good", "good"] * 40)
    assert list(token_table(mixed)["token"]) == ["good"]
    assert set(token_table(mixed, fold=str)["token"]) == {"Good", "good"}


def test_what_is_not_usable_is_counted_not_averaged() -> None:
    statuses = np.array(["ok"] * 60 + ["unseen"] * 10 + ["underdetermined: ..."] * 10, dtype=object)
    scores = np.where(np.arange(80) < 2, np.nan, SCORES)
    row = token_table(table(status=statuses, score=scores)).iloc[0]
    assert (row["n"], row["n_left_out"]) == (58, 22)
    assert row["mean"] == pytest.approx(SCORES[2:60].mean())


def test_words_of_one_text_have_no_interval() -> None:
    alone = table(text_id="a")
    assert len(token_table(alone)) == 0
    row = token_table(alone, min_texts=1).iloc[0]
    assert (row["status"], row["n_texts"]) == ("one text", 1)
    assert np.isnan(row["low"])


def test_largest_means_come_first() -> None:
    words = np.array(["bad", "fair", "good"], dtype=object)[np.arange(80) % 3]
    shifted = SCORES + np.array([-9, 0, 9])[np.arange(80) % 3]
    assert list(token_table(table(token=words, score=shifted))["token"]) == ["good", "fair", "bad"]


def test_spaces_are_not_averaged() -> None:
    spaces = np.array(["logit", "raw"], dtype=object)[np.arange(80) % 2]
    found = token_table(table(space=spaces)).set_index("space")
    assert list(found["n"]) == [40, 40]
    for offset, space in enumerate(("logit", "raw")):
        assert found.loc[space, "mean"] == pytest.approx(SCORES[offset::2].mean())
    assert list(token_table(table())["space"]) == [""]
    assert list(token_table(table(space=np.nan))["n"]) == [80]


def test_from_a_study() -> None:
    texts = ["a good film", "good but long", "one bad film", "not bad but long"]
    weights = {"good": 1.0, "bad": -2.0}
    study = piste.explain(
        lambda given: [sum(weights.get(word, 0.0) for word in text.split()) for text in given],
        texts,
        surrogates="shap",
        space="raw",
    )
    found = token_table(study.attributions).set_index("token")["mean"]
    np.testing.assert_allclose(found[["good", "bad", "long"]], [1, -2, 0], atol=1e-9)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="without 'score'"):
        token_table(table().drop(columns="score"))
    with pytest.raises(InputError, match="no attribution with a usable score"):
        token_table(table(status="unseen"))
    with pytest.raises(InputError, match=r"type str; expected a table.*read_attributions\(path\)"):
        token_table("a.csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'high' in column 'score'"):
        token_table(table(score="high"))
    with pytest.raises(InputError, match="fold='lower'; expected a function"):
        token_table(table(), fold="lower")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"confidence=1\.0"):
        token_table(table(), confidence=1.0)
    with pytest.raises(InputError, match=r"min_texts=1\.5"):
        token_table(table(), min_texts=1.5)  # type: ignore[arg-type]
