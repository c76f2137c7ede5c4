import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piste._errors import InputError, ModelError, PisteWarning
from piste.sampling.models import Concurrent, Scores, load_model

httpx = pytest.importorskip("httpx")
pytest.importorskip("tenacity")

SCORES = {"bad": 0.2, "fair": 0.3, "good": 0.5}


def ask(
    address: str, answer: Callable[[Any], Any], texts: list[Any], **options: Any
) -> tuple[Scores, list[Any], Concurrent]:
    """The scores, and what was sent."""
    sent: list[Any] = []

    def handle(request: Any) -> Any:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=answer(sent[-1]))

    model = load_model(address, transport=httpx.MockTransport(handle), **options)
    assert isinstance(model, Concurrent)
    return model.score(texts), sent, model


def by_score(n: int) -> list[Any]:
    row = [{"label": name, "score": score} for name, score in SCORES.items()]
    return [sorted(row, key=lambda each: -float(str(each["score"]))) for _ in range(n)]


def test_tei() -> None:
    scores, sent, _ = ask(
        "http://h/predict", lambda body: by_score(len(body["inputs"])), ["a", ("b", "c")]
    )
    assert sent == [{"inputs": [["a"], ["b", "c"]], "raw_scores": False, "truncate": True}]
    assert scores.labels == ("bad", "fair", "good")
    assert scores.kind == "probability"
    np.testing.assert_array_equal(scores.values, [[0.2, 0.3, 0.5]] * 2)


def test_tei_logits_become_log_odds() -> None:
    logits = {"bad": 2.0, "fair": 0.0, "good": 40.0}
    answer = [[{"label": name, "score": score} for name, score in logits.items()]]
    scores, sent, _ = ask("https://h:1/x/predict/", lambda _: answer, ["a"], kind="logit")
    assert sent[0]["raw_scores"]
    assert scores.kind == "logit"
    expected = [2 - 40, 0 - 40, 40 - math.log(math.exp(2) + 1)]
    np.testing.assert_allclose(scores.values[0], expected, rtol=1e-12)
    multi, _, _ = ask("http://h/predict", lambda _: answer, ["a"], kind="logit", multi_label=True)
    np.testing.assert_array_equal(multi.values, [[2.0, 0.0, 40.0]])


def test_inference_endpoint() -> None:
    scores, sent, _ = ask("https://h/any", lambda _: by_score(1), ["a"], shape="hf", kind="raw")
    assert sent == [{"inputs": ["a"], "parameters": {"top_k": None}}]
    assert scores.kind == "raw"
    _, sent, _ = ask("https://h/hf-inference/models/x/y", lambda _: by_score(1), ["a"], kind="logit")
    assert sent[0]["parameters"] == {"top_k": None, "function_to_apply": "none"}


def test_infinity_names_and_vllm_positions() -> None:
    scores, sent, _ = ask(
        "http://h/classify", lambda _: {"data": by_score(2)}, ["a", "b"], labels=["good", "bad", "fair"]
    )
    assert sent == [{"input": ["a", "b"]}]
    np.testing.assert_array_equal(scores.values, [[0.5, 0.2, 0.3]] * 2)
    data = [{"index": 1, "probs": [0.4, 0.6]}, {"index": 0, "probs": [0.1, 0.9]}]
    scores, sent, _ = ask("http://h/v1/classify", lambda _: {"data": data}, ["a", "b"], model_name="m")
    assert sent == [{"input": ["a", "b"], "model": "m"}]
    assert scores.labels == ("0", "1")
    np.testing.assert_array_equal(scores.values, [[0.1, 0.9], [0.4, 0.6]])
    logits = {"data": [{"index": 0, "probs": [-1.0, 2.0]}]}
    scores, sent, _ = ask("http://h/classify", lambda _: logits, ["a"], kind="logit", labels=["n", "p"])
    assert sent[0]["use_activation"] is False
    np.testing.assert_allclose(scores.values, [[-3.0, 3.0]])


def v2(body: Any, *, nested: bool = False) -> Any:
    n = body["inputs"][0]["shape"][0]
    rows = [[0.25, 0.75]] * n
    data = rows if nested else [number for row in rows for number in row]
    logits = {"name": "logits", "datatype": "FP32", "shape": [n, 2], "data": [0.0, 1.5] * n}
    return {"outputs": [logits, {"name": "p", "datatype": "FP32", "shape": [n, 2], "data": data}]}


