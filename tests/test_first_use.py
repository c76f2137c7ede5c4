"""Faults that a newcomer met with the first release candidate."""

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import piste
from piste.cli import app
from piste.fitting.result import Status
from piste.surrogates import Slalom


def lengths(texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def four_masks() -> np.ndarray:
    return np.array(list(product([0.0, 1.0], repeat=2)))


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    piste.explain(lengths, "a b", surrogates="lime").to_csv(link)
    assert link.is_symlink()
    assert target.read_text().startswith("text_id,")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_neither_replaced_nor_asked_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(piste.InputError, match="a device, not a file"):
        piste.explain(lengths, "a b", surrogates="lime").to_csv(pipe)
    result = CliRunner().invoke(app, ["explain", "good film", "--out", str(pipe)])
    assert result.exit_code == 2
    assert "expected a file" in result.stderr
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe.csv"]


def test_two_units_that_no_answers_determine_say_so() -> None:
    """Four answers, five parameters: a published model of three fits them whatever they are."""
    masks, w, value = four_masks(), np.exp([0.7, -0.7]), np.array([3.0, -1.0])
    scores = (masks @ (w * value) + 0.3 * np.exp(0.4)) / (masks @ w + np.exp(0.4))
    assert Slalom().fit(masks, scores).status_ is Status.UNDERDETERMINED
    published = masks[1:] @ (w * value) / (masks[1:] @ w)
    assert Slalom().fit(masks[1:], published).status_ is Status.OK


def test_lime_is_certain_once_every_mask_was_asked() -> None:
    rows = piste.explain(lengths, "a bb ccc", surrogates="lime").attributions
    assert (rows["std_error"] == 0).all()
    assert (rows["ci_low"] == rows["score"]).all()


def test_whole_numbers_serve_as_labels() -> None:
    model = piste.load_model(lambda texts: [[0.2, 0.8]] * len(texts), labels=[10, 11])
    study = piste.explain(model, "a b", target="11", surrogates="lime")
    assert study.attributions["target"].unique().tolist() == ["11"]


def test_an_unfitted_slalom_says_so() -> None:
    with pytest.raises(NotFittedError):
        Slalom().predict([[1.0]])
    with pytest.raises(NotFittedError):
        Slalom().attributions()


@pytest.mark.parametrize("masking", [5, None, "\ud800"])
def test_what_cannot_stand_in_a_text_is_refused(masking: Any) -> None:
    with pytest.raises(piste.InputError, match="valid Unicode"):
        piste.explain(lengths, "a b", masking=masking)


def test_what_a_model_complains_of_is_one_line() -> None:
    def broken(texts: Sequence[str]) -> list[float]:
        raise RuntimeError("first\nsecond")

    with pytest.raises(piste.ModelError) as caught:
        piste.explain(broken, "a b")
    assert "first second" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_terminal_marks_what_to_distrust() -> None:
    result = CliRunner().invoke(app, ["explain", "gripping", "--surrogate", "slalom"])
    assert result.exit_code == 0
    assert "+0.000?" in result.stdout
    assert "? importance not identifiable" in result.stdout


def test_texts_of_too_many_units_are_refused_before_they_cost() -> None:
    asked: list[str] = []

    def model(texts: Sequence[str]) -> list[float]:
        asked.extend(texts)
        return lengths(texts)

    with pytest.raises(piste.InputError, match="expected at most 1500"):
        piste.explain(model, " ".join(f"w{index}" for index in range(1501)))
    assert asked == []
