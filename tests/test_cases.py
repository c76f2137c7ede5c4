"""T01-T15 of the reports that practitioners filed: the stated inputs and values, and more of each kind.

T14 (a remote endpoint) comes with the remote adapters.
"""

import csv
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel

import piste
from piste._typing import FloatArray

ADDITIVE = ("lime", "shap")
ALL = ("lime", "shap", "slalom")
MASK = "▁"  # a visible mask string that is no word


class Recorder:
    """A function on texts that keeps every call."""

    def __init__(self, score: Callable[[str], Any]) -> None:
        self.score = score
        self.calls: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[Any]:
        self.calls.append(list(texts))
        return [self.score(text) for text in texts]

    @property
    def asked(self) -> list[str]:
        return [text for call in self.calls for text in call]


def scores(study: piste.Study, surrogate: str, kind: str | None = None) -> list[float]:
    rows = study.attributions[study.attributions["surrogate"] == surrogate]
    if kind is not None:
        rows = rows[rows["kind"] == kind]
    values: list[float] = rows["score"].tolist()
    return values


def approx(values: Sequence[float] | FloatArray) -> Any:
    return pytest.approx(list(values), abs=1e-9)


# T01: texts of one or two units ---------------------------------------------------------------------


@pytest.mark.parametrize("masking", ["remove", MASK])
@pytest.mark.parametrize("text", ["hello", "hello!", "  hello ", "你", "😀", "5", "don't", "..."])
def test_t01_one_unit(text: str, masking: str) -> None:
    model = Recorder(lambda query: 0.9 if query == text else 0.2)
    study = piste.explain(model, text, surrogates=ALL, masking=masking, space="probability")
    assert scores(study, "shap") == approx([0.7])
    assert scores(study, "lime") == approx([0.7])
    assert np.isfinite(study.attributions["score"]).all()
    assert scores(study, "slalom", "value") == approx([0.9])
    status = study.attributions.set_index("kind")["status"]
    assert status["importance"] == "importance not identifiable"
    assert status["value"] == "ok"
    assert len(model.asked) == 2


def test_t01_one_unit_in_log_odds() -> None:
    study = piste.explain(lambda texts: [0.9 if t else 0.2 for t in texts], "hello", surrogates=ALL)
    effect = np.log(0.9 / 0.1) - np.log(0.2 / 0.8)
    for surrogate in ADDITIVE:
        assert scores(study, surrogate) == approx([effect])
    assert scores(study, "slalom", "removal") == approx([effect])


@pytest.mark.parametrize("masking", ["remove", MASK])
def test_t01_two_units(masking: str) -> None:
    values = {(): 0.1, ("w1",): 0.4, ("w2",): 0.2, ("w1", "w2"): 0.9}
    model = Recorder(lambda query: values[tuple(word for word in query.split() if word != MASK)])
    study = piste.explain(
        model, "w1 w2", surrogates=ALL, masking=masking, space="probability", budget=512
    )
    assert scores(study, "shap") == approx([0.5, 0.3])
    assert np.isfinite(study.attributions["score"]).all()
    assert len(model.asked) == len(set(model.asked)) == 4


@pytest.mark.parametrize("n_units", [1, 2, 3, 4])
@pytest.mark.parametrize("budget", [2, 3, 4, 5, 8, 9, 16])
def test_t01_short_texts_never_break_the_algebra(n_units: int, budget: int) -> None:
    text = " ".join(f"w{i}" for i in range(n_units))
    model = Recorder(lambda query: len(query.split()) ** 2)
    study = piste.explain(model, text, surrogates=ALL, budget=budget, space="raw")
    assert np.isfinite(study.attributions["score"]).all()
    assert len(model.asked) <= budget
    assert sum(scores(study, "shap")) == pytest.approx(n_units**2, abs=1e-9)


# T02: what the callable gets and returns ------------------------------------------------------------


