import email.utils
import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import piste
from piste._errors import InputError, ModelError
from piste.sampling.collect import collect
from piste.sampling.models import BlackBox, Concurrent, Scores, estimate, load_model, probe_noise
from piste.sampling.models.limits import Usage
from piste.sampling.models.protocol import Streaming
from piste.sampling.records import Hidden, Query

pytest.importorskip("httpx")
pytest.importorskip("tenacity")

TEXTS = [f"film number {'x' * n}" for n in range(20)]
SIX_WORDS = "One of the best films yet"


class Keeping:
    """The least that a store does: every request's answers are kept before the next one is asked."""

    fingerprint = "keeping"

    def __init__(self, model: BlackBox, kept: dict[Query, Any]) -> None:
        self.model = model
        self.kept = kept

    def score(self, inputs: Sequence[Query]) -> Scores:
        new = [query for query in inputs if query not in self.kept]
        if new:
            scores = self.model.score(new)
            self.kept.update(zip(new, scores.values, strict=True))
        rows = np.stack([self.kept[query] for query in inputs])
        return Scores(rows, ("negative", "positive"), "probability")


def opened(server: Any, **options: Any) -> Concurrent:
    model = load_model(f"{server.base}/predict", **options)
    assert isinstance(model, Concurrent)
    return model


def keeping(model: Concurrent, kept: dict[Query, Any]) -> Concurrent:
    return model.around(lambda inner: Keeping(inner, kept))


def test_t14_two_refusals_and_a_dropped_connection(server: Any, waits: list[float]) -> None:
    server.faults = [(429, {"Retry-After": "2"}), (429, {"Retry-After": "3"}), "drop"]
    kept: dict[Query, Any] = {}
    study = piste.explain(keeping(opened(server), kept), SIX_WORDS, budget=64, surrogates="shap")
    assert study.attributions["score"].notna().all()
    assert len(server.answered) == 64
    assert server.answered.total() == 64  # no masked text was answered twice
    # Both pauses that the server asked for were kept, whichever requests they hit.
    assert {2.0, 3.0} <= {wait for wait in waits if wait >= 2}

    before = server.n_requests
    again = piste.explain(keeping(opened(server), kept), SIX_WORDS, budget=64, surrogates="shap")
    assert server.n_requests == before
    assert again.attributions.equals(study.attributions)


@pytest.mark.parametrize("n_answered", [1, 7, 30, 50])
def test_t14_a_run_that_dies_half_way_resumes(server: Any, n_answered: int) -> None:
    kept: dict[Query, Any] = {}

    class Dying(Keeping):
        def score(self, inputs: Sequence[Query]) -> Scores:
            if len(self.kept) >= n_answered:
                raise KeyboardInterrupt
            return super().score(inputs)

    dying = opened(server, concurrency=1).around(lambda inner: Dying(inner, kept))
    with pytest.raises(KeyboardInterrupt):
        piste.explain(dying, SIX_WORDS, budget=64)
    assert n_answered <= len(kept) < 64
    piste.explain(keeping(opened(server), kept), SIX_WORDS, budget=64)
    assert server.answered.total() == len(server.answered) == 64


@pytest.mark.parametrize(
    "fault", [408, 409, 425, 429, 500, 502, 503, 504, 529, "drop", "truncate", lambda rows: rows[:-1]]
)
def test_passing_faults_change_nothing(server: Any, waits: list[float], fault: Any) -> None:
    expected = opened(server).score(TEXTS)
    server.faults = [fault, fault]
    answers = opened(server).score(TEXTS)
    np.testing.assert_array_equal(answers.values, expected.values)
    assert 1 <= len(waits) <= 2
    assert all(0.25 <= wait <= 1 for wait in waits)


def test_a_slow_answer_is_asked_for_again(server: Any, waits: list[float]) -> None:
    server.faults = ["slow"]
    model = opened(server, timeout=0.3)
    assert model.score(["a film"]).values.shape == (1, 2)
    assert server.n_requests == 2
    server.always = "slow"
    with pytest.raises(
        ModelError, match=r"did not answer within 0.2 seconds. Raise timeout= .*2 times"
    ):
        opened(server, timeout=0.2, retries=1).score(["a film"])


