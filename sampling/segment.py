"""Cut a text into the units that are masked as wholes: words, subwords, sentences or chosen spans."""

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import regex

from piste._errors import InputError
from piste._typing import BoolArray, IntArray
from piste.sampling.masking import split_context
from piste.sampling.models.protocol import BlackBox, Tokenizing
from piste.sampling.records import Text, Units

UnitFunction = Callable[[str], Iterable[str | None] | Iterable[Sequence[int]]]
"""Takes one text; gives its spans ``(start, end)`` or its substrings, in reading order."""

UnitChoice = str | UnitFunction | Sequence[Sequence[int]]
"""``word``, ``token``, ``sentence``, a function, or spans."""

Span = tuple[int, int]

_BLANK = r"\s\p{Z}\p{Cc}\p{Cf}"
_VISIBLE = regex.compile(rf"[^{_BLANK}]+")

# What nobody may cut: a grapheme cluster, with any combining mark after it. Unicode lets a few spacing
# marks, such as Burmese AA, start a cluster of their own; a unit never starts with one.
_CLUSTER = regex.compile(r"\X(?:(?=\p{M})\X)*")

# What a word may not cut either: in Thai, Lao and their kin a vowel letter written before or after its
# consonant belongs to it, although Unicode counts it as a character of its own.
_SYLLABLE = regex.compile(r"(?:\p{Logical_Order_Exception}(?=\p{L}))*\X(?:(?=[\p{M}ะาๅະາ])\X)*")

_WORD_EDGE = regex.compile(r"(?w)\b")  # the default word boundaries of Unicode (UAX #29)
_WORD_LIKE = regex.compile(r"[\p{L}\p{N}\p{So}\p{Extended_Pictographic}]")

_ABBREVIATIONS = (
    "mr|mrs|ms|dr|prof|sr|jr|st|mt|vs|etc|approx|dept|fig|figs|eq|vol|pp|al|inc|ltd|corp|gen|capt|lt|sgt|rev"
    "|hon|gov|sen|jan|feb|aug|sept|oct|nov|dec|bzw|ca|nr|usw|mme|mlle"
)
_CLOSERS = r"\p{Pe}\p{Pf}\p{Pi}\"'"
_SENTENCE_END = regex.compile(
    rf"""
      [\n\r\v\f\x85\u2028\u2029]                    # a line break
    | [\p{{Sentence_Terminal}}--[.!?．]]             # 。 । ؟ need no space after them
      [\p{{Sentence_Terminal}}]* [{_CLOSERS}]*
    | (?<! (?i:\b(?:{_ABBREVIATIONS}))              # not after Dr
         | (?<![\w'’])[\p{{Lu}}\p{{Ll}}--I]         # or one letter, as J. and e.g., except I
         | ^[ \t]*\d+ )                             # or 1 at the start of a line
      [.!?…．] (?:[ ]?[.!?…．])* [{_CLOSERS}]* (?=\s|\Z)
      (?! (?<= \.[ ]?\. | … | [{_CLOSERS}] )        # after … or a closing quote, lower case goes on
          \s+ \p{{Ll}} )
    """,
    regex.VERBOSE | regex.MULTILINE | regex.VERSION1,
)


