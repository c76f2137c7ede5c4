"""From a text to a prompt: fixed words around it, examples before it, labels to answer with."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from piste._errors import InputError
from piste.sampling.records import Text

_KEYS = {"prompt", "labels", "system", "examples"}


@dataclass(frozen=True)
class Question:
    """What a language model is asked about each text; fixed context, never masked.

    Parameters
    ----------
    prompt
        The question with one ``{text}``, or for pairs with one ``{first}`` and one ``{second}``.
    labels
        The answers, at least two that differ in more than case.
    system
        A system message, or words in front of everything.
    examples
        Texts with the labels that they should be answered with.
    """

    prompt: str
    labels: tuple[str, ...]
    system: str | None = None
    examples: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        counts = {name: self.prompt.count(name) for name in ("{text}", "{first}", "{second}")}
        if counts not in (
            {"{text}": 1, "{first}": 0, "{second}": 0},
            {"{text}": 0, "{first}": 1, "{second}": 1},
        ):
            raise InputError(
                f"Got the prompt {self.prompt[:80]!r}; expected one {{text}}, or one {{first}} and one "
                "{second} for pairs."
            )
        distinct = {label.strip().casefold() for label in self.labels} - {""}
        if len(self.labels) < 2 or len(distinct) != len(self.labels):
            raise InputError(
                f"Got the labels {list(self.labels)}; expected at least two that differ in more than "
                "case and spaces."
            )
        for text, label in self.examples:
            if label not in self.labels:
                raise InputError(
                    f"Got the example {text[:40]!r} with {label!r}; expected one of the labels."
                )

    @property
    def pairs(self) -> bool:
        """Whether it is about pairs of texts."""
        return "{first}" in self.prompt

    def asked(self, text: Text) -> str:
        """The prompt with the text in it; the text's own braces stay as they are."""
        if isinstance(text, str):
            before, after = self.prompt.split("{text}")
            return before + text + after
        before, rest = self.prompt.split("{first}")
        if "{second}" in before:
            head, middle = before.split("{second}")
            return head + text[1] + middle + text[0] + rest
        middle, after = rest.split("{second}")
        return before + text[0] + middle + text[1] + after

    def messages(self, text: Text) -> list[dict[str, str]]:
        """The question as a chat."""
        chat = [] if self.system is None else [{"role": "system", "content": self.system}]
        for example, label in self.examples:
            chat.append({"role": "user", "content": self.asked(example)})
            chat.append({"role": "assistant", "content": label})
        return [*chat, {"role": "user", "content": self.asked(text)}]

    def document(self, text: Text) -> str:
        """The question as the start of a document that goes on with a space and a label."""
        start = "" if self.system is None else f"{self.system}\n\n"
        shots = "".join(f"{self.asked(example)} {label}\n\n" for example, label in self.examples)
        return start + shots + self.asked(text)

    def plain(self) -> dict[str, object]:
        """Everything that it says, for a fingerprint."""
        return asdict(self)


SENTIMENT_CHAT = Question(
    "Is the sentiment of this text negative or positive? Answer with one word.\n\nText: {text}",
    ("negative", "positive"),
)
"""What a chat model is asked by default."""

SENTIMENT_DOCUMENT = Question(
    "Text: {text}\nSentiment:",
    ("negative", "positive"),
    examples=(
        ("A tender, funny story with a wonderful cast.", "positive"),
        ("Flat characters, and an hour too long.", "negative"),
        ("I would happily watch it again tomorrow.", "positive"),
        ("A clumsy plot that never comes to life.", "negative"),
    ),
)
"""What a completions endpoint is asked by default: such models follow examples better than orders."""


def read_question(
    question: Question | str | Path, labels: Sequence[str] | None, default: Question
) -> Question:
    """A question from a file, from words with a placeholder, or as it is.

    Parameters
    ----------
    question
        A Question; words with ``{text}``; a text file of such words; or a ``.json`` file with
        ``prompt`` and ``labels``, and if wanted ``system`` and ``examples`` (pairs of text and label).
    labels
        The answers, where the question does not name them.
    default
        Whose labels are taken where neither does.

    Raises
    ------
    InputError
        If it cannot be read, or is not such a question.
    """
    if isinstance(question, Question):
        return question
    words = str(question)
    if isinstance(question, Path) or "{" not in words:
        try:
            words = Path(question).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(
                f"Got the question {str(question)!r}, which is neither words with {{text}} nor a file: "
                f"{error}."
            ) from error
        if Path(question).suffix == ".json":
            return _parsed(words, str(question))
        words = words.rstrip("\n")
    return Question(words, tuple(labels or default.labels))


def _parsed(content: str, path: str) -> Question:
    try:
        fields = json.loads(content)
        if not {"prompt", "labels"} <= fields.keys() <= _KEYS:
            raise ValueError(f"the fields {', '.join(fields)}")
        examples = tuple((str(text), str(label)) for text, label in fields.get("examples", ()))
        labels = tuple(map(str, fields["labels"]))
        return Question(str(fields["prompt"]), labels, fields.get("system"), examples)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"Got the question {path}: {error}; expected an object with 'prompt', 'labels' and at most "
            "'system' and 'examples'."
        ) from error
