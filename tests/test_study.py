"""`piste.explain` and the study that it returns: answers, tables, files, and what goes wrong."""

import csv
import json
import math
import os
import pickle
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import regex

import piste
from piste.evaluation import attributions, fidelity
from piste.evaluation.export import json_text
from piste.sampling.designs import DESIGNS, draw
from piste.sampling.records import Design
from piste.surrogates import KernelShap, Lime, Slalom
from piste.surrogates.rounds import AutoBudget

ALL = ("lime", "shap", "slalom")
TWELVE = " ".join(f"w{i}" for i in range(12))


class Recorder:
    """A function on texts that keeps every call."""

    def __init__(self, score: Callable[[Any], Any]) -> None:
        self.score = score
        self.calls: list[list[Any]] = []

    def __call__(self, texts: list[Any]) -> list[Any]:
        self.calls.append(list(texts))
        return [self.score(text) for text in texts]

    @property
    def asked(self) -> list[Any]:
        return [text for call in self.calls for text in call]


def bent(query: str) -> float:
    """Neither additive nor a SLALOM."""
    words = query.split()
    return sum(math.sin(len(word) + 3.0 * at) for at, word in enumerate(words)) - 2.5 * ("w3" in words)


def same(left: piste.Study, right: piste.Study) -> None:
    for table in ("attributions", "fidelity", "responses"):
        pd.testing.assert_frame_equal(getattr(left, table), getattr(right, table), check_exact=True)
    assert json_text(left.meta) == json_text(right.meta)


# The same answers, fitted again ---------------------------------------------------------------------


def test_refit_costs_no_query() -> None:
    recorder = Recorder(bent)
    study = piste.explain(recorder, TWELVE, surrogates="shap", space="raw", budget=60)
    n_asked = len(recorder.asked)
    both = study.refit(["lime", Slalom(background=False)])
    assert len(recorder.asked) == n_asked
    assert list(both.attributions["surrogate"].unique()) == ["lime", "slalom"]
    assert list(study.attributions["surrogate"].unique()) == ["shap"]  # the first stays as it was
    again = both.refit("shap")
    same(again, study)
    direct = piste.explain(bent_model(), TWELVE, surrogates="lime", space="raw", budget=60)
    pd.testing.assert_frame_equal(study.refit("lime").attributions, direct.attributions)


def bent_model() -> Any:
    return piste.load_model(Recorder(bent), kind="raw", fingerprint="bent")


def test_the_fitted_estimators_are_at_hand() -> None:
    study = piste.explain(bent_model(), ["a b c", TWELVE], surrogates=ALL, text_ids=["x", "7"])
    shap = study.surrogate("x", "shap")
    assert isinstance(shap, KernelShap)
    assert shap is study.surrogate(0, "shap")
    assert study.surrogate(-1, "lime") is study.surrogate(np.int64(1), "lime")  # type: ignore[arg-type]
    assert study.surrogate("7", "lime") is study.surrogate(1, "lime")
    mask = np.array([[1, 0, 1]])
    found = study.responses.query("text == 'x' and mask == '101'")["output"].item()
    assert shap.predict(mask).shape == (1,)
    assert abs(shap.predict(np.ones((1, 3))).item() - bent("a b c")) < 1e-9
    assert found == bent("a  c")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (0, "tree", "Got surrogate 'tree'; expected one of 'shap'"),
        (1, "shap", "Got text 1; expected a position below 1 or a text_id"),
        ("one", "shap", "Got text 'one'; expected"),
    ],
)
def test_what_was_not_fitted_is_named(text: Any, name: str, message: str) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap")
    with pytest.raises(piste.InputError, match=message):
        study.surrogate(text, name)


def test_save_and_load(tmp_path: Path) -> None:
    with pytest.warns(piste.PisteWarning, match="could not be explained"):
        study = piste.explain(
            bent_model(),
            ["a b c", TWELVE, "", "half \ud800", None, 'quote " and,\n😀 שלום'],  # type: ignore[list-item]
            surrogates=("lime", "shap", Slalom(prior=(0.01, 0.1)), Lime(kernel_width=None)),
            space="raw",
            budget=40,
            text_ids=["a", "b", "empty", "half", "none", "é"],
        )
    study.save(tmp_path / "study.npz")
    loaded = piste.load_study(tmp_path / "study.npz")
    same(loaded, study)
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "study.npz").read_bytes()
    same(loaded.refit("lime"), study.refit("lime"))


@pytest.mark.parametrize(
    "options",
    [
        {"target": "all", "space": "probability"},
        {"tie_repeats": True, "surrogates": ("lime", "slalom")},
        {"units": [(0, 1), (2, 3)]},
        {"units": str.split, "design": "exhaustive"},
        {"context": "Review: {text} Score:", "masking": "…"},
        {"design": Design(np.eye(3, dtype=bool), "mine"), "surrogates": "lime"},
        {"budget": np.int64(50), "seed": np.int64(3), "target": np.int64(1)},
        {"budget": AutoBudget(tolerance=0.2, cap=40)},
        {"surrogates": [Slalom(max_iter=np.int64(50))]},  # type: ignore[arg-type]
    ],
    ids=lambda options: "-".join(options),
)
def test_every_option_survives_a_file(options: dict[str, Any], tmp_path: Path) -> None:
    chosen = {"surrogates": "shap", **options}
    model = piste.load_model(
        Recorder(lambda text: [0.3 + 0.1 * ("a" in text), 0.2, 0.5]), labels=["x", "y", "text"]
    )
    study = piste.explain(model, "a b a", **chosen)
    study.save(tmp_path / "s.npz")
    loaded = piste.load_study(tmp_path / "s.npz")
    same(loaded, study)


