from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piste._errors import InputError
from piste._typing import BoolArray
from piste.sampling.masking import Masking, choose_masking, render, split_context
from piste.sampling.models.protocol import Scores
from piste.sampling.records import Hidden, Query, Text, Units
from piste.sampling.segment import segment

REMOVE = choose_masking("remove")
ATTENTION = choose_masking("attention")
DOTS = choose_masking("…")


@dataclass(frozen=True)
class Tokenizer:
    """A model that knows its mask token and splits words after three letters."""

    mask_token: str | None = "[MASK]"
    fingerprint: str = "fake"

    def score(self, inputs: Sequence[Query]) -> Scores:
        raise NotImplementedError

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [(start, min(start + 3, end)) for start, end in words(text) if start < end]

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        return tuple(map(len, parts))


def words(text: str) -> list[tuple[int, int]]:
    """Spans that start every three letters of a word, and end with the word."""
    units = segment(text)
    ends = zip(units.starts.tolist(), units.ends.tolist(), strict=True)
    return [(start, last) for first, last in ends for start in range(first, last, 3)]


def masks(*rows: str) -> BoolArray:
    """One row per string, ``#`` where the unit is kept."""
    return np.array([[letter == "#" for letter in row] for row in rows])


def cut_off(text: Text, n_seen: int) -> Units:
    """The words of a text of which the window sees only the first."""
    units = segment(text)
    return replace(units, seen=np.arange(units.n_units) < n_seen)


def test_removal_leaves_the_gaps_as_they_are() -> None:
    units = segment("A  gripping,\tsad film.")
    assert render(units, masks("####", "#-##", "----", "-###"), REMOVE) == [
        "A  gripping,\tsad film.",
        "A  ,\tsad film.",
        "  ,\t .",
        "  gripping,\tsad film.",
    ]


def test_a_replacement_stands_where_the_unit_stood() -> None:
    units = segment("good good bad")
    unknown = choose_masking("[UNK]")
    assert render(units, masks("#-#", "---"), unknown) == ["good [UNK] bad", "[UNK] [UNK] [UNK]"]


def test_the_mask_token_is_the_models_own() -> None:
    masking = choose_masking("mask-token", Tokenizer("<mask>"))
    assert masking == Masking("mask-token", "<mask>")
    assert render(segment("a film"), masks("#-"), masking) == ["a <mask>"]


def test_hidden_units_keep_their_place() -> None:
    text = "A gripping film."
    queries = render(segment(text), masks("###", "#--"), ATTENTION)
    assert queries[0] is text
    assert queries[1] == Hidden(text, ((0, 2, 10), (0, 11, 15)))


@pytest.mark.parametrize("masking", [REMOVE, DOTS, ATTENTION])
@pytest.mark.parametrize("text", ["ok 😀!", "আমি বাংলায় গান গাই", " \r\ne\u0301 x\u0301  ", ("a\n", " b ")])
def test_the_unmasked_query_is_the_very_text(text: Text, masking: Masking) -> None:
    units = segment(text)
    (query,) = render(units, np.ones((1, units.n_units), dtype=np.bool_), masking)
    assert query == text


@given(
    st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("a \u0301\u200d😀🇩כ"), max_size=12
    )
)
@settings(max_examples=200, deadline=None)
def test_only_hidden_units_change(text: str) -> None:
    text += "x"
    units = segment(text)
    one_hidden = ~np.eye(units.n_units, dtype=np.bool_)
    expected = [
        text[:start] + "…" + text[end:]
        for start, end in zip(units.starts.tolist(), units.ends.tolist(), strict=True)
    ]
    assert render(units, one_hidden, DOTS) == expected
    assert render(units, ~one_hidden[:0], DOTS) == []


def test_subwords_never_change_their_number() -> None:
    units = segment("i ate raisins today", "token", model=Tokenizer())
    assert units.tokens == ("i", "ate", "rai", "sin", "s", "tod", "ay")
    assert render(units, masks("##--#--", "###--##"), REMOVE) == ["i ate s ", "i ate rai today"]


def test_text_outside_the_spans_is_fixed() -> None:
    units = segment("The plot is thin but the cast is great", [(4, 8), (25, 29)])
    assert render(units, masks("--", "-#"), DOTS) == [
        "The … is thin but the … is great",
        "The … is thin but the cast is great",
    ]


class TestPairs:
    PAIR = ("A dog runs.", "An animal")

    def test_stay_pairs(self) -> None:
        units = segment(self.PAIR)
        assert render(units, masks("#####", "#-##-", "-----"), DOTS) == [
            self.PAIR,
            ("A … runs.", "An …"),
            ("… … ….", "… …"),
        ]

    def test_hide_spans_of_their_segments(self) -> None:
        assert render(segment(self.PAIR), masks("#-##-"), ATTENTION) == [
            Hidden(self.PAIR, ((0, 2, 5), (1, 3, 9)))
        ]

    def test_keep_a_text_without_units(self) -> None:
        units = segment(self.PAIR, [(1, 3, 9)])
        assert render(units, masks("-"), DOTS) == [("A dog runs.", "An …")]

    def test_may_list_their_spans_in_any_order_of_segments(self) -> None:
        units = segment(self.PAIR, [(1, 3, 9), (0, 2, 5)])
        assert render(units, masks("-#", "#-"), DOTS) == [
            ("A dog runs.", "An …"),
            ("A … runs.", "An animal"),
        ]

    def test_lose_what_the_window_cuts_off_each(self) -> None:
        units = replace(segment(self.PAIR), seen=np.array([True, True, False, True, False]))
        assert render(units, masks("###", "#--"), DOTS) == [self.PAIR, ("A … ", "… ")]


