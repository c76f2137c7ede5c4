"""Human rationales: which parts of a text people marked as the reason for its label."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray
from piste.evaluation.explanations import read_table
from piste.sampling.records import Units

Annotators = Literal["all", "any", "majority"]
"""Which tokens count where several people marked a text: marked by every one, by one, or by more than half."""

Row = Mapping[str, object]


@dataclass(frozen=True)
class Rationale:
    """What people marked in one text: spans of characters, or a flag for each unit.

    Parameters
    ----------
    text_id
        As in the attributions.
    spans
        ``(start, end)`` character offsets; a unit that overlaps one counts as marked. None where flags
        are given.
    flags
        One per unit of the attributions, in reading order. None where spans are given.
    text
        The text; empty if it is not known.
    label
        The text's label; empty if it is not known.
    n_annotators
        How many people's marks these are.

    Raises
    ------
    InputError
        If not just one of spans and flags is given, or a span is empty or reversed.
    """

    text_id: str
    spans: tuple[tuple[int, int], ...] | None = None
    flags: tuple[bool, ...] | None = None
    text: str = ""
    label: str = ""
    n_annotators: int = 1

    def __post_init__(self) -> None:
        if (self.spans is None) == (self.flags is None):
            raise InputError(
                f"Got {'both' if self.spans else 'neither'} of spans and flags for text {self.text_id!r}; "
                "expected one of them. No mark at all is spans=()."
            )
        for start, end in self.spans or ():
            if not 0 <= start < end:
                raise InputError(
                    f"Got the span {(start, end)} of text {self.text_id!r}; expected 0 <= start < end."
                )


def unit_flags(rationale: Rationale, units: Units) -> BoolArray:
    """Whether each unit is marked, shape (n_units,); of spans, whether it overlaps one.

    Spans are of one text, or of the first of a pair.

    Raises
    ------
    InputError
        If there are flags, but not as many as units, or a span ends beyond the text.

    >>> from piste.sampling.segment import segment
    >>> unit_flags(Rationale("0", spans=((2, 6),)), segment("a good film")).tolist()
    [False, True, False]
    """
    if rationale.flags is not None:
        if len(rationale.flags) != units.n_units:
            raise InputError(
                f"Got {len(rationale.flags)} flags for the {units.n_units} units of text "
                f"{rationale.text_id!r}; expected one each. Give character spans instead."
            )
        return np.array(rationale.flags, dtype=np.bool_)
    marked = np.zeros(units.n_units, dtype=np.bool_)
    for span in rationale.spans or ():
        if span[1] > len(units.parts[0]):
            raise InputError(
                f"Got the span {span} of text {rationale.text_id!r}, which has {len(units.parts[0])} "
                "characters; expected one inside. Check that both are of the same text."
            )
        marked |= covered(span, units)
    return marked


def unit_runs(rationale: Rationale, units: Units) -> list[tuple[int, int]]:
    """The human spans in units, ``(first, last + 1)``: one per span, or one per run of flags."""
    if rationale.flags is not None:
        return runs(unit_flags(rationale, units))
    found = [np.flatnonzero(covered(span, units)) for span in rationale.spans or ()]
    return sorted({(int(each[0]), int(each[-1]) + 1) for each in found if each.size})


def covered(span: tuple[int, int], units: Units) -> BoolArray:
    """Whether each unit overlaps a span of the first text."""
    start, end = span
    inside: BoolArray = (units.segments == 0) & (units.starts < end) & (units.ends > start)
    return inside


def runs(flags: BoolArray) -> list[tuple[int, int]]:
    """Where flags are up without a break, as ``(first, last + 1)``.

    >>> runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def read_rationales(path: str | PathLike[str], *, annotators: Annotators = "all") -> list[Rationale]:
    r"""Human rationales from a .jsonl (one object a line), .csv or .tsv file.

    Each row has one of

    - ``spans``: ``[[start, end], ...]`` in characters of ``text``, in CSV as that JSON;
    - ``flags``: 0 or 1 for each unit of the attributions, such as ``[0, 1, 0]`` or ``"010"``;
    - ``tokens`` and ``maps``, as human attention maps are kept: the text is the tokens joined by blanks,
      each map a string of 0 and 1 (or a list) by one annotator, and neighbours that are marked make
      one span. ``tokens`` and ``flags`` mean the same with one map.

    and, if it likes, ``text_id`` (or ``id``; the row's number otherwise), ``text`` and ``label``.

    Parameters
    ----------
    annotators
        Which tokens count where there are several maps: those marked by ``all``, by ``any`` or by the
        ``majority`` (more than half) of the annotators.

    Raises
    ------
    InputError
        If the file cannot be read or a row is none of these; the message has the row's number.

    Examples
    --------
    >>> import tempfile
    >>> line = '{"id": "7", "tokens": ["so", "very", "slow"], "maps": ["011", "001"], "label": 0}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "maps.jsonl")
    ...     _ = path.write_text(line + "\n")
    ...     read_rationales(path)
    [Rationale(text_id='7', spans=((8, 12),), flags=None, text='so very slow', label='0', n_annotators=2)]
    """
    if annotators not in get_args(Annotators):
        known = ", ".join(map(repr, get_args(Annotators)))
        raise InputError(f"Got annotators={annotators!r}; expected one of {known}.")
    path = Path(path)
    found = []
    for number, row in enumerate(_rows(path)):
        try:
            found.append(_rationale(row, str(number), annotators))
        except (InputError, ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"Got {_got(error)} in row {number + 1} of {path.name}; expected 'spans' such as [[0, 4]], "
                "start before end, 'flags' such as [0, 1], or 'tokens' and 'maps'."
            ) from error
    names = [each.text_id for each in found]
    if not found or len(set(names)) < len(names):
        raise InputError(
            f"Got {len(names)} rationales of {len(set(names))} texts in {path.name}; expected at least "
            "one, and one for each text_id."
        )
    return found