def test_pairs_survive_a_file(tmp_path: Path) -> None:
    model = piste.load_model(Recorder(lambda pair: float(len(pair[0]) - len(pair[1]))))
    study = piste.explain(model, ("a premise", "a hypothesis"), surrogates="shap", space="raw")
    study.save(tmp_path / "s.npz")
    same(piste.load_study(tmp_path / "s.npz"), study)


class Mean(Lime):
    """A user's own estimator."""

    name = "mean"


def test_only_own_estimators_can_be_saved(tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates=Mean())
    assert set(study.attributions["surrogate"]) == {"mean"}
    with pytest.raises(piste.InputError, match=r"Got a surrogate of type Mean; .* Use study\.refit"):
        study.save(tmp_path / "s.npz")
    assert not list(tmp_path.iterdir())


def damaged(content: bytes) -> dict[str, bytes]:
    import io
    import zipfile

    array = io.BytesIO()
    np.save(array, np.zeros(3))
    plain = io.BytesIO()
    np.savez(plain, a=np.zeros(3))
    odd = io.BytesIO()
    np.savez(odd, manifest=np.array("[1, 2]"))
    other = io.BytesIO()
    np.savez(other, manifest=np.array('{"format": 99}'))
    foreign = io.BytesIO()
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("a.txt", "text")
    return {
        "empty": b"",
        "text": b"text_id,unit\r\n0,0\r\n",
        "truncated": content[: len(content) // 2],
        "flipped": content[:200] + bytes(b ^ 255 for b in content[200:260]) + content[260:],
        "array": array.getvalue(),
        "arrays": plain.getvalue(),
        "odd": odd.getvalue(),
        "format": other.getvalue(),
        "zip": foreign.getvalue(),
    }


@pytest.mark.parametrize(
    "damage",
    [
        "empty",
        "text",
        "truncated",
        "flipped",
        "array",
        "arrays",
        "odd",
        "format",
        "zip",
        "missing",
        "folder",
    ],
)
def test_what_is_no_study_is_refused(damage: str, tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap")
    path = tmp_path / "s.npz"
    study.save(path)
    if damage == "missing":
        path.unlink()
    elif damage == "folder":
        path = tmp_path
    else:
        path.write_bytes(damaged(path.read_bytes())[damage])
    with pytest.raises(piste.InputError, match=r"Got .*; expected"):
        piste.load_study(path)


# Names of texts -------------------------------------------------------------------------------------


def test_text_ids() -> None:
    study = piste.explain(bent_model(), ["a b", "c d"], surrogates="shap", text_ids=["x", 5])  # type: ignore[list-item]
    assert list(study.attributions["text_id"].unique()) == ["x", "5"]
    assert list(study.fidelity["text"]) == ["x", "5"]
    assert set(study.responses["text"]) == {"x", "5"}


@pytest.mark.parametrize("names", [["x"], ["x", "x"], ["1", 1], ["a", "b", "c"], []])
def test_text_ids_are_one_each(names: Any) -> None:
    with pytest.raises(piste.InputError, match="expected one of its own for each text"):
        piste.explain(bent_model(), ["a b", "c d"], text_ids=names)


# One bad text among good ones -----------------------------------------------------------------------


def failing(query: str) -> float:
    if "boom" in query:
        raise ZeroDivisionError("the server\nfell over")
    if query == "all nan":
        return float("nan")
    if "some nan" in query and len(query.split()) < 3:
        return float("inf")
    if "empty nan" in query or not query.strip():
        return float("nan") if not query.strip() else 1.0
    return float(len(query))


BAD: dict[str, tuple[Any, str]] = {
    "empty": ("", "Got an empty text"),
    "blank": (" \n ", "Got an empty text"),
    "raises": ("a boom", "The model raised ZeroDivisionError: the server"),
    "nan": ("all nan", r"Got \[nan\] for the unmasked text"),
    "number": (5, "Got 5 of type int"),
    "none": (None, "Got None of type NoneType"),
    "triple": (("a", "b", "c"), "Got .* of type tuple"),
    "surrogate": ("a \udc80", "Got a text with half a surrogate pair"),
    "bytes": (b"a b", "Got b'a b' of type bytes"),
}


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_text_leaves_the_others_intact(bad: str, tmp_path: Path) -> None:
    text, message = BAD[bad]
    good = ["one two three", "four five six seven"]

    def model(texts: list[str]) -> list[float]:
        return [failing(query) if query.strip() else 0.0 for query in texts]

    alone = piste.explain(model, good, surrogates=("lime", "shap"), text_ids=["g", "h"], space="raw")
    with pytest.warns(piste.PisteWarning, match=f"1 of 3 texts .* the first is text bad: {message}"):
        study = piste.explain(
            model,
            [good[0], text, good[1]],
            surrogates=("lime", "shap"),
            text_ids=["g", "bad", "h"],
            space="raw",
        )
    table = study.attributions
    kept = table[table["text_id"] != "bad"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, alone.attributions, check_exact=True)
    (row,) = table[table["text_id"] == "bad"].to_dict(orient="records")
    assert row["status"].startswith("error: ")
    assert np.isnan(row["score"])
    assert row["token"] == row["target"] == row["surrogate"] == ""
    assert table["unit"].dtype == "Int64"
    assert table["score"].dtype == np.float64
    with pytest.raises(piste.InputError, match=r"Text 'bad' was not explained"):
        study.surrogate("bad", "shap")
    study.to_csv(tmp_path / "a.csv")
    study.to_json(tmp_path / "a.json")
    written = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert len(written) == len(table)
    assert json.loads((tmp_path / "a.json").read_text())["meta"]["texts"][1]["status"] == row["status"]
    assert set(study.fidelity["text"]) == {"g", "h"}
    pd.testing.assert_frame_equal(study.refit("shap").refit(["lime", "shap"]).attributions, table)


def test_queries_spent_on_a_bad_text_are_counted() -> None:
    def score(query: str) -> float:
        if len(query.split()) == 2:
            raise ValueError("too short")
        return float(len(query))

    recorder = Recorder(score)
    with pytest.warns(piste.PisteWarning, match="1 of 2 texts"):
        study = piste.explain(recorder, ["good", "w1 w2 w3 w4"], surrogates="shap", batch_size=1)
    answered = len(recorder.asked) - 1
    assert study.meta["n_queries"] == answered
    assert study.meta["texts"][1]["n_queries"] == answered - 2


def test_nan_on_some_masks_is_counted_and_left_out(tmp_path: Path) -> None:
    def score(query: str) -> float:
        words = query.split()
        return float("nan") if words == ["w1", "w4"] else len(words) * 1.0

    text = "w0 w1 w2 w3 w4"
    with pytest.warns(piste.PisteWarning, match="1 answers were NaN or infinite .* for ' w1   w4'"):
        study = piste.explain(Recorder(score), text, surrogates=("lime", "shap"), space="raw")
    assert study.attributions["score"].tolist() == pytest.approx([1] * 10)
    assert study.meta["texts"][0]["n_non_finite"] == 1
    assert study.responses["output"].isna().sum() == 1
    study.save(tmp_path / "s.npz")
    with pytest.warns(piste.PisteWarning, match="for ' w1   w4'"):
        piste.load_study(tmp_path / "s.npz").warn()


def test_a_surrogate_that_cannot_be_fitted_has_a_row() -> None:
    def score(query: str) -> float:
        return float(len(query)) if query.strip() else float("nan")

    with pytest.warns(piste.PisteWarning) as caught:
        study = piste.explain(Recorder(score), "a bc def", surrogates=("shap", "lime"), space="raw")
    said = [str(warning.message) for warning in caught]
    assert said[0].startswith("1 fits failed; the first is 'shap' for text 0: Got masks without")
    assert said[1].startswith("1 answers were NaN or infinite and were left out; one is for")
    rows = study.attributions
    assert set(rows.loc[rows["surrogate"] == "lime", "status"]) == {"ok"}
    (status,) = rows.loc[rows["surrogate"] == "shap", "status"]
    assert status.startswith("error: Got masks without the empty row")
    with pytest.raises(piste.InputError, match="'shap' was not fitted to text 0"):
        study.surrogate(0, "shap")
    with pytest.raises(piste.InputError, match="without the empty row"):
        study.refit("shap")
    assert study.meta["texts"][0]["failures"].keys() == {"shap"}


class Stubborn(Lime):
    """An estimator that breaks."""

    name = "stubborn"

    def fit(
        self, masks: Any, scores: Any, sample_weight: Any = None, *, score_errors: Any = None
    ) -> Any:
        if len(masks) == 4:
            raise np.linalg.LinAlgError("Singular matrix")
        return super().fit(masks, scores, sample_weight, score_errors=score_errors)


def test_an_estimator_that_raises_spoils_nothing() -> None:
    with pytest.warns(piste.PisteWarning, match="1 fits failed; .* 'stubborn' for text 0: Singular"):
        study = piste.explain(bent_model(), ["a b", "a b c"], surrogates=[Stubborn(), "lime"])
    assert study.attributions["status"].str.startswith("error").sum() == 1


@pytest.mark.parametrize("surrogate", ALL)
@pytest.mark.parametrize("options", [{}, {"budget": 40}, {"budget": "auto"}], ids=str)
def test_scores_too_large_to_be_squared_are_refused(surrogate: str, options: dict[str, Any]) -> None:
    with pytest.raises(piste.InputError, match=r"Got a score of size 1e\+199; expected at most"):
        piste.explain(
            lambda texts: [1e200 / (5 + len(text)) for text in texts],
            "a b c d e f",
            surrogates=surrogate,
            space="raw",
            **options,
        )


def test_units_that_raise_spoil_nothing() -> None:
    def units(text: str) -> list[str]:
        if "bad" in text:
            raise KeyError("no such word")
        return text.split()

    with pytest.warns(piste.PisteWarning, match="units function raised KeyError"):
        study = piste.explain(bent_model(), ["a b", "bad", "c"], surrogates="shap", units=units)
    assert study.attributions["status"].str.startswith("error").tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["", " "], piste.InputError, r"empty text.* \(text 0; none of 2 texts worked\)"),
        (
            "",
            piste.InputError,
            "Got an empty text; expected at least one unit. Give a text that is not blank",
        ),
        (["boom", "a boom"], piste.ModelError, "The model raised ZeroDivisionError"),
        ("all nan", piste.ModelError, r"Got \[nan\] for the unmasked text; expected finite"),
        ([], piste.InputError, "Got no texts"),
        (None, piste.InputError, "Got texts of type NoneType; expected a text or a list of texts"),
        (7, piste.InputError, "Got texts of type int"),
        (b"a b", piste.InputError, "Got texts of type bytes"),
        ([1, 2], piste.InputError, "Got 1 of type int"),
        (("a", "b", "c"), piste.InputError, "of type tuple; expected a str, or a pair"),
    ],
)
def test_nothing_to_explain_raises(texts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        piste.explain(lambda queries: [failing(query) for query in queries], texts, space="raw")


# Determinism ----------------------------------------------------------------------------------------


def test_global_generators_are_untouched(torch: Any) -> None:
    def states() -> list[Any]:
        numpy = pickle.dumps(np.random.get_state())  # noqa: NPY002 - the one to leave alone
        return [random.getstate(), numpy, torch.get_rng_state().tolist()]

    before = states()
    study = piste.explain(
        bent_model(), TWELVE, surrogates=("lime", "shap", Slalom(heads=2)), budget=40, seed=1
    )
    assert study.fidelity["r2"].notna().all()
    assert states() == before


def test_np_str_and_str_draw_the_same_masks() -> None:
    plain = piste.explain(bent_model(), TWELVE, surrogates="shap", budget=50)
    numpy = piste.explain(bent_model(), np.array([TWELVE]), surrogates="shap", budget=50)  # type: ignore[arg-type]
    same(plain, numpy)


# Budget and designs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [2, 3, 7, 30, 31, 100])
@pytest.mark.parametrize("design", ["auto", *DESIGNS])
def test_every_design_keeps_the_budget(design: str, budget: int) -> None:
    recorder = Recorder(bent)
    n_units = 12 if design != "exhaustive" else 4
    text = " ".join(f"w{i}" for i in range(n_units))
    options: dict[str, Any] = {"surrogates": ("lime", "shap"), "design": design, "budget": budget}
    if budget < {"identify": 25, "exhaustive": 16}.get(design, 0):
        with pytest.raises(piste.InputError, match=f"Got budget={budget} for .*; expected at least"):
            piste.explain(recorder, text, **options)
        assert len(recorder.asked) <= 1
        return
    study = piste.explain(recorder, text, space="raw", **options)
    assert len(recorder.asked) == len(set(recorder.asked)) <= budget
    assert study.meta["n_queries"] == len(recorder.asked)
    fitted = set(study.responses.query("use == 'fit'")["mask"])
    held_out = set(study.responses.query("use == 'held-out'")["mask"])
    assert {"1" * n_units, "0" * n_units} <= fitted
    assert not fitted & held_out
    assert bool(held_out) == (budget >= 10 and design != "exhaustive")
    assert study.meta["texts"][0]["design"] == design or design == "auto"


def test_small_texts_are_enumerated() -> None:
    recorder = Recorder(bent)
    study = piste.explain(recorder, "a b c d", surrogates=ALL, budget=16, space="raw")
    assert len(recorder.asked) == len(study.responses) == 16
    assert set(study.fidelity["mask_law"]) == {"all masks"}
    assert (study.fidelity["r2"] == study.fidelity["r2_low"]).all()


@pytest.mark.parametrize(
    ("surrogate", "n_units", "least"),
    [
        (Slalom(), 1, 2),
        (Slalom(), 2, 4),
        (Slalom(), 3, 8),
        (Slalom(), 6, 14),  # 2 n + 1 and the full text
        (Slalom(background=False), 1, 2),
        (Slalom(background=False), 2, 4),
        (Slalom(background=False), 6, 13),  # 2 n - 1, the full and the empty text
    ],
    ids=repr,
)
def test_identify_needs_no_more_than_it_says(surrogate: Slalom, n_units: int, least: int) -> None:
    text = " ".join(f"w{i}" for i in range(n_units))
    options: dict[str, Any] = {"surrogates": surrogate, "design": "identify"}
    if least > 2:
        with pytest.raises(piste.InputError, match=f"expected at least {least} queries"):
            piste.explain(bent_model(), text, budget=least - 1, **options)
    study = piste.explain(bent_model(), text, budget=least, **options)
    assert len(study.responses) == study.meta["n_queries"] == least


@pytest.mark.parametrize("n_units", [2, 3, 5, 8, 12, 20])
@pytest.mark.parametrize(
    "surrogate", [Lime(), KernelShap(), Slalom(), Slalom(background=False)], ids=repr
)
def test_the_budget_that_would_do_does(n_units: int, surrogate: Any) -> None:
    text = " ".join(f"w{i}" for i in range(n_units))
    options: dict[str, Any] = {"surrogates": surrogate, "space": "raw"}
    status = piste.explain(bent_model(), text, budget=2, **options).attributions["status"]
    assert status.str.contains("underdetermined").any()
    stated = status[status.str.contains("would do")].str.extract(r"budget (\d+)")[0].unique()
    if not len(stated):
        assert surrogate.min_queries(n_units) > 2**n_units
        return
    (budget,) = map(int, stated)
    for seed in range(3):
        enough = piste.explain(bent_model(), text, budget=budget, seed=seed, **options)
        assert not enough.attributions["status"].str.contains("underdetermined").any()
    if surrogate.name != "slalom":
        less = piste.explain(bent_model(), text, budget=budget - 1, **options)
        assert less.attributions["status"].str.contains("underdetermined").any()


def test_a_design_of_ones_own() -> None:
    masks = np.array([[True, True, False], [False, True, True], [True, False, False]])
    recorder = Recorder(bent)
    design = Design(masks, "mine")
    study = piste.explain(recorder, "a b c", surrogates="lime", design=design, budget=4, space="raw")
    assert len(recorder.asked) == 4  # the unmasked text is asked besides
    fitted = study.responses.query("use == 'fit'")["mask"].tolist()
    assert fitted == ["110", "011", "100"]
    assert study.meta["design"] == study.meta["texts"][0]["design"] == "mine"
    with pytest.raises(piste.InputError, match=r"Got budget=3 for a design of 3 masks; .* at least 4"):
        piste.explain(recorder, "a b c", surrogates="lime", design=design, budget=3)
    with pytest.raises(piste.InputError, match="Got a design over 3 units for a text of 2"):
        piste.explain(recorder, "a b", surrogates="lime", design=design)


def test_all_masks_under_any_name_are_all_masks() -> None:
    masks = draw("exhaustive", 3, 8, np.random.default_rng(0)).masks
    study = piste.explain(bent_model(), "a b c", surrogates="shap", design=Design(masks, "mine"))
    assert set(study.fidelity["mask_law"]) == {"all masks"}
    some = Design(masks[[0, 7, 1, 2]], "exhaustive")
    study = piste.explain(bent_model(), "a b c", surrogates="shap", design=some, budget=4)
    assert set(study.fidelity["mask_law"]) == {"fit (exhaustive)"}


def test_fidelity_without_a_finite_answer_is_undefined() -> None:
    fitted = {TWELVE, " " * 11}

    def score(query: str) -> float:
        return float(len(query)) if query in fitted else float("nan")

    with pytest.warns(piste.PisteWarning, match="were NaN or infinite"):
        study = piste.explain(Recorder(score), TWELVE, surrogates=("lime", "shap"), budget=40)
    assert set(study.fidelity["status"]) == {"undefined"}
    assert set(study.fidelity["n_masks"]) == {0}


def test_a_poor_fit_is_flagged() -> None:
    def parity(query: str) -> float:
        return float(len(query.split()) % 2)

    study = piste.explain(
        Recorder(parity), TWELVE, surrogates=("lime", "shap"), space="raw", budget=200
    )
    assert set(study.fidelity["status"]) == {"low"}
    assert set(study.attributions["status"]) == {"low fidelity"}
    assert (study.fidelity["r2_low"] <= study.fidelity["r2"]).all()
    assert (study.fidelity["r2"] <= study.fidelity["r2_high"]).all()


def test_rank_correlation_ignores_rounding() -> None:
    study = piste.explain(
        lambda texts: [0.1 * ("a" in t) + 0.2 for t in texts], "a b c", surrogates=ALL, space="raw"
    )
    assert study.fidelity.set_index("surrogate")["spearman"]["shap"] == pytest.approx(1)


# Surrogates -----------------------------------------------------------------------------------------


def test_estimators_and_repeated_names() -> None:
    chosen: list[Any] = ["slalom", Slalom(background=False), Slalom(heads=2), Lime(alpha=1.0), "lime"]
    study = piste.explain(bent_model(), TWELVE, surrogates=chosen, budget=60)
    names = ["slalom", "slalom-2", "slalom-3", "lime", "lime-2"]
    assert list(study.attributions["surrogate"].unique()) == names
    assert list(study.meta["surrogates"]) == names
    assert study.meta["surrogates"]["slalom-2"]["background"] is False
    assert study.surrogate(0, "slalom-3").get_params()["heads"] == 2
    assert not hasattr(chosen[1], "value_")  # the caller's objects stay unfitted


@pytest.mark.parametrize(
    "surrogates",
    ["tree", [], (), ["lime", "tree"], [Lime], Lime, 5, None, [None], object(), {"lime": 1}],
)
def test_unknown_surrogates(surrogates: Any) -> None:
    with pytest.raises(piste.InputError, match=r"Got (no )?surrogate.*; expected"):
        piste.explain(bent_model(), "a b", surrogates=surrogates)


def test_one_answer_set_serves_all() -> None:
    recorder = Recorder(bent)
    piste.explain(recorder, TWELVE, surrogates=ALL, budget=100)
    alone = Recorder(bent)
    piste.explain(alone, TWELVE, surrogates="lime", budget=100)
    assert recorder.asked == alone.asked


# Inputs ---------------------------------------------------------------------------------------------


def test_pairs() -> None:
    recorder = Recorder(lambda pair: float("cat" in pair[0]) - 2.0 * ("dog" in pair[1]))
    pair = ("A cat sat.", "The dog sat.")
    study = piste.explain(recorder, pair, surrogates=("lime", "shap"), space="raw")
    assert recorder.calls[0] == [pair]
    assert all(type(query) is tuple for query in recorder.asked)
    rows = study.attributions.query("surrogate == 'shap'")
    assert rows["segment"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["score"].tolist() == pytest.approx([0, 1, 0, 0, -2, 0], abs=1e-9)
    for segment, token, start, end in zip(
        rows["segment"], rows["token"], rows["start"], rows["end"], strict=True
    ):
        assert pair[segment][start:end] == token
    both = piste.explain(recorder, [pair, list(pair)], surrogates="shap", space="raw")  # type: ignore[list-item]
    assert len(both.attributions) == 12


def test_context_surrounds_every_query_and_is_never_masked() -> None:
    recorder = Recorder(lambda query: float(len(query)))
    study = piste.explain(recorder, "a bc", surrogates="shap", context="<s>{text} {x}</s>", space="raw")
    assert recorder.calls[0] == ["<s>a bc {x}</s>"]
    assert all(query.startswith("<s>") and query.endswith(" {x}</s>") for query in recorder.asked)
    assert study.attributions["token"].tolist() == ["a", "bc"]
    assert study.attributions["start"].tolist() == [0, 2]
    for context in ("no place", "{text} {text}"):
        with pytest.raises(piste.InputError, match=r"'\{text\}' in \d places; expected one"):
            piste.explain(recorder, "a bc", context=context)


def test_ties() -> None:
    recorder = Recorder(lambda query: float(query.split().count("so") + ("good" in query)))
    study = piste.explain(
        recorder, "so so so good", surrogates=("lime", "shap", "slalom"), space="raw", tie_repeats=True
    )
    scores = study.attributions.groupby("surrogate")["score"].apply(list)
    assert scores["lime"] == pytest.approx([1] * 4)
    assert scores["shap"] == pytest.approx([1] * 4)  # units are its players: never tied
    assert study.surrogate(0, "lime").coef_.shape == (2,)  # type: ignore[attr-defined]


UNITS: list[tuple[Any, list[str]]] = [
    ("word", ["One", "film", "Two", "stars"]),
    ("sentence", ["One film.", "Two stars!"]),
    (str.split, ["One", "film.", "Two", "stars!"]),
    (lambda text: [(0, 3), (10, 19)], ["One", "Two stars"]),
    ([(4, 8), (14, 19)], ["film", "stars"]),
    (np.array([[4, 8], [14, 19]]), ["film", "stars"]),
    ("token", ["One", "film", "Two", "stars"]),
]


@pytest.mark.parametrize(("units", "tokens"), UNITS)
@pytest.mark.parametrize("masking", ["remove", "…", "mask-token"])
def test_units_and_maskings(units: Any, tokens: list[str], masking: str) -> None:
    recorder = Recorder(lambda query: float(len(query)))
    text = "One film. Two stars!"

    def cut(part: str) -> list[tuple[int, int]]:
        return [
            (part.index(word), part.index(word) + len(word)) for word in UNITS[0][1] if word in part
        ]

    model = piste.load_model(recorder, tokenizer=cut, mask_token="[MASK]")
    study = piste.explain(model, text, surrogates="shap", units=units, masking=masking, space="raw")
    assert study.attributions["token"].tolist() == tokens
    put = {"remove": "", "mask-token": "[MASK]"}.get(masking, masking)
    expected = [len(token) - len(put) for token in tokens]
    assert study.attributions["score"].tolist() == pytest.approx(expected, abs=1e-9)
    shortest = text
    for token in tokens:
        shortest = shortest.replace(token, put, 1)
    assert shortest in recorder.asked


def test_attention_masking_keeps_the_text(tiny_bert_dir: Path) -> None:
    study = piste.explain(
        f"hf:{tiny_bert_dir}", "the good film", surrogates="shap", masking="attention"
    )
    assert len(study.attributions) == 3
    assert (study.attributions["score"] != 0).all()
    with pytest.raises(piste.InputError, match="Got masking='attention' for a callable"):
        piste.explain(bent_model(), "a b", masking="attention")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"design": "latin"}, "Got design='latin'; expected 'auto', 'optimal', 'exhaustive'"),
    ({"design": np.ones((2, 2), bool)}, "Got design=array"),
    ({"design": None}, "Got design=None"),
    ({"space": "odds"}, "Got space='odds'; expected one of 'logit', 'probability', 'raw'"),
    ({"units": "letter"}, "Got units='letter'; expected 'word', 'token', 'sentence'"),
    ({"units": "token"}, "Got units='token' for a model that does not tell its subwords"),
    ({"units": [(0, 99)]}, "Got a unit outside its text"),
    ({"units": lambda text: []}, "Got no callable unit"),
    ({"masking": ""}, "Got an empty masking"),
    ({"masking": "Remove"}, "Got masking='Remove'; expected 'remove'"),
    ({"masking": "mask-token"}, "Got masking='mask-token' for a model without a known mask token"),
    ({"budget": 1}, "Got budget=1; expected a whole number of at least 2 queries"),
    ({"batch_size": 0}, "Got batch_size=0; expected a whole number of at least 1"),
    ({"batch_size": 2.0}, "Got batch_size=2.0"),
    ({"seed": -1}, "Got seed=-1; expected a whole number of at least 0"),
    ({"seed": None}, "Got seed=None"),
    ({"seed": 1.5}, "Got seed=1.5"),
    ({"confidence": 95}, "Got confidence=95; expected a number between 0 and 1"),
    ({"confidence": 0}, "Got confidence=0"),
    ({"confidence": "high"}, "Got confidence='high'"),
    ({"target": "north"}, "Got target='north'; expected one of the outputs 0 'output'"),
    ({"context": "none"}, "Got a context"),
    ({"context": 5}, "Got context=5; expected a template with one '{text}', or None"),
    ({"store": 5}, "Got store=5; expected a path, an open store, 'none', or None"),
    ({"progress": 5}, "Got progress=5; expected a function of"),
    ({"units": 5}, "Got units=5; expected 'word', 'token', 'sentence', a function or spans"),
    ({"masking": 5}, "Got masking=5; expected 'remove', 'mask-token', 'attention'"),
    ({"noise_probe": 3}, "Got noise_probe=3; expected 0 for none or at least 4 repeats"),
    ({"noise_probe": -1}, "Got noise_probe=-1; expected a whole number of at least 0 repeats"),
    (
        {"noise_probe": 10, "budget": 11},
        "Got budget=11; expected a whole number of at least 12 queries",
    ),
    (
        {"budget": "auto", "design": "identify"},
        "Got budget='auto' with design='identify'; expected a law",
    ),
    ({"budget": "auto", "design": "exhaustive"}, "Got budget='auto' with design='exhaustive'"),
    (
        {"budget": "auto", "design": Design(np.ones((1, 3), bool), "mine")},
        "Got budget='auto' with design='mine'",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_refused_before_they_cost(options: dict[str, Any], message: str) -> None:
    recorder = Recorder(bent)
    with pytest.raises(piste.InputError, match=message):
        piste.explain(recorder, "a b c", **options)
    assert len(recorder.asked) <= ("target" in options)


@pytest.mark.parametrize("model", ["nothing:x", "builtin:nothing", "sentiment", "hf:", "", 5, None])
def test_unknown_models(model: Any) -> None:
    with pytest.raises(piste.InputError, match=r"Got .*; expected"):
        piste.explain(model, "a b c")


def test_undeclared_numbers_guessed_differently_are_said() -> None:
    with pytest.warns(
        piste.PisteWarning, match="guessed for each text: logit for 1, raw for 1. Declare"
    ):
        study = piste.explain(
            lambda ts: [len(t) / 4 for t in ts], ["a b", "long text"], surrogates="shap"
        )
    assert study.attributions.groupby("text_id")["space"].first().tolist() == ["logit", "raw"]


def test_interrupts_pass_through() -> None:
    def stop(texts: list[str]) -> list[float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        piste.explain(stop, "a b c")


def test_labels_may_be_called_anything() -> None:
    model = piste.load_model(lambda ts: [[len(t), 1, 2] for t in ts], labels=["text", "mask", "[b]"])
    study = piste.explain(model, "a b", surrogates="shap", target="all")
    assert study.responses.columns.tolist() == ["text", "use", "mask", "text", "mask", "[b]"]
    assert study.attributions["target"].unique().tolist() == ["text", "mask", "[b]"]


def test_labels_are_one_each() -> None:
    model = piste.load_model(lambda texts: [[1, 2]] * len(texts), labels=["a", "a"])
    with pytest.raises(piste.ModelError, match="Got the labels 'a', 'a'; expected a name of its own"):
        piste.explain(model, "a b c")


def test_names_that_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap", text_ids=["x\ud800"])
    study.to_csv(tmp_path / "a.csv")
    assert set(study.attributions["text_id"]) == {"x?"}


# Files ----------------------------------------------------------------------------------------------


HARD = (
    '"Quoted", said she;\n\tline two\r\n5 < 6 & 7 = "x""y" 😀 שלום עולם مرحبا ﷺ'
    "\u2028a\u00a0b null NA =1+1"
)


def test_csv_holds_every_token_and_float_exactly(tmp_path: Path) -> None:
    starts = [match.start() for match in regex.finditer(r"\X", HARD)][::3]
    spans = list(pairwise([*starts, len(HARD)]))
    study = piste.explain(
        Recorder(lambda query: np.sin(len(query)) / 3),
        ["null", HARD, "plain"],
        units=lambda text: spans if text == HARD else [(0, len(text))],
        surrogates=("lime", "shap"),
        space="raw",
        budget=120,
        text_ids=["1", 'q"uo,te\n', "é"],
    )
    path = tmp_path / "a.csv"
    study.to_csv(path)
    assert path.read_bytes().endswith(b"\r\n")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = study.attributions
    assert list(rows[0]) == list(attributions.COLUMNS) == list(table)
    assert [row["token"] for row in rows] == table["token"].tolist()
    hard = [row for row in rows if row["text_id"] == 'q"uo,te\n' and row["surrogate"] == "shap"]
    assert "".join(row["token"] for row in hard) == HARD
    for row in hard:
        assert row["token"] == HARD[int(row["start"]) : int(row["end"])]
    bits = [struct.pack("d", float(row["score"])) for row in rows]
    assert bits == [struct.pack("d", score) for score in table["score"]]
    read = pd.read_csv(path, keep_default_na=False, dtype={"text_id": str, "token": str})
    assert read["token"].tolist() == table["token"].tolist()
    assert read["score"].tolist() == table["score"].tolist()


def test_json_holds_the_same(tmp_path: Path) -> None:
    with pytest.warns(piste.PisteWarning, match="1 of 2 texts"):
        study = piste.explain(bent_model(), [HARD, ""], surrogates=("lime", "shap"), budget=60)
    study.to_json(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    table = study.attributions
    assert [row["token"] for row in content["attributions"]] == table["token"].tolist()
    written = [row["score"] for row in content["attributions"]]
    assert written[:-1] == table["score"].tolist()[:-1]
    assert written[-1] is content["attributions"][-1]["unit"] is None
    assert content["meta"] == json.loads(json.dumps(content["meta"]))
    assert set(content["attributions"][0]) == set(attributions.COLUMNS)


def test_meta_says_where_the_numbers_come_from(tmp_path: Path) -> None:
    recorder = Recorder(lambda query: 1.0 if "w3" in query else 0.25)
    model = piste.load_model(recorder, fingerprint="mine:1", kind="probability")
    with pytest.warns(piste.PisteWarning, match="were clipped"):
        study = piste.explain(
            model, TWELVE, surrogates=["shap", Lime(alpha=1.0)], budget=60, seed=3, confidence=0.9
        )
    study.to_csv(tmp_path / "out.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.meta.json"]
    meta = json.loads((tmp_path / "out.meta.json").read_text(encoding="utf-8"))
    assert meta["schema_version"] == 1
    assert meta["model"] == "mine:1"
    assert meta["surrogates"]["lime"]["alpha"] == 1.0
    assert meta["surrogates"]["shap"]["estimator"] == "KernelShap"
    chosen = {
        "units": "word",
        "masking": "remove",
        "design": "auto",
        "budget": 60,
        "target": None,
        "space": "logit",
        "tie_repeats": False,
        "context": None,
        "batch_size": 64,
        "seed": 3,
        "confidence": 0.9,
        "clip_epsilon": 1e-6,
    }
    assert {name: meta[name] for name in chosen} == chosen
    assert meta["n_queries"] == len(recorder.asked) <= 60
    assert meta["n_clipped"] == sum("w3" in query for query in recorder.asked)
    (text,) = meta["texts"]
    assert text["design"] == "leverage"
    assert text["n_masks"] + text["n_held_out"] == len(recorder.asked)
    assert text["output_kind"] == "probability"
    assert text["targets"] == ["output"]
    assert text["base"]["shap"] == pytest.approx([np.log(0.25 / 0.75)])
    assert [row["surrogate"] for row in meta["fidelity"]] == ["shap", "lime"]
    assert set(meta["fidelity"][0]) == set(fidelity.COLUMNS)
    assert {"piste", "python", "numpy"} <= set(meta["versions"])


@pytest.mark.parametrize("write", ["to_csv", "to_json", "save"])
@pytest.mark.parametrize("place", ["missing", "file", "folder"])
def test_nothing_is_half_written(write: str, place: str, tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap")
    path = {
        "missing": tmp_path / "no" / "a.csv",
        "file": tmp_path / "afile" / "a.csv",
        "folder": tmp_path / "afolder",
    }[place]
    (tmp_path / "afile").write_text("x")
    (tmp_path / "afolder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        piste.InputError, match=r"Got .* when writing .*; expected an existing, writable"
    ):
        getattr(study, write)(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failed_write_leaves_the_old_files(tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap")
    (tmp_path / "a.csv").write_text("old")
    (tmp_path / "a.meta.json").mkdir()
    (tmp_path / "a.meta.json" / "x").touch()
    with pytest.raises(piste.InputError, match="when writing"):
        study.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "a.meta.json"}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(tmp_path: Path) -> None:
    study = piste.explain(bent_model(), "a b c", surrogates="shap")
    tmp_path.chmod(0o500)
    with pytest.raises(piste.InputError, match="Permission denied when writing"):
        study.to_csv(tmp_path / "a.csv")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def test_files_are_overwritten_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x" * 100_000)
    piste.explain(bent_model(), "a b c", surrogates="shap").to_csv(path)
    assert path.stat().st_size < 2000
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


# Progress -------------------------------------------------------------------------------------------


def test_progress_runs_over_all_texts() -> None:
    seen: list[tuple[int, int]] = []
    piste.explain(
        bent_model(),
        [TWELVE, "a b c", TWELVE + " w12"],
        surrogates="shap",
        budget=40,
        batch_size=8,
        progress=lambda done, total: seen.append((done, total)),
    )
    done = [each for each, _ in seen]
    assert done == sorted(done)
    assert {total for _, total in seen} == {120}
    assert done[-1] <= 120


def test_a_study_says_what_it_is_of() -> None:
    study = piste.explain(lambda texts: [float(len(t)) for t in texts], "a film", space="raw")
    assert repr(study) == "<Study of 1 of 1 texts: slalom>"


@pytest.mark.parametrize(
    ("surrogates", "budget", "design"),
    [
        ("slalom", 120, "leverage"),
        (("lime", "slalom"), 120, "leverage"),
        (("slalom", "shap"), 120, "permutation"),
        ("shap", 190, "leverage"),
        ("slalom", 100, "permutation"),
    ],
)
def test_auto_draws_at_random_as_soon_as_the_surrogates_bear_it(
    surrogates: str | tuple[str, ...], budget: int, design: str
) -> None:
    text = " ".join(f"word{at}" for at in range(40))
    study = piste.explain(
        lambda texts: [len(each) / 10 for each in texts],
        text,
        surrogates=surrogates,
        budget=budget,
        space="raw",
    )
    assert study.meta["texts"][0]["design"] == design
    assert set(study.attributions["status"]) <= {"ok", "importance not identifiable"}
