from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from piste._errors import InputError
from piste.sampling.models.protocol import Scores
from piste.sampling.records import Query, Units
from piste.sampling.segment import UnitChoice, segment

BENGALI = "আমি বাংলায় গান গাই"
HINDI = "यह फिल्म बहुत अच्छी है"
FAMILY = "👨‍👩‍👧‍👦"

TRICKY = [
    *(
        "e\u0301",
        "\u0300",
        "\r\n",
        "\n",
        " ",
        "\u200d",
        "\ufe0f",
        "\u200b",
        "\u00ad",
        "\u202e",
        "\ufeff",
    ),
    *(FAMILY, "👍🏽", "🇩🇪", "🇫", "1️⃣", "☺️", "न्", "क्षि", "เ", "า", "รื่", "ာ", "ခ", "ញុំ", "각", "שלום", "ﷺ"),
    *("don't", "3.14", "Dr.", "...", "。", "!", '?"', "(", "[UNK]", "word", "カタ", "漢", "\U0010ffff"),
]
texts = st.lists(
    st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20
).map("".join)


@dataclass(frozen=True)
class Tokenizer:
    """A model that knows its subwords and its window, and nothing else."""

    spans: tuple[tuple[int, int], ...] = ()
    limits: tuple[int, ...] | None = None
    fingerprint: str = "fake"
    mask_token: str | None = None

    def score(self, inputs: Sequence[Query]) -> Scores:
        raise NotImplementedError

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return list(self.spans)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        return self.limits or tuple(map(len, parts))


def rejoined(units: Units, part: int = 0) -> str:
    """The gaps and the units of one text, put together again."""
    text = units.parts[part]
    here = units.segments == part
    cuts = [0, *np.stack([units.starts[here], units.ends[here]], axis=1).ravel().tolist(), len(text)]
    return "".join(text[start:end] for start, end in pairwise(cuts))


def characters(text: str) -> set[int]:
    """Offsets at which a grapheme cluster starts or the text ends."""
    return {match.start() for match in regex.finditer(r"\X", text)} | {len(text)}


def check_any(text: str, choice: UnitChoice, model: Tokenizer | None = None) -> None:
    """Cutting any text keeps every character whole, or says that it is blank."""
    if regex.fullmatch(r"[\s\p{Z}\p{Cc}\p{Cf}]*", text):
        with pytest.raises(InputError, match="Got an empty text; expected at least one unit"):
            segment(text, choice, model=model)
        return
    units = segment(text, choice, model=model)
    assert units.n_units > 0
    assert rejoined(units) == text
    assert {*units.starts.tolist(), *units.ends.tolist()} <= characters(text)
    assert not any(regex.match(r"\p{M}", unit) for unit in units.tokens if not text.startswith(unit))


class TestWords:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            (BENGALI, BENGALI.split()),
            (HINDI, HINDI.split()),
            ("good good bad", ["good", "good", "bad"]),
            ("w x y z", list("wxyz")),
            ("hello", ["hello"]),
            ("i ate raisins today", ["i", "ate", "raisins", "today"]),
            ("ok 😀!", ["ok", "😀"]),
            ("so😀😀" + FAMILY + "🇩🇪🇫🇷👍🏽1️⃣", ["so", "😀", "😀", FAMILY, "🇩🇪", "🇫🇷", "👍🏽", "1️⃣"]),
            ("I don't, it’s 3.14!!! (well-made)", ["I", "don't", "it’s", "3.14", "well", "made"]),
            ("★★☆ for 50%", ["★", "★", "☆", "for", "50"]),
            ("e\u0301te\u0301 cafe\u0301.", ["e\u0301te\u0301", "cafe\u0301"]),
            ("שלום, עולם abc 12", ["שלום", "עולם", "abc", "12"]),
            ("한국어 영화", ["한국어", "영화"]),
            ("私はテストを見た。", ["私", "は", "テスト", "を", "見", "た"]),
            ("เรื่องนี้ดีมาก", ["เรื่", "อ", "ง", "นี้", "ดี", "มา", "ก"]),
            ("ເຈົ້າ", ["ເຈົ້າ"]),
            ("မာစာ", ["မာ", "စာ"]),
        ],
    )
    def test_are_what_a_reader_would_mark(self, text: str, tokens: list[str]) -> None:
        assert segment(text).tokens == tuple(tokens)

    def test_have_exact_offsets(self) -> None:
        units = segment("A 😀 e\u0301!")
        assert units.starts.tolist() == [0, 2, 4]
        assert units.ends.tolist() == [1, 3, 6]
        assert units.kind == "word"
        assert units.seen.all()

    def test_are_runs_of_punctuation_where_there_is_no_word(self) -> None:
        assert segment("!!! ?").tokens == ("!!!", "?")

    @given(texts)
    @settings(max_examples=300, deadline=None)
    def test_of_any_text_are_whole_characters(self, text: str) -> None:
        check_any(text, "word")


