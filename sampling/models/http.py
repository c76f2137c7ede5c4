"""Text-classification servers behind HTTP, whatever their JSON looks like."""

import hashlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from piste._errors import InputError, PisteError
from piste._typing import FloatArray
from piste.sampling.models._foreign import abbreviated
from piste.sampling.models._outputs import Head, check_output_kind, default_labels
from piste.sampling.models._shapes import (
    Classify,
    InferenceEndpoint,
    OpenInference,
    Row,
    Shape,
    SystemOne,
    Tei,
)
from piste.sampling.models._template import Template, read_template
from piste.sampling.models.endpoint import BrokenAnswerError, Endpoint, estimated_tokens
from piste.sampling.models.limits import Gate, Limits, Price, Tokens
from piste.sampling.models.protocol import Scores
from piste.sampling.models.remote import Concurrent, plain, remote
from piste.sampling.records import OutputKind, Query

if TYPE_CHECKING:
    import httpx

SHAPES = ("tei", "hf", "classify", "v2", "systemone", "template")
KEY_VARIABLE = "PISTE_API_KEY"
_BY_PATH = (
    (re.compile(r"/predict/?$"), "tei"),
    (re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer/?$"), "v2"),
    (re.compile(r"/classify/?$"), "classify"),
    (re.compile(r"/systemone/?$"), "systemone"),
    (re.compile(r"/hf-inference/models/.+$"), "hf"),
)
_LOOKS_SECRET = re.compile(r"key|token|secret|sig|code|passw", re.IGNORECASE)
_SMALLEST = 1e-12  # stands for a probability that is known to be zero to the server's digits


class HttpClassifier:
    """One request to a classification server; `remote` makes it a model to work with.

    Parameters
    ----------
    endpoint
        Where requests go.
    gate
        Where bounded labels are counted.
    shape
        What is sent and how the answer is read.
    labels
        The outputs in the order wanted; None takes the classes' own order, or sorts the names.
    kind
        ``probability``, ``logit`` (asks for logits; one-vs-rest log-odds) or ``raw``.
    multi_label
        Whether the labels exclude each other (False) or each has its own log-odds.
    fingerprint
        What identifies the model.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        gate: Gate,
        *,
        shape: Shape,
        labels: tuple[str, ...] | None,
        kind: OutputKind,
        multi_label: bool,
        fingerprint: str,
    ) -> None:
        self._endpoint = endpoint
        self._gate = gate
        self._shape = shape
        self._labels = labels
        self._kind: OutputKind = kind
        self._multi_label = multi_label
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        """Address, shape, labels and whatever else the answers depend on; no key."""
        return self._fingerprint

    @property
    def request_size(self) -> int:
        """The most texts of one request."""
        return self._shape.request_size

    def size(self, inputs: Sequence[Query]) -> tuple[int, Tokens]:
        """One request, and its tokens."""
        return 1, estimated_tokens(self._body(inputs), 0)

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Answer the texts of one request.

        Raises
        ------
        BrokenAnswerError
            If the answer is not one row of named numbers per text.
        """
        answer = self._endpoint.post(self._body(inputs))
        try:
            rows = self._shape.rows(answer)
        except (PisteError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise BrokenAnswerError(
                self._wrong(answer, f"of another form ({error})", inputs)
            ) from error
        if len(rows) != len(inputs):
            problem = f"with {len(rows)} rows for {len(inputs)} texts"
            raise BrokenAnswerError(self._wrong(answer, problem, inputs))
        labels = self._labels or _labels_of(rows[0])
        try:
            values = np.array([self._in_order(row, labels) for row in rows], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BrokenAnswerError(
                self._wrong(answer, f"of another form ({error})", inputs)
            ) from error
        return self._scores(values, labels)

    def _body(self, inputs: Sequence[Query]) -> object:
        texts = [plain(each, pairs=self._shape.pairs, what="this server") for each in inputs]
        return self._shape.body(texts, logits=self._kind == "logit")

    def _in_order(self, row: Row, labels: Sequence[str]) -> list[float]:
        """One row's numbers, with bounds where the server left labels out."""
        if not isinstance(row, Mapping):
            if len(row) != len(labels):
                raise ValueError(f"{len(row)} numbers for the labels {', '.join(labels)}")
            return [_number(each) for each in row]
        known = {name: _number(number) for name, number in row.items()}
        unknown = [name for name in known if name not in labels]
        missing = [name for name in labels if name not in known]
        if unknown or len(missing) == len(labels):
            raise ValueError(f"labels {', '.join(known)} instead of {', '.join(labels)}: pass labels=")
        if missing:
            self._gate.note_bounded(len(missing))
        bound = _bound(list(known.values()), len(missing), self._kind, self._multi_label)
        return [known.get(name, bound) for name in labels]

    def _scores(self, values: FloatArray, labels: tuple[str, ...]) -> Scores:
        if self._kind != "logit":
            return Scores(values, labels, self._kind)
        problem = "multi_label_classification" if self._multi_label else None
        return Head(dict(enumerate(labels)), problem, "logit").scores(values)

    def _wrong(self, answer: object, problem: str, inputs: Sequence[Query]) -> str:
        said = json.dumps(answer, ensure_ascii=False)
        told = self._endpoint.told(f"answered {problem}: {said[:200]}")
        return (
            f"{told} Expected one row of scores per text (the first is {abbreviated(inputs[0])}); is "
            "shape= the right one?"
        )


def open_http(  # noqa: PLR0913 - every option of a remote model is named once, here
    scheme: str,
    address: str,
    *,
    shape: str | None = None,
    labels: Sequence[str] | None = None,
    kind: OutputKind | None = None,
    multi_label: bool = False,
    model_name: str | None = None,
    question: str | None = None,
    output: str | None = None,
    template: str | Path | None = None,
    api_key: str | None = None,
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
    """Open a text-classification server.

    Parameters
    ----------
    scheme, address
        The full URL, cut at its first colon: that of the route, not of the server.
    shape
        ``tei`` (Text Embeddings Inference, /predict), ``hf`` (Hugging Face inference endpoints),
        ``classify`` (infinity-emb and vLLM), ``v2`` (Open Inference Protocol), ``systemone`` or
        ``template``. Told from the URL's path where that leaves no doubt.
    labels
        Names of the outputs in the order wanted. Needed where the server sends only the best ones, and
        by ``systemone``, whose options they are.
    kind
        ``probability`` by default; ``logit`` asks the server for logits and gives one-vs-rest log-odds,
        which lose no digits where a probability saturates; ``raw`` leaves the numbers as they are.
    multi_label
        True where the labels do not exclude each other.
    model_name
        The model's name in the request, where the server wants one.
    question
        What ``systemone`` is asked about each text.
    output
        The tensor of a ``v2`` answer that holds the scores, where there are several.
    template
        A JSON file that declares another protocol; see `piste.sampling.models._template`.
    api_key
        Sent as a bearer token; by default the environment's ``PISTE_API_KEY``.
    headers
        Sent along; taken for secrets.
    concurrency, timeout, retries, rpm, tpm, price, max_cost, max_seconds
        See `piste.sampling.models.limits.Limits`.
    transport
        An httpx transport in the place of the network.

    Raises
    ------
    InputError
        If httpx or tenacity is missing, or an option cannot be used. Nothing is sent yet.
    """
    require_remote("An HTTP model", "httpx", "tenacity")
    limits = Limits(concurrency, timeout, retries, rpm, tpm, max_cost, max_seconds, price)
    url, login = _url(f"{scheme}:{address}")
    check_output_kind(kind)
    labels = _checked_labels(labels)
    chosen = _shape(url, shape, labels, template, model=model_name, question=question, output=output)
    if kind == "logit" and not chosen.logits:
        raise InputError("Got kind='logit' for a server that answers probabilities; leave kind out.")
    if isinstance(chosen, Template):
        kind = kind or chosen.kind
        labels = labels or (chosen.labels if isinstance(chosen.labels, tuple) else None)
    key = api_key or os.environ.get(KEY_VARIABLE)
    sent = {"Authorization": f"Bearer {key}"} if key else login
    gate = Gate(limits)
    client = http_client(limits, sent | dict(headers or {}), transport)
    endpoint = Endpoint(
        lambda body: client.post(url, json=body),
        gate,
        shown=shown(url),
        secrets=[key or "", *(headers or {}).values(), *login.values()],
        close=client.close,
    )
    state = [repr(chosen), labels, kind, multi_label, url.query.decode()]
    digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]
    classifier = HttpClassifier(
        endpoint,
        gate,
        shape=chosen,
        labels=labels,
        kind=kind or "probability",
        multi_label=multi_label,
        fingerprint=f"{shown(url)}#{digest}",
    )
    return remote(classifier, gate)


def http_client(
    limits: Limits, headers: Mapping[str, str], transport: "httpx.BaseTransport | None"
) -> "httpx.Client":
    """A client with as many connections as requests may be under way; only here do keys live."""
    import httpx

    pool = httpx.Limits(
        max_connections=limits.concurrency, max_keepalive_connections=limits.concurrency
    )
    return httpx.Client(
        headers=dict(headers),
        timeout=limits.timeout,
        limits=pool,
        transport=transport,
    )


def require_remote(what: str, *modules: str) -> None:
    """Refuse what the optional dependencies are missing for."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(
            f"{what} needs {' and '.join(missing)}; install {'it' if len(missing) == 1 else 'them'} "
            "with: pip install 'piste[api]'"
        )


def shown(url: "httpx.URL") -> str:
    """An address without login, query or fragment."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None))


def _url(address: str) -> "tuple[httpx.URL, dict[str, str]]":
    """The URL without its login, and the login as a header."""
    import httpx

    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise InputError(f"Got an address that is no URL: {error}.") from error
    if not url.host or url.path in ("", "/"):
        raise InputError(
            f"Got '{shown(url)}'; expected the full URL of a route, such as "
            "'http://localhost:8080/predict'."
        )
    for name in url.params:
        if _LOOKS_SECRET.search(name):
            raise InputError(
                f"Got an address with the parameter {name!r}, which looks like a key and would show in "
                "logs. Pass it as headers={...} or api_key=."
            )
    login = {}
    if url.userinfo:
        words = b64encode(f"{url.username}:{url.password}".encode()).decode()
        login = {"Authorization": f"Basic {words}"}
    return url.copy_with(username=None, password=None, fragment=None), login


def _shape(
    url: "httpx.URL",
    name: str | None,
    labels: tuple[str, ...] | None,
    template: str | Path | None,
    *,
    model: str | None,
    question: str | None,
    output: str | None,
) -> Shape:
    """The shape asked for, or the one that the path names beyond doubt."""
    if name is None:
        found = (each for pattern, each in _BY_PATH if pattern.search(url.path))
        name = "template" if template is not None else next(found, None)
    if name not in SHAPES:
        raise InputError(
            f"Got shape={name!r} for '{shown(url)}'; expected one of {', '.join(map(repr, SHAPES))}: "
            "what the server is sent is not guessed."
        )
    if (name == "template") != (template is not None):
        raise InputError(f"Got shape={name!r}; expected shape='template' and template=FILE together.")
    if name == "systemone" and (not question or not labels):
        raise InputError(
            "Got no question or no labels for a System One server; expected question='What is the "
            "sentiment?' and labels=['negative', 'positive']."
        )
    if name == "template":
        assert template is not None
        return read_template(template)
    shapes: dict[str, Shape] = {
        "tei": Tei(),
        "hf": InferenceEndpoint(),
        "classify": Classify(model),
        "v2": OpenInference(output),
        "systemone": SystemOne(model, question or "", labels or ()),
    }
    return shapes[name]


def _checked_labels(labels: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(labels, str) or (labels is not None and len(set(labels)) != len(labels)):
        raise InputError(f"Got labels={labels!r}; expected a list of different names.")
    return None if labels is None else tuple(labels)


def _labels_of(row: Row) -> tuple[str, ...]:
    """By name where there are names: their order in the answer may change from text to text."""
    return tuple(sorted(row)) if isinstance(row, Mapping) else default_labels(len(row))


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _bound(known: Sequence[float], n_missing: int, kind: str, multi_label: bool) -> float:
    """The most that a label left out can have scored.

    A server leaves out the lowest, so no more than the smallest number it sent; exclusive labels also
    share what the others leave of one.

    >>> _bound([0.75, 0.125], 2, "probability", False)
    0.0625
    """
    smallest = min(known)
    if kind == "probability" and not multi_label and n_missing:
        smallest = min(smallest, (1 - sum(known)) / n_missing)
    return max(smallest, _SMALLEST) if kind == "probability" else smallest
