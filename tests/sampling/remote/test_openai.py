import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import piste
from piste._errors import InputError, ModelError, PisteWarning
from piste.evaluation.report import terminal_report
from piste.sampling.models import Concurrent, estimate, load_model
from piste.sampling.models._samples import sampling_errors

httpx = pytest.importorskip("httpx")
pytest.importorskip("openai")
pytest.importorskip("tenacity")

URL = "http://h/v1"


def opened(answer: Callable[[Any], Any], sent: list[Any] | None = None, **options: Any) -> Concurrent:
    def handle(request: Any) -> Any:
        body = json.loads(request.content)
        if sent is not None:
            sent.append((request.url.path, body))
        result = answer(body)
        return result if isinstance(result, httpx.Response) else httpx.Response(200, json=result)

    options = {"base_url": URL, "transport": httpx.MockTransport(handle)} | options
    model = load_model("openai:m", **options)
    assert isinstance(model, Concurrent)
    return model


def always(answer: Any) -> Callable[[Any], Any]:
    return lambda _: answer


def chat(*tokens: tuple[str, float]) -> Any:
    top = [{"token": token, "logprob": float(np.log(p))} for token, p in tokens]
    content = [{"token": tokens[0][0], "logprob": top[0]["logprob"], "top_logprobs": top}]
    message = {"role": "assistant", "content": tokens[0][0]}
    choice = {"index": 0, "message": message, "logprobs": {"content": content}}
    return {"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 1}}


def test_chat() -> None:
    sent: list[Any] = []
    answer = chat(("Positive", 0.5), (" positive", 0.1), ("negative", 0.2), ("The", 0.1))
    model = opened(lambda _: answer, sent, top=5)
    scores = model.score(["a {text}"])
    assert scores.labels == ("negative", "positive")
    assert scores.kind == "logit"
    np.testing.assert_allclose(scores.values, [[-np.log(3), np.log(3)]])
    path, body = sent[0]
    assert path == "/v1/chat/completions"
    assert body.pop("messages")[-1]["content"].endswith("Text: a {text}")
    fields = {"model": "m", "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 5}
    assert body == fields
    assert model.usage.input_tokens == 50


def test_completions_in_both_shapes() -> None:
    legacy = {"choices": [{"text": " x", "logprobs": {"top_logprobs": [{" b": -1.0, " a": -2.0}]}}]}
    modern = {
        "choices": [
            {
                "text": " b",
                "logprobs": chat((" b", np.exp(-1)), (" a", np.exp(-2)))["choices"][0]["logprobs"],
            }
        ]
    }
    for answer in (legacy, modern):
        sent: list[Any] = []
        model = opened(
            always(answer),
            sent,
            endpoint="completions",
            question="{text}:",
            labels=["a", "b"],
        )
        np.testing.assert_allclose(model.score(["t"]).values, [[-1.0, 1.0]])
        fields = {"model": "m", "prompt": "t:", "max_tokens": 1, "temperature": 0, "logprobs": 20}
        assert sent == [("/v1/completions", fields)]


def test_extra_fields_replace_ours() -> None:
    sent: list[Any] = []
    extra = {"max_tokens": None, "max_completion_tokens": 1, "temperature": 0.5}
    opened(lambda _: chat(("positive", 0.5), ("negative", 0.1)), sent, extra=extra).score(["a"])
    assert "max_tokens" not in sent[0][1]
    assert sent[0][1]["max_completion_tokens"] == 1
    assert sent[0][1]["temperature"] == 0.5


def test_a_label_outside_the_alternatives_is_bounded_and_told() -> None:
    model = opened(lambda _: chat(("positive", 0.8), ("The", 0.1), ("A", 0.05)))
    with pytest.warns(PisteWarning, match="upper bounds"):
        scores = model.score(["a"])
    np.testing.assert_allclose(scores.values[0, 1], np.log(0.8 / 0.05))
    assert model.usage.n_bounded == 1
    model.score(["b"])  # told once


def test_no_label_at_all() -> None:
    answers = [
        chat(("The", 0.8), ("A", 0.1)),
        chat(("positive", 0.8), ("negative", 0.1)),
        chat(("The", 0.8)),
    ]
    model = opened(lambda _: answers.pop(0), retries=0)
    with pytest.raises(ModelError, match=r"starts its answer with 'The', 'A', .*None of the labels"):
        model.score(["a"])
    model.score(["a"])
    with pytest.warns(PisteWarning):
        np.testing.assert_array_equal(model.score(["b"]).values, [[0, 0]])


def test_labels_of_several_tokens() -> None:
    several = chat(("pos", 0.8), ("neg", 0.1))
    with pytest.raises(
        ModelError, match=r"starts its answer with 'pos'.*Choose labels of one token each"
    ):
        opened(lambda _: several).score(["a"])
    answers = [chat(("positive", 0.8), ("negative", 0.1)), several]
    model = opened(lambda _: answers.pop(0))
    model.score(["a"])
    assert np.isnan(
        model.score(["b"]).values
    ).all()  # the labels are whole tokens: this text's answer is odd


@pytest.mark.parametrize(
    "logprobs", [None, {"content": [{"token": "x", "logprob": -1, "top_logprobs": []}]}]
)
def test_dropped_log_probabilities_are_said(logprobs: Any) -> None:
    sent: list[Any] = []
    silent = {"choices": [{"message": {"content": "positive"}, "logprobs": logprobs}]}
    model = opened(lambda _: silent, sent)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"without the log-probabilities.*use scoring='samples'"):
            model.score(["a"])
    assert len(sent) == 1
    # Once they have come, one answer without them is a fault like others.
    answers = [
        chat(("positive", 0.8), ("negative", 0.1)),
        silent,
        chat(("positive", 0.5), ("negative", 0.5)),
    ]
    flaky = opened(lambda _: answers.pop(0))
    flaky.score(["a"])
    np.testing.assert_allclose(flaky.score(["b"]).values, [[0, 0]], atol=1e-12)


def test_an_empty_answer_is_not_a_number() -> None:
    empty = {"choices": [{"message": {"content": ""}, "logprobs": {"content": []}}]}
    assert np.isnan(opened(lambda _: empty).score(["a"]).values).all()


def test_answers_without_choices(waits: list[float]) -> None:
    answers: list[Any] = [{"choices": []}, {"error": "x"}, [1], {"choices": ["x"]}]
    for answer in answers:
        with pytest.raises(ModelError, match=r"answered without choices.*3 times"):
            opened(always(answer)).score(["a"])


class Echoing:
    """Completions that echo: a word is a token, and its log-probability its length, less the shift."""

    def __init__(self, shift: int = 0, *, echo: bool = True) -> None:
        self.shift = shift
        self.echo = echo

    def __call__(self, body: Any) -> Any:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        found = [self.choice(prompt, body.get("echo", False)) for prompt in prompts]
        listed = [choice | {"index": index} for index, choice in enumerate(found)]
        return {"choices": listed[::-1]}

    def choice(self, prompt: str, echo: bool) -> Any:
        words = prompt.split(" ")
        tokens = [words[0], *(f" {word}" for word in words[1:])]
        values: list[float | None] = [None, *(-float(len(token)) for token in tokens[1:])]
        if self.shift:
            values = [*values[1:], -1.0]
        tokens, values = (tokens, values) if echo and self.echo else ([], [])
        top = [{" Paris": -6.0, " a": -9.0}]
        return {
            "logprobs": {
                "tokens": [*tokens, " gen"],
                "token_logprobs": [*values, -4.0],
                "top_logprobs": top,
            }
        }


def test_continuation() -> None:
    sent: list[Any] = []
    model = opened(
        Echoing(),
        sent,
        endpoint="completions",
        scoring="continuation",
        question="Is {text}",
        labels=["very good", "bad"],
    )
    scores = model.score(["it", "this"])
    # " very good" is -5 - 5, " bad" -4.
    np.testing.assert_allclose(scores.values, [[-6.0, 6.0]] * 2)
    assert len(sent) == 4  # two to check the echo, and one for each text
    assert sorted(body["prompt"] for _, body in sent[2:]) == [
        ["Is it very good", "Is it bad"],
        ["Is this very good", "Is this bad"],
    ]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Echoing(shift=1), r"echoes wrong log-probabilities \(-1.000 for a token of -6.000\)"),
        (Echoing(echo=False), "does not echo prompts"),
    ],
)
def test_a_wrong_echo_is_found_out(server: Echoing, message: str) -> None:
    sent: list[Any] = []
    model = opened(server, sent, endpoint="completions", scoring="continuation")
    for _ in range(2):
        with pytest.raises(ModelError, match=message):
            model.score(["a"])
    assert len(sent) == 2


