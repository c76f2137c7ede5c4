"""The benchmark against the peers: each adapter answers, and the page says what was measured."""

import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "peers"
TEXT = "The film opens with a quiet scene at the edge of town"
N_UNITS, BUDGET = 12, 120


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    """From a module of the benchmark to the module, forgotten afterwards: their names are common."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


EXACT = ("piste slalom", "piste shap", "piste lime", "shap Kernel", "shapiq KernelSHAP")
OTHERS = ("shap Permutation", "lime", "shapiq SVARM")


@pytest.mark.parametrize("name", EXACT + OTHERS)
def test_adapters_spend_what_they_are_given_on_one_text(peers: Any, name: str) -> None:
    explainers, subjects = peers("explainers"), peers("subjects")
    subject = subjects.oracle(seed=0)
    if why := explainers.why_not(name, subject, "best"):
        pytest.skip(why)
    with explainers.silence():
        values = explainers.EXPLAINERS[name](subject, TEXT, BUDGET, 0, 16)
    assert np.isfinite(values).all()
    assert 0 < subject.n_queries <= BUDGET + 2  # shap Kernel's and the empty text come on top
    if name in EXACT:
        words = subject.plain(TEXT.split())[:, 1]
        shown = values[-N_UNITS:]
        assert np.corrcoef(shown, words)[0, 1] > 0.999  # additive: all of them find the words' weights


def test_the_bare_forward_passes_run_every_query_once(peers: Any) -> None:
    subjects = peers("subjects")
    subject = subjects.embedded(1)
    rows: list[int] = []
    subject.forward = lambda ids, attended: rows.append(attended.sum())
    texts = [TEXT[:at] for at in range(20)]
    subjects.bare_forward(subject, texts, 30)
    assert sum(rows) == sum(map(len, subject.encode(texts)))
    assert len(rows) > 1


@pytest.mark.parametrize("name", ["peers", "peers_two_threads"])
def test_the_configuration_names_what_there_is(peers: Any, name: str) -> None:
    config = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    assert config["clock"] in peers("tables").CLOCKS
    for part in config["grid"]:
        assert part["model"] in ("embedded", "minilm", "oracle")
        assert set(part["batches"]) <= {"default", "best"}
        assert set(part.get("explainers", [])) <= set(peers("explainers").EXPLAINERS)


def test_the_page_gives_ratios_to_piste(peers: Any) -> None:
    config = tomllib.loads((FOLDER / "peers.toml").read_text(encoding="utf-8"))
    cell = {"model": "oracle", "units": 25, "budget": 1000, "batch": "best"}
    runs = [
        cell | {"explainer": name, "repeat": repeat, "n_queries": 1000, "wall": 9.0, "cpu": seconds}
        for repeat in range(3)
        for name, seconds in (("piste slalom", 1.0 + repeat), ("lime", 3.0 + 3 * repeat))
    ]
    skipped = [cell | {"explainer": "shap Kernel", "skipped": "shap is not installed"}]
    page = peers("tables").markdown(pd.DataFrame(runs + skipped), config, "peers")
    assert "| oracle | 25 | 1000 | best | 3.00 |" in page
    assert "| lime | 1000 | 6.000 | 6.00 | 9.000 | 3.00 (3.00 to 3.00) |" in page
    assert "| piste slalom | 1000 | 2.000 | 2.00 | 9.000 | 1 |" in page
    assert "- shap Kernel on oracle: shap is not installed" in page
