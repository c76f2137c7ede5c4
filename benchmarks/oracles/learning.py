"""A small network learns log-odds from fresh documents."""

from collections.abc import Callable

import numpy as np
import torch

from piste._typing import FloatArray, IntArray

Network = Callable[[IntArray], FloatArray]
"""Log-odds (n,) of documents (n, length), padded with the number of words."""
Batch = Callable[[], tuple[IntArray, FloatArray]]
"""Fresh documents (n, length), padded, and what is to be said of each, (n,): labels or probabilities."""


def trained(module: torch.nn.Module, n_words: int, steps: int, batch: Batch) -> Network:
    """The network after so many steps, each on a batch of its own; ``n_words`` is the padding."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    loss_of = torch.nn.BCEWithLogitsLoss()
    for _ in range(steps):
        tokens, taught = batch()
        filled = (tokens < n_words).any(axis=0)
        answers = module(torch.from_numpy(tokens[:, filled]))
        loss = loss_of(answers, torch.from_numpy(taught).float())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        rate.step()
    module.eval()

    def answers_to(tokens: IntArray) -> FloatArray:
        with torch.no_grad():
            parts = [
                module(torch.from_numpy(part))
                for part in np.array_split(tokens, 1 + len(tokens) // 2000)
            ]
        return torch.cat(parts).double().numpy()

    return answers_to
