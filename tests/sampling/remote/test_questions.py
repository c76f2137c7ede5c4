import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError
from piste.sampling.models._logprobs import (
    continuation_log_prob,
    echoed,
    first_alternatives,
    label_log_probs,
)
from piste.sampling.models._questions import (
    SENTIMENT_CHAT,
    SENTIMENT_DOCUMENT,
    Question,
    read_question,
)

PAIRS = Question("{first} => {second}?", ("yes", "no"))


def test_the_text_is_put_in_as_it_is() -> None:
    question = Question("<{text}>", ("a", "b"), system="S", examples=(("{x}", "b"),))
    assert question.asked("{text} {0} %s") == "<{text} {0} %s>"
    assert question.messages("t") == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "<{x}>"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "<t>"},
    ]
    assert question.document("t") == "S\n\n<{x}> b\n\n<t>"


def test_pairs() -> None:
    assert PAIRS.pairs
    assert PAIRS.asked(("{second}", "b")) == "{second} => b?"
    assert (
        Question("{second} <= {first}", ("y", "n")).asked(("{second}", "{first}"))
        == "{first} <= {second}"
    )


def test_defaults_agree_on_labels() -> None:
    assert SENTIMENT_CHAT.labels == SENTIMENT_DOCUMENT.labels
    assert SENTIMENT_DOCUMENT.document("x").endswith("negative\n\nText: x\nSentiment:")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "no text"}, "expected one {text}"),
        ({"prompt": "{text} {text}"}, "expected one {text}"),
        ({"prompt": "{first}"}, "for pairs"),
        ({"labels": ["a"]}, "at least two"),
        ({"labels": ["Good", " good"]}, "differ in more than case"),
        ({"labels": ["a", " "]}, "at least two"),
        ({"examples": [["t", "c"]]}, "Got the example 't' with 'c'"),
        ({"examples": [["t"]]}, "expected an object with"),
        ({"other": 1}, "expected an object with"),
    ],
)
def test_questions_are_checked(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"prompt": "{text}", "labels": ["a", "b"]} | fields), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_question(path, None, SENTIMENT_CHAT)


def test_where_a_question_comes_from(tmp_path: Path) -> None:
    question = Question("{text}?", ("a", "b"), "S", (("t", "a"),))
    assert read_question(question, ["x", "y"], SENTIMENT_CHAT) is question
    assert read_question("{text}?", ["x", "y"], SENTIMENT_CHAT) == Question("{text}?", ("x", "y"))
    assert read_question("{text}?", None, SENTIMENT_CHAT).labels == SENTIMENT_CHAT.labels
    (tmp_path / "q.txt").write_text("Ü {text}?\n", encoding="utf-8")
    assert read_question(str(tmp_path / "q.txt"), ["x", "y"], SENTIMENT_CHAT).prompt == "Ü {text}?"
    (tmp_path / "q.json").write_text(json.dumps(question.plain()), encoding="utf-8")
    assert read_question(tmp_path / "q.json", None, SENTIMENT_CHAT) == question
    with pytest.raises(InputError, match=r"neither words with \{text\} nor a file"):
        read_question(tmp_path / "absent.txt", None, SENTIMENT_CHAT)


def test_variants_are_added_up() -> None:
    tokens = [(" Good", 0.3), ("good", 0.2), ("▁GOOD", 0.1), ("Ġbad", 0.15), ("goodness", 0.05)]
    found = label_log_probs([(token, float(np.log(p))) for token, p in tokens], ["good", "bad"])
    np.testing.assert_allclose(np.exp(found.values), [0.6, 0.15])
    assert not found.bounded.any()
    assert found.cut is None


def test_labels_outside_are_bounded_by_the_smallest() -> None:
    found = label_log_probs([("good", -0.5), ("The", -4.0), ("A", -2.0)], ["good", "bad", "odd"])
    assert found.values.tolist() == [-0.5, -4.0, -4.0]
    assert found.bounded.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("tokens", "cut"),
    [
        ([("pos", -0.1), ("neg", -3.0)], "pos"),
        ([("pos", -0.1), (" positive", -0.2)], "pos"),
        ([("pos", -0.3), (" positive", -0.2)], None),
        ([("p", -0.1), ("x", -0.2)], None),  # one letter starts many words
    ],
)
def test_labels_of_several_tokens_show(tokens: list[tuple[str, float]], cut: str | None) -> None:
    assert label_log_probs(tokens, ["positive", "negative"]).cut == cut


def test_shapes_of_log_probabilities() -> None:
    content = [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "a", "logprob": -1}]}]
    assert first_alternatives({"logprobs": {"content": content}}) == [("a", -1.0)]
    assert first_alternatives({"logprobs": {"top_logprobs": [{"a": -1, "b": -2}]}}) == [
        ("a", -1.0),
        ("b", -2.0),
    ]
    without: list[dict[str, Any]] = [
        {},
        {"logprobs": None},
        {"logprobs": {"content": [{"top_logprobs": []}]}},
    ]
    for empty in without:
        assert first_alternatives(empty) == []
    assert echoed({"logprobs": None}) == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([("The", None), (" a", -1.0), (" b", -2.0), ("c", -4.0), (" gen", -8.0)], -6.0),
        ([("The", None), (" a", -1.0), (" bc", None)], None),
        ([("The", None), (" a b", -1.0), ("c", -4.0)], None),  # no token starts with the label
        ([("Other", None), (" bc", -4.0)], None),
        ([], None),
    ],
)
def test_continuations(tokens: list[tuple[str, float | None]], expected: float | None) -> None:
    assert continuation_log_prob(tokens, "The a", " bc") == expected