def test_nan_is_an_answer(server: Any) -> None:
    def broken(rows: Any) -> Any:
        rows[0][0]["score"], rows[0][1]["score"] = math.nan, None
        return rows

    server.faults = [broken]
    answers = collect(opened(server), ["a film", "film"])
    assert np.isnan(answers.values[0]).all()
    assert answers.n_non_finite == 1
    assert answers.example_non_finite == "a film"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda rows: rows[:-1], r"answered with 1 rows for 2 texts: .*the first is 'a film'.*3 times"),
        (lambda rows: [*rows, rows[0]], "answered with 3 rows for 2 texts"),
        (lambda rows: {"rows": rows}, "answered of another form"),
        (lambda rows: [["good"], ["bad"]], "answered of another form"),
        (lambda rows: [[{"label": "x", "score": "high"}]] * 2, "answered of another form"),
        (lambda rows: [[{"label": "x", "score": 1}] * 2] * 2, "answered of another form.*label twice"),
        ("truncate", "answered with what is not JSON"),
    ],
)
def test_a_broken_contract_is_asked_three_times_then_shown(
    server: Any, waits: list[float], fault: Any, message: str
) -> None:
    server.always = fault
    with pytest.raises(ModelError, match=message):
        opened(server).score(["a film", "film"])
    assert server.n_requests == 3


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (401, "Check the key"),
        (402, "credit"),
        (403, "what the key may do"),
        (404, "the address and the model's name"),
        (405, "takes no POST"),
        (501, "Choose a model"),
        ((429, {}, {"error": {"code": "insufficient_quota"}}), "quota"),
        ((307, {"location": "http://elsewhere/"}), "to http://elsewhere/. Give that address"),
    ],
)
def test_the_circuit_breaks_at_once(server: Any, fault: Any, advice: str) -> None:
    server.always = fault
    model = opened(server)
    with pytest.raises(ModelError, match=advice) as first:
        model.score(["a film"])
    server.always = None
    with pytest.raises(ModelError) as second:
        model.score(TEXTS)
    assert str(first.value) == str(second.value)
    assert server.n_requests == 1


def test_a_request_at_fault_is_not_repeated_and_spoils_no_other(server: Any) -> None:
    server.faults = [(413, {}, {"error": "too long", "error_type": "Validation"})]
    model = opened(server)
    with pytest.raises(ModelError, match=r"answered 413 .*: too long"):
        model.score(["a film"])
    assert model.score(["a film"]).values.shape == (1, 2)


def test_retry_after_as_a_date(server: Any, waits: list[float]) -> None:
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    server.faults = [(503, {"Retry-After": date})]
    opened(server).score(["a film"])
    assert 20 < waits[0] <= 30


def test_a_server_that_wants_an_hour_is_reported(server: Any) -> None:
    server.always = (429, {"Retry-After": "3600"})
    with pytest.raises(ModelError, match=r"429 .*1 time\)"):
        opened(server).score(["a film"])


def test_back_off_doubles_and_a_dead_server_costs_it_once(server: Any, waits: list[float]) -> None:
    server.always = 503
    model = opened(server, retries=4)
    with pytest.raises(ModelError, match=r"503 Service Unavailable: planned. \(sent 5 times\)"):
        model.score(["a film"])
    for wait, longest in zip(waits, (0.5, 1, 2, 4), strict=True):
        assert longest / 2 <= wait <= longest
    with pytest.raises(ModelError, match=r"\(sent 1 time\)"):
        model.score(["a film"])
    server.always = None
    model.score(["a film"])
    server.faults = [503]
    model.score(["a film"])  # it is tried again once it has been back


def test_unreachable_host(waits: list[float]) -> None:
    with pytest.raises(
        ModelError, match=r"http://127.0.0.1:9/predict cannot be reached: .*that it runs"
    ):
        load_model("http://127.0.0.1:9/predict", retries=2).score(["a film"])
    assert len(waits) == 2


def test_order_and_requests_do_not_depend_on_arrival(server: Any) -> None:
    alone = opened(server, concurrency=1).score(TEXTS)
    bodies = [body["inputs"] for body in server.bodies]
    server.bodies.clear()
    server.delay = 0.02
    together = opened(server, concurrency=8).score(TEXTS)
    np.testing.assert_array_equal(alone.values, together.values)
    assert sorted(bodies) == sorted(body["inputs"] for body in server.bodies)