def strict(texts: object) -> list[float]:
    assert type(texts) is list
    assert all(type(text) is str for text in texts)
    return [float(len(text)) for text in texts]


@pytest.mark.parametrize(
    "texts",
    [
        "a b c",
        ["a b c"],
        ("a b c",) * 3,
        np.array(["a b c", "d e"]),
        np.array(["a b c"], dtype=object),
        pd.Series(["a b c", "d e"], index=[5, 7]),
        (text for text in ("a b c", "d e")),
        [np.str_("a b c")],
    ],
    ids=lambda value: type(value).__name__,
)
def test_t02_callables_get_built_in_strings(texts: Any) -> None:
    if isinstance(texts, tuple):
        texts = list(texts)
    study = piste.explain(strict, texts, surrogates="shap", space="raw")
    assert set(study.attributions["status"]) == {"ok"}


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (lambda texts: [0.5], "returned 1 rows for 6 texts"),
        (lambda texts: np.zeros((1, 3)), "returned 1 rows for 6 texts"),
        (lambda texts: [0.5] * (len(texts) + 1), "returned 7 rows for 6 texts"),
        (lambda texts: [], r"returned (0 rows|numbers of shape)"),
        (lambda texts: 0.5, r"returned numbers of shape \(\)"),
        (lambda texts: np.zeros((len(texts), 2, 2)), r"shape \(6, 2, 2\)"),
        (lambda texts: np.zeros((len(texts), 0)), r"shape \(6, 0\)"),
        (lambda texts: ["good"] * len(texts), "a list of str"),
        (lambda texts: None, "an object of type NoneType"),
        (lambda texts: [[0.1], [0.2, 0.8]] * 3, "a list of list"),
        (lambda texts: [{"label": "good", "score": 0.5}] * len(texts), "a list of dict"),
    ],
)
def test_t02_wrong_output_is_named_at_once(answer: Callable[[list[str]], Any], received: str) -> None:
    calls = []

    def model(texts: list[str]) -> Any:
        calls.append(texts)
        return [0.5] if len(calls) == 1 else answer(texts)  # the full text alone comes first

    with pytest.raises(piste.ModelError, match=received + r".*; expected .*one row per text"):
        piste.explain(model, "a b c", surrogates=ALL, design="exhaustive", budget=8, batch_size=6)
    assert len(calls) == 2


# T03: repeated words --------------------------------------------------------------------------------


def second_is_good(query: str) -> float:
    return 1.0 if query.split()[1:2] == ["good"] else 0.2


def test_t03_repeats_have_rows_and_values_of_their_own(tmp_path: Path) -> None:
    study = piste.explain(
        Recorder(second_is_good),
        "good good bad",
        surrogates=ALL,
        masking=MASK,
        space="probability",
    )
    for surrogate in ADDITIVE:
        assert scores(study, surrogate) == approx([0, 0.8, 0])
    study.to_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["surrogate"] == "shap"]
    found = [(row["unit"], row["token"], row["start"], row["end"]) for row in rows]
    assert found == [("0", "good", "0", "4"), ("1", "good", "5", "9"), ("2", "bad", "10", "13")]


def test_t03_repeats_can_be_tied() -> None:
    study = piste.explain(
        lambda texts: [float(text.split().count("good")) for text in texts],
        "good good bad",
        surrogates=("lime", "slalom"),
        space="raw",
        tie_repeats=True,
    )
    assert scores(study, "lime") == approx([1, 1, 0])
    for kind in ("value", "importance", "linear", "removal"):
        first, second, _ = scores(study, "slalom", kind)
        assert first == second


@pytest.mark.parametrize("text", ["a a", "no no no no", "哈哈哈", "😀😀", "buy Buy BUY"])
def test_t03_every_occurrence_is_a_unit(text: str) -> None:
    study = piste.explain(lambda texts: [float(len(t)) for t in texts], text, surrogates="shap")
    table = study.attributions
    assert len(table) >= 2
    assert [text[start:end] for start, end in zip(table["start"], table["end"], strict=True)] == list(
        table["token"]
    )
    assert table["start"].is_unique