def said(*answers: str) -> Any:
    return {"choices": [{"message": {"content": answer}} for answer in answers]}


def test_samples() -> None:
    sent: list[Any] = []
    answer = said(
        "Positive.", "positive", "**Negative**", "I think", "positively", " NEGATIVE ", "positive!"
    )
    model = opened(lambda _: answer, sent, scoring="samples", samples=7)
    scores = model.score(["a"])
    assert scores.kind == "probability"
    np.testing.assert_allclose(scores.values, [[2.5 / 6, 3.5 / 6]])
    assert sent[0][1]["n"] == 7
    assert model.fingerprint.endswith(", 7 samples")
    errors = sampling_errors(model.fingerprint, scores.values, scores.kind)
    # Five of the seven count.
    np.testing.assert_allclose(errors, [[np.sqrt(2.5 * 3.5 / 36 / 6)] * 2])  # type: ignore[arg-type]


def test_no_sample_that_counts_is_no_answer() -> None:
    scores = opened(lambda _: said("I think"), scoring="samples", samples=1).score(["a"])
    assert np.isnan(scores.values).all()


def test_samples_one_by_one_survive_a_failure(waits: list[float]) -> None:
    sent: list[Any] = []
    busy = [True]

    def answer(body: Any) -> Any:
        if body.get("n", 1) > 1:
            return httpx.Response(400, json={"error": {"message": "n > 1 needs more slots"}})
        if body["seed"] == 2 and busy and busy.pop():
            return httpx.Response(503, json={})
        return said("positive" if body["seed"] % 2 else "negative")

    model = opened(answer, sent, scoring="samples", samples=4)
    np.testing.assert_allclose(model.score(["a"]).values, [[0.5, 0.5]])
    # One refused, four samples, one of them asked for again.
    assert [body["seed"] for _, body in sent] == [0, 0, 1, 2, 2, 3]
    with pytest.raises(ModelError, match="400"):
        opened(lambda _: httpx.Response(400, json={}), scoring="samples").score(["a"])


