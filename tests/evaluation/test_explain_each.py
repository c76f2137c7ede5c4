"""Corpora text by text: the numbers of `piste.explain`, and nothing that grows."""

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import piste
from piste import InputError

TEXTS = ["a good film", "good", "a long text about nothing that is good at all", "bad, not good"]


def score(texts: Sequence[str]) -> list[float]:
    return [float("good" in text) - 2.0 * ("bad" in text) + 0.01 * len(text) for text in texts]


def test_has_the_rows_of_explain() -> None:
    whole = piste.explain(score, TEXTS, surrogates=("lime", "slalom"), space="raw", budget=60, seed=3)
    each = piste.explain_each(
        score, TEXTS, surrogates=("lime", "slalom"), space="raw", budget=60, seed=3
    )
    studies = list(each)
    table = pd.concat([study.attributions for study in studies], ignore_index=True)
    pd.testing.assert_frame_equal(table, whole.attributions)
    fidelity = pd.concat([study.fidelity for study in studies], ignore_index=True)
    pd.testing.assert_frame_equal(fidelity, whole.fidelity)
    assert sum(study.meta["n_queries"] for study in studies) == whole.meta["n_queries"]


def test_a_text_that_cannot_be_explained_spoils_no_other() -> None:
    first, second, third = piste.explain_each(
        score, ["good", "", "bad"], space="raw", text_ids=["x", "y", "z"]
    )
    assert first.attributions["status"].eq("ok").any()
    assert second.attributions["text_id"].tolist() == ["y"]
    assert second.attributions["status"].iloc[0] != "ok"
    assert third.attributions["text_id"].unique().tolist() == ["z"]


def test_asks_nothing_before_it_is_wanted_and_nothing_twice(tmp_path: Path) -> None:
    asked: list[str] = []

    def noted(texts: Sequence[str]) -> list[float]:
        asked.extend(texts)
        return score(texts)

    model = piste.load_model(noted, fingerprint="noted")
    store = tmp_path / "answers.db"
    each = piste.explain_each(model, TEXTS[:2], space="raw", budget=20, store=store)
    assert not asked
    next(each)
    assert not any("long text" in text for text in asked)
    list(each)
    n_asked = len(asked)
    again = list(piste.explain_each(model, TEXTS[:2], space="raw", budget=20, store=store))
    assert len(asked) == n_asked
    assert [study.meta["n_known"] for study in again] == [study.meta["n_queries"] for study in again]


def test_refuses_before_the_first_query() -> None:
    with pytest.raises(InputError, match="budget"):
        piste.explain_each(score, TEXTS, budget=1)
    with pytest.raises(TypeError, match="colour"):
        piste.explain_each(score, TEXTS, colour="red")


def test_keeps_no_text_that_is_done() -> None:
    alive: list[int] = []
    outcomes = []
    for study in piste.explain_each(score, TEXTS, space="raw", budget=40, store="none"):
        outcomes.append(weakref.ref(study.outcomes[0]))
        assert len(study.attributions)
        gc.collect()
        alive.append(sum(outcome() is not None for outcome in outcomes))
    assert alive[-1] <= 2  # the one at hand, and the one before it while the loop turns