# T04: emoji and other characters of several pieces --------------------------------------------------


def byte_pieces() -> Tokenizer:
    """A byte-level tokenizer without merges: each byte of a character is a token of its own."""
    letters = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(dict(zip(letters, range(256), strict=True)), []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return tokenizer


@pytest.mark.parametrize("units", ["token", "word"])
@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("ok 😀!", "😀"),
        ("a 👩‍👩‍👧 b", "👩‍👩‍👧"),
        ("to 🇫🇷 go", "🇫🇷"),
        ("hi 👍🏽", "👍🏽"),
        ("♥️ it", "♥️"),
        ("e\u0301 o", "e\u0301"),
        ("字 b", "字"),
    ],
)
def test_t04_pieces_of_one_character_are_one_unit(
    text: str, character: str, units: str, tmp_path: Path
) -> None:
    recorder = Recorder(len)
    model = piste.load_model(recorder, tokenizer=byte_pieces())
    study = piste.explain(model, text, surrogates=ADDITIVE, units=units, masking=MASK, space="raw")
    assert recorder.calls[0] == [text]
    assert not any("\ufffd" in query for query in recorder.asked)
    assert character in set(study.attributions["token"])
    # The model counts characters, so each unit's effect is its length less the mask's.
    expected = [len(token) - len(MASK) for token in study.attributions["token"]]
    assert study.attributions["score"].tolist() == approx(expected)
    study.to_csv(tmp_path / "a.csv")
    written = (tmp_path / "a.csv").read_text(encoding="utf-8")
    assert character in written
    assert "\ufffd" not in written


def test_t04_the_emoji_is_one_feature_and_values_add_up() -> None:
    text = "ok 😀!"
    recorder = Recorder(lambda query: len(query) + 100 * (query != text and MASK not in query))
    model = piste.load_model(recorder, tokenizer=byte_pieces())
    study = piste.explain(model, text, surrogates="shap", units="token", masking=MASK, space="raw")
    assert study.attributions["token"].tolist() == ["o", "k", "😀", "!"]
    assert scores(study, "shap") == approx([0, 0, 0, 0])
    assert recorder.calls[0] == [text]


# T05: combining marks and scripts -------------------------------------------------------------------


SCRIPTS = [
    ("আমি বাংলায় গান গাই", 4),
    ("यह फिल्म बहुत अच्छी है", 5),
    ("ஒரு நல்ல படம்", 3),
    ("هذا فيلم جيد جدا", 4),
    ("זה סרט טוב", 3),
    ("Cafe\u0301 noir, tre\u0300s bon", 4),
    ("đây là một bộ phim hay", 6),
    ("это хороший фильм", 3),
]


@pytest.mark.parametrize(("text", "n_words"), SCRIPTS)
def test_t05_one_word_carries_all_the_weight(text: str, n_words: int) -> None:
    words = piste.explain(lambda texts: [0.5] * len(texts), text, surrogates="shap").attributions
    assert len(words) == n_words
    chosen = words["token"].iloc[-1]
    study = piste.explain(
        Recorder(lambda query: float(chosen in query.split(" "))),
        text,
        surrogates=ADDITIVE,
        masking=MASK,
        space="probability",
    )
    for surrogate in ADDITIVE:
        assert scores(study, surrogate) == approx([0] * (n_words - 1) + [1])


@pytest.mark.parametrize("text", [*dict(SCRIPTS), "ภาพยนตร์ดีมาก", "这部电影很好看", "映画は素晴らしい"])
def test_t05_units_and_gaps_restore_the_text(text: str) -> None:
    table = piste.explain(lambda texts: [0.5] * len(texts), text, surrogates="shap").attributions
    position, restored = 0, ""
    for token, start, end in zip(table["token"], table["start"], table["end"], strict=True):
        restored += text[position:start] + token
        position = end
    assert restored + text[position:] == text
    assert len(table) > 1


