"""Small Transformers without positions: whatever they learn, repeating a word changes nothing."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from piste._typing import FloatArray

if TYPE_CHECKING:
    import torch


def position_free_transformer(
    n_tokens: int,
    n_layers: int = 1,
    *,
    width: int = 64,
    n_heads: int = 4,
    max_positions: int = 0,
    seed: int = 0,
) -> "torch.nn.Module":
    r"""An encoder of tokens without positions or special tokens, read out as the mean over tokens.

    If all tokens are the same, each attention row is a mean of identical vectors, so that every layer
    answers as for a single token: :math:`f([\tau]^n) = f([\tau])` for all n and whatever the weights. No
    additive model but a constant one does that.

    Parameters
    ----------
    n_tokens
        Tokens are numbered from 0; the number ``n_tokens`` is padding, which is not attended to. An
        empty text is a single padding token.
    n_layers
        Attention layers (norm first, feed-forward of twice the width, no dropout).
    width, n_heads
        Size of the embeddings, and heads per layer.
    max_positions
        With a number > 0, learned position embeddings for texts up to that long: the way out of the
        above.
    seed
        Of the initial weights; torch's global generator is left as it was.

    Returns
    -------
    torch.nn.Module
        From token numbers (n_texts, length), int64, to scores (n_texts,), float32.

    References
    ----------
    Leemann, Fastowski, Pfeiffer & Kasneci (2025), TMLR, arXiv 2405.13536.

    Examples
    --------
    >>> import torch
    >>> module = position_free_transformer(3, 2, seed=1).eval().double()
    >>> once, often = module(torch.tensor([[1, 3, 3, 3], [1, 1, 1, 1]]))
    >>> bool(abs(once - often) < 1e-12)
    True
    """
    import torch
    from torch import nn

    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(
            width, n_heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    class Encoder(nn.Module):
        """Embedding, layers, mean over tokens, one number."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(n_tokens + 1, width)
            self.positions = nn.Embedding(max_positions, width) if max_positions else None
            self.layers = nn.ModuleList(layer() for _ in range(n_layers))
            self.readout = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            hidden = self.embedding(tokens)
            if self.positions is not None:
                hidden = hidden + self.positions.weight[: tokens.shape[1]]
            padding = tokens == n_tokens
            padding[:, 0] = False  # so that an empty text has something to attend to
            for each in self.layers:
                hidden = each(hidden, src_key_padding_mask=padding)
            present = (~padding)[..., None].to(hidden.dtype)
            scores: torch.Tensor = self.readout((hidden * present).sum(1) / present.sum(1))[:, 0]
            return scores

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Encoder()


def transformer_scores(
    module: "torch.nn.Module", words: Sequence[str]
) -> Callable[[Sequence[str]], FloatArray]:
    """The scores of such a module as a function of texts, for `piste.load_model`.

    Parameters
    ----------
    module
        In evaluation mode; word i of ``words`` is its token i.
    words
        The vocabulary. Texts are split at white space; other words are left out.

    Examples
    --------
    >>> module = position_free_transformer(2, seed=1).eval()
    >>> transformer_scores(module, ("good", "bad"))(["good bad", "bad good", ""]).shape
    (3,)
    """
    index = {word: number for number, word in enumerate(words)}

    def scores(texts: Sequence[str]) -> FloatArray:
        import torch

        rows = [[index[word] for word in text.split() if word in index] for text in texts]
        tokens = np.full((len(rows), max(1, *map(len, rows))), len(words), dtype=np.int64)
        for at, row in enumerate(rows):
            tokens[at, : len(row)] = row
        with torch.no_grad():
            answers: FloatArray = module(torch.from_numpy(tokens)).double().numpy()
        return answers

    return scores
