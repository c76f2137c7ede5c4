"""What is fitted to the answers: surrogates of piste, and peers with the same two methods."""

import warnings
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from sklearn.linear_model import RidgeCV

from piste._typing import FloatArray
from piste.surrogates import Interactions, Lime, Slalom, SlalomPairs, Trees

ALPHAS = np.logspace(-3, 3, 13)


class Predictor(Protocol):
    """Fitted to masks (n, n_units) and scores (n,), it predicts scores of other masks."""

    def fit(self, masks: FloatArray, scores: FloatArray) -> object:
        """Fit to the answers."""
        ...

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks, shape (n,)."""
        ...


class Pairs:
    """Ridge on all pairs of units, its strength by leave-one-out cross-validation."""

    def fit(self, masks: FloatArray, scores: FloatArray) -> "Pairs":
        """Fit to the answers."""
        self.ridge = RidgeCV(ALPHAS).fit(self._features(masks), scores)
        return self

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks."""
        return self.ridge.predict(self._features(masks))

    @staticmethod
    def _features(masks: FloatArray) -> FloatArray:
        first, second = np.triu_indices(masks.shape[1], 1)
        return np.hstack([masks, masks[:, first] * masks[:, second]])


class Proxy:
    """shapiq's ProxySPEX, given the same masks as everyone; read off before it is summed to an index."""

    def fit(self, masks: FloatArray, scores: FloatArray) -> "Proxy":
        """Fit to the answers."""
        from shapiq import ProxySPEX

        class Same:
            """A sampler that draws the given masks."""

            coalitions_matrix = masks.astype(bool)

            def sample(self, budget: int) -> None:
                """Nothing to draw."""

        class Kept(ProxySPEX):
            """Keeps the Fourier coefficients."""

            def _refine(self, *arguments: object) -> Mapping[tuple[int, ...], float]:
                self.kept = super()._refine(*arguments)
                return self.kept

        approximator = Kept(n=masks.shape[1], index="FBII", max_order=2, random_state=0)
        approximator._uniform_sampler = Same()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            approximator.approximate(len(masks), lambda _: scores)
        self.coefficients = approximator.kept
        return self

    def predict(self, masks: FloatArray) -> FloatArray:
        """``sum_S c_S (-1)^|z and S|``."""
        signs = 1.0 - 2.0 * masks
        return sum(
            (c * signs[:, list(units)].prod(axis=1) for units, c in self.coefficients.items()),
            np.zeros(len(masks)),
        )


class TreesOnRest:
    """Trees fitted to what a SLALOM leaves of the answers."""

    def fit(self, masks: FloatArray, scores: FloatArray) -> "TreesOnRest":
        """Fit to the answers."""
        self.slalom = Slalom().fit(masks, scores)
        self.trees = Trees().fit(masks, scores - self.slalom.predict(masks))
        return self

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks."""
        return self.slalom.predict(masks) + self.trees.predict(masks)


class EvenPairs:
    """A ridge on all pairs alike, fitted to what a SLALOM leaves of the answers."""

    def fit(self, masks: FloatArray, scores: FloatArray) -> "EvenPairs":
        """Fit to the answers."""
        self.slalom = Slalom().fit(masks, scores)
        self.pairs = Pairs().fit(masks - 0.5, scores - self.slalom.predict(masks))
        return self

    def predict(self, masks: FloatArray) -> FloatArray:
        """Scores of masks."""
        return self.slalom.predict(masks) + self.pairs.predict(masks - 0.5)


LINEAR = "linear"
MODELS: Mapping[str, Callable[[], Predictor]] = {
    LINEAR: lambda: RidgeCV(ALPHAS),
    "lime": Lime,
    "slalom as published": lambda: Slalom(background=False),
    "slalom": Slalom,
    "slalom, 2 heads": lambda: Slalom(heads=2),
    "slalom, heads by CV": lambda: Slalom(heads="auto"),
    "slalom with pairs": SlalomPairs,
    "interactions": Interactions,
    "ridge with pairs": Pairs,
    "trees": Trees,
    "slalom, then trees": TreesOnRest,
    "slalom, then a ridge on pairs": EvenPairs,
    "ProxySPEX": Proxy,
}
OF_PAIRS = ("interactions", "ridge with pairs")
READABLE = ("slalom", "slalom, 2 heads", "slalom, heads by CV", "slalom with pairs", "interactions")