# T06: words that split in subwords ------------------------------------------------------------------


def pieces() -> Tokenizer:
    vocabulary = ["[UNK]", "i", "ate", "today", "rai", "##si", "##ns"]
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


@pytest.mark.parametrize("masking", ["remove", MASK])
@pytest.mark.parametrize("text", ["i ate raisins today", "I ate Raisins", "rai ate raisins"])
def test_t06_features_are_fixed_by_the_original_text(text: str, masking: str) -> None:
    recorder = Recorder(lambda query: float("raisins" in query.lower().split()))
    model = piste.load_model(recorder, tokenizer=pieces())
    options: dict[str, Any] = {"masking": masking, "space": "raw", "budget": 300}

    subwords = piste.explain(model, text, surrogates="shap", units="token", **options)
    tokens = subwords.attributions["token"].tolist()
    at = tokens.index("si") - 1
    assert [token.lower() for token in tokens[at : at + 3]] == ["rai", "si", "ns"]
    assert set(subwords.responses["mask"].str.len()) == {len(tokens)}
    # Only the three together are the word, so they share its effect.
    expected = np.zeros(len(tokens))
    expected[at : at + 3] = 1 / 3
    assert scores(subwords, "shap") == approx(expected)

    words = piste.explain(model, text, surrogates=ADDITIVE, units="word", **options)
    for surrogate in ADDITIVE:
        raisins = [float(word.lower() == "raisins") for word in text.split()]
        assert scores(words, surrogate) == approx(raisins)


# T07: saturated probabilities -----------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", ALL)
def test_t07_saturated_probabilities_stay_finite(surrogate: str) -> None:
    model = Recorder(lambda query: 1.0 if "good" in query else 0.0)
    with pytest.warns(
        piste.PisteWarning, match="8 probabilities closer to 0 or 1 than 1e-06"
    ) as caught:
        study = piste.explain(model, "a good film", surrogates=surrogate, masking=MASK, space="logit")
    assert len(caught) == 1
    assert np.isfinite(study.attributions["score"]).all()
    epsilon = study.meta["clip_epsilon"]
    assert isinstance(epsilon, float)
    full = 2 * np.log((1 - epsilon) / epsilon)
    if surrogate in ADDITIVE:
        assert scores(study, surrogate) == approx([0, full, 0])
    assert study.meta["n_clipped"] == 8


@pytest.mark.parametrize("design", ["auto", "permutation", "uniform-size", "shapley", "deletions"])
def test_t07_on_every_path(design: str) -> None:
    text = " ".join(f"w{i}" for i in range(12))
    with pytest.warns(piste.PisteWarning, match="were clipped"):
        study = piste.explain(
            lambda texts: [[float("w3" in t), float("w3" not in t)] for t in texts],
            text,
            surrogates=ADDITIVE,
            design=design,
            budget=200,
            target="all",
        )
    n_answers = len(study.responses)
    assert study.meta["n_clipped"] == 2 * n_answers  # each explained probability of each answer
    wanted = 2 * np.log((1 - 1e-6) / 1e-6) * np.eye(12)[3]
    for (target, _), rows in study.attributions.groupby(["target", "surrogate"]):
        sign = 1 if target == "0" else -1
        assert rows["score"].tolist() == pytest.approx(list(sign * wanted), abs=1e-6)


def test_t07_nothing_is_clipped_or_said_in_other_spaces(recwarn: pytest.WarningsRecorder) -> None:
    for space in ("probability", "raw"):
        study = piste.explain(lambda ts: [float("good" in t) for t in ts], "a good film", space=space)
        assert study.meta["n_clipped"] == 0
    assert not recwarn.list