def marked(text_id: str, text: str, value: object) -> Rationale:
    """What people marked in one text, from a field of a table: spans such as [[0, 4]], or 0/1 flags of units.

    A missing or empty field is a text that nobody marked: an empty list of spans.

    Raises
    ------
    InputError
        If the field is neither.

    >>> marked("0", "so very slow", "[[8, 12]]").spans, marked("0", "so slow", "01").flags
    (((8, 12),), (False, True))
    """
    missing = value is None or value == "" or value == [] or value == "[]"
    plain = isinstance(value, str) and not value.strip().startswith("[")
    try:
        listed = [] if missing or plain else _parsed(value)
        spans = missing or (bool(listed) and isinstance(listed[0], list))
        row = {"text_id": text_id, "text": text} | ({"spans": listed} if spans else {"flags": value})
        return _rationale(row, text_id, "all")
    except (InputError, ValueError, TypeError) as error:
        raise InputError(
            f"Got {_got(error).removesuffix(f' of text {text_id!r}')} as the marks of text {text_id!r}; "
            "expected spans such as [[0, 4]], start before end, or a 0 or 1 for each unit."
        ) from error


def _got(error: Exception) -> str:
    """What an error is about, to be told in a sentence of its own."""
    what = str(error).removeprefix("Got ").partition("; expected")[0]
    return f"no {what}" if isinstance(error, KeyError) else what


def _rows(path: Path) -> list[Row]:
    if path.suffix.lower() != ".jsonl":
        return [
            {str(name): value for name, value in row.items() if value != ""}
            for row in read_table(path).to_dict(orient="records")
        ]
    try:
        # Only a line feed ends a row: other line separators of Unicode may stand inside a text.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        rows: list[Row] = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(
            f"Got {error} when reading {path}; expected one JSON object a line."
        ) from error
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f"Got a line of {path.name} that is no object; expected one a line.")
    return rows


def _rationale(row: Row, number: str, annotators: Annotators) -> Rationale:
    about = Rationale(
        str(row.get("text_id", row.get("id", number))),
        spans=(),
        text=str(row.get("text", "")),
        label=str(row.get("label", "")),
    )
    if "spans" in row:
        pairs = [_parsed(span) for span in _parsed(row["spans"])]
        if wrong := [pair for pair in pairs if len(pair) != 2]:
            raise InputError(f"the span {wrong[0]}")
        return replace(about, spans=tuple((int(start), int(end)) for start, end in pairs))
    if "tokens" not in row:
        return replace(about, spans=None, flags=tuple(_flags(row["flags"]).tolist()))
    tokens = [str(token) for token in _parsed(row["tokens"])]
    maps = [_flags(each) for each in (_parsed(row["maps"]) if "maps" in row else [row["flags"]])]
    if not maps or any(len(each) != len(tokens) for each in maps):
        raise InputError(f"maps of {[len(each) for each in maps]} flags for {len(tokens)} tokens")
    votes = np.mean(maps, axis=0)
    marked = {"all": votes == 1, "any": votes > 0, "majority": votes > 0.5}[annotators]
    spans = _token_spans(tokens, marked)
    return replace(about, spans=spans, text=" ".join(tokens), n_annotators=len(maps))


def _parsed(value: object) -> list[Any]:
    """A list as it is, or as JSON in a field of a table."""
    try:
        listed = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InputError(f"{value!r:.60}, which is no list") from error
    if not isinstance(listed, list):
        raise InputError(f"{value!r}, which is no list")
    return listed


def _flags(value: object) -> BoolArray:
    """Zeros and ones as a list, as JSON, or as a string of them."""
    plain = isinstance(value, str) and not value.strip().startswith("[")
    listed: Sequence[object] = list(str(value).strip()) if plain else _parsed(value)
    numbers = [
        {"0": 0, "1": 1}.get(str(int(flag)) if isinstance(flag, bool) else str(flag)) for flag in listed
    ]
    if None in numbers:
        raise InputError(f"flags {value!r:.60}, which are not all 0 or 1")
    return np.array(numbers, dtype=np.bool_)


def _token_spans(tokens: Sequence[str], marked: BoolArray) -> tuple[tuple[int, int], ...]:
    """Runs of marked tokens in characters of the text that blanks join; none that is blank itself."""
    lengths = np.array([len(token) for token in tokens], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    spans = [(int(ends[first] - lengths[first]), int(ends[last - 1])) for first, last in runs(marked)]
    return tuple((start, end) for start, end in spans if start < end)
