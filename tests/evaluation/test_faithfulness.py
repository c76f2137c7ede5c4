"""Faithfulness of attributions: by hand, queries counted, baselines, failures, a real model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError, ModelError
from piste.evaluation.baselines import with_baselines
from piste.evaluation.explanations import read_attributions
from piste.evaluation.faithfulness import COLUMNS, METRICS, faithfulness
from piste.evaluation.measures import Curve, Erasure, Infidelity, SensitivityN, chosen_measures
from piste.evaluation.rationales import Rationale
from piste.evaluation.summaries import summary

EFFECTS = {"great": 0.3, "good": 0.1, "poor": -0.2}
TEXT = "a great and good but poor film today ok"
WORDS = TEXT.split()


class Additive:
    """A probability that is a sum over words, and what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> list[float]:
        self.asked += texts
        return [0.5 + sum(EFFECTS.get(word, 0.0) for word in text.split()) for text in texts]


def table(scores: Sequence[float] | None = None, **columns: Any) -> pd.DataFrame:
    true = [EFFECTS.get(word, 0.0) for word in WORDS]
    return pd.DataFrame({"token": WORDS, "score": true if scores is None else scores}).assign(**columns)


def values(found: pd.DataFrame) -> dict[tuple[str, str], float]:
    keys = zip(found["metric"], found["setting"], strict=True)
    return dict(zip(keys, found["value"].tolist(), strict=True))


def test_every_metric_of_the_true_effects() -> None:
    """9 units, y = .7. Rationales of 1, 1, 1, 2, 5 units have the effects .3, .3, .3, .4, .4."""
    found = faithfulness(Additive(), TEXT, table(), space="probability")
    assert list(found.columns) == list(COLUMNS)
    numbers = values(found)
    assert numbers["comprehensiveness", "0.1"] == pytest.approx(0.3)
    assert numbers["comprehensiveness", "aopc"] == pytest.approx(0.34)
    # Alone they leave .8, .8, .8, .9, .9.
    assert numbers["sufficiency", "aopc"] == pytest.approx(-(3 * 0.1 + 2 * 0.2) / 5)
    # .7 .4 .3 .3 .3 .3 .3 .3 .3 .5
    assert numbers["deletion", "most first"] == pytest.approx((0.35 + 0.4 + 7 * 0.3 + 0.25) / 9)
    # .7 .9 .9 .9 .9 .9 .9 .9 .8 .5
    assert numbers["deletion", "least first"] == pytest.approx((0.35 + 7 * 0.9 + 0.8 + 0.25) / 9)
    assert numbers["insertion", "most first"] == pytest.approx(numbers["deletion", "least first"])
    assert numbers["insertion", "least first"] == pytest.approx(numbers["deletion", "most first"])
    assert numbers["infidelity", "unscaled"] == pytest.approx(0, abs=1e-12)
    assert numbers["infidelity", "scaled"] == pytest.approx(0, abs=1e-12)
    assert numbers["sensitivity-n", "mean"] == pytest.approx(1)
    assert set(found.query("metric == 'comprehensiveness' and setting == '0.5'")["status"]) == {"ties"}
    assert set(found.query("setting == '0.1'")["status"]) == {"ok"}
    assert set(found["n_units"]) == {9}


def test_log_odds_come_from_the_same_queries() -> None:
    model = Additive()
    both = faithfulness(model, TEXT, table(), metrics="comprehensiveness")
    assert len(model.asked) == len(set(model.asked)) == 4  # the text; without 1, 2, 5 units
    assert set(both["n_queries"]) == {4}
    by_space = both.query("setting == '0.1'").set_index("space")["value"]
    assert by_space["probability"] == pytest.approx(0.3)
    logit = [np.log(p / (1 - p)) for p in (0.7, 0.4)]
    assert by_space["logit"] == pytest.approx(logit[0] - logit[1])


def test_masked_texts_keep_the_order_of_the_text() -> None:
    model = Additive()
    faithfulness(model, TEXT, table(), metrics=Erasure("sufficiency", bins=(0.2,)))
    assert model.asked[-1].split() == ["great", "good"]


def test_methods_share_random_masks_and_queries() -> None:
    model = Additive()
    two = pd.concat([table(), table([0.0, 1, 2, 3, 4, 5, 6, 7, 8], surrogate="other")])
    found = faithfulness(model, TEXT, two, metrics=("infidelity", "sensitivity-n"))
    assert len(model.asked) == len(set(model.asked))
    assert len(model.asked) <= found.groupby("metric")["n_queries"].first().sum()


