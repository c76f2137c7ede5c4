"""Human rationales: three formats, annotators, spans and flags in units, refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError
from piste.evaluation.rationales import (
    Annotators,
    Rationale,
    marked,
    read_rationales,
    unit_flags,
    unit_runs,
)
from piste.sampling.segment import segment

UNITS = segment("a very good film, so good")


def written(tmp_path: Path, *rows: Any, name: str = "r.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(
        "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("annotators", "spans"),
    [("all", ((4, 8),)), ("any", ((0, 8), (18, 23))), ("majority", ((0, 8),))],
)
def test_attention_maps(annotators: Annotators, spans: object, tmp_path: Path) -> None:
    row = {
        "id": "hat-1-0000",
        "part": 1,
        "label": 1,
        "tokens": ["So,", "slow", "was", "the", "bar ", "staff"],
        "maps": ["110000", "010000", "110001"],
        "answers": ["yes", "yes", "no"],
    }
    (found,) = read_rationales(written(tmp_path, row), annotators=annotators)
    assert found.text == "So, slow was the bar  staff"
    assert (found.text_id, found.label, found.n_annotators) == ("hat-1-0000", "1", 3)
    # The last token starts one later than in a text without the blank in the fifth.
    expected = ((0, 8), (22, 27)) if annotators == "any" else spans
    assert found.spans == expected
    assert next(found.text[start:end] for start, end in found.spans or ()).endswith("slow")


@pytest.mark.parametrize(
    "row",
    [
        {"text": "good film", "spans": [[0, 4]]},
        {"tokens": ["good", "film"], "maps": ["10"]},
        {"tokens": ["good", "film"], "flags": [1, 0]},
        {"tokens": ["good", "film"], "flags": "10"},
        {"text": "good film", "flags": [True, False]},
        {"text": "good film", "flags": "[1, 0]"},
    ],
)
def test_formats_say_the_same(row: dict[str, Any], tmp_path: Path) -> None:
    (found,) = read_rationales(written(tmp_path, row))
    assert found.text == "good film"
    assert found.text_id == "0"
    assert unit_flags(found, segment(found.text)).tolist() == [True, False]
    assert unit_runs(found, segment(found.text)) == [(0, 1)]


@pytest.mark.parametrize(
    "content",
    ['text_id,text,spans\nx,"good, null","[[0, 4]]"\n', "text_id,text,flags\nx,good null,10\n"],
)
def test_tables(content: str, tmp_path: Path) -> None:
    (found,) = read_rationales(written(tmp_path, content, name="r.csv"))
    assert found.text_id == "x"
    assert unit_flags(found, segment(found.text)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "expected one JSON object a line"),
        (["[1]"], "no object"),
        ([], "Got 0 rationales"),
        ([{"text": "a"}], "Got no 'flags' in row 1 of r.jsonl"),
        ([{"spans": [[0, 1]]}, {"spans": [[1, 1]]}], r"the span \(1, 1\).* in row 2"),
        ([{"spans": [[0, 1, 2]]}], "in row 1"),
        ([{"spans": "none"}], "in row 1"),
        ([{"flags": [0, 2]}], "not all 0 or 1"),
        ([{"flags": "0 1"}], "not all 0 or 1"),
        ([{"tokens": ["a"], "maps": ["10"]}], r"maps of \[2\] flags for 1 tokens"),
        ([{"tokens": ["a"], "maps": []}], "maps of"),
        ([{"id": "x", "spans": []}, {"id": "x", "spans": []}], "2 rationales of 1 texts"),
    ],
)
def test_what_cannot_be_read_is_refused(rows: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_rationales(written(tmp_path, *rows))


def test_annotators_are_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of 'all', 'any', 'majority'"):
        read_rationales(written(tmp_path, {"spans": []}), annotators="most")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "spans", "flags"),
    [
        ("[[0, 4], [5, 9]]", ((0, 4), (5, 9)), None),
        ([[0, 4]], ((0, 4),), None),
        (" 01 ", None, (False, True)),
        ("[0, 1]", None, (False, True)),
        ([True, False], None, (True, False)),
        ("", (), None),
        ("[]", (), None),
        (None, (), None),
    ],
)
def test_fields_of_a_table(field: object, spans: object, flags: object) -> None:
    found = marked("x", "good film", field)
    assert (found.text_id, found.text, found.spans, found.flags) == ("x", "good film", spans, flags)


@pytest.mark.parametrize(
    ("field", "got"),
    [
        ("good", "flags 'good', which are not all 0 or 1"),
        ("[[1]]", "the span [1]"),
        ("[[5, 0]]", "the span (5, 0)"),
        ("[1, 2]", "flags '[1, 2]', which are not all 0 or 1"),
        ("[[0, 4", "'[[0, 4', which is no list"),
    ],
)
def test_fields_that_are_none(field: str, got: str) -> None:
    with pytest.raises(InputError) as error:
        marked("x", "good film", field)
    assert str(error.value) == (
        f"Got {got} as the marks of text 'x'; expected spans such as [[0, 4]], start before end, or a 0 or "
        "1 for each unit."
    )


def test_a_row_that_is_none_is_told_in_one_sentence(tmp_path: Path) -> None:
    for row, got in (
        ({"spans": [[5, 0]]}, "the span (5, 0) of text '0'"),
        ({"text": "a"}, "no 'flags'"),
    ):
        with pytest.raises(InputError) as error:
            read_rationales(written(tmp_path, row))
        assert str(error.value).startswith(f"Got {got} in row 1 of ")
        assert str(error.value).count("Got") == str(error.value).count("expected") == 1


@pytest.mark.parametrize(
    ("spans", "inside", "runs"),
    [
        (((2, 11),), [1, 2], [(1, 3)]),
        (((3, 4),), [1], [(1, 2)]),  # overlap is enough
        (((16, 17),), [], []),  # the comma is in no unit
        (((0, 1), (2, 6)), [0, 1], [(0, 1), (1, 2)]),  # neighbours stay two spans
        (((2, 3), (4, 5)), [1], [(1, 2)]),  # two in one unit are one
        ((), [], []),
        (((0, 25),), [0, 1, 2, 3, 4, 5], [(0, 6)]),
    ],
)
def test_spans_in_units(
    spans: tuple[tuple[int, int], ...], inside: list[int], runs: list[tuple[int, int]]
) -> None:
    rationale = Rationale("0", spans=spans)
    assert np.flatnonzero(unit_flags(rationale, UNITS)).tolist() == inside
    assert unit_runs(rationale, UNITS) == runs


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="Got 2 flags for the 6 units"):
        unit_flags(Rationale("0", flags=(True, False)), UNITS)
    with pytest.raises(InputError, match="has 25 characters"):
        unit_flags(Rationale("0", spans=((20, 26),)), UNITS)
    with pytest.raises(InputError, match="neither of spans and flags"):
        Rationale("0")
    with pytest.raises(InputError, match="both of spans and flags"):
        Rationale("0", spans=((0, 1),), flags=(True,))
