"""Three ways to get label scores out of a language model's answers."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal, Protocol

import numpy as np

from piste._typing import FloatArray
from piste.sampling.models._logprobs import (
    continuation_log_prob,
    echoed,
    first_alternatives,
    label_log_probs,
    normal,
)
from piste.sampling.models._outputs import one_vs_rest_log_odds
from piste.sampling.models._questions import Question
from piste.sampling.models._samples import frequencies
from piste.sampling.models.endpoint import (
    BrokenAnswerError,
    Endpoint,
    Json,
    RefusedError,
    RejectedError,
)
from piste.sampling.models.limits import Gate
from piste.sampling.records import OutputKind, Text

_ONE_TOKEN = "Choose labels of one token each, such as 'yes' and 'no' or 'A' and 'B'"
_PROBE = "The capital of France is"
_ECHO_TOLERANCE = (
    0.1  # between two ways to ask a server for one number; a shift by a token is far above
)


@dataclass(frozen=True)
class Prompting:
    """How a question becomes a request.

    Parameters
    ----------
    model
        The name in the request.
    question
        What is asked.
    chat
        Whether as a chat or as a document to be completed.
    extra
        Further fields of each request, in the place of ours where they have the same name; None takes
        one out.
    """

    model: str
    question: Question
    chat: bool
    extra: dict[str, object]

    def body(self, text: Text, **fields: object) -> dict[str, Json]:
        """The request about one text."""
        asked: dict[str, object] = (
            {"messages": self.question.messages(text)}
            if self.chat
            else {"prompt": self.question.document(text)}
        )
        return self.fields(asked | fields)

    def fields(self, fields: dict[str, object]) -> dict[str, Json]:
        """Any request with the model's name and the user's fields."""
        merged = {"model": self.model} | fields | self.extra
        return {name: value for name, value in merged.items() if value is not None}


class Scoring(Protocol):
    """One of the ways."""

    @property
    def kind(self) -> OutputKind:
        """What the rows hold."""
        ...

    @property
    def output_tokens(self) -> int:
        """The most tokens that a text is answered with."""
        ...

    def body(self, text: Text) -> dict[str, Json]:
        """The first request about a text."""
        ...

    def row(self, text: Text) -> FloatArray:
        """Ask about a text; shape (n_labels,)."""
        ...


@dataclass
class FirstToken:
    """Log-odds between labels from the log-probabilities of the answer's first token.

    Each label's against the others, ``log p_l - log sum_{m != l} p_m``: what the model gives to words
    that are no label does not count.
    """

    endpoint: Endpoint
    gate: Gate
    prompting: Prompting
    top: int
    kind: OutputKind = "logit"
    output_tokens: int = 1
    _seen: bool = field(default=False, repr=False)

    def body(self, text: Text) -> dict[str, Json]:
        """One token, and what else it could have been."""
        asked = (
            {"logprobs": True, "top_logprobs": self.top}
            if self.prompting.chat
            else {"logprobs": self.top}
        )
        return self.prompting.body(text, max_tokens=1, temperature=0, **asked)

    def row(self, text: Text) -> FloatArray:
        """Ask about a text; NaN where the answer is empty or starts a label of several tokens."""
        labels = self.prompting.question.labels
        choice = choices(self.endpoint, self.body(text), self.output_tokens)[0]
        unknown = np.full(len(labels), np.nan)
        if _is_empty(choice):
            return unknown
        alternatives = first_alternatives(choice)
        if not alternatives:
            raise self._without()
        found = label_log_probs(alternatives, labels)
        if found.cut is not None:
            # Not the labels' fault if they have come whole before: then it is this text's.
            if self._seen:
                return unknown
            raise RejectedError(
                f"{self.endpoint.told(f'starts its answer with {found.cut!r}')} That is a part of one "
                f"of the labels {', '.join(labels)}. {_ONE_TOKEN}; or use endpoint='completions' and "
                "scoring='continuation', where the server can echo prompts."
            )
        if found.bounded.all() and not self._seen:
            likeliest = ", ".join(repr(token) for token, _ in alternatives[:5])
            raise RejectedError(
                f"{self.endpoint.told(f'starts its answer with {likeliest}, …')} None of the labels "
                f"{', '.join(labels)} is among the {len(alternatives)} likeliest. Ask for one of them "
                "in the question, or choose labels that the model answers with."
            )
        self._seen = self._seen or not found.bounded.all()
        if found.bounded.any():
            self.gate.note_bounded(int(found.bounded.sum()))
        row: FloatArray = one_vs_rest_log_odds(found.values[None])[0]
        return row

    def _without(self) -> BrokenAnswerError | RefusedError:
        problem = "answered without the log-probabilities that it was asked for"
        if self._seen:
            return BrokenAnswerError(self.endpoint.told(problem))
        return self.endpoint.refuse(
            problem,
            "It ignores logprobs or top_logprobs: use scoring='samples', or another server or model.",
        )


@dataclass
class Continuation:
    """Log-odds between labels of any number of tokens, each scored as the document's continuation.

    Needs a server whose completions can echo the prompt with its log-probabilities, which is checked
    first: some servers ignore it, and some are off by one token.
    """

    endpoint: Endpoint
    gate: Gate
    prompting: Prompting
    kind: OutputKind = "logit"
    _checked: bool = field(default=False, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @property
    def output_tokens(self) -> int:
        """One a label, and thrown away: some servers take none for no limit."""
        return len(self.prompting.question.labels)

    def body(self, text: Text) -> dict[str, Json]:
        """The document with each label behind it."""
        document = self.prompting.question.document(text)
        return self._echo([f"{document} {label}" for label in self.prompting.question.labels])

    def row(self, text: Text) -> FloatArray:
        """Ask about a text."""
        with self._lock:
            if not self._checked:
                self._check()
                self._checked = True
        document = self.prompting.question.document(text)
        found = choices(self.endpoint, self.body(text), self.output_tokens)
        found = sorted(found, key=lambda choice: int(choice.get("index", 0)))
        labels = self.prompting.question.labels
        if len(found) != len(labels):
            raise BrokenAnswerError(
                self.endpoint.told(f"sent {len(found)} completions for {len(labels)} prompts")
            )
        values = [
            continuation_log_prob(echoed(choice), document, f" {label}")
            for choice, label in zip(found, labels, strict=True)
        ]
        if None in values:
            raise RejectedError(self.endpoint.told("did not echo the prompt token by token"))
        row: FloatArray = one_vs_rest_log_odds(np.array([values], dtype=np.float64))[0]
        return row

    def _check(self) -> None:
        """Ask for one number in two ways: as the next token's, and as the echoed one's."""
        asked = self.prompting.fields(
            {"prompt": _PROBE, "max_tokens": 1, "temperature": 0, "logprobs": 5}
        )
        alternatives = first_alternatives(choices(self.endpoint, asked, 1)[0])
        token, direct = max(alternatives, key=lambda each: each[1], default=("", 0.0))
        answer = choices(self.endpoint, self._echo([_PROBE + token]), 1)[0]
        echo = continuation_log_prob(echoed(answer), _PROBE, token) if token else None
        if echo is None or abs(echo - direct) > _ECHO_TOLERANCE:
            problem = (
                "does not echo prompts with their log-probabilities"
                if echo is None
                else f"echoes wrong log-probabilities ({echo:.3f} for a token of {direct:.3f})"
            )
            raise self.endpoint.refuse(problem, f"{_ONE_TOKEN}, with scoring='logprobs'.")

    def _echo(self, prompts: list[str]) -> dict[str, Json]:
        return self.prompting.fields(
            {"prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
        )


@dataclass
class Samples:
    """How often the model answers with each label; see `piste.sampling.models._samples`.

    Answers that start with no label do not count.
    """

    endpoint: Endpoint
    gate: Gate
    prompting: Prompting
    n: int
    kind: OutputKind = "probability"
    words: int = 8
    _at_once: bool = field(default=True, repr=False)
    _drawn: dict[Text, list[str]] = field(default_factory=dict, repr=False)

    @property
    def output_tokens(self) -> int:
        """A few for each sample."""
        return self.n * self.words

    def body(self, text: Text) -> dict[str, Json]:
        """All samples in one request."""
        return self._body(text, self.n, 0)

    def row(self, text: Text) -> FloatArray:
        """Ask about a text; NaN where no answer starts with a label.

        Samples of a request that succeeded survive the failure of the next.
        """
        drawn = self._drawn.setdefault(text, [])
        while len(drawn) < self.n:
            wanted = self.n - len(drawn) if self._at_once else 1
            body = self._body(text, wanted, len(drawn))
            try:
                found = choices(self.endpoint, body, wanted * self.words)
            except RejectedError:
                if wanted == 1:
                    raise
                self._at_once = False  # servers without parallel slots take one sample a request
                continue
            drawn.extend(_content(choice) for choice in found)
        self._drawn.pop(text, None)
        labels = self.prompting.question.labels
        counts = [sum(_answers(said, label) for said in drawn) for label in labels]
        return frequencies(np.array(counts))

    def _body(self, text: Text, n: int, seed: int) -> dict[str, Json]:
        count = {"n": n} if n > 1 else {}
        return self.prompting.body(text, max_tokens=self.words, temperature=1, seed=seed, **count)


ScoringName = Literal["logprobs", "continuation", "samples"]


def choices(endpoint: Endpoint, body: object, output_tokens: int) -> list[dict[str, Json]]:
    """Send a request; its choices, at least one."""
    answer = endpoint.post(body, output_tokens)
    found = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise BrokenAnswerError(endpoint.told(f"answered without choices: {str(answer)[:200]}"))
    return found


def _is_empty(choice: dict[str, Json]) -> bool:
    """Whether the model ended its answer before the first token, and the server says so."""
    found = choice.get("logprobs")
    return isinstance(found, dict) and found.get("content") == [] and not _content(choice)


def _content(choice: dict[str, Json]) -> str:
    message = choice.get("message")
    said = message.get("content") if isinstance(message, dict) else choice.get("text")
    return said if isinstance(said, str) else ""


def _answers(said: str, label: str) -> bool:
    """Whether an answer starts with the label as a whole word."""
    said, label = normal(said).lstrip("\"'*("), normal(label)
    return said.startswith(label) and not said[len(label) : len(label) + 1].isalnum()