# T08: constant models -------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.7, 0.0, 1.0, -3.0, 1e6, 0.1 + 0.2])
@pytest.mark.parametrize("text", ["this ball is red", "w " * 30])
def test_t08_a_constant_model(constant: float, text: str) -> None:
    study = piste.explain(
        lambda texts: [constant] * len(texts), text, surrogates=ALL, space="raw", budget=100
    )
    for surrogate in ADDITIVE:
        assert scores(study, surrogate) == approx([0] * len(text.split()))
        assert study.surrogate(0, surrogate).base_value_ == pytest.approx(constant)  # type: ignore[attr-defined]
    assert scores(study, "slalom", "value") == approx([constant] * len(text.split()))
    for kind in ("importance", "removal"):
        assert scores(study, "slalom", kind) == approx([0] * len(text.split()))
    assert set(study.attributions["status"]) == {"no variation"}
    assert set(study.fidelity["status"]) == {"undefined"}
    assert study.fidelity["r2"].isna().all()


def test_t08_the_base_is_reported() -> None:
    study = piste.explain(
        lambda texts: [0.7] * len(texts), "this ball is red", surrogates=ALL, space="probability"
    )
    (text,) = study.meta["texts"]
    assert text["base"] == {name: approx([0.7]) for name in ALL}


def test_t08_hard_labels() -> None:
    study = piste.explain(
        lambda texts: [[0.0, 1.0]] * len(texts), "a clear case", surrogates=ALL, space="probability"
    )
    assert set(study.attributions["target"]) == {"1"}
    assert scores(study, "shap") == [0, 0, 0]


# T09: independent labels ----------------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", ADDITIVE)
def test_t09_each_label_on_its_own(surrogate: str) -> None:
    words = ["you", "silly", "person"]
    high = [0.9, 0.8, 0.1]
    model = piste.load_model(
        Recorder(lambda query: [high[i] if word in query else 0.05 for i, word in enumerate(words)]),
        labels=["addressed", "insult", "human"],
        kind="probability",
    )
    study = piste.explain(
        model, "you silly person", surrogates=surrogate, space="probability", target="all"
    )
    found = study.attributions["score"].to_numpy().reshape(3, 3)
    np.testing.assert_allclose(found, np.diag(high) - 0.05 * np.eye(3), atol=1e-9)
    full = study.responses.query("mask == '111'")
    assert full[["addressed", "insult", "human"]].to_numpy().tolist() == [high]


# T10: targets ---------------------------------------------------------------------------------------


NAMES = ["anger", "joy", "fear", "other"]


def four(query: str) -> list[float]:
    words = query.split()
    return [0.1 + 0.05 * ("w" in words), 0.2, 0.3 + 0.15 * ("y" in words), 0.1 * ("z" in words)]


def test_t10_the_predicted_class_is_explained_by_default() -> None:
    study = piste.explain(
        piste.load_model(Recorder(four), labels=NAMES), "w x y z", surrogates="shap", space="raw"
    )
    assert set(study.attributions["target"]) == {"fear"}
    assert scores(study, "shap") == approx([0, 0, 0.15, 0])


@pytest.mark.parametrize("target", ["angr", "Joy", "4", 4, -1, "", 1.0, True])
def test_t10_unknown_targets_list_the_names(target: Any) -> None:
    with pytest.raises(piste.InputError, match="0 'anger', 1 'joy', 2 'fear', 3 'other', or 'all'"):
        piste.explain(piste.load_model(Recorder(four), labels=NAMES), "w x y z", target=target)


@pytest.mark.parametrize(
    ("target", "name"), [(0, "anger"), ("joy", "joy"), ("3", "other"), (3, "other")]
)
def test_t10_any_class_can_be_asked_for(target: Any, name: str) -> None:
    study = piste.explain(
        piste.load_model(Recorder(four), labels=NAMES), "w x y z", target=target, space="raw"
    )
    assert set(study.attributions["target"]) == {name}