class TestSentences:
    @pytest.mark.parametrize(
        "sentences",
        [
            [
                "He met Dr. Smith.",
                "It was 3.14 in the U.S. today... maybe.",
                "So do I.",
                "J. B. can't.",
                "Go",
            ],
            ['"Why?" he asked.', '"Go!"', "(Yes.)", "What?!", "End…"],
            ["the film is routine .", "i loved it ! ! !", "great"],
            ["Wait… what?", "Wait…", "What?"],
            ["यह अच्छी है।", "वह बुरी है॥", "हाँ"],
            ["هل هذا جيد؟", "نعم."],
        ],
    )
    def test_end_where_a_reader_pauses(self, sentences: list[str]) -> None:
        assert segment(" ".join(sentences), "sentence").tokens == tuple(sentences)

    def test_end_with_the_line(self) -> None:
        listed = "A list\n1. First item.\n\n 2. Second item"
        assert segment(listed, "sentence").tokens == ("A list", "1. First item.", "2. Second item")

    def test_need_no_space_in_chinese(self) -> None:
        assert segment("我喜欢。你呢？「好！」他说。", "sentence").tokens == (
            *("我喜欢。", "你呢？", "「好！」", "他说。"),
        )

    @given(texts)
    @settings(max_examples=200, deadline=None)
    def test_of_any_text_are_whole_characters(self, text: str) -> None:
        check_any(text, "sentence")


class TestTokens:
    @pytest.mark.parametrize("n_pieces", [2, 3, 4])
    def test_of_one_character_are_one_unit(self, n_pieces: int) -> None:
        model = Tokenizer(((0, 2), *[(3, 4)] * n_pieces, (4, 5)))
        assert segment("ok 😀!", "token", model=model).tokens == ("ok", "😀", "!")

    def test_are_the_pieces_of_a_word(self) -> None:
        model = Tokenizer(((0, 1), (2, 5), (6, 9), (9, 11), (11, 13), (14, 19)))
        units = segment("i ate raisins today", "token", model=model)
        assert units.tokens == ("i", "ate", "rai", "si", "ns", "today")
        assert units.kind == "token"

    def test_lose_white_space_and_empty_pieces(self) -> None:
        model = Tokenizer(((0, 1), (1, 4), (4, 4), (4, 6), (6, 8), (8, 9)))
        assert segment("a be \n cd", "token", model=model).tokens == ("a", "be", "c", "d")

    def test_never_cut_a_character(self) -> None:
        text = f"e\u0301 {FAMILY}"
        model = Tokenizer(((0, 1), (1, 2), (2, 4), (4, 6), (6, len(text))))
        assert segment(text, "token", model=model).tokens == ("e\u0301", FAMILY)

    @given(texts, st.data())
    @settings(max_examples=200, deadline=None)
    def test_of_any_text_are_whole_characters(self, text: str, data: st.DataObject) -> None:
        cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text))))})
        spans = tuple(pairwise(cuts))
        repeated = data.draw(st.lists(st.sampled_from(spans)))
        check_any(text, "token", Tokenizer((*spans, *repeated)))

    def test_need_a_tokenizer(self) -> None:
        with pytest.raises(InputError, match=r"does not tell its subwords.*Use units='word'"):
            segment("a film", "token")

    def test_need_at_least_one(self) -> None:
        with pytest.raises(InputError, match="Got no token unit in 'a film'; expected at least one"):
            segment("a film", "token", model=Tokenizer())


class TestFunctions:
    def test_may_return_spans(self) -> None:
        units = segment("a gripping film", lambda part: [(2, 10), (11, len(part))])
        assert units.tokens == ("gripping", "film")
        assert units.kind == "callable"

    def test_may_return_substrings(self) -> None:
        units = segment("good good bad", str.split)
        assert units.tokens == ("good", "good", "bad")
        assert units.starts.tolist() == [0, 5, 10]

    def test_may_return_none_empty_and_blank_pieces(self) -> None:
        units = segment("this ball, red", lambda part: regex.split(r"(\s+)|(,)", part))
        assert units.tokens == ("this", "ball", ",", "red")

    @pytest.mark.parametrize("mangle", [str.lower, "##{}".format])
    def test_must_return_exact_substrings(self, mangle: Callable[[str], str]) -> None:
        with pytest.raises(
            InputError, match=r"not found in 'Film'; expected exact.*let it return \(start"
        ):
            segment("Film", lambda part: [mangle(part)])

    def test_must_keep_reading_order(self) -> None:
        with pytest.raises(InputError, match="Got the unit 'a', not found in ''"):
            segment("a b", lambda part: part.split()[::-1])

    @pytest.mark.parametrize("result", [None, 3, "a b"])
    def test_must_return_a_list(self, result: object) -> None:
        with pytest.raises(InputError, match="from the units function; expected a list"):
            segment("a b", lambda part: result)  # type: ignore[arg-type,return-value]

    def test_must_return_spans_of_whole_numbers(self) -> None:
        with pytest.raises(InputError, match=r"Got the span \(0, 'b'\); expected \(start, end\)\."):
            segment("a b", lambda part: [(0, "b")])  # type: ignore[arg-type,return-value]

    def test_must_not_cut_characters(self) -> None:
        with pytest.raises(InputError, match=r"cuts a character in two.*Widen it to \(0, 2\)"):
            segment("e\u0301", list)