def segment(
    text: Text, units: UnitChoice = "word", *, model: BlackBox | None = None, context: str | None = None
) -> Units:
    r"""Cut a text into the units that are masked as wholes.

    No unit cuts a grapheme cluster, combining mark, emoji or flag, and what lies between the units
    stays as it is in every query. Of a pair both texts are cut.

    Parameters
    ----------
    text
        One text, or a pair.
    units
        ``"word"``: words, numbers, emoji and other pictures (``★``), each on its own. Contractions
        (``don't``) and decimals (``3.14``) are whole, hyphens separate. White space and punctuation lie
        between the units; only a text without any word gets its runs of punctuation as units. Scripts
        written without spaces get small units, as there is no dictionary: one Han or Hiragana character
        (runs of Katakana stay together); in Thai, Lao, Khmer and Burmese one consonant with its marks
        and vowel letters. For real words give a segmenter as the function, such as ``jieba.lcut`` or
        ``pythainlp.word_tokenize``.

        ``"token"``: the model's own subwords without white space around them; pieces of the same
        character are one unit.

        ``"sentence"``: up to ``. ! ? … 。 ！ ？ । ॥`` or another full stop of Unicode with the closing
        quotes and brackets after it, or up to a line break. ``. ! ? …`` count before white space only;
        not after a common abbreviation, a single letter or the number of a list item, and not where
        lower case follows an ellipsis or a closing quote. So a sentence that ends in ``etc.`` or
        ``U.S.`` runs on, and an abbreviation that is not known cuts.

        A function: called with each text, gives spans ``(start, end)`` or substrings in reading order;
        None, empty and blank substrings are dropped.

        Spans: ``(start, end)`` of one text, ``(segment, start, end)`` of a pair.
    model
        A model that satisfies ``Tokenizing`` tells its subwords and which units its window sees; a unit
        that the window cuts is not seen. Without one every unit counts as seen.
    context
        The template that will surround the text (see ``render``): it takes room in the window.

    Returns
    -------
    Units
        At least one of them seen.

    Raises
    ------
    InputError
        If the text is blank, the choice is unknown or gives no unit, a span is unusable or cuts a
        character, a substring is not found, or the window sees no whole unit.

    Examples
    --------
    >>> segment("Don't miss it 😀!").tokens
    ("Don't", 'miss', 'it', '😀')
    >>> segment("One film. Two stars...", "sentence").tokens
    ('One film.', 'Two stars...')
    >>> segment("a very good film", [(7, 11)]).tokens
    ('good',)
    """
    parts = _parts(text)
    kind, spans = _cut(parts, units, model)
    if not spans:
        raise InputError(
            f"Got no {kind} unit in {text!r:.60}; expected at least one. "
            "Use units='word' or give spans of the text."
        )
    segments, starts, ends = np.array(spans, dtype=np.int64).T.copy()
    prefix, suffix = split_context(context, text)
    seen = _seen([prefix + part + suffix for part in parts], segments, ends + len(prefix), model)
    found = Units(text, kind, segments, starts, ends, seen)
    _refuse_cut_characters(found)
    return found


def _parts(text: Text) -> tuple[str, ...]:
    """The one or two texts, at least one of them with something to see."""
    parts = text if isinstance(text, tuple) else (text,)
    if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
        raise InputError(f"Got {text!r:.60}; expected one text or two. Give str or (str, str).")
    if not any(_VISIBLE.search(part) for part in parts):
        raise InputError(
            "Got an empty text; expected at least one unit. Give a text that is not blank."
        )
    return parts


def _cut(
    parts: tuple[str, ...], units: UnitChoice, model: BlackBox | None
) -> tuple[str, list[tuple[int, int, int]]]:
    """What the units are called, and ``(segment, start, end)`` of each."""
    if isinstance(units, Iterable) and not isinstance(units, str) and not callable(units):
        return "spans", [_listed(span, len(parts)) for span in units]
    kind, cutter = _cutter(units, model)
    return kind, [(segment, *span) for segment, part in enumerate(parts) for span in cutter(part)]


def _cutter(
    units: str | UnitFunction, model: BlackBox | None
) -> tuple[str, Callable[[str], Iterable[Span]]]:
    """What the units are called, and the function that cuts one text into them."""
    if callable(units):
        return "callable", lambda part: _called(units, part)
    if units == "word":
        return units, _words
    if units == "sentence":
        return units, _sentences
    if units != "token":
        raise InputError(
            f"Got units={units!r}; expected 'word', 'token', 'sentence', a function or spans. "
            "Use one of these."
        )
    if not isinstance(model, Tokenizing):
        raise InputError(
            "Got units='token' for a model that does not tell its subwords; expected one with a known "
            "tokenizer. Use units='word', or a function that gives (start, end) of each subword."
        )
    return units, lambda part: _tokens(part, model)


def _words(part: str) -> list[Span]:
    """Words, numbers and emoji; runs of punctuation where there is nothing else."""
    edges = {match.start() for match in _WORD_EDGE.finditer(part)}
    starts = [match.start() for match in _SYLLABLE.finditer(part) if match.start() in edges]
    words = [span for span in pairwise([*starts, len(part)]) if _WORD_LIKE.search(part, *span)]
    return words or _whole_characters(part, [match.span() for match in _VISIBLE.finditer(part)])


def _tokens(part: str, model: Tokenizing) -> list[Span]:
    """The model's subwords, bare of white space; those that share a character are one."""
    return _whole_characters(part, _bare(part, model.token_spans(part)))