def test_t10_all_classes_cost_no_extra_query() -> None:
    def explained(target: str) -> tuple[list[str], pd.DataFrame]:
        recorder = Recorder(four)
        model = piste.load_model(recorder, labels=NAMES)
        study = piste.explain(model, "w x y z", surrogates=ADDITIVE, target=target, space="raw")
        table = study.attributions
        return recorder.asked, table.set_index(["target", "surrogate", "unit"])[["token", "score"]]

    asked, together = explained("all")
    assert together.index.unique("target").tolist() == NAMES
    for name in NAMES:
        asked_alone, alone = explained(name)
        assert asked_alone == asked
        pd.testing.assert_frame_equal(together.loc[[name]], alone, rtol=0, atol=1e-12)


# T11: regression and shapes of output ---------------------------------------------------------------


def test_t11_one_number_per_text_in_any_shape(tmp_path: Path) -> None:
    def lengths(texts: list[str]) -> list[float]:
        return [1.5 * len(text) - 4 for text in texts]

    shapes: list[Callable[[list[str]], Any]] = [
        lengths,
        lambda texts: tuple(lengths(texts)),
        lambda texts: np.array(lengths(texts)),
        lambda texts: np.array(lengths(texts))[:, None],
        lambda texts: np.array(lengths(texts), dtype=np.float32),
        lambda texts: [[number] for number in lengths(texts)],
        lambda texts: [np.float64(number) for number in lengths(texts)],
        lambda texts: pd.Series(lengths(texts)),
    ]
    written = set()
    for at, shape in enumerate(shapes):
        study = piste.explain(
            piste.load_model(shape, fingerprint="same"), "short review text", surrogates=ADDITIVE
        )
        study.to_csv(tmp_path / f"{at}.csv")
        written.add((tmp_path / f"{at}.csv").read_bytes())
        written.add((tmp_path / f"{at}.meta.json").read_bytes())
    assert len(written) == 2
    table = study.attributions
    assert set(table["space"]) == {"raw"}
    assert set(table["target"]) == {"output"}
    assert not any("class" in str(name) or "prob" in str(name) for name in table)


def test_t11_tensors(torch: Any) -> None:
    def model(texts: list[str]) -> Any:
        return torch.tensor([len(text) for text in texts], dtype=torch.bfloat16).requires_grad_()

    study = piste.explain(model, "short review", surrogates="shap", space="raw")
    assert scores(study, "shap") == approx([5, 6])


# T12: determinism -----------------------------------------------------------------------------------


EIGHT = "a rather long film with eight whole words"


def additive(query: str) -> float:
    return sum(len(word) * (1 + at % 3) for at, word in enumerate(query.split())) / 10 - 2


def written(tmp_path: Path, **options: Any) -> bytes:
    chosen: dict[str, Any] = {"surrogates": ("shap", "slalom"), "budget": 40, "seed": 7, **options}
    study = piste.explain(additive_model(), EIGHT, **chosen)
    study.to_csv(tmp_path / "run.csv")
    return (tmp_path / "run.csv").read_bytes() + (tmp_path / "run.meta.json").read_bytes()


def additive_model() -> Any:
    return piste.load_model(Recorder(additive), fingerprint="additive")


def test_t12_same_seed_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path)
    assert written(tmp_path) == first
    assert written(tmp_path, seed=8) != first


def test_t12_a_model_object_keeps_no_state() -> None:
    model = additive_model()
    first, second = (
        piste.explain(model, EIGHT, surrogates=ALL, budget=40, seed=7).attributions for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, second, check_exact=True)