class TestWindow:
    def test_cannot_reach_the_tail_by_a_shorter_text(self) -> None:
        units = cut_off("one two, three four.", 2)
        assert render(units, masks("##", "-#", "--"), REMOVE) == [
            "one two, three four.",
            " two, ",
            " , ",
        ]

    def test_leaves_hidden_texts_whole(self) -> None:
        units = cut_off("one two three", 1)
        assert render(units, masks("-"), ATTENTION) == [Hidden("one two three", ((0, 0, 3),))]

    def test_cuts_the_end_of_the_context_too(self) -> None:
        units = cut_off("one two three", 2)
        assert render(units, masks("##", "#-"), DOTS, "Rate: {text} Answer:") == [
            "Rate: one two three Answer:",
            "Rate: one … ",
        ]


class TestContext:
    CHAT = '<|user|>{"rate": "{text}"} {0} {<|end|>'

    def test_surrounds_every_query(self) -> None:
        assert render(segment("A film"), masks("##", "-#"), DOTS, self.CHAT) == [
            '<|user|>{"rate": "A film"} {0} {<|end|>',
            '<|user|>{"rate": "… film"} {0} {<|end|>',
        ]

    def test_shifts_hidden_spans(self) -> None:
        (query,) = render(segment("A film"), masks("#-"), ATTENTION, self.CHAT)
        assert isinstance(query, Hidden)
        assert isinstance(query.text, str)
        ((_, start, end),) = query.spans
        assert query.text[start:end] == "film"

    def test_may_be_explained_by_a_text_that_looks_like_it(self) -> None:
        assert render(segment("say {text}"), masks("-#"), DOTS, "<{text}>") == ["<… {text}>"]

    def test_is_absent_by_default(self) -> None:
        assert split_context(None, "a") == ("", "")

    @pytest.mark.parametrize(
        ("context", "times"), [("Rate this:", 0), ("{text} {text}", 2), ("{{Text}}", 0)]
    )
    def test_has_one_place_for_the_text(self, context: str, times: int) -> None:
        with pytest.raises(InputError, match=rf"'\{{text\}}' in {times} places; expected one\. Write"):
            render(segment("A film"), masks("##"), REMOVE, context)

    def test_is_refused_for_pairs(self) -> None:
        with pytest.raises(InputError, match="Got a context for a pair of texts; expected one text"):
            render(segment(("A", "film")), masks("##"), REMOVE, "{text}")


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones((2, 3), dtype=np.bool_),
        np.ones(2, dtype=np.bool_),
        np.ones((1, 2)),
        np.ones((1, 1), dtype=np.bool_),
    ],
)
def test_masks_must_fit_the_units(wrong: BoolArray) -> None:
    with pytest.raises(
        InputError, match=r"expected a boolean array \(n_masks, 2\)\. Give one column per"
    ):
        render(segment("A film"), wrong, REMOVE)


def test_unseen_units_have_no_column() -> None:
    with pytest.raises(InputError, match=r"expected a boolean array \(n_masks, 1\)"):
        render(cut_off("A film", 1), masks("##"), REMOVE)


class TestChoice:
    @pytest.mark.parametrize(
        ("name", "substitute"), [("remove", ""), ("attention", None), ("[UNK]", "[UNK]"), (" ", " ")]
    )
    def test_needs_no_model(self, name: str, substitute: str | None) -> None:
        assert choose_masking(name) == Masking(name, substitute)

    def test_can_be_one_of_the_three_words_by_hand(self) -> None:
        assert render(segment("a film"), masks("#-"), Masking("word", "remove")) == ["a remove"]

    @pytest.mark.parametrize("model", [None, Tokenizer(None), Tokenizer("")])
    def test_of_the_mask_token_needs_one(self, model: Tokenizer | None) -> None:
        with pytest.raises(InputError, match=r"without a known mask token.*Use masking='remove'"):
            choose_masking("mask-token", model)

    def test_is_not_empty(self) -> None:
        with pytest.raises(InputError, match=r"Got an empty masking; .* Use 'remove' to delete"):
            choose_masking("")

    @pytest.mark.parametrize(
        ("slip", "meant"),
        [("Remove", "remove"), ("mask_token", "mask-token"), (" ATTENTION ", "attention")],
    )
    def test_is_not_misspelt(self, slip: str, meant: str) -> None:
        with pytest.raises(InputError, match=f"expected '{meant}' or other text. Use '{meant}'"):
            choose_masking(slip)


@pytest.mark.parametrize("masking", [REMOVE, ATTENTION])
def test_many_masks_are_fast(masking: Masking) -> None:
    units = segment(" ".join(["word"] * 100))
    drawn = np.random.default_rng(0).random((5000, 100)) < 0.5
    start = perf_counter()
    assert len(render(units, drawn, masking)) == 5000
    assert perf_counter() - start < 1.0  # 0.05 s on an idle core
