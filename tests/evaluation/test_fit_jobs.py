"""Fits by other processes: the same numbers in the same order, and nothing lost."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import piste
from piste import InputError, PisteWarning
from piste.cli import app
from piste.surrogates import Lime
from piste.surrogates.fit_jobs import AHEAD, fitted
from piste.surrogates.records import Explained, Failed

TEXTS = ["a good film", "good", "", "a long text about nothing that is good at all", "bad, not good"]
CHOSEN: dict[str, Any] = {
    "surrogates": ("lime", "slalom", "slalom-pairs"),
    "space": "raw",
    "budget": 60,
    "seed": 3,
}


def score(texts: Sequence[str]) -> list[float]:
    return [float("good" in text) - 2.0 * ("bad" in text) + 0.01 * len(text) for text in texts]


@pytest.fixture(scope="module")
def here() -> piste.Study:
    with pytest.warns(PisteWarning, match="1 of 5 texts could not be explained"):
        return piste.explain(score, TEXTS, **CHOSEN)


def test_the_same_bytes_as_fits_in_this_process(here: piste.Study) -> None:
    with pytest.warns(PisteWarning, match="1 of 5 texts could not be explained"):
        there = piste.explain(score, TEXTS, fit_jobs=2, **CHOSEN)
    pd.testing.assert_frame_equal(there.attributions, here.attributions, check_exact=True)
    pd.testing.assert_frame_equal(there.fidelity, here.fidelity, check_exact=True)
    assert repr(there.meta) == repr(here.meta)  # NaN is not equal to itself


def test_text_by_text_in_their_order(here: piste.Study) -> None:
    each = list(piste.explain_each(score, TEXTS, fit_jobs=2, **CHOSEN))
    table = pd.concat([study.attributions for study in each], ignore_index=True)
    pd.testing.assert_frame_equal(table, here.attributions, check_exact=True)


def test_rounds_are_fitted_here_and_surrogates_that_cannot_be_fitted_say_why() -> None:
    auto: dict[str, Any] = {"surrogates": "lime", "space": "raw", "budget": "auto"}
    there, here = (piste.explain(score, TEXTS[:2], fit_jobs=jobs, **auto) for jobs in (2, 1))
    pd.testing.assert_frame_equal(there.attributions, here.attributions, check_exact=True)


def test_what_another_process_cannot_load_is_fitted_here(caplog: pytest.LogCaptureFixture) -> None:
    chosen: dict[str, Any] = {"surrogates": (Unloadable(), "lime"), "space": "raw"}
    with pytest.warns(PisteWarning, match="2 fits failed"):
        there, here = (piste.explain(score, TEXTS[:2], fit_jobs=jobs, **chosen) for jobs in (2, 1))
    pd.testing.assert_frame_equal(there.attributions, here.attributions, check_exact=True)
    assert "error: not today" in set(there.attributions["status"])
    assert "is fitted here" in caplog.text


class Unloadable(Lime):
    """A surrogate that no other process can load, and that refuses to be fitted."""

    name = "unloadable"

    def fit(self, *_: object, **__: object) -> Self:
        raise ValueError("not today")

    def __reduce__(self) -> Any:
        return _not_here, ()


def _not_here() -> None:
    raise ImportError("only the process that made it")


def test_asks_only_so_far_ahead() -> None:
    asked: list[str] = []

    def outcomes() -> Iterator[Explained | Failed]:
        for number in range(20):
            asked.append(str(number))
            yield Failed(str(number), "text", "no", InputError, 0)

    given = fitted(outcomes(), {}, 1)
    assert not asked
    assert next(given).text_id == "0"
    assert len(asked) <= AHEAD + 1
    assert [outcome.text_id for outcome in given] == [str(number) for number in range(1, 20)]


@pytest.mark.parametrize("n_jobs", [0, -1, 1.5, "2", True, None])
def test_what_is_no_number_of_processes_is_refused_before_the_first_query(n_jobs: Any) -> None:
    def never(texts: Sequence[str]) -> list[float]:
        raise AssertionError(texts)

    explain: Callable[..., object]
    for explain in (piste.explain, piste.explain_each):
        with pytest.raises(InputError, match="fit_jobs"):
            explain(never, "a film", fit_jobs=n_jobs)


def test_the_command_has_it(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\nnot good\n", encoding="utf-8")
    written = []
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.csv"
        args = ["explain", str(texts), "--budget", "20", "--out", str(out), "--fit-jobs", jobs]
        assert CliRunner().invoke(app, [*args, "--quiet"]).exit_code == 0
        written.append(out.read_bytes())
    assert written[0] == written[1]
    assert np.isfinite(pd.read_csv(tmp_path / "1.csv")["score"]).all()