def _sentences(part: str) -> list[Span]:
    """From one sentence's end to the next, bare of white space."""
    ends = [match.end() for match in _SENTENCE_END.finditer(part)]
    return _whole_characters(part, _bare(part, pairwise([0, *ends, len(part)])))


def _called(function: UnitFunction, part: str) -> list[Span]:
    """What the caller's function makes of one text."""
    try:
        result = function(part)
    except Exception as error:  # whatever a user's function raises, it concerns this text alone
        raise InputError(
            f"The units function raised {type(error).__name__}: {error}; expected substrings or "
            f"(start, end) of each unit. Call it with {part!r:.60} to see why."
        ) from error
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise InputError(
            f"Got {result!r:.60} from the units function; expected a list. "
            "Return substrings in reading order, or (start, end) of each unit."
        )
    pieces = [piece for piece in result if piece is not None]
    strings = [piece for piece in pieces if isinstance(piece, str)]
    if len(strings) == len(pieces):
        return _located(strings, part)
    return [_listed(piece, 1)[1:] for piece in pieces]


def _located(strings: list[str], part: str) -> list[Span]:
    """Where each substring lies, left to right."""
    spans = []
    position = 0
    for string in filter(str.strip, strings):
        start = part.find(string, position)
        if start < 0:
            raise InputError(
                f"Got the unit {string!r}, not found in {part[position : position + 40]!r}; expected "
                "exact substrings in reading order. If the function changes case or adds marks such as "
                "'##', let it return (start, end) of each unit."
            )
        position = start + len(string)
        spans.append((start, position))
    return spans


def _listed(span: object, n_parts: int) -> tuple[int, int, int]:
    """One of the caller's spans as ``(segment, start, end)``."""
    try:
        numbers = [operator.index(number) for number in span]  # type: ignore[attr-defined]
    except TypeError:
        numbers = []
    if n_parts == 1:
        numbers = [0, *numbers]
    if len(numbers) != 3 or numbers[0] not in (0, 1):
        form = "(start, end)" if n_parts == 1 else "(segment, start, end) with segment 0 or 1"
        raise InputError(f"Got the span {span!r}; expected {form}. Give every span as whole numbers.")
    segment, start, end = numbers
    return segment, start, end


def _bare(part: str, spans: Iterable[Span]) -> list[Span]:
    """The spans without the white space around their text, or dropped where nothing else is left."""
    bare = []
    for start, end in spans:
        piece = part[start:end]
        if text := piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            bare.append((first, first + len(text)))
    return bare


def _edges(part: str) -> list[int]:
    """Where a text may be cut, from 0 to its length."""
    return [match.start() for match in _CLUSTER.finditer(part)] + [len(part)]


def _whole_characters(part: str, spans: Iterable[Span]) -> list[Span]:
    """The spans widened to whole characters, and merged where they overlap."""
    edges = _edges(part)
    whole: list[Span] = []
    for start, end in sorted(spans):
        first, last = _widened(edges, start, end)
        if whole and first < whole[-1][1]:
            first, last = whole[-1][0], max(last, whole.pop()[1])
        whole.append((first, last))
    return whole


def _widened(edges: list[int], start: int, end: int) -> Span:
    """The nearest edges around a span."""
    return edges[bisect_right(edges, start) - 1], edges[bisect_left(edges, end)]


def _seen(parts: list[str], segments: IntArray, ends: IntArray, model: BlackBox | None) -> BoolArray:
    """Which units end before the model's window does."""
    if not isinstance(model, Tokenizing):
        return np.ones(len(ends), dtype=np.bool_)
    limits = np.array(model.seen_until(parts), dtype=np.int64)
    seen: BoolArray = ends <= limits[segments]
    if not seen.any():
        raise InputError(
            "Got no unit that lies wholly within the model's window; expected at least one. "
            "Use smaller units, such as units='word', or a shorter context."
        )
    return seen


def _refuse_cut_characters(units: Units) -> None:
    """Raise if a unit starts or ends inside a character."""
    edges = [_edges(part) for part in units.parts]
    table = np.stack([units.segments, units.starts, units.ends], axis=1)
    for segment, start, end in table.tolist():
        whole = _widened(edges[segment], start, end)
        if whole != (start, end):
            raise InputError(
                f"Got the unit {(start, end)}, which cuts a character in two; expected whole ones. "
                rf"Widen it to {whole}, or find the characters with regex's '\X'."
            )