def test_faults_are_those_of_every_remote_model(waits: list[float]) -> None:
    def broken(request: Any) -> Any:
        raise faults.pop(0)("planned", request=request) if faults else AssertionError

    faults = [httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ConnectError]
    with pytest.raises(ModelError, match=r"http://h/v1 cannot be reached: planned.*3 times"):
        load_model("openai:m", base_url=URL, transport=httpx.MockTransport(broken), retries=2).score(
            ["a"]
        )
    assert len(waits) == 2
    replies = [
        httpx.Response(429, headers={"retry-after": "9"}),
        httpx.Response(500),
        httpx.Response(200, content=b"{"),
    ]
    ok = chat(("positive", 0.5), ("negative", 0.5))
    model = opened(lambda _: replies.pop(0) if replies else ok)
    assert model.score(["a"]).values.shape == (1, 2)
    assert max(waits) == 9


def test_unknown_model_and_wrong_key() -> None:
    message = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
    with pytest.raises(
        ModelError, match=r"404 Not Found: The model `m` does not exist. Check the address"
    ):
        opened(lambda _: httpx.Response(404, json=message)).score(["a"])
    echo = {"error": {"message": "Incorrect API key provided: sk-secret-99."}}
    with pytest.raises(ModelError, match=r"401 .*provided: \*\*\*. Check the key: pass api_key="):
        opened(lambda _: httpx.Response(401, json=echo), api_key="sk-secret-99").score(["a"])


