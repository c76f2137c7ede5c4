"""Language models behind OpenAI's API, or a server that speaks it, as classifiers."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from piste._errors import InputError
from piste.sampling.models._questions import (
    SENTIMENT_CHAT,
    SENTIMENT_DOCUMENT,
    Question,
    read_question,
)
from piste.sampling.models._samples import of_samples
from piste.sampling.models._scoring import (
    Continuation,
    FirstToken,
    Prompting,
    Samples,
    Scoring,
    ScoringName,
)
from piste.sampling.models.endpoint import Endpoint, Json, estimated_tokens
from piste.sampling.models.http import http_client, require_remote, shown
from piste.sampling.models.limits import Gate, Limits, Price, Tokens
from piste.sampling.models.protocol import Scores
from piste.sampling.models.remote import Concurrent, plain, remote
from piste.sampling.records import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
EndpointName = Literal["chat", "completions"]


class LanguageModel:
    """A question about each text to a language model; `remote` makes it a model to work with.

    Parameters
    ----------
    scoring
        How answers become numbers.
    question
        What is asked.
    fingerprint
        What identifies the model.
    """

    request_size = 1

    def __init__(self, scoring: Scoring, question: Question, fingerprint: str) -> None:
        self._scoring = scoring
        self._question = question
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        """Address, model, question and whatever else the answers depend on; no key."""
        return self._fingerprint

    def size(self, inputs: Sequence[Query]) -> tuple[int, Tokens]:
        """One request a text, and its tokens."""
        bodies = [self._scoring.body(text) for text in self._texts(inputs)]
        sent = sum(estimated_tokens(body, 0).input for body in bodies)
        return len(bodies), Tokens(sent, self._scoring.output_tokens * len(bodies))

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Ask about each text."""
        rows = [self._scoring.row(text) for text in self._texts(inputs)]
        return Scores(np.stack(rows), self._question.labels, self._scoring.kind)

    def _texts(self, inputs: Sequence[Query]) -> list[str | tuple[str, str]]:
        what = "a question about pairs" if self._question.pairs else "a question about a text"
        texts = [plain(each, pairs=self._question.pairs, what=what) for each in inputs]
        if self._question.pairs and not all(isinstance(text, tuple) for text in texts):
            raise InputError("Got a single text for a question about pairs; expected pairs of texts.")
        return texts