def test_concurrency_is_bounded(server: Any) -> None:
    server.delay = 0.05
    opened(server, concurrency=2).score([f"{n}" for n in range(48)])
    assert server.most_at_once == 2


def test_no_request_starts_after_one_has_failed(server: Any) -> None:
    server.always = 400
    with pytest.raises(ModelError, match="400"):
        opened(server, concurrency=2).score([f"{n}" for n in range(160)])
    assert server.n_requests < 20
    # The others' waits are ended too.
    server.always, server.faults = None, [400, (503, {"Retry-After": "500"})]
    start = time.monotonic()
    with pytest.raises(ModelError):
        opened(server, concurrency=2).score([f"{n}" for n in range(16)])
    assert time.monotonic() - start < 60


def test_an_interrupt_ends_the_batch_and_not_the_model(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    model = opened(server, concurrency=2)
    with monkeypatch.context() as patch:
        patch.setattr("piste.sampling.models.remote.as_completed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.score([f"{n}" for n in range(400)])
    assert server.n_requests < 50
    assert model.score(TEXTS).values.shape == (len(TEXTS), 2)


def test_a_slow_request_holds_no_other_up() -> None:
    httpx = pytest.importorskip("httpx")
    n_texts, n_answered, others_done = 200, Counter[str](), threading.Event()

    def handle(request: Any) -> Any:
        body = json.loads(request.content)
        slow = any("slow" in text[0] for text in body["inputs"])
        if slow:
            n_answered["in time"] += others_done.wait(timeout=30)
        n_answered["texts"] += 0 if slow else len(body["inputs"])
        if n_answered["texts"] == n_texts - 8:
            others_done.set()
        rows = [[{"label": "long", "score": len(text[0]) / 100}] for text in body["inputs"]]
        return httpx.Response(200, json=rows)

    model = load_model("http://h/predict", concurrency=2, transport=httpx.MockTransport(handle))
    assert isinstance(model, Streaming)
    texts = [f"{n:03}" for n in range(n_texts - 1)] + ["a slow one, longest and so first"]
    steps: list[tuple[int, int]] = []
    answers = collect(model, texts, progress=lambda done, total: steps.append((done, total)))
    assert n_answered["in time"]
    assert steps == [(8 * n, n_texts) for n in range(1, n_texts // 8 + 1)]
    np.testing.assert_array_equal(answers.values.ravel(), [len(text) / 100 for text in texts])


def test_usage_and_estimate(server: Any) -> None:
    model = opened(server, price=(2.0, 4.0, 0.5), rpm=60_000)
    before = estimate(model, ["a good film"], 10)
    assert (before.n_queries, before.n_requests) == (10, 2)
    assert server.n_requests == 0
    model.score(["a good film"] * 10)
    usage = model.usage
    assert (usage.n_requests, usage.input_tokens) == (2, before.input_tokens)
    assert before.cost == pytest.approx(usage.cost) == pytest.approx(1 + 2e-6 * usage.input_tokens)
    assert before.seconds == pytest.approx(2 / 1000)
    counted: Callable[[Any], Any] = lambda body: {  # noqa: E731
        "data": [{"index": 0, "probs": [0.25, 0.75]}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    server.answer = counted
    classify = load_model(f"{server.base}/classify", model_name="m", price=(1e6, 1e6))
    assert isinstance(classify, Concurrent)
    classify.score(["a film"])
    assert classify.usage == Usage(1, 7, 2, 9.0, 0)


def test_cost_budget(server: Any) -> None:
    kept: dict[Query, Any] = {}
    model = opened(server, price=(0, 0, 1), max_cost=2, concurrency=8)
    with pytest.raises(
        ModelError, match=r"budget of 2 is spent.*Raise max_cost.*Where there is a store"
    ):
        keeping(model, kept).score(TEXTS)
    assert server.n_requests == 2
    assert model.usage.cost == 2
    assert len(kept) in (12, 16)  # two requests of three, whichever came first
    keeping(opened(server, price=(0, 0, 1), max_cost=1), kept).score(TEXTS)
    assert server.answered.total() == len(TEXTS)


def test_time_budget(server: Any) -> None:
    model = opened(server, max_seconds=0.2)
    model.score(["a film"])
    server.always = (503, {"Retry-After": "60"})
    with pytest.raises(
        ModelError, match=r"time budget of 0\.2 seconds is spent.*Where there is a store"
    ):
        model.score(["film"])


def test_a_failed_request_costs_nothing_a_lost_one_may(server: Any, waits: list[float]) -> None:
    model = opened(server, price=(0, 0, 1))
    server.faults = [503, 429, "drop"]
    model.score(["a film"])
    assert model.usage.cost == 2
    assert model.usage.n_requests == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "Got concurrency=0; expected a whole number of at least 1"),
        ({"retries": -1}, "at least 0"),
        ({"timeout": 0}, "Got timeout=0; expected a number above 0"),
        ({"rpm": -1.0}, "Got rpm=-1.0"),
        ({"max_cost": 1}, "Got max_cost=1 without a price"),
        ({"price": "cheap"}, "Got price='cheap'; expected up to three numbers"),
        ({"price": (1, 2, 3, 4)}, "expected up to three numbers"),
        ({"price": (-1,)}, "no negative"),
    ],
)
def test_limits_are_checked(server: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opened(server, **options)


def test_other_queries(server: Any) -> None:
    model = opened(server)
    with pytest.raises(InputError, match="masking='attention' for this server"):
        model.score([Hidden("a film", ((0, 0, 1),))])
    np.testing.assert_array_equal(model.score([("a", "film")]).values, model.score(["a film"]).values)
    assert server.bodies[0]["inputs"] == [["a", "film"]]


def test_noise(server: Any) -> None:
    drift = iter(range(100))

    def answer(body: Any) -> Any:
        p = 0.5 + 0.1 * (next(drift) % 2)
        return [[{"label": "a", "score": p}, {"label": "b", "score": 1 - p}] for _ in body["inputs"]]

    server.answer = answer
    noise = probe_noise(opened(server), "a film", repeats=4)
    np.testing.assert_allclose(noise.variance, 0.01 / 3)
    scores = np.array([[0.0, 0.5], [1.0, 0.5]])
    np.testing.assert_allclose(noise.ceiling(scores), [1 - 0.01 / 3 / 0.5, 0.0])
    with pytest.raises(InputError, match="at least 2"):
        probe_noise(opened(server), "a film", repeats=1)


@pytest.fixture
def secret() -> str:
    return "sk-very-secret-0123"


@pytest.mark.parametrize("way", ["api_key", "headers", "environment", "login"])
def test_keys_appear_nowhere(
    server: Any,
    secret: str,
    way: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.DEBUG)
    address = f"{server.base}/predict"
    options: dict[str, Any] = {}
    if way == "api_key":
        options = {"api_key": secret}
    elif way == "headers":
        options = {"headers": {"X-Key": secret, "authorization": f"Bearer {secret}"}}
    elif way == "environment":
        monkeypatch.setenv("PISTE_API_KEY", secret)
    else:
        address = address.replace("//", f"//user:{secret}@")
    if way != "login":
        server.key = secret
    model = load_model(address, **options)
    study = piste.explain(model, "a good film", budget=8, surrogates="shap")
    study.to_csv(tmp_path / "a.csv")
    study.to_json(tmp_path / "a.json")
    study.save(tmp_path / "a.piste")
    server.key = "another"
    with pytest.raises(ModelError, match=r"Incorrect key: .*\*\*\*") as caught:
        model.score(["a film"])
    seen = [caplog.text, repr(model), str(vars(model)), model.fingerprint, str(caught.value)]
    seen += [str(caught.value.__cause__), *map(str, study.meta.items())]
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(files) >= 4
    assert not any(secret in text for text in seen)
    assert not any(secret.encode() in content for content in files)
    assert server.base in caplog.text  # the log was on


def test_addresses_with_keys_are_refused() -> None:
    with pytest.raises(InputError, match="the parameter 'api_key', which looks like a key"):
        load_model("https://example.org/predict?api_key=sk-1234567")
