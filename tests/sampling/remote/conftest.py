"""A classification server on loopback that goes wrong in the ways it is told to."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Answer = Callable[[Any], Any]
"""From a request's JSON to the answer's."""


def positive(text: str) -> float:
    """A score that every word of a text changes."""
    words = text.split()
    return (1 + sum(len(word) for word in words)) / (2 + 10 * len(words))


def tei(body: Any) -> Any:
    """As Text Embeddings Inference answers: the likelier label first."""
    rows = []
    for text in body["inputs"]:
        p = positive(" ".join(text))
        row = [{"label": "positive", "score": p}, {"label": "negative", "score": 1 - p}]
        rows.append(sorted(row, key=lambda each: -float(str(each["score"]))))
    return rows


class Server:
    """What it is asked is counted; each planned fault is used up by one request, in their order.

    A fault is a status (with headers, and a body if given), ``drop``, ``slow``, ``truncate`` or a
    function that replaces the answer.
    """

    def __init__(self) -> None:
        self.answer: Answer = tei
        self.faults: list[Any] = []
        self.always: Any = None
        self.key: str | None = None
        self.delay = 0.0
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        self.answered: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet: else Nagle's delay of 40 ms

            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                pass  # a client that went away

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    @property
    def n_requests(self) -> int:
        return len(self.bodies)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            self.bodies.append(body)
            self.paths.append(handler.path)
            fault = self.faults.pop(0) if self.faults else self.always
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.key is not None and handler.headers["authorization"] != f"Bearer {self.key}":
                sent = handler.headers["authorization"]
                return self.reply(handler, 401, {"error": {"message": f"Incorrect key: {sent}"}})
            time.sleep(self.delay)
            self.act(handler, body, fault)
        finally:
            with self._lock:
                self.at_once -= 1

    def act(self, handler: BaseHTTPRequestHandler, body: Any, fault: Any) -> None:
        if fault == "drop":
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif isinstance(fault, int | tuple):
            status, headers, said = (
                (*fault, {}, None)[:3] if isinstance(fault, tuple) else (fault, {}, None)
            )
            self.reply(handler, status, said or {"error": "planned"}, headers)
        elif fault == "truncate":
            self.reply(handler, 200, None, raw=json.dumps(self.answer(body))[:-5].encode())
        elif callable(fault):
            self.reply(handler, 200, fault(self.answer(body)))
        else:
            if fault == "slow":
                time.sleep(1.0)
            for text in body.get("inputs", ()):
                self.answered[" ".join(text)] += 1
            self.reply(handler, 200, self.answer(body))

    def reply(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        answer: Any,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> None:
        content = json.dumps(answer).encode() if raw is None else raw
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
        handler.wfile.flush()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for one test; the port is free again afterwards."""
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key or address of the machine's own environment gets into a test."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "PISTE_API_KEY",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of a gate, which take no time."""
    from piste.sampling.models.limits import Gate

    asked: list[float] = []

    def sleep(self: Gate, seconds: float) -> None:
        if seconds > 0:
            asked.append(seconds)
        halted.__get__(self)(0)

    halted = Gate.sleep
    monkeypatch.setattr(Gate, "sleep", sleep)
    return asked
