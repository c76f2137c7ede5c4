"""Seconds per document of the explainers whose times the source reports."""

import sys
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
from explainers import EXPLAINERS, silence, why_not
from subjects import PARAGRAPH, minilm, timed


def measure(config: dict[str, Any], folder: Path | None) -> pd.DataFrame:
    """One row per document, number of queries and explainer; empty where there is no model."""
    subject = minilm(folder or Path("minilm"), threads=1)
    if isinstance(subject, str):
        return pd.DataFrame([{"explainer": "all", "skipped": subject}])
    words, n_units = PARAGRAPH.split(), config["units"]
    rows: list[dict[str, object]] = []
    for number in range(config["texts"]):
        text = " ".join(words[number * n_units : (number + 1) * n_units])
        for name in config["explainers"]:
            if why := why_not(name, subject, "default"):
                rows.append({"explainer": name, "skipped": why})
                continue
            with silence():  # imports and compiles what it needs
                EXPLAINERS[name](subject, text, 4 * n_units, config["seed"], None)
            for budget in config["budgets"]:
                subject.n_queries, seconds = 0, {}
                with silence(), timed(seconds):
                    EXPLAINERS[name](subject, text, budget, config["seed"], None)
                here = {"explainer": name, "text": number, "budget": budget}
                rows.append(here | {"n_queries": subject.n_queries} | seconds)
    return pd.DataFrame(rows)
