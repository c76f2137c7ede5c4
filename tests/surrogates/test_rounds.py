"""Automatic budgets and optimal designs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import piste
from piste import AutoBudget, InputError
from piste.surrogates.rounds import judge, relative_width
from piste.surrogates.trees import Trees

TEXT = "one two three four five six seven eight nine ten eleven twelve"


class Curved:
    """A model that no surrogate fits exactly; it counts its texts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[float]:
        self.asked += texts
        return [
            np.tanh(0.3 * len(text.split())) + len(set(text)) / 9 + ("two" in text) for text in texts
        ]


def explained(surrogate: str, **options: Any) -> tuple[piste.Study, Curved]:
    model = Curved()
    return piste.explain(model, TEXT, surrogates=surrogate, space="raw", **options), model


@pytest.mark.parametrize(("surrogate", "tolerance"), [("lime", 0.1), ("shap", 0.1), ("slalom", 0.5)])
def test_it_stops_once_every_interval_is_narrow_enough(surrogate: str, tolerance: float) -> None:
    study, model = explained(surrogate, budget=AutoBudget(tolerance, cap=4096))
    outcome = study.meta["texts"][0]
    assert f"every interval is within {tolerance:g}" in outcome["stopped"]
    assert relative_width(study.surrogate(0, surrogate), 0.95) <= tolerance
    assert len(set(model.asked)) == len(model.asked) == outcome["n_queries"] < 4096
    assert outcome["n_held_out"] <= outcome["n_queries"] / 10


def test_auto_is_the_default_rule() -> None:
    auto, _ = explained("lime", budget="auto")
    rule, _ = explained("lime", budget=AutoBudget())
    assert auto.attributions.equals(rule.attributions)


def test_a_tighter_tolerance_costs_more() -> None:
    wide, narrow = (explained("shap", budget=AutoBudget(tolerance))[0] for tolerance in (0.3, 0.05))
    assert wide.fidelity["n_queries"].item() < narrow.fidelity["n_queries"].item()


def test_the_cap_is_never_exceeded() -> None:
    study, model = explained("lime", budget=AutoBudget(tolerance=1e-9, cap=300))
    assert len(model.asked) <= 300
    assert "budget spent" in study.meta["texts"][0]["stopped"]


def test_a_small_text_is_asked_out() -> None:
    study = piste.explain(Curved(), "one two three", surrogates="lime", space="raw", budget="auto")
    assert study.fidelity["n_queries"].item() <= 8


def test_top_k_stops_with_the_top_apart() -> None:
    study, _ = explained("shap", budget=AutoBudget(top_k=1))
    fitted = study.surrogate(0, "shap")
    low, high = fitted.confidence_interval("shapley")
    first = int(np.abs(fitted.attributions()).argmax())
    assert study.attributions["token"][first] == "two"
    assert low[first] > np.delete(high, first).max()


def test_looks_at_ranks_share_the_error() -> None:
    study, _ = explained("shap", budget=400)
    fits = {"shap": study.surrogate(0, "shap")}
    verdicts = [judge(fits, AutoBudget(top_k=1), 0.95, look).enough for look in (1, 50)]
    assert verdicts[0] >= verdicts[1]


def test_two_runs_are_the_same() -> None:
    first, second = (explained("slalom", budget="auto")[0] for _ in range(2))
    assert first.attributions.equals(second.attributions)


@pytest.mark.parametrize("rule", [{"tolerance": 0}, {"tolerance": 1}, {"top_k": 0}, {"cap": 1}])
def test_impossible_rules_are_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected a tolerance between 0 and 1"):
        AutoBudget(**rule)


def test_designs_that_cannot_be_continued_are_refused() -> None:
    with pytest.raises(InputError, match="a law that can be drawn from again"):
        explained("lime", budget="auto", design="identify")


@pytest.mark.parametrize("budget", ["auto", AutoBudget(top_k=1, cap=64)])
@pytest.mark.parametrize("surrogates", ["trees", ["trees", Trees(max_rounds=3)]])
def test_intervals_that_never_narrow_are_refused_before_a_query(surrogates: Any, budget: Any) -> None:
    model = Curved()
    with pytest.raises(InputError, match="no interval that could become narrow"):
        piste.explain(model, TEXT, surrogates=surrogates, space="raw", budget=budget)
    assert not model.asked


def test_trees_are_fitted_to_the_answers_of_an_automatic_budget() -> None:
    study, _ = explained("lime", budget=AutoBudget(0.5, cap=200))
    refitted = study.refit(Trees(max_rounds=3))
    assert set(refitted.attributions["surrogate"]) == {"trees"}


@pytest.mark.parametrize("surrogate", ["lime", "slalom"])
@pytest.mark.parametrize("budget", [300, AutoBudget(0.1, cap=600)])
def test_an_optimal_design_keeps_to_the_budget(surrogate: str, budget: int | AutoBudget) -> None:
    study, model = explained(surrogate, design="optimal", budget=budget)
    outcome = study.meta["texts"][0]
    assert outcome["design"] == "optimal"
    assert len(model.asked) == outcome["n_queries"] <= (300 if budget == 300 else 600)
    assert outcome["n_held_out"] > 0


def test_an_optimal_design_narrows_what_a_linear_fit_can_tell() -> None:
    """On an additive model with even noise the summed variance is what the design makes it."""

    def variances(design: str) -> float:
        study = piste.explain(Curved(), TEXT, surrogates="lime", space="raw", design=design, budget=200)
        fitted = study.surrogate(0, "lime")
        plan = fitted.plan(np.ones((1, 12)))  # type: ignore[attr-defined]
        return float(np.trace(plan.contrasts @ plan.covariance @ plan.contrasts.T))

    assert variances("optimal") < variances("leverage")


def test_an_optimal_design_is_not_for_shapley_values() -> None:
    with pytest.raises(InputError, match="only right for masks drawn at random"):
        explained("shap", design="optimal")