@pytest.mark.parametrize("design", ["auto", "leverage", "mixed", "short", "bernoulli"])
def test_t12_document_order_is_irrelevant(design: str) -> None:
    texts = ["a text", "another text of seven words in all", EIGHT]
    tables = []
    for order in ([0, 1, 2], [2, 1, 0], [1]):
        study = piste.explain(
            additive_model(),
            [texts[at] for at in order],
            surrogates=ALL if design == "auto" else ADDITIVE,
            budget=40,
            seed=7,
            design=design,
            text_ids=[f"t{at}" for at in order],
        )
        table = study.attributions
        tables.append(table[table["text_id"] == "t1"].reset_index(drop=True))
    pd.testing.assert_frame_equal(tables[0], tables[1], check_exact=True)
    pd.testing.assert_frame_equal(tables[0], tables[2], check_exact=True)


def test_t12_batch_size_and_progress_change_nothing(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    plain = written(tmp_path)
    assert written(tmp_path, progress=lambda done, total: seen.append((done, total))) == plain
    assert seen
    assert all(0 < done <= total for done, total in seen)
    tables = [written(tmp_path, batch_size=size).rpartition(b"\r\n")[0] for size in (1, 7)]
    assert tables == [plain.rpartition(b"\r\n")[0]] * 2


# T13: budget and batches ----------------------------------------------------------------------------


def test_t13_budget_and_batches_are_kept() -> None:
    recorder = Recorder(additive)
    text = " ".join(f"w{i}" for i in range(12))
    study = piste.explain(recorder, text, surrogates=ALL, budget=200, batch_size=16)
    assert max(map(len, recorder.calls)) <= 16
    assert len(recorder.asked) == len(set(recorder.asked)) <= 200
    assert study.meta["n_queries"] == len(recorder.asked)
    assert set(study.fidelity["n_queries"]) == {len(recorder.asked)}


@pytest.mark.parametrize("budget", [0, -5, 1])
def test_t13_budgets_below_the_minimum_are_refused(budget: int) -> None:
    recorder = Recorder(additive)
    with pytest.raises(piste.InputError, match=f"Got budget={budget}; expected .* at least 2"):
        piste.explain(recorder, "a b c", budget=budget)
    assert not recorder.calls


@pytest.mark.parametrize("budget", [2.5, "100", None, True, float("nan")])
def test_t13_budgets_are_whole_numbers(budget: Any) -> None:
    with pytest.raises(piste.InputError, match="expected a whole number of at least 2"):
        piste.explain(additive_model(), "a b c", budget=budget)


# T15: beyond the window -----------------------------------------------------------------------------


def spaced(text: str) -> list[tuple[int, int]]:
    """A tokenizer: one token a word."""
    spans, position = [], 0
    for word in text.split(" "):
        if word:
            spans.append((position, position + len(word)))
        position += len(word) + 1
    return spans


FORTY = " ".join(f"w{i}" for i in range(40))


@pytest.mark.parametrize("masking", ["remove", MASK])
@pytest.mark.parametrize("design", ["auto", "uniform-size", "permutation"])
def test_t15_words_beyond_the_window(masking: str, design: str) -> None:
    def first_words(query: str) -> float:
        return sum(int(word[1:]) + 1 for word in query.split()[:14] if word != MASK)

    model = piste.load_model(Recorder(first_words), tokenizer=spaced, window=14)
    with pytest.warns(piste.PisteWarning, match="26 units lie beyond the model's window") as caught:
        study = piste.explain(
            model, FORTY, surrogates=ALL, space="raw", masking=masking, design=design, budget=200
        )
    assert len(caught) == 1
    table = study.attributions
    unseen = table["unit"] >= 14
    assert set(table.loc[unseen, "status"]) == {"unseen"}
    assert (table.loc[unseen, "score"] == 0).all()
    assert "unseen" not in set(table.loc[~unseen, "status"])
    for surrogate in ADDITIVE:
        expected = [*range(1, 15), *[0] * 26]
        assert scores(study, surrogate) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("masking", ["remove", "mask-token", "attention"])
@pytest.mark.parametrize("units", ["word", "token"])
def test_t15_a_bert_with_a_window_of_16(tiny_bert_dir: Path, masking: str, units: str) -> None:
    text = " ".join(["the good film not bad plot very actor"] * 5)
    with pytest.warns(piste.PisteWarning, match="26 units lie beyond the model's window") as caught:
        study = piste.explain(
            f"hf:{tiny_bert_dir}", text, surrogates=ALL, masking=masking, units=units, budget=60
        )
    assert len(caught) == 1
    unseen = study.attributions["unit"] >= 14  # 16 less [CLS] and [SEP]
    assert set(study.attributions.loc[unseen, "status"]) == {"unseen"}
    assert (study.attributions.loc[unseen, "score"] == 0).all()
    assert (study.attributions.loc[~unseen, "score"] != 0).mean() > 0.9
    assert len(study.attributions.query("surrogate == 'shap'")) == 40  # padding is no unit


def test_t15_texts_within_the_window_are_not_warned_about(tiny_bert_dir: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study = piste.explain(f"hf:{tiny_bert_dir}", "the good film", surrogates="shap")
    assert "unseen" not in set(study.attributions["status"])


def test_t15_sentences_cut_by_the_window_are_not_seen() -> None:
    text = "w0 w1 w2 w3. w4 w5 w6 w7. w8 w9 w10 w11. w12 w13 w14 w15."
    model = piste.load_model(Recorder(additive), tokenizer=spaced, window=10)
    with pytest.warns(piste.PisteWarning, match="2 units lie beyond"):
        study = piste.explain(model, text, surrogates="shap", units="sentence", space="raw")
    assert study.attributions["status"].tolist() == ["ok", "ok", "unseen", "unseen"]


def test_t15_nothing_within_the_window_is_an_error() -> None:
    model = piste.load_model(Recorder(additive), tokenizer=spaced, window=3)
    with pytest.raises(piste.InputError, match="no unit that lies wholly within the model's window"):
        piste.explain(model, "one sentence of many words.", units="sentence")


# Spare ideas ----------------------------------------------------------------------------------------


def test_an_exact_slalom_is_recovered_from_a_plain_callable() -> None:
    rng = np.random.default_rng(0)
    value, importance = rng.normal(size=20), rng.normal(size=20)

    def slalom(query: str) -> float:
        kept = [int(word[1:]) for word in query.split()]
        weight = np.exp(importance[kept])
        return float(weight @ value[kept] / weight.sum()) if kept else 0.0

    text = " ".join(f"w{i}" for i in range(20))
    study = piste.explain(Recorder(slalom), text, space="raw", budget=500)
    found = study.surrogate(0, "slalom")
    assert found.value_ == pytest.approx(value, abs=1e-3)  # type: ignore[attr-defined]
    centred = importance - importance.mean()
    assert found.importance_ == pytest.approx(centred, abs=1e-3)  # type: ignore[attr-defined]
    assert study.fidelity["r2"].item() > 0.999
    assert study.fidelity["mask_law"].item() == "uniform-size"


@pytest.mark.parametrize("n_units", [1, 2, 3, 6])
def test_shap_equals_enumeration(n_units: int) -> None:
    words = [f"w{i}" for i in range(n_units)]
    rng = np.random.default_rng(n_units)
    table = {kept: rng.normal() for kept in product([False, True], repeat=n_units)}

    def model(query: str) -> float:
        kept = query.split()
        return table[tuple(word in kept for word in words)]

    study = piste.explain(Recorder(model), " ".join(words), surrogates="shap", space="raw")
    found = scores(study, "shap")
    total = table[(True,) * n_units] - table[(False,) * n_units]
    assert sum(found) == pytest.approx(total, abs=1e-10)
    for unit, value in enumerate(found):
        expected = 0.0
        for kept, score in table.items():
            if not kept[unit]:
                added = table[(*kept[:unit], True, *kept[unit + 1 :])] - score
                expected += added / (n_units * comb(n_units - 1, sum(kept)))
        assert value == pytest.approx(expected, abs=1e-9)
