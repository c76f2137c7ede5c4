"""A shared prompt's tokens put through a causal model once, for all the texts that begin with them.

In a causal model nothing that follows a token changes what the layers make of it, so their keys and values
of a common beginning serve every text. Only the rest of each text is left to compute.
"""

import logging
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from piste.sampling.models._batches import Padding, Rows

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_logger = logging.getLogger(__name__)

# Below these a second kind of pass costs about what it saves.
FEWEST_TOKENS = 16
FEWEST_TEXTS = 4


@dataclass(frozen=True)
class Prefix:
    """What the layers made of a common beginning.

    Parameters
    ----------
    n_tokens
        How long it is.
    name
        What the model calls the argument that takes it.
    state
        Keys and values by layer, of a batch of one.
    """

    n_tokens: int
    name: str
    state: Any

    def rest(self, rows: Rows) -> Rows:
        """Rows without the beginning, one token at least each."""
        return Rows([row[self.n_tokens :] for row in rows.ids], None, None)

    def arguments(self, attended: "torch.Tensor") -> dict[str, Any]:
        """What a pass over rests takes beside their ids; attended (n_rows, longest) is for the rests."""
        import torch

        n_rows = len(attended)
        state = deepcopy(self.state)  # a pass appends to it
        state.batch_repeat_interleave(n_rows)
        before = torch.ones((n_rows, self.n_tokens), dtype=attended.dtype, device=attended.device)
        return {self.name: state, "attention_mask": torch.cat([before, attended], dim=1)}


class Prefixes:
    """Finds the beginning that texts share, where the model can be told of it.

    Whether it can is asked of the model itself, once: the last token of a text must get the same logits
    after a kept beginning as in one pass.
    """

    def __init__(self, model: "PreTrainedModel", padding: Padding) -> None:
        self._model = model
        self._padding = padding
        self._holds: bool | None = None

    def of(self, rows: Rows) -> Prefix | None:
        """The common beginning of these rows; None where none is worth while or the model has no use."""
        if self._name is None or self._holds is False:
            return None
        if rows.attended is not None or rows.type_ids is not None or len(rows.ids) < FEWEST_TEXTS:
            return None
        ids = [list(row) for row in rows.ids]
        shared = common_beginning(ids)
        if len(shared) < FEWEST_TOKENS:
            return None
        try:
            prefix = self._computed(shared)
            if self._holds is None:
                self._holds = self._same_logits(prefix, max(ids, key=len))
        except Exception as error:  # noqa: BLE001 - whatever a foreign model raises, it goes without
            _logger.debug("No shared beginning for %s: %s", type(self._model).__name__, error)
            self._holds = False
        return prefix if self._holds else None

    @cached_property
    def _name(self) -> str | None:
        """The argument that takes keys and values; None where the model has none, or pads on the left."""
        known = signature(self._model.forward).parameters
        if self._padding.on_the_left or getattr(self._model.config, "is_encoder_decoder", False):
            return None
        return next((name for name in ("cache", "past_key_values") if name in known), None)

    def _computed(self, shared: list[int]) -> Prefix:
        assert self._name is not None
        output = self._pass(shared, use_cache=True)
        return Prefix(len(shared), self._name, output[self._name])

    def _same_logits(self, prefix: Prefix, row: list[int]) -> bool:
        import torch

        whole = self._pass(row).logits
        rest = torch.ones((1, len(row) - prefix.n_tokens), dtype=torch.int64, device=whole.device)
        parted = self._pass(row[prefix.n_tokens :], **prefix.arguments(rest)).logits
        tolerance = float(torch.finfo(whole.dtype).eps) ** 0.5
        same = (whole - parted).abs().max() <= tolerance * (1 + whole.abs().max())
        return bool(same)

    def _pass(self, ids: list[int], **arguments: Any) -> Any:  # noqa: ANN401 - a model's own output
        import torch

        with torch.inference_mode():
            device = next(self._model.parameters()).device
            given = torch.from_numpy(np.array([ids], dtype=np.int64)).to(device)
            return self._model(input_ids=given, **arguments)


def common_beginning(rows: list[list[int]]) -> list[int]:
    """The longest beginning of all rows that leaves each of them a token.

    >>> common_beginning([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]]), common_beginning([[1, 2, 3], [1, 2]])
    ([1, 2], [1])
    """
    first, last = min(rows), max(rows)  # the two that part earliest
    most = min(map(len, rows)) - 1
    alike = next((at for at in range(most) if first[at] != last[at]), most)
    return first[: max(alike, 0)]