def open_openai(  # noqa: PLR0913 - every option of a remote model is named once, here
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    endpoint: EndpointName = "chat",
    question: Question | str | Path | None = None,
    labels: Sequence[str] | None = None,
    scoring: ScoringName = "logprobs",
    top: int = 20,
    samples: int = 20,
    extra: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    concurrency: int = 8,
    timeout: float = 60.0,
    retries: int = 6,
    rpm: float | None = None,
    tpm: float | None = None,
    price: Price | Sequence[float] | None = None,
    max_cost: float | None = None,
    max_seconds: float | None = None,
    transport: "httpx.BaseTransport | None" = None,
) -> Concurrent:
    """Open a language model of OpenAI's API, or of any server that speaks it.

    Parameters
    ----------
    model
        The name in the request.
    base_url
        By default the environment's ``OPENAI_BASE_URL``, else OpenAI's own.
    api_key
        By default the environment's ``OPENAI_API_KEY``. A server of one's own may need none.
    endpoint
        ``chat`` or ``completions``.
    question
        What is asked about each text, see `piste.sampling.models._questions.read_question`; by default
        whether its sentiment is negative or positive.
    labels
        The answers, where the question does not name them.
    scoring
        ``logprobs``: from the log-probabilities of the answer's first token. ``continuation``: of
        labels of several tokens, on servers whose completions echo. ``samples``: how often each comes.
    top
        How many alternatives of the first token to ask for; OpenAI allows 20, its completions 5.
    samples
        How many answers ``samples`` draws for each text; the fewer, the wider the intervals.
    extra
        Further fields of each request; None takes one of ours out, as in
        ``{"max_tokens": None, "max_completion_tokens": 1}``.
    headers
        Sent along; taken for secrets.
    concurrency, timeout, retries, rpm, tpm, price, max_cost, max_seconds
        See `piste.sampling.models.limits.Limits`.
    transport
        An httpx transport in the place of the network.

    Raises
    ------
    InputError
        If the client is missing, or an option cannot be used. Nothing is sent yet.
    """
    require_remote("An OpenAI model", "openai", "httpx", "tenacity")
    limits = Limits(concurrency, timeout, retries, rpm, tpm, max_cost, max_seconds, price)
    for name, value, allowed in (
        ("endpoint", endpoint, get_args(EndpointName)),
        ("scoring", scoring, get_args(ScoringName)),
    ):
        if value not in allowed:
            raise InputError(f"Got {name}={value!r}; expected {', '.join(map(repr, allowed))}.")
    if scoring == "continuation" and endpoint == "chat":
        raise InputError("Got scoring='continuation'; expected endpoint='completions' beside it.")
    if top < 1 or samples < 1:
        raise InputError(f"Got top={top} and samples={samples}; expected at least 1.")
    default = SENTIMENT_CHAT if endpoint == "chat" else SENTIMENT_DOCUMENT
    asked = read_question(question or default, labels, default)
    if question is None and labels is not None and set(labels) != set(default.labels):
        raise InputError(f"Got labels={list(labels)!r} without a question; expected question= too.")
    gate = Gate(limits)
    connection = _connection(gate, base_url, api_key, headers, transport, chat=endpoint == "chat")
    prompting = Prompting(model, asked, endpoint == "chat", dict(extra or {}))
    ways: dict[str, Callable[[], Scoring]] = {
        "logprobs": lambda: FirstToken(connection, gate, prompting, top),
        "continuation": lambda: Continuation(connection, gate, prompting),
        "samples": lambda: Samples(connection, gate, prompting, samples),
    }
    # Readable at the front, and everything that the answers depend on in the hash.
    state = [endpoint, asked.plain(), scoring, top, samples, prompting.extra]
    digest = hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()[:16]
    fingerprint = f"openai:{model}@{connection.shown}#{digest}"
    if scoring == "samples":
        fingerprint = of_samples(fingerprint, samples)
    return remote(LanguageModel(ways[scoring](), asked, fingerprint), gate)


def _connection(
    gate: Gate,
    base_url: str | None,
    api_key: str | None,
    headers: Mapping[str, str] | None,
    transport: "httpx.BaseTransport | None",
    *,
    chat: bool,
) -> Endpoint:
    """Requests as the official client sends them; waiting, repeating and reading are ours."""
    import httpx
    import openai

    url = base_url or os.environ.get(URL_VARIABLE) or BASE_URL
    key = api_key or os.environ.get(KEY_VARIABLE)
    if not key and url == BASE_URL:
        raise InputError(
            f"Got no key for {BASE_URL}; expected it in the environment's {KEY_VARIABLE}, or another "
            "server as base_url=."
        )
    parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
        raise InputError(
            f"Got the base_url '{shown(parsed)}'; expected one such as 'http://localhost:8080/v1', "
            "without login or query. Pass a key as api_key=, anything else as headers={...}."
        )
    client = openai.OpenAI(api_key=key or "none", base_url=url, max_retries=0)
    # What the official client says of itself and of whose account it is, asked once: its own methods
    # build and check the same request anew for each text, which takes as long as all the rest.
    given: dict[str, object] = {**client.default_headers, **client.auth_headers}
    sent = {name: value for name, value in given.items() if isinstance(value, str)} | dict(
        headers or {}
    )
    route = f"{str(client.base_url).rstrip('/')}/{'chat/completions' if chat else 'completions'}"
    client.close()
    carrier = http_client(gate.limits, sent, transport)

    def send(body: Json) -> httpx.Response:
        return carrier.post(route, json=body)

    secrets = [key or "", *(headers or {}).values()]
    return Endpoint(send, gate, shown=shown(parsed), secrets=secrets, close=carrier.close)
