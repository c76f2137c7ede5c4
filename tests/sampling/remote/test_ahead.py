"""Texts of a remote model side by side: the same numbers, no more requests at once, none lost."""

from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Event, Lock
from time import sleep
from typing import cast

import numpy as np
import pandas as pd
import pytest

import piste
from piste import ModelError, PisteWarning
from piste.sampling.models import Concurrent
from piste.sampling.models.limits import Gate, Limits, Tokens
from piste.sampling.models.protocol import Scores
from piste.sampling.models.remote import remote
from piste.sampling.records import Query

TEXTS = [f"{first} b c d e f" for first in ("one", "two", "three", "four")]
PART = "one     f"  # of the first text: what is removed leaves its spaces
CONCURRENCY = 3


class Slow:
    """A server in this process: one text a request."""

    fingerprint = "slow"
    request_size = 1

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self.waits_for: dict[str, str] = {}
        self.fails: set[str] = set()
        self._seen: dict[str, Event] = {}
        self._lock = Lock()

    def size(self, inputs: Sequence[Query]) -> tuple[int, Tokens]:
        return len(inputs), Tokens(0, 0)

    def seen(self, text: str) -> Event:
        with self._lock:
            return self._seen.setdefault(text, Event())

    def score(self, inputs: Sequence[Query]) -> Scores:
        (text,) = map(str, inputs)
        with self._lock:
            self.asked.append(text)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.seen(text).set()
        sleep(0.001)
        other = self.waits_for.get(text)
        came = other is None or self.seen(other).wait(20)
        with self._lock:
            self.at_once -= 1
        if not came or text in self.fails:
            raise ModelError(f"no answer to {text!r}")
        value = (1 + sum(map(ord, text)) % 101) / 103
        return Scores(np.array([[1 - value, value]]), ("no", "yes"), "probability")


def concurrent(model: Slow) -> Concurrent:
    return remote(model, Gate(Limits(concurrency=CONCURRENCY, retries=0)))


def explained(model: Slow, store: Path | str = "none", texts: Sequence[str] = TEXTS) -> piste.Study:
    return piste.explain(concurrent(model), list(texts), surrogates="lime", budget=64, store=store)


def test_the_next_text_is_asked_about_before_the_last_answer_to_this_one(tmp_path: Path) -> None:
    slow = Slow()
    slow.waits_for[PART] = TEXTS[1]  # an answer about the first text that needs the second's question
    two = explained(slow, tmp_path / "answers.db", TEXTS[:2])
    alone = explained(Slow(), tmp_path / "others.db", TEXTS[1:2])
    rows = two.attributions.query("text_id == '1'").drop(columns="text_id").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, alone.attributions.drop(columns="text_id"))


def test_no_more_requests_at_once_and_nothing_asked_twice(tmp_path: Path) -> None:
    slow = Slow()
    study = explained(slow, tmp_path / "answers.db")
    assert slow.most_at_once <= CONCURRENCY
    assert len(slow.asked) == len(
        set(slow.asked)
    )  # texts share the empty one and all without their first
    assert study.meta["n_queries"] == 4 * 64
    assert study.meta["n_known"] == 4 * 64 - len(slow.asked)
    assert study.attributions["text_id"].unique().tolist() == ["0", "1", "2", "3"]


def test_a_text_that_fails_does_not_stop_the_one_under_way() -> None:
    slow = Slow()
    slow.fails.add(PART)
    slow.waits_for[PART] = TEXTS[1]
    with pytest.warns(PisteWarning, match="1 of 4 texts could not be explained"):
        study = explained(slow)
    failed = study.attributions["status"].str.startswith("error")
    assert study.attributions[failed]["text_id"].tolist() == ["0"]
    assert study.attributions[~failed]["score"].notna().all()


def test_who_looks_at_one_study_pays_for_two_texts_more_at_most(tmp_path: Path) -> None:
    slow, store = Slow(), tmp_path / "answers.db"
    model = concurrent(slow)
    each = piste.explain_each(model, TEXTS, surrogates="lime", budget=64, store=store)
    assert not slow.asked
    next(each)
    cast("Generator[piste.Study]", each).close()
    asked = list(slow.asked)
    assert not any("four" in text for text in asked)
    sleep(0.05)
    assert slow.asked == asked  # given up, and what was answered is kept
    again = Slow()
    piste.explain(concurrent(again), TEXTS, surrogates="lime", budget=64, store=store)
    assert not set(again.asked) & set(asked)


def test_studies_together_tell_of_every_query_that_a_store_spared(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    explained(Slow(), store)
    n_known = 0
    for study in piste.explain_each(
        concurrent(Slow()), TEXTS, surrogates="lime", budget=64, store=store
    ):
        n_known += study.meta["n_known"]
        sleep(0.2)  # looked at, while the next texts are asked about
    assert n_known == len(TEXTS) * 64


def test_what_goes_wrong_in_a_text_s_thread_is_raised_in_the_caller_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()

    def broken(*_: object) -> Scores:
        raise KeyboardInterrupt

    monkeypatch.setattr(slow, "size", broken)
    monkeypatch.setattr(slow, "score", broken)
    with pytest.raises(KeyboardInterrupt):
        explained(slow)


def test_progress_never_goes_back() -> None:
    seen: list[tuple[int, int]] = []
    piste.explain(
        concurrent(Slow()),
        TEXTS,
        surrogates="lime",
        budget=64,
        store="none",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1][0] <= 256
    assert {total for _, total in seen} == {256}
