"""Words with known weights: a lexicon from a file, or what naive Bayes learns from a corpus."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, log
from os import PathLike

from piste._errors import InputError
from piste.evaluation.explanations import read_table
from piste.sampling.segment import segment

Lexicon = Mapping[str, float]
"""Weights by word."""

ByLabel = dict[str, dict[str, float]]
"""A lexicon for each label."""


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case, cut as units are; none of a blank text.

    >>> lower_words("A GOOD film.")
    ['a', 'good', 'film']
    """
    return [token.lower() for token in segment(text).tokens] if text.strip() else []


def naive_bayes_log_odds(
    texts: Sequence[str],
    labels: Sequence[object],
    *,
    smoothing: float = 20.0,
    class_sizes: bool = False,
    tokens: Callable[[str], Iterable[str]] = lower_words,
) -> ByLabel:
    r"""Log-odds of each word for each label, from its counts: a reference without any model.

    ``w_c(t) = log((n_c(t) + a) / (n_rest(t) + a))`` with n the occurrences of word t in all texts of label
    c, or of every other label, and a the smoothing. With ``class_sizes`` minus ``log((N_c + a V) /
    (N_rest + a V))``, N the occurrences of all words and V the number of words, so that a label with more
    text gets no larger weights: the multinomial naive Bayes of two labels.

    Parameters
    ----------
    texts, labels
        A corpus, one label per text; at least two different labels.
    smoothing
        Above 0.
    class_sizes
        Whether to correct for the amount of text of each label.
    tokens
        From a text to its words, as they are compared with the words of the attributions.

    Returns
    -------
    dict
        By label (as text), then word; weights in log-odds. Of two labels one is minus the other.

    Raises
    ------
    InputError
        If there are not as many labels as texts, fewer than two labels, or the smoothing is not above 0.

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536 (smoothing 20, no correction).

    Examples
    --------
    >>> found = naive_bayes_log_odds(["good good film", "bad film"], ["yes", "no"], smoothing=1)
    >>> {word: round(weight, 3) for word, weight in found["yes"].items()}
    {'good': 1.099, 'film': 0.0, 'bad': -0.693}
    """
    names = [str(label) for label in labels]
    if len(names) != len(texts) or len(set(names)) < 2:
        raise InputError(
            f"Got {len(names)} labels ({len(set(names))} different) for {len(texts)} texts; expected one "
            "each, of at least two labels."
        )
    if not (smoothing > 0 and isfinite(smoothing)):
        raise InputError(f"Got smoothing={smoothing}; expected a number above 0, such as 20.")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for text, name in zip(texts, names, strict=True):
        counts[name].update(tokens(text))
    total = sum(counts.values(), Counter())
    extra = smoothing * len(total)

    def log_odds(own: int, everything: int, added: float) -> float:
        return log(own + added) - log(everything - own + added)

    found: ByLabel = {}
    for name, own in counts.items():
        size = log_odds(own.total(), total.total(), extra) if class_sizes and total else 0.0
        found[name] = {word: log_odds(own[word], total[word], smoothing) - size for word in total}
    return found


def read_lexicon(path: str | PathLike[str]) -> dict[str, float] | ByLabel:
    """Weights from a CSV or TSV file with columns ``word``, ``weight`` and, for one per label, ``target``.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column, has a weight that is no number, or a word twice.
    """
    table = read_table(path)
    if not {"word", "weight"} <= set(table.columns):
        raise InputError(
            f"Got a lexicon with columns {', '.join(map(repr, table.columns))}; expected 'word', 'weight' "
            "and perhaps 'target'."
        )
    targets = table["target"] if "target" in table else [""] * len(table)
    found: ByLabel = {}
    for target, word, weight in zip(targets, table["word"], table["weight"], strict=True):
        words = found.setdefault(str(target), {})
        if word in words:
            raise InputError(f"Got the word {word!r} twice; expected one weight each.")
        words[str(word)] = _weight(weight, word)
    return found if "target" in table else found.get("", {})


def _weight(written: object, word: object) -> float:
    try:
        number = float(str(written))
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise InputError(f"Got the weight {written!r} of {word!r}; expected a finite number.")
    return number
