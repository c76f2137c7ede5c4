"""Every estimator as one function: a game, a number of distinct queries and a seed to Shapley values.

All of them read the answers through `Asked`, which counts the distinct masks; asking for one again is
free. The full and the empty text count. Where a package's setting buys an uncertain number of distinct
masks, the largest setting within the budget is taken.
"""

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from math import comb

import numpy as np
from tables import Game, codes

from piste._typing import FloatArray
from piste.fitting.shapley import exact_shapley
from piste.sampling._subsets import water_fill
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import KernelShap, Slalom

Estimator = Callable[["Asked", int, int], FloatArray]


class Asked:
    """A game whose distinct questions are counted."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._seen = np.zeros(len(game.scores), dtype=np.bool_)
        self.n_units = game.n_units

    def __call__(self, masks: FloatArray) -> FloatArray:
        """Scores (n_masks,) of masks (n_masks, n_units), 0/1 or bool."""
        rows = codes(np.atleast_2d(masks))
        self._seen[rows] = True
        return self._game.scores[rows]

    @property
    def n_queries(self) -> int:
        """Distinct masks asked since the last `forget`."""
        return int(self._seen.sum())

    def forget(self) -> None:
        """Count from zero again."""
        self._seen[:] = False


def estimators() -> tuple[dict[str, Estimator], dict[str, str]]:
    """The estimators by name, and why others are left out."""
    found: dict[str, Estimator] = {
        "piste KernelShap": _kernel_shap(None),
        'piste KernelShap(control="slalom")': _kernel_shap("slalom"),
        'piste KernelShap(control="gaussian-process")': _kernel_shap("gaussian-process"),
        "piste Slalom": slalom,
        "leverage sampling": leverage,
    }
    optional: Mapping[str, tuple[str, dict[str, Estimator]]] = {
        "shap": ("shap", {"shap Permutation": shap_permutation, "shap Kernel": shap_kernel}),
        "shapiq": ("shapiq", {"shapiq KernelSHAP": shapiq_kernel, "shapiq SVARM": shapiq_svarm}),
        "xgboost": ("xgboost-cpu", {"RegressionMSR": regression_msr}),
    }
    skipped = {}
    for module, (package, group) in optional.items():
        if importlib.util.find_spec(module):
            found |= group
        else:
            skipped |= dict.fromkeys(group, f"pip install {package}")
    return found, skipped


def _pool(asked: Asked, budget: int, seed: int) -> FloatArray:
    """Leverage sampling in pairs without replacement, with the full and the empty mask."""
    n_units = asked.n_units
    ends = np.array([[True] * n_units, [False] * n_units])
    drawn = draw("leverage", n_units, budget - 2, np.random.default_rng(seed), exclude=ends)
    return with_anchors(drawn).masks.astype(np.float64)


def _kernel_shap(control: str | None) -> Estimator:
    def estimate(asked: Asked, budget: int, seed: int) -> FloatArray:
        masks = _pool(asked, budget, seed)
        return KernelShap(control).fit(masks, asked(masks)).values_  # type: ignore[arg-type]

    return estimate


def slalom(asked: Asked, budget: int, seed: int) -> FloatArray:
    """The exact Shapley values of a fitted SLALOM, which are the model's as far as it fits."""
    masks = _pool(asked, budget, seed)
    return Slalom().fit(masks, asked(masks)).attributions("shapley")


def leverage(asked: Asked, budget: int, seed: int) -> FloatArray:
    """As published: weights over expected numbers of masks (Musco & Witter, arXiv:2410.01917)."""
    masks = _pool(asked, budget, seed)
    n, sizes = asked.n_units, masks.sum(axis=1).astype(int)
    existing = np.array([comb(n, s) for s in range(n + 1)])
    uniform = np.array([0.0] + [1.0] * (n - 1) + [0.0])
    expected = water_fill(uniform, existing, len(masks) - 2)
    inner = np.arange(1, n)
    kernel = np.zeros(n + 1)
    kernel[1:-1] = 1.0 / (inner * (n - inner) * expected[1:-1])
    return KernelShap().fit(masks, asked(masks), kernel[sizes]).values_


