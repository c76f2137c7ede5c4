"""What the torch and the ONNX adapter share."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from piste.sampling.models._outputs import one_vs_rest_log_odds
from piste.sampling.models._tokens import kept_tokens, window_of


@pytest.mark.parametrize("room", range(12))
def test_longest_segment_is_truncated_first_as_tokenizers_does(room: int) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(room)
    for n_first in range(7):
        for n_second in range(7):
            segments = tokenizer.encode("a " * n_first, "a " * n_second).sequence_ids
            expected = [segments.count(0), segments.count(1)]
            assert kept_tokens([n_first, n_second], room) == expected


@pytest.mark.parametrize(
    ("config", "limit", "expected"),
    [
        ({"max_position_embeddings": 512}, None, 512),
        ({"max_position_embeddings": 512}, 128, 128),
        ({"n_positions": 1024}, 10**30, 1024),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512, 512),
        ({"max_position_embeddings": -1}, 1e30, None),
        ({}, None, None),
    ],
)
def test_window(config: dict[str, object], limit: float | None, expected: int | None) -> None:
    assert window_of(config, limit) == expected


def test_log_odds_are_exact_where_a_softmax_saturates() -> None:
    logits = np.array([[50.0, 0.0, -3.0], [1.0, 1.0, 1.0], [-800.0, 0.0, 800.0], [0.1, 0.2, 0.3]])
    exact = np.array(
        [[z - np.logaddexp.reduce(np.delete(row, c)) for c, z in enumerate(row)] for row in logits]
    )
    np.testing.assert_allclose(one_vs_rest_log_odds(logits), exact, rtol=1e-14, atol=1e-14)
    assert np.isnan(one_vs_rest_log_odds(np.array([[np.nan, 0.0]]))).all()
    assert not np.isfinite(one_vs_rest_log_odds(np.array([[np.inf, np.inf]]))).any()
