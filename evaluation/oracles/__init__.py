"""Models whose explanations are known, and how far surrogates are from them."""

from piste.evaluation.oracles.attention import (
    AttentionClassifier,
    AttentionWeights,
    attention_oracle,
    lime_limit_oracle,
    random_weights,
)
from piste.evaluation.oracles.lime_limit import lime_limit, three_halves
from piste.evaluation.oracles.records import Known, Oracle
from piste.evaluation.oracles.score import COLUMNS, ORACLES, evaluate_oracles, score_oracle
from piste.evaluation.oracles.transformer import position_free_transformer, transformer_scores
from piste.evaluation.oracles.words import linear_oracle, pair_oracle, slalom_oracle

__all__ = [
    "COLUMNS",
    "ORACLES",
    "AttentionClassifier",
    "AttentionWeights",
    "Known",
    "Oracle",
    "attention_oracle",
    "evaluate_oracles",
    "lime_limit",
    "lime_limit_oracle",
    "linear_oracle",
    "pair_oracle",
    "position_free_transformer",
    "random_weights",
    "score_oracle",
    "slalom_oracle",
    "three_halves",
    "transformer_scores",
]