def regression_msr(asked: Asked, budget: int, seed: int) -> FloatArray:
    """Boosted trees and a Monte Carlo correction (Witter, Liu & Musco, arXiv:2506.11849).

    Re-implemented: as theirs, XGBoost's defaults, residuals in-sample, masks in pairs of uniform size.
    """
    from xgboost import XGBRegressor

    masks = _pool(asked, budget, seed)
    n, sizes = asked.n_units, masks.sum(axis=1).astype(int)
    scores = asked(masks)
    trees = XGBRegressor(random_state=seed, n_jobs=1).fit(masks, scores)
    everything = draw("exhaustive", n, 1 << n, np.random.default_rng(0)).masks
    known = exact_shapley(trees.predict(everything).astype(np.float64), everything)
    residuals = scores - trees.predict(masks)
    drawn = np.bincount(sizes, minlength=n + 1)
    existing = np.array([comb(n, s) for s in range(n + 1)])
    weighted = residuals * (existing / np.maximum(drawn, 1))[sizes]
    share = np.array([1.0 / (n * comb(n - 1, s)) for s in range(n)] + [0.0])
    gain = masks.T @ (weighted * share[sizes - 1])
    loss = (1.0 - masks).T @ (weighted * share[sizes])
    return known + gain - loss


def shap_permutation(asked: Asked, budget: int, seed: int) -> FloatArray:
    """As many permutations, forwards and backwards, as the distinct masks allow."""
    import shap

    n = asked.n_units

    def run(n_permutations: int) -> FloatArray:
        asked.forget()
        explainer = shap.explainers.Permutation(asked, np.zeros((1, n)), seed=seed)
        explained = explainer(
            np.ones((1, n)), max_evals=n_permutations * (2 * n + 1), silent=True, error_bounds=False
        )
        return np.asarray(explained.values[0], dtype=np.float64)

    return _largest(run, asked, budget, first=budget // (2 * n))


def shap_kernel(asked: Asked, budget: int, seed: int) -> FloatArray:
    """All units kept (``l1_reg=False``); its samples are distinct masks already."""
    from shap import KernelExplainer

    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002  (shap draws from the global generator)
    try:
        explainer = KernelExplainer(asked, np.zeros((1, asked.n_units)))
        values = explainer.shap_values(
            np.ones((1, asked.n_units)), nsamples=budget - 2, l1_reg=False, silent=True
        )
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return np.asarray(values[0], dtype=np.float64)


def shapiq_kernel(asked: Asked, budget: int, seed: int) -> FloatArray:
    """With the pairing trick, which is off by default and helps."""
    from shapiq.approximator import KernelSHAP

    approximator = KernelSHAP(asked.n_units, random_state=seed, pairing_trick=True)
    return _by_unit(approximator.approximate(budget, asked), asked.n_units)


def shapiq_svarm(asked: Asked, budget: int, seed: int) -> FloatArray:
    """Stratified sampling (Kolpaczki et al. 2024), with the pairing trick."""
    from shapiq.approximator import SVARM

    approximator = SVARM(asked.n_units, random_state=seed, pairing_trick=True)
    return _by_unit(approximator.approximate(budget, asked), asked.n_units)


def _by_unit(interactions: object, n_units: int) -> FloatArray:
    return np.array([interactions[(unit,)] for unit in range(n_units)])  # type: ignore[index]


def _largest(run: Callable[[int], FloatArray], asked: Asked, budget: int, first: int) -> FloatArray:
    """The result of the largest setting with at most ``budget`` distinct queries; 1 always fits."""
    low, high = 1, max(first, 2)
    run(high)
    while asked.n_queries <= budget:
        low, high = high, 2 * high
        run(high)
    while high - low > 1:
        middle = (low + high) // 2
        run(middle)
        low, high = (middle, high) if asked.n_queries <= budget else (low, middle)
    return run(low)


def quiet() -> None:
    """Silence what the peers warn about when they are imported or run."""
    warnings.filterwarnings("ignore")
