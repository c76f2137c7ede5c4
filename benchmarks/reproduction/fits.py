"""Fits alone: the same masks and scores given to piste and to the packages, no model and no text."""

import contextlib
import io
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from piste._typing import FloatArray
from piste.fitting import warm_up
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import KernelShap, Lime, Slalom

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from slalom_fit import pairs

# The published package's own defaults (its API; the runtime script has 8e-3 and 20).
LEARNING_RATE, EPOCHS, BATCH = 5e-3, 60, 128


def measure(config: dict[str, Any]) -> pd.DataFrame:
    """One row per fit, package and repeat."""
    warm_up()
    rows = _slalom_fits(config) + _additive_fits(config)
    return pd.DataFrame(rows)


def _slalom_fits(config: dict[str, Any]) -> list[dict[str, object]]:
    """An exact SLALOM from answers to pairs: time, and how far off the parameters are."""
    rows = []
    for repeat in range(config["repeats"]):
        rng = np.random.default_rng([config["seed"], repeat])
        n_units, n_pairs = config["units"], config["pairs"]
        value, importance = rng.normal(size=n_units), rng.normal(size=n_units)
        importance -= importance.mean()
        masks, fresh = pairs(n_units, n_pairs, rng), pairs(n_units, n_pairs, rng)
        truth = _Softmax(value, importance)
        scores = truth(masks)
        for name, fit in {"piste": _fitted_by_piste, "slalom-explanations": _fitted_by_sgd}.items():
            seconds, (v, s) = _timed(partial(fit, masks, scores))
            rows.append(
                {
                    "fit": f"SLALOM, {n_units} units, {n_pairs:,} pairs",
                    "package": name,
                    "repeat": repeat,
                    "seconds": seconds,
                    "rmse_value": _rmse(v, value),
                    "rmse_importance": _rmse(s - s.mean(), importance),
                    "rmse_fresh": _rmse(_Softmax(v, s)(fresh), truth(fresh)),
                }
            )
    return rows


class _Softmax:
    """A SLALOM without a background."""

    def __init__(self, value: FloatArray, importance: FloatArray) -> None:
        self.value, self.weight = value, np.exp(importance)

    def __call__(self, masks: FloatArray) -> FloatArray:
        return masks @ (self.weight * self.value) / (masks @ self.weight)


def _fitted_by_piste(masks: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    fitted = Slalom().fit(masks, scores)
    return fitted.value_, fitted.importance_


def _fitted_by_sgd(masks: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The published fit (Adam on count features), through its own function."""
    import torch
    from slalom_explanations.slalom_helpers import fit_slalom_sgd

    torch.manual_seed(0)
    words = SimpleNamespace(word_toks=torch.arange(masks.shape[1]))
    with contextlib.redirect_stdout(io.StringIO()):
        _, _, fitted = fit_slalom_sgd(
            words,
            torch.from_numpy(masks).float(),
            torch.from_numpy(scores).float(),
            num_eps=EPOCHS,
            lr=LEARNING_RATE,
            batch_size=BATCH,
            use_cls=False,
        )
    return fitted.get_values().double().numpy(), fitted.get_importances().double().numpy()


def _additive_fits(config: dict[str, Any]) -> list[dict[str, object]]:
    """LIME's and KernelSHAP's regressions on an additive function with a little curvature."""
    rows = []
    for n_units in config["additive_units"]:
        rng = np.random.default_rng([config["seed"], n_units])
        effects = rng.normal(size=n_units)
        masks = with_anchors(draw("uniform-size", n_units, config["masks"] - 2, rng)).masks.astype(
            float
        )
        scores = np.tanh(masks @ effects / np.sqrt(n_units)) * 2
        kernel = with_anchors(draw("leverage", n_units, config["masks"] - 2, rng)).masks.astype(float)
        answers = np.tanh(kernel @ effects / np.sqrt(n_units)) * 2
        fits: dict[tuple[str, str], Callable[[], object]] = {
            ("LIME", "piste"): lambda m=masks, y=scores: Lime().fit(m, y).attributions(),
            ("LIME", "piste, with intervals"): lambda m=masks, y=scores: (
                Lime().fit(m, y).confidence_interval()
            ),
            ("LIME", "lime"): _lime(masks, scores),
            ("KernelSHAP", "piste"): lambda m=kernel, y=answers: KernelShap().fit(m, y).attributions(),
            ("KernelSHAP", "piste, with intervals"): lambda m=kernel, y=answers: (
                KernelShap().fit(m, y).confidence_interval()
            ),
            ("KernelSHAP", "shap"): _shap(n_units, effects, config["masks"], l1=True),
            ("KernelSHAP", "shap, no selection"): _shap(n_units, effects, config["masks"], l1=False),
        }
        for repeat in range(config["repeats"]):
            for (fit, package), run in fits.items():
                seconds, _ = _timed(run)
                what = f"{fit}, {n_units} units, {config['masks']:,} masks"
                rows.append({"fit": what, "package": package, "repeat": repeat, "seconds": seconds})
    return rows


def _lime(masks: FloatArray, scores: FloatArray) -> Callable[[], object]:
    """Lime's own regression, all units kept, its usual kernel over the distances given."""
    from lime.lime_base import LimeBase

    base = LimeBase(lambda distance: np.sqrt(np.exp(-(distance**2) / 25**2)), random_state=0)
    distances = 100 * (1 - np.sqrt(masks.mean(axis=1)))
    labels = np.column_stack([-scores, scores])
    return lambda: base.explain_instance_with_data(masks, labels, distances, 1, masks.shape[1])


def _shap(n_units: int, effects: FloatArray, n_masks: int, *, l1: bool) -> Callable[[], object]:
    """The solve step of shap's KernelExplainer, on the coalitions that it drew itself."""
    import shap

    def answer(rows: FloatArray) -> FloatArray:
        return np.tanh(rows @ effects / np.sqrt(n_units)) * 2

    explainer = shap.KernelExplainer(answer, np.zeros((1, n_units)))
    l1_reg = "num_features(10)" if l1 else False
    explainer.shap_values(np.ones(n_units), nsamples=n_masks, silent=True, l1_reg=l1_reg)
    fraction = explainer.nsamples / explainer.max_samples
    return lambda: explainer.solve(fraction, 0)


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what came out."""
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def _rmse(found: FloatArray, truth: FloatArray) -> float:
    return float(np.sqrt(((found - truth) ** 2).mean()))