@pytest.mark.parametrize("nested", [False, True])
def test_open_inference(nested: bool) -> None:
    address = "http://h/v2/models/m/infer"
    scores, sent, _ = ask(address, lambda body: v2(body, nested=nested), ["a", "é"], output="p")
    tensor = {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "é"]}
    assert sent == [{"inputs": [tensor]}]
    np.testing.assert_array_equal(scores.values, [[0.25, 0.75]] * 2)
    scores, _, _ = ask(address, v2, ["a"], output="logits", kind="logit")
    np.testing.assert_allclose(scores.values, [[-1.5, 1.5]])
    one = {"outputs": [{"name": "y", "shape": [1], "data": [3.5]}]}
    scores, _, _ = ask("http://h/v2/models/m/versions/1/infer", lambda _: one, ["a"], kind="raw")
    assert (scores.labels, scores.values.tolist()) == (("output",), [[3.5]])
    with pytest.raises(InputError, match=r"Got the outputs logits, p .* pass output='logits'"):
        ask(address, v2, ["a"])


def test_system_one() -> None:
    def answer(body: Any) -> Any:
        p = 0.25 if body["state"] == "a" else 0.5
        probabilities = {"good": 1 - p, "bad": p}
        return {"answers": {"label": {"type": "choice", "probabilities": probabilities}}}

    scores, sent, _ = ask(
        "http://h/v1/systemone",
        answer,
        ["a", "b"],
        labels=["bad", "good"],
        question="Good?",
        model_name="jev",
        concurrency=1,
    )
    question = {"type": "choice", "instructions": "Good?", "criteria": {"bad": None, "good": None}}
    assert sent[0] == {"model": "jev", "state": "a", "questions": {"label": question}}
    assert len(sent) == 2
    np.testing.assert_array_equal(scores.values, [[0.25, 0.75], [0.5, 0.5]])


def test_labels_left_out_are_bounded_and_told() -> None:
    def best(n: int) -> Callable[[Any], Any]:
        return lambda _: [by_score(1)[0][:n]]

    labels = ["bad", "fair", "good", "odd"]
    with pytest.warns(PisteWarning, match=r"leaves labels out of some answers.*n_bounded"):
        scores, _, model = ask("http://h/predict", best(2), ["a"], labels=labels)
    # Two labels share what 0.5 and 0.3 leave of one; neither can exceed 0.3.
    np.testing.assert_allclose(scores.values, [[0.1, 0.3, 0.5, 0.1]])
    assert model.usage.n_bounded == 2
    with pytest.warns(PisteWarning):
        scores, _, _ = ask("http://h/predict", best(2), ["a"], labels=labels, multi_label=True)
    np.testing.assert_allclose(scores.values, [[0.3, 0.3, 0.5, 0.3]])
    with pytest.raises(ModelError, match=r"labels good, fair instead of x, y: pass labels="):
        ask("http://h/predict", best(2), ["a"], labels=["x", "y"], retries=0)