def test_one_seed_one_result_whatever_the_order_of_texts() -> None:
    texts = {"x": TEXT, "y": "good good good", "z": "poor film"}
    both = pd.concat(
        [
            pd.DataFrame({"token": text.split(), "score": 0.0}).assign(text_id=name)
            for name, text in texts.items()
        ]
    )
    first = faithfulness(Additive(), texts, both)
    turned = faithfulness(Additive(), dict(reversed(texts.items())), both)
    for name in texts:
        one, other = (found[found["text"] == name].reset_index(drop=True) for found in (first, turned))
        pd.testing.assert_frame_equal(one, other)
    reseeded = faithfulness(Additive(), texts, both, seed=1)
    assert not first["value"].equals(reseeded["value"])


def test_baselines_and_metrics_share_queries_without_a_store() -> None:
    model = Additive()
    faithfulness(model, TEXT, table(), metrics="deletion", baselines=["leave-one-out", "random"])
    assert len(model.asked) == len(set(model.asked))


def test_a_store_is_asked_before_the_model(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    first = faithfulness(Additive(), TEXT, table(), store=store, baselines=["leave-one-out"])
    again = Additive()
    second = faithfulness(again, TEXT, table(), store=store, baselines=["leave-one-out"])
    pd.testing.assert_frame_equal(first, second)
    assert again.asked == []


def test_options_reach_the_model() -> None:
    model = Additive()
    found = faithfulness(
        model, TEXT, table(), metrics="deletion", masking="…", context="Review: {text}", batch_size=3
    )
    assert all(text.startswith("Review: ") for text in model.asked)
    assert set(found["masking"]) == {"…"}
    assert "Review: a … and good but poor film today ok" in model.asked
    assert np.isfinite(found["value"]).all()


def test_a_budget_that_does_not_suffice_says_so() -> None:
    model = Additive()
    with pytest.raises(InputError, match="budget of 3 queries for 18 distinct texts"):
        faithfulness(model, TEXT, table(), metrics="deletion", budget=3)
    assert model.asked == []


def test_human_length_is_erasers_k() -> None:
    """Rationales of 2 and 3 units: k = 2, as Python rounds 2.5 to the even number."""
    texts = {"x": TEXT, "y": TEXT}
    both = pd.concat([table(text_id=name) for name in texts])
    human = [Rationale("x", flags=(False, True, True) + (False,) * 6), Rationale("y", spans=((0, 11),))]
    found = faithfulness(
        Additive(), texts, both, metrics="comprehensiveness", rationales=human, space="probability"
    )
    assert found.query("setting == 'human length'")["value"].tolist() == pytest.approx([0.4, 0.4])


def test_points_of_a_curve() -> None:
    found = faithfulness(
        Additive(),
        TEXT,
        table(),
        metrics=Curve("deletion", points=3, keep_points=True),
        space="probability",
    )
    curve = found[found["setting"].str.startswith("most first @")]
    assert [float(setting.split("@")[1]) for setting in curve["setting"]] == pytest.approx(
        [0, 1 / 3, 2 / 3, 1], abs=1e-4
    )
    assert curve["value"].tolist() == pytest.approx([0.7, 0.3, 0.3, 0.5])


def test_pairs_of_texts() -> None:
    def model(pairs: list[tuple[str, str]]) -> list[float]:
        return [0.5 + 0.25 * ("good" in second) for _, second in pairs]

    units = pd.DataFrame(
        {"segment": [0, 1, 1], "start": [0, 0, 5], "end": [1, 4, 9], "score": [0.0, 0.25, 0.0]}
    )
    found = faithfulness(model, ("a", "good film"), units, space="probability")
    assert values(found)["comprehensiveness", "aopc"] == pytest.approx(0.25 * (5 / 5))
    assert values(found)["infidelity", "unscaled"] == pytest.approx(0)


def test_targets_are_labels() -> None:
    def model(texts: list[str]) -> list[list[float]]:
        return [[0.2, 0.8] if "good" in text else [0.6, 0.4] for text in texts]

    score = {"token": ["good", "film"], "score": [1.0, 0.0]}
    both = pd.concat([pd.DataFrame(score).assign(target=name) for name in ("0", "1", "")])
    found = faithfulness(model, "good film", both, metrics="comprehensiveness", space="probability")
    means = found.query("setting == 'aopc'")
    assert means["target"].tolist() == ["0", "1", "1"]
    assert means["value"].tolist() == pytest.approx([-0.4, 0.4, 0.4])


def test_a_regression_is_measured_as_it_is() -> None:
    found = faithfulness(lambda texts: [10.0 * len(text) for text in texts], TEXT, table())
    assert set(found["space"]) == {"raw"}


def test_infidelity_is_for_effects_in_its_own_space() -> None:
    logit = faithfulness(Additive(), TEXT, table(space="logit"), metrics="infidelity")
    assert logit.query("setting == 'unscaled'").set_index("space")["status"].to_dict() == {
        "probability": "undefined: scores are no effects in this space",
        "logit": "ok",
    }
    importance = faithfulness(Additive(), TEXT, table(kind="importance"), metrics="infidelity")
    assert importance.query("setting == 'unscaled'")["value"].isna().all()
    assert importance.query("setting == 'scaled'")["value"].notna().all()


def test_a_remote_model_is_asked_once_for_each_text(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    received: list[str] = []

    def handle(request: Any) -> Any:
        texts = [text for (text,) in json.loads(request.content)["inputs"]]
        received.extend(texts)
        answers = Additive()(texts)
        rows = [[{"label": "yes", "score": p}, {"label": "no", "score": 1 - p}] for p in answers]
        return httpx.Response(200, json=rows)

    def remote() -> Any:
        return piste.load_model(
            "http://h/predict", shape="tei", transport=httpx.MockTransport(handle), concurrency=4
        )

    local = faithfulness(Additive(), TEXT, table(), baselines=["leave-one-out"])
    store = tmp_path / "answers.db"
    for _ in range(2):
        found = faithfulness(
            remote(), TEXT, table(target="yes"), baselines=["leave-one-out"], store=store
        )
        assert len(received) == len(set(received))
        assert found["value"].tolist() == pytest.approx(local["value"].tolist(), abs=1e-9, nan_ok=True)


# Baselines ------------------------------------------------------------------------------------------


def test_leave_one_out_finds_the_effects_of_an_additive_model() -> None:
    added = with_baselines(
        Additive(), TEXT, table(space="probability"), baselines=["leave-one-out", "zero"]
    )
    own = added[added["surrogate"] == "leave-one-out"]
    assert own["score"].tolist() == pytest.approx([EFFECTS.get(word, 0.0) for word in WORDS])
    assert own["token"].tolist() == WORDS
    assert set(own["kind"]) == {"removal"}
    assert set(added[added["surrogate"] == "zero"]["score"]) == {0.0}


def test_the_random_baseline_permutes_scores() -> None:
    scores = np.arange(9.0).tolist()
    draws = [
        with_baselines(Additive(), TEXT, table(scores), baselines=["random"], seed=seed)["score"][9:]
        for seed in (0, 0, 1)
    ]
    assert sorted(draws[0]) == scores
    assert draws[0].tolist() == draws[1].tolist() != draws[2].tolist()


def test_a_text_that_fails_has_failed_baselines() -> None:
    def model(texts: list[str]) -> list[float]:
        if any(text != TEXT for text in texts):
            raise RuntimeError("no")
        return [0.5] * len(texts)

    added = with_baselines(model, TEXT, table())
    assert added.query("surrogate == 'leave-one-out'")["status"].str.startswith("error: ").all()
    with pytest.raises(InputError, match="Got baselines"):
        with_baselines(model, TEXT, table(), baselines=["mean"])


def test_other_units_have_baselines_of_their_own() -> None:
    spans = pd.DataFrame({"start": [0, 12], "end": [11, 39], "score": [1.0, 0.0]})
    both = pd.concat([table(), spans.assign(surrogate="phrases")])
    added = with_baselines(Additive(), TEXT, both, baselines=["zero"])
    kinds = added[added["surrogate"] == "zero"].groupby("kind", sort=False).size()
    assert kinds.to_dict() == {"constant": 9, "constant of phrases's units": 2}


# Failures -------------------------------------------------------------------------------------------


def test_one_bad_text_spoils_no_other() -> None:
    def model(texts: list[str]) -> list[float]:
        if any("bad" in text for text in texts):
            raise ValueError("broken")
        return [0.5 + 0.1 * ("good" in text) for text in texts]

    both = pd.DataFrame({"text_id": ["0", "1"], "token": ["good", "bad"], "score": [0.1, 0.1]})
    found = faithfulness(model, ["good", "bad"], both, metrics="comprehensiveness")
    assert found[found["text"] == "0"]["value"].notna().all()
    bad = found[found["text"] == "1"]
    assert bad["value"].isna().all()
    assert bad["status"].str.startswith("error: ").all()
    with pytest.raises(ModelError, match="broken"):
        faithfulness(model, ["bad"], both.assign(text_id=["0", "1"])[1:].assign(text_id="0"))


def test_attributions_of_unknown_texts_are_refused() -> None:
    with pytest.raises(InputError, match="attributions of text 'x'; expected one of the texts '0'"):
        faithfulness(Additive(), TEXT, table(text_id="x"))


def test_a_token_that_is_part_of_a_word_is_flagged() -> None:
    part = pd.DataFrame({"token": ["goo", "film"], "score": [0.2, 0.1]})
    found = faithfulness(Additive(), "a good film", part, metrics="deletion")
    assert found["value"].notna().all()
    assert found["status"].str.contains("partial word").all()
    whole = faithfulness(Additive(), "a good film", part.assign(token=["good", "film"]))
    assert not whole["status"].str.contains("partial word").any()


def test_what_is_no_table_is_refused_before_the_model_is_asked() -> None:
    def untouched(texts: list[str]) -> list[float]:
        raise AssertionError(texts)

    for baselines in ((), ("random",)):
        with pytest.raises(InputError, match=r"type str; .*read_attributions\(path\)"):
            faithfulness(untouched, TEXT, "a.csv", baselines=baselines)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed=-1"):
        faithfulness(untouched, TEXT, table(), seed=-1)


def test_a_text_without_attributions_is_counted() -> None:
    found = faithfulness(Additive(), [TEXT, "another"], table(), metrics="deletion")
    assert found[found["text"] == "1"]["status"].unique().tolist() == ["error: no attributions"]
    counts = summary(found)
    assert counts["n_undefined"].tolist() == [1] * len(counts)


@pytest.mark.parametrize("metrics", ["speed", (), ["deletion", "speed"]])
def test_unknown_metrics_are_refused(metrics: Any) -> None:
    with pytest.raises(InputError, match="expected some of 'comprehensiveness'"):
        chosen_measures(metrics)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Erasure("completeness"),
        lambda: Erasure("sufficiency", bins=(2.0,)),
        lambda: Curve("ablation"),
        lambda: Curve("deletion", points=0),
        lambda: Infidelity(n_masks=0),
        lambda: SensitivityN(n_subsets=1),
    ],
)
def test_options_of_metrics_are_checked(make: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        make()


def test_spaces_are_checked_before_the_first_query() -> None:
    model = Additive()
    with pytest.raises(InputError, match="space"):
        faithfulness(model, TEXT, table(), space="odds")
    assert model.asked == []


# End to end -----------------------------------------------------------------------------------------


def test_the_embedded_model_uses_what_surrogates_say(tmp_path: Path) -> None:
    texts = [
        "A gripping film with a dull ending that still moved me.",
        "The plot is thin and the acting is awful, but the songs are lovely.",
        "I would happily watch this charming, clever comedy again.",
        "Boring, predictable and far too long.",
    ]
    model = piste.load_model("builtin:sentiment")
    study = piste.explain(model, texts, surrogates=("lime", "slalom"), budget=120)
    study.to_csv(tmp_path / "a.csv")
    asked: list[tuple[int, int]] = []
    found = faithfulness(
        model,
        texts,
        read_attributions(tmp_path / "a.csv"),
        baselines=("random", "leave-one-out", "zero"),
        progress=lambda done, total: asked.append((done, total)),
    )
    assert asked[-1] == (4, 4)
    assert set(found["metric"]) == set(METRICS)
    medians = summary(found[found["space"] == "logit"]).set_index(
        ["surrogate", "kind", "metric", "setting", "space"]
    )["median"]

    def median(surrogate: str, kind: str, metric: str, setting: str) -> float:
        return float(medians[surrogate, kind, metric, setting, "logit"])

    for surrogate, kind in (
        ("lime", "coefficient"),
        ("slalom", "shapley"),
        ("leave-one-out", "removal"),
    ):
        chance = ("random", "permutation")
        for metric, setting, better in (
            ("comprehensiveness", "aopc", 1),
            ("sufficiency", "aopc", -1),
            ("deletion", "most first", -1),
            ("insertion", "most first", 1),
            ("sensitivity-n", "mean", 1),
        ):
            gain = median(surrogate, kind, metric, setting) - median(*chance, metric, setting)
            assert better * gain > 0, (surrogate, metric)
        zero = median("zero", "constant", "infidelity", "unscaled")
        assert median(surrogate, kind, "infidelity", "unscaled") < zero