def test_keys_and_addresses_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-77")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://env/v1")
    seen: list[Any] = []

    def handle(request: Any) -> Any:
        seen.append((request.url.host, request.headers["authorization"]))
        return httpx.Response(200, json=chat(("positive", 0.5), ("negative", 0.25)))

    model = load_model("openai:m", transport=httpx.MockTransport(handle))
    study = piste.explain(model, "a good film", budget=8, surrogates="shap")
    study.to_csv(tmp_path / "a.csv")
    assert seen[0] == ("env", "Bearer sk-secret-77")
    assert model.fingerprint.startswith("openai:m@http://env/v1#")
    seen_by_people = [caplog.text, repr(model), model.fingerprint, str(study.meta)]
    seen_by_people += [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    assert not any("sk-secret" in text for text in seen_by_people)
    assert "http://env/v1" in caplog.text


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(InputError, match=r"Got no key for https://api.openai.com/v1; .*OPENAI_API_KEY"):
        load_model("openai:gpt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "edits"}, "Got endpoint='edits'; expected 'chat', 'completions'"),
        ({"scoring": "odds"}, "Got scoring='odds'"),
        ({"scoring": "continuation"}, "expected endpoint='completions' beside it"),
        ({"samples": 0}, "samples=0"),
        ({"labels": ["a", "b"]}, "without a question"),
        ({"base_url": "h/v1"}, "Got the base_url"),
        ({"base_url": "http://user:pw@h/v1"}, "without login or query"),
        ({"concurrency": 0}, "concurrency=0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model("openai:m", **({"base_url": URL} | options))


def test_fingerprint_and_estimate() -> None:
    def of(**options: Any) -> str:
        return load_model("openai:m", **({"base_url": URL} | options)).fingerprint

    assert of() == of(api_key="k", concurrency=2, headers={"a": "b"}, price=(1, 2))
    distinct = {
        of(),
        of(base_url="http://h/v2"),
        of(endpoint="completions"),
        of(question="{text}?"),
        of(top=5),
    }
    assert len(distinct) == 5
    sent: list[Any] = []
    model = opened(lambda _: None, sent, price=(1.0, 1e6))
    planned = estimate(model, ["a good film", "a"], [4, 2])
    assert (planned.n_queries, planned.n_requests, planned.output_tokens) == (6, 6, 6)
    assert planned.cost == pytest.approx(6 + planned.input_tokens / 1e6)
    assert sent == []


def test_pairs() -> None:
    answer = chat(("yes", 0.5), ("no", 0.25))
    model = opened(lambda _: answer, question="{first}\n{second}?", labels=["yes", "no"])
    assert model.score([("a", "b")]).values.shape == (1, 2)
    with pytest.raises(InputError, match="Got a single text for a question about pairs"):
        model.score(["a"])
    with pytest.raises(InputError, match="Got a pair of texts for a question about a text"):
        opened(lambda _: answer).score([("a", "b")])


# What a run took ------------------------------------------------------------------------------------


def test_usage_is_that_of_the_run(tmp_path: Path) -> None:
    answer = chat(("positive", 0.7), ("negative", 0.2))
    model = opened(always(answer), price=(1000, 10_000, 0.5), concurrency=1)
    model.score(["before"])
    studies = [
        piste.explain(model, "a good film", surrogates="lime", store=tmp_path / "a.sqlite")
        for _ in range(2)
    ]
    first, second = (study.meta for study in studies)
    assert (first["n_queries"], first["n_known"]) == (8, 0)
    assert first["usage"] == {
        "n_requests": 8,
        "input_tokens": 400,
        "output_tokens": 8,
        "cost": pytest.approx(8 * (0.05 + 0.01 + 0.5)),
        "n_bounded": 0,
    }
    assert (second["n_queries"], second["n_known"]) == (8, 8)
    assert set(second["usage"].values()) == {0}
    for study, end in zip(
        studies,
        ("; 8 requests, cost 4.48", "; 8 of them known from the store; 0 requests"),
        strict=True,
    ):
        console = Console(width=200, file=io.StringIO())
        console.print(terminal_report(study))
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert printed.endswith(f"8 model queries, at most 1000 per text{end}\n")
    studies[0].save(tmp_path / "study")
    assert piste.load_study(tmp_path / "study").meta["usage"] == first["usage"]


def test_samples_reach_the_intervals_and_repeats_are_real_requests() -> None:
    sent: list[Any] = []
    answers = [said(*["positive"] * 3, "negative"), said("positive", *["negative"] * 3)]

    def answer(_: Any) -> Any:
        return answers[len(sent) % 2]

    model = opened(answer, sent, scoring="samples", samples=4, concurrency=1)
    study = piste.explain(
        model, "a film", surrogates="shap", noise_probe=4, store="none", target="positive"
    )
    assert len(sent) == 4 + 4
    assert study.meta["usage"]["n_requests"] == 8
    # (3.5, 1.5) or (1.5, 3.5): the same variance of the log-odds either way, and four of them halved.
    variance = 1 / 3.5 + 1 / 1.5
    np.testing.assert_allclose(study.attributions["std_error"], np.sqrt(variance))
    step = 2 * np.log(3.5 / 1.5)
    assert study.meta["texts"][0]["noise_variance"] == pytest.approx([step**2 / 3])
