"""Attributions from anywhere: files, defaults, failures, units in their text, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError
from piste.evaluation.asking import cuts_words, explained_units
from piste.evaluation.explanations import (
    checked_attributions,
    explanations,
    read_attributions,
    texts_by_id,
)


def lengths(texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def test_a_study_is_read_back_as_it_was(tmp_path: Path) -> None:
    texts = ['null, "NA"\nand ☃', "a b", ""]
    with pytest.warns(piste.PisteWarning):
        study = piste.explain(lengths, texts, surrogates=("lime", "slalom"), space="raw", budget=20)
    study.to_csv(tmp_path / "a.csv")
    read = read_attributions(tmp_path / "a.csv")
    for name in ("text_id", "token", "target", "surrogate", "kind", "space", "status"):
        assert read[name].tolist() == study.attributions[name].tolist()
    for name in ("segment", "start", "end"):
        pd.testing.assert_series_equal(read[name], study.attributions[name])
    np.testing.assert_array_equal(read["score"], study.attributions["score"])


@pytest.mark.parametrize(
    "content",
    [
        "token,score\ngood,1\nfilm,2\n",
        "token,score,method\ngood,1,mine\nfilm,2,mine\n",
        "\ufefftoken,score\ngood,1\nfilm,2\n",
        "start,end,score\n0,4,1\n5,9,2\n",
        "start,end,score\n5,9,2\n0,4,1\n",
        "text_id,start,end,score,note\n0,0,4,1,a\n0,5,9,2,b\n",
    ],
)
def test_what_is_missing_has_a_default(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    (found,) = explanations(read_attributions(tmp_path / "a.csv"))
    assert found.scores.tolist() == [1, 2]
    assert (found.text_id, found.target, found.kind) == ("0", "", "score")
    assert found.surrogate == ("mine" if "mine" in content else "given")
    assert explained_units(found, "good film").tokens == ("good", "film")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("token,value\na,1\n", "columns 'token', 'value'; expected 'score'"),
        ("score\n1\n", "expected 'score', and 'start'"),
        ("token,score\na,high\n", "Got 'high' in column 'score', row 1; expected a number"),
        ("start,end,score\n0,1.5,1\n", "Got '1.5' in column 'end', row 1; expected a whole number"),
        ("start,end,score\n0,4,1\n0,4,2\n", "Got a unit twice for 'given' .score. of text '0'"),
        ("start,end,score\n0,4,1\n,,2\n", "Got 1 units without start and end"),
    ],
)
def test_what_cannot_be_read_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        explanations(read_attributions(tmp_path / "a.csv"))


@pytest.mark.parametrize("name", ["absent.csv", "a.txt", "torn.csv"])
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "torn.csv").write_bytes(b'token,score\n"a,1\n')
    with pytest.raises(InputError, match="expected"):
        read_attributions(tmp_path / name)


def test_a_failed_text_counts_for_every_method() -> None:
    table = pd.DataFrame(
        {
            "text_id": ["a", "a", "b", "c"],
            "token": ["good", "good", "", ""],
            "score": [1.0, 2.0, np.nan, np.nan],
            "surrogate": ["lime", "slalom", "", "slalom"],
            "kind": ["coefficient", "value", "", ""],
            "status": ["ok", "ok", "error: empty", "error: too few"],
        }
    )
    found = explanations(table, ["a", "b", "c", "d"])
    assert [(each.text_id, each.surrogate, each.failure) for each in found] == [
        ("a", "lime", ""),
        ("a", "slalom", ""),
        ("b", "lime", "empty"),
        ("b", "slalom", "empty"),
        ("c", "slalom", "too few"),
        ("d", "lime", "no attributions"),
        ("d", "slalom", "no attributions"),
    ]


def test_tokens_are_found_in_their_order() -> None:
    table = pd.DataFrame({"token": ["good", "bad", "good"], "score": [1.0, 2.0, 3.0]})
    units = explained_units(explanations(table)[0], "so good, bad, good")
    assert list(zip(units.starts.tolist(), units.ends.tolist(), strict=True)) == [
        (3, 7),
        (9, 12),
        (14, 18),
    ]
    with pytest.raises(InputError, match="of text '0': Got the token 'good', not found") as error:
        explained_units(explanations(table)[0], "good bad")
    assert "function" not in str(error.value)  # there is a table, and no function
    with pytest.raises(InputError, match="pair of texts"):
        explained_units(explanations(table)[0], ("good", "bad good"))


def test_units_that_do_not_fit_name_their_text() -> None:
    overlapping = pd.DataFrame({"text_id": "t7", "start": [0, 3], "end": [5, 8], "score": [1.0, 2.0]})
    with pytest.raises(InputError, match="attributions of text 't7': Got overlapping"):
        explained_units(explanations(overlapping)[0], "good film")
    beyond = overlapping.assign(start=[0, 5], end=[4, 99])
    with pytest.raises(InputError, match="attributions of text 't7': Got a unit outside"):
        explained_units(explanations(beyond)[0], "good film")


@pytest.mark.parametrize(
    ("tokens", "text", "partial"),
    [
        (["grippin", "film"], "A gripping film.", True),
        (["gripping", "ilm"], "A gripping film.", True),
        (["gripping", "film."], "A gripping film.", False),
        (["good-hearted", "it's"], "good-hearted, it's", False),
        (["电", "影"], "好电影", False),
        (["a gripping", "film"], "a gripping film", False),
    ],
)
def test_tokens_that_cut_words_are_seen(tokens: list[str], text: str, partial: bool) -> None:
    table = pd.DataFrame({"token": tokens, "score": np.arange(len(tokens))})
    (each,) = explanations(table)
    units = explained_units(each, text)
    assert cuts_words(each, units) == partial
    table["start"], table["end"] = units.starts, units.ends
    assert not cuts_words(explanations(table)[0], units)  # whoever gives offsets means them


@pytest.mark.parametrize("table", ["a.csv", None, [1.0]])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(InputError, match=r"expected a table: .*read_attributions\(path\)"):
        explanations(table)


def test_blank_tokens_are_refused() -> None:
    table = pd.DataFrame({"token": ["good", " "], "score": [1.0, 2.0]})
    with pytest.raises(InputError, match="2 scores for 1 tokens that are not blank"):
        explained_units(explanations(table)[0], "good film")


def test_units_of_a_pair_keep_their_segments() -> None:
    table = pd.DataFrame({"segment": [1, 0], "start": [0, 0], "end": [1, 1], "score": [1.0, 2.0]})
    (found,) = explanations(table)
    assert found.scores.tolist() == [2, 1]
    assert explained_units(found, ("a b", "c d")).tokens == ("a", "c")
    with pytest.raises(InputError, match="second text"):
        explained_units(found, "a b")


def test_the_callers_table_is_left_alone() -> None:
    table = pd.DataFrame({"token": ["a"], "score": ["1"]})
    checked_attributions(table)
    assert list(table.columns) == ["token", "score"]
    assert table["score"].tolist() == ["1"]


def test_texts_have_names() -> None:
    assert texts_by_id("a b") == {"0": "a b"}
    assert texts_by_id(("a", "b")) == {"0": ("a", "b")}
    assert texts_by_id(["a", "b"], ["x", "y"]) == {"x": "a", "y": "b"}
    assert texts_by_id({"x": "a"}) == {"x": "a"}
    with pytest.raises(InputError, match="text_ids"):
        texts_by_id(["a", "b"], ["x", "x"])
