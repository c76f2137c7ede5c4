"""Naive Bayes against scikit-learn, lexicons from files, refusals."""

from math import log
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from piste._errors import InputError
from piste.evaluation.lexicons import lower_words, naive_bayes_log_odds, read_lexicon

TEXTS = ["A good, good film", "a bad film", "Good fun!", "bad bad plot", "the plot"]
LABELS = [1, 0, 1, 0, 0]


def test_by_hand() -> None:
    """``good``: 3 times in class 1, never in class 0; ``film``: once each."""
    found = naive_bayes_log_odds(TEXTS, LABELS)
    assert found["1"]["good"] == pytest.approx(log(23 / 20))
    assert found["1"]["film"] == 0
    assert found["0"] == pytest.approx({word: -weight for word, weight in found["1"].items()})


@pytest.mark.parametrize("smoothing", [1.0, 20.0])
def test_with_class_sizes_it_is_multinomial_naive_bayes(smoothing: float) -> None:
    counts = CountVectorizer(analyzer=lower_words)
    reference = MultinomialNB(alpha=smoothing).fit(counts.fit_transform(TEXTS), LABELS)
    expected = reference.feature_log_prob_[1] - reference.feature_log_prob_[0]
    found = naive_bayes_log_odds(TEXTS, LABELS, smoothing=smoothing, class_sizes=True)["1"]
    words = counts.get_feature_names_out().tolist()
    assert [found[word] for word in words] == pytest.approx(expected.tolist(), abs=1e-12)


def test_more_text_of_a_class_moves_only_the_uncorrected() -> None:
    longer = ["a b " * 10, "a b"]
    plain = naive_bayes_log_odds(longer, ["x", "y"], smoothing=1)["x"]
    corrected = naive_bayes_log_odds(longer, ["x", "y"], smoothing=1, class_sizes=True)["x"]
    assert plain["a"] == pytest.approx(log(11 / 2))
    assert corrected["a"] == pytest.approx(0)


def test_of_three_classes_each_is_held_against_the_rest() -> None:
    found = naive_bayes_log_odds(["a", "b", "a c"], ["x", "y", "z"], smoothing=1)
    assert found["x"]["a"] == pytest.approx(log(2 / 2))
    assert found["y"]["a"] == pytest.approx(log(1 / 3))


@pytest.mark.parametrize("texts", [["", " "], ["", "a"]])
def test_blank_texts_have_no_words(texts: list[str]) -> None:
    found = naive_bayes_log_odds(texts, [0, 1], class_sizes=True)
    assert all(np.isfinite(list(words.values())).all() for words in found.values())


def test_what_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(InputError, match="1 labels"):
        naive_bayes_log_odds(["a", "b"], [1])
    with pytest.raises(InputError, match=r"2 labels \(1 different\)"):
        naive_bayes_log_odds(["a", "b"], [1, 1])
    for smoothing in (0, -1, np.nan, np.inf):
        with pytest.raises(InputError, match="above 0"):
            naive_bayes_log_odds(["a", "b"], [0, 1], smoothing=smoothing)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("word,weight\ngood,1.5\nnull,-2\n", {"good": 1.5, "null": -2}),
        ("word,weight,target\ngood,1,p\ngood,-1,n\n", {"p": {"good": 1}, "n": {"good": -1}}),
        ("word,weight\n", {}),
    ],
)
def test_lexicons_from_files(content: str, expected: object, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text(content, encoding="utf-8")
    assert read_lexicon(path) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("token,weight\na,1\n", "columns 'token', 'weight'"),
        ("word,weight\na,1\na,2\n", "'a' twice"),
        ("word,weight\na,high\n", "the weight 'high' of 'a'"),
        ("word,weight\na,nan\n", "finite"),
    ],
)
def test_lexicons_that_are_none(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_lexicon(path)
