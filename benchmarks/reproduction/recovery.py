"""How well values and importances come back from a Transformer that has learnt SLALOM data."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from piste._typing import FloatArray, IntArray
from piste.evaluation.oracles import position_free_transformer
from piste.surrogates import Slalom

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracles"))
from learning import Network, trained

LONGEST, BATCH = 30, 64


class Truth:
    """A SLALOM over so many words: values like the source's, importances a few e-folds apart."""

    def __init__(self, n_words: int, rng: np.random.Generator) -> None:
        self.n_words = n_words
        self.value = rng.normal(size=n_words)
        importance = rng.normal(scale=2.0, size=n_words)
        self.importance = importance - importance.mean()

    def __call__(self, tokens: IntArray) -> FloatArray:
        """Log-odds (n,) of documents."""
        counts = self.counts(tokens)
        weight = np.exp(self.importance)
        return counts @ (weight * self.value) / (counts @ weight)

    def documents(self, n: int, longest: int, rng: np.random.Generator) -> IntArray:
        """Words drawn evenly, 1 to so many a document, then padding."""
        words = rng.integers(self.n_words, size=(n, LONGEST))
        lengths = rng.integers(1, longest + 1, size=n)
        return np.where(np.arange(LONGEST) < lengths[:, None], words, self.n_words)

    def counts(self, tokens: IntArray) -> FloatArray:
        """How often each word occurs, shape (n, n_words)."""
        return (tokens[:, :, None] == np.arange(self.n_words)).sum(axis=1).astype(float)


def measure(config: dict[str, Any]) -> pd.DataFrame:
    """One row per vocabulary, network, surrogate and seed."""
    rows: list[dict[str, object]] = []
    for n_words in config["words"]:
        for seed in range(config["seeds"]):
            rng = np.random.default_rng([config["seed"], n_words, seed])
            truth = Truth(n_words, rng)
            for positions in ("exact", "none", "learned"):
                network: Network = truth
                if positions != "exact":
                    network = _trained(truth, positions, config["steps"], seed, rng)
                here = {"words": n_words, "seed": seed, "network": positions}
                rows += [here | row for row in _fits(network, truth, config["masks"], rng)]
    return pd.DataFrame(rows)


def _trained(truth: Truth, positions: str, steps: int, seed: int, rng: np.random.Generator) -> Network:
    """Two layers that have learnt the probabilities themselves, from fresh documents at every step."""
    module = position_free_transformer(
        truth.n_words, n_layers=2, max_positions=LONGEST if positions == "learned" else 0, seed=seed
    )

    def batch() -> tuple[IntArray, FloatArray]:
        tokens = truth.documents(BATCH, LONGEST, rng)
        return tokens, 1 / (1 + np.exp(-truth(tokens)))

    return trained(module, truth.n_words, steps, batch)


def _fits(
    network: Network, truth: Truth, n_masks: int, rng: np.random.Generator
) -> list[dict[str, object]]:
    """SLALOMs fitted to the network's answers, against the truth that it was taught."""
    asked, short = truth.documents(n_masks, LONGEST, rng), truth.documents(1000, 8, rng)
    answers = network(asked)
    rows = []
    for name, surrogate in {
        "SLALOM": Slalom(background=False),
        "SLALOM, background": Slalom(),
    }.items():
        fitted = surrogate.fit(truth.counts(asked), answers)
        off = {
            "logit": fitted.predict(truth.counts(short)) - network(short),
            "taught": network(short) - truth(short),
            "value": fitted.value_ - truth.value,
            "importance": fitted.importance_ - truth.importance,
        }
        errors: dict[str, object] = {}
        for what, error in off.items():
            errors[f"rmse_{what}"] = float(np.sqrt((error**2).mean()))
            errors[f"published_{what}"] = float(abs(error.mean()))
        errors["worst_importance"] = float(np.abs(off["importance"]).max())
        rows.append({"surrogate": name} | errors)
    return rows