def test_labels_that_change_from_request_to_request() -> None:
    def answer(body: Any) -> Any:
        return [[{"label": body["inputs"][0][0], "score": 1.0}] for _ in body["inputs"]]

    with pytest.raises(ModelError, match=r"labels b in one answer and a in another.*Pass labels="):
        ask("http://h/predict", answer, ["a"] * 8 + ["b"] * 8)


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        ("http://h", {}, "Got 'http://h/'; expected the full URL of a route|Got 'http://h'"),
        ("http://h/x", {}, "Got shape=None for 'http://h/x'; expected one of 'tei'.*not guessed"),
        ("http://h/x", {"shape": "odd"}, "Got shape='odd'"),
        ("http://h/v1/systemone", {}, "Got no question or no labels"),
        ("http://h/x", {"shape": "template"}, "template=FILE together"),
        ("http://h/predict", {"shape": "tei", "template": "x"}, "template=FILE together"),
        ("http://h/predict", {"labels": ["a", "a"]}, "expected a list of different names"),
        ("http://h/predict", {"kind": "odds"}, "Got kind='odds'"),
        ("http://h:port/predict", {}, "no URL"),
        (
            "http://h/v1/systemone",
            {"labels": ["a", "b"], "question": "?", "kind": "logit"},
            "answers probabilities",
        ),
    ],
)
def test_options_are_checked(address: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(address, **options)


def test_pairs_where_the_protocol_has_none() -> None:
    with pytest.raises(InputError, match="Got a pair of texts for this server"):
        ask("http://h/classify", lambda _: None, [("a", "b")])


def test_fingerprint() -> None:
    def of(address: str = "http://h:80/predict", **options: Any) -> str:
        return load_model(address, **options).fingerprint

    same = {
        of(),
        of(api_key="k1"),
        of(headers={"a": "b"}),
        of(concurrency=3, rpm=9.0),
        of("http://u:p@h/predict"),
    }
    assert len(same) == 1
    assert next(iter(same)).startswith("http://h/predict#")
    others = [
        of("https://h/predict"),
        of("http://h/predict?version=2"),
        of(kind="logit"),
        of(labels=["a", "b"]),
        of(multi_label=True),
        of(shape="hf"),
    ]
    assert len(same.union(others)) == 7


def write(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


def test_template_with_several_texts(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.json",
        request={"docs": "{texts}", "options": {"lang": "en", "n": 3, "flags": [True, None]}},
        scores="out.results[*].scores",
        labels="out.results[*].names",
    )

    def answer(body: Any) -> Any:
        results = [
            {"names": ["p", "n"], "scores": [0.75, 0.25]},
            {"names": ["n", "p"], "scores": [0, 1]},
        ]
        return {"out": {"results": results[: len(body["docs"])]}}

    scores, sent, _ = ask("http://h/x", answer, ["{texts} a", "b"], template=file)
    options = {"lang": "en", "n": 3, "flags": [True, None]}
    assert sent == [{"docs": ["{texts} a", "b"], "options": options}]
    assert scores.labels == ("n", "p")
    np.testing.assert_array_equal(scores.values, [[0.25, 0.75], [0.0, 1.0]])


def test_template_with_one_text(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.json",
        request=["Rate: {text}!", "{text}"],
        scores="[0].value",
        labels=["stars"],
        kind="raw",
    )
    scores, sent, _ = ask(
        "http://h/x",
        lambda body: [{"value": len(body[1])}],
        ["{text}", "ab"],
        template=file,
        concurrency=1,
    )
    assert sent == [["Rate: {text}!", "{text}"], ["Rate: ab!", "ab"]]
    assert (scores.labels, scores.kind) == (("stars",), "raw")
    np.testing.assert_array_equal(scores.values, [[6.0], [2.0]])


@pytest.mark.parametrize(
    ("placeholder", "sent_pairs"), [("{pair}", ["a", "b"]), ("{pairs}", [["a", "b"]])]
)
def test_template_with_pairs(tmp_path: Path, placeholder: str, sent_pairs: Any) -> None:
    several = placeholder == "{pairs}"
    file = write(tmp_path / "t.json", request={"x": placeholder}, scores="y[*]" if several else "y")
    answer = {"y": [[0.5, 0.5]] if several else [0.5, 0.5]}
    scores, sent, _ = ask("http://h/x", lambda _: answer, [("a", "b")], template=file)
    assert sent == [{"x": sent_pairs}]
    assert scores.labels == ("0", "1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"request": "{text}"}, "expected an object with 'request', 'scores'"),
        ({"request": "{text}", "scores": "a", "code": "x"}, "at most 'labels' and 'kind'"),
        ({"request": "x", "scores": "a"}, "no placeholder in its request"),
        ({"request": ["{text}", "{texts}"], "scores": "a"}, "{text} and {texts} in its request"),
        ({"request": "{text}", "scores": "a[b]"}, "Got the path 'a"),
        ({"request": "{text}", "scores": 3}, "Got the path 3"),
        ({"request": "{text}", "scores": "a", "kind": "odds"}, "Got kind 'odds'"),
    ],
)
def test_templates_are_checked(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model("http://h/x", template=write(tmp_path / "t.json", **fields))


def test_templates_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{", encoding="utf-8")
    for name in ("t.json", "absent.json"):
        with pytest.raises(InputError, match="expected a JSON file"):
            load_model("http://h/x", template=tmp_path / name)


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piste.sampling.models.http.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"needs httpx and tenacity; install them with: .*'piste\[api\]'"
    ):
        load_model("http://h/predict")
    with pytest.raises(InputError, match=r"needs openai and httpx and tenacity"):
        load_model("openai:m")
