"""How much of the ideal request rate concurrency reaches.

    python benchmarks/remote_throughput.py

A server of its own process answers each request after a fixed latency; the ideal rate is concurrency
divided by latency. Without a store, and with one that commits every request's answers as it comes, the
default for remote models; then whole runs of `piste.explain`, fits included. The CPU time is this process's.
"""

import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory

import piste
from piste.sampling.collect import collect
from piste.sampling.models import Concurrent, load_model
from piste.sampling.store import AnswerStore, Stored, open_store

LATENCY = 0.1
CONCURRENCY = 32
N_REQUESTS = 1024
RUNS = {200: 16, 1000: 5}
"""Texts of whole runs by budget: one request a query."""
REST = (
    "opens slowly and turns a tale of two quiet brothers in some far town into a tense and moving film"
)


class Handler(BaseHTTPRequestHandler):
    """Answers both protocols after the latency."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        """One row per text, or one choice."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(LATENCY)
        if "messages" in body:
            top = [{"token": name, "logprob": -1.0} for name in ("positive", "negative")]
            content = [{"token": "positive", "logprob": -1.0, "top_logprobs": top}]
            answer: object = {"choices": [{"message": {}, "logprobs": {"content": content}}]}
        else:
            row = [{"label": "negative", "score": 0.25}, {"label": "positive", "score": 0.75}]
            answer = [row for _ in body["inputs"]]
        content_bytes = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content_bytes)))
        self.end_headers()
        self.wfile.write(content_bytes)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """With room for all connections at once."""

    daemon_threads = True
    request_queue_size = 256


def serve(port: "Connection[int, int]") -> None:
    """Run until killed."""
    server = Server(("127.0.0.1", 0), Handler)
    port.send(server.server_port)
    server.serve_forever()


def share(uri: str, store: AnswerStore | None, **options: object) -> tuple[float, float, float]:
    """Requests a second, their share of the ideal rate, and milliseconds of CPU time for each."""
    model = load_model(uri, concurrency=CONCURRENCY, **options)
    assert isinstance(model, Concurrent)
    if store is not None:
        model = model.around(lambda request: Stored(request, store))
    per_request = -(-100 // model.size(["text"] * 100)[0])
    collect(model, [f"warm {n}" for n in range(CONCURRENCY * per_request)])  # opens the connections
    before, start, used = model.usage.n_requests, time.perf_counter(), time.process_time()
    collect(model, [f"text {n}" for n in range(N_REQUESTS * per_request)])
    seconds, used = time.perf_counter() - start, time.process_time() - used
    n_requests = model.usage.n_requests - before
    return n_requests / seconds, n_requests / seconds * LATENCY / CONCURRENCY, 1000 * used / n_requests


def whole_run(uri: str, budget: int, n_texts: int, store: AnswerStore, **options: object) -> float:
    """The share of the ideal rate over several texts, one request a query."""
    model = load_model(uri, concurrency=CONCURRENCY, **options)
    assert isinstance(model, Concurrent)
    collect(model, [f"warm {n}" for n in range(CONCURRENCY)])
    texts = [f"{budget}x{n} {REST}" for n in range(n_texts)]
    before, start = model.usage.n_requests, time.perf_counter()
    assert len(piste.explain(model, texts, budget=budget, store=store).attributions)
    seconds = time.perf_counter() - start
    return (model.usage.n_requests - before) * LATENCY / CONCURRENCY / seconds


def main() -> None:
    """Print a table."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    base = f"http://127.0.0.1:{ours.recv()}"
    ideal = CONCURRENCY / LATENCY
    print(f"latency {LATENCY:g} s, concurrency {CONCURRENCY}, ideal {ideal:.0f} requests/s")
    with TemporaryDirectory() as folder, open_store(f"{folder}/answers.sqlite") as opened:
        for name, uri, options in (
            ("http, 8 texts a request", f"{base}/predict", {}),
            ("openai, 1 text a request", "openai:m", {"base_url": f"{base}/v1"}),
        ):
            for store in (None, opened):
                rate, part, cpu = share(uri, store, **options)
                how = f"{name}, {'a store' if store else 'no store'}"
                print(
                    f"{how:36} {rate:6.1f} requests/s {part:6.1%} of the ideal, {cpu:.1f} ms CPU each"
                )
        for budget, n_texts in RUNS.items():
            part = whole_run("openai:m", budget, n_texts, opened, base_url=f"{base}/v1")
            print(
                f"explain, {n_texts} texts of {1 + len(REST.split())} words, budget {budget:4} {part:11.1%}"
            )
    process.terminate()


if __name__ == "__main__":
    main()