class TestSpans:
    def test_leave_the_rest_of_the_text_fixed(self) -> None:
        units = segment("a very good film indeed", [(2, 6), (12, 16)])
        assert units.tokens == ("very", "film")
        assert units.kind == "spans"

    def test_may_be_an_array(self) -> None:
        assert segment("a film", np.array([[2, 6]])).tokens == ("film",)  # type: ignore[arg-type]

    def test_name_the_segment_of_a_pair(self) -> None:
        units = segment(("a dog", "an animal"), [(0, 2, 5), (1, 3, 9)])
        assert units.tokens == ("dog", "animal")
        assert units.segments.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("spans", "message"),
        [
            ([(0, 4), (2, 6)], "overlapping or unordered"),
            ([(2, 6), (0, 1)], "overlapping or unordered"),
            ([(2, 9)], "outside its text of 6 characters"),
            ([(-1, 1)], "outside its text"),
            ([(3, 3)], "outside its text"),
            ([], "Got no spans unit in 'a film'"),
            ([(0, 0, 1)], r"Got the span \(0, 0, 1\); expected \(start, end\)\."),
            ([(0, 1.0)], r"expected \(start, end\)\. Give every span as whole numbers"),
            ([3], r"Got the span 3; expected \(start, end\)"),
        ],
    )
    def test_are_checked(self, spans: list[tuple[int, int]], message: str) -> None:
        with pytest.raises(InputError, match=message):
            segment("a film", spans)

    @pytest.mark.parametrize("span", [(0, 1), (2, 0, 1), (-1, 0, 1)])
    def test_of_a_pair_are_checked(self, span: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match=r"expected \(segment, start, end\) with segment 0 or 1"):
            segment(("a", "b"), [span])

    @pytest.mark.parametrize(
        ("text", "span"),
        [("e\u0301", (0, 1)), ("e\u0301x", (1, 3)), (FAMILY, (0, 1)), ("🇩🇪", (1, 2)), ("မာ", (1, 2))],
    )
    def test_must_not_cut_characters(self, text: str, span: tuple[int, int]) -> None:
        with pytest.raises(
            InputError, match=r"cuts a character in two; expected whole ones\. Widen it"
        ):
            segment(text, [span])


class TestPairs:
    def test_are_both_cut(self) -> None:
        units = segment(("A dog runs.", "An animal"))
        assert units.tokens == ("A", "dog", "runs", "An", "animal")
        assert units.segments.tolist() == [0, 0, 0, 1, 1]
        assert units.starts.tolist() == [0, 2, 6, 0, 3]
        assert [rejoined(units, part) for part in (0, 1)] == ["A dog runs.", "An animal"]

    def test_may_have_one_blank_text(self) -> None:
        assert segment(("A dog", "")).tokens == ("A", "dog")

    def test_cannot_have_a_context(self) -> None:
        with pytest.raises(InputError, match="Got a context for a pair of texts"):
            segment(("a", "b"), context="{text}")


class TestWindow:
    FORTY = " ".join(f"w{number:02}" for number in range(40))

    def test_flags_the_units_beyond(self) -> None:
        units = segment(self.FORTY, model=Tokenizer(limits=(14 * 4 - 1,)))
        assert units.seen.tolist() == [True] * 14 + [False] * 26

    def test_does_not_see_a_unit_that_it_cuts(self) -> None:
        units = segment("one two three", model=Tokenizer(limits=(6,)))
        assert units.seen.tolist() == [True, False, False]

    def test_differs_between_the_texts_of_a_pair(self) -> None:
        units = segment(("a b c", "d e"), model=Tokenizer(limits=(5, 1)))
        assert units.seen.tolist() == [True, True, True, True, False]

    def test_is_shared_with_the_context(self) -> None:
        units = segment("one two", model=Tokenizer(limits=(10,)), context="Rate: {text}!")
        assert units.seen.tolist() == [True, False]

    def test_must_see_a_unit(self) -> None:
        with pytest.raises(InputError, match="no unit that lies wholly within the model's window"):
            segment("A long sentence.", "sentence", model=Tokenizer(limits=(5,)))


@pytest.mark.parametrize("text", ["", "  \n\t", "\u200b", ("", " ")])
@pytest.mark.parametrize("choice", ["word", "sentence", [(0, 1)]])
def test_blank_texts_are_refused(text: str | tuple[str, str], choice: UnitChoice) -> None:
    with pytest.raises(
        InputError, match=r"Got an empty text; expected at least one unit\. Give a text"
    ):
        segment(text, choice)


@pytest.mark.parametrize("text", [None, b"film", ["a"], ("a", "b", "c")])
def test_only_texts_are_cut(text: object) -> None:
    with pytest.raises(InputError, match="expected one text or two"):
        segment(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", ["words", "", 5, None])
def test_unknown_choices_are_refused(choice: object) -> None:
    with pytest.raises(InputError, match="expected 'word', 'token', 'sentence', a function or spans"):
        segment("a film", choice)  # type: ignore[arg-type]
