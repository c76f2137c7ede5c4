"""One fitted SLALOM as arrays: its attention shares, and how they move with its importances."""

from dataclasses import dataclass

import numpy as np

from piste._typing import FloatArray

# A unit without any effect of its own counts as this share of the mean one.
LEAST_EFFECT = 0.05


@dataclass(frozen=True)
class Head:
    """A fitted SLALOM: values and importances (n_units,), and the background's.

    An importance of ``-inf`` means no background, and then its value is the answer to the empty text.
    """

    value: FloatArray
    importance: FloatArray
    background_value: float
    background_importance: float

    def values(self) -> FloatArray:
        """The background's value and the units', shape (1 + n_units,)."""
        return np.concatenate([[self.background_value], self.value])

    def importances(self) -> FloatArray:
        """The background's importance and the units', shape (1 + n_units,)."""
        return np.concatenate([[self.background_importance], self.importance])

    def moved_by(self, values: FloatArray, importances: FloatArray) -> "Head":
        """The head with these added to its values and importances, each shape (1 + n_units,)."""
        return Head(
            self.value + values[1:],
            self.importance + importances[1:],
            float(self.background_value + values[0]),
            float(self.background_importance + importances[0]),
        )

    def shares(self, masks: FloatArray) -> FloatArray:
        """Attention of the background and of each unit, shape (n_masks, 1 + n_units); rows sum to 1."""
        importances = self.importances()
        weights = np.exp(importances - importances.max())
        together = np.hstack([np.full((len(masks), 1), weights[0]), masks * weights[1:]])
        total = together.sum(axis=1, keepdims=True)
        together[total[:, 0] == 0, 0] = 1.0  # nothing takes part: the answer to the empty text
        shares: FloatArray = together / np.where(total == 0, 1.0, total)
        return shares

    def effects(self) -> FloatArray:
        """Size of each unit's share of the full text times what it pulls, relative to the mean."""
        share = self.shares(np.ones((1, len(self.value))))[0]
        pulled = share[0] * self.background_value + share[1:] @ self.value
        size = np.abs(share[1:] * (self.value - pulled))
        relative: FloatArray = size / (size.mean() or 1.0)
        return relative + LEAST_EFFECT


def slope_by_importance(shares: FloatArray, slope_by_share: FloatArray) -> FloatArray:
    """Chain rule through ``da_i / ds_k = a_i (1[i = k] - a_k)``, summed over masks; shape (1 + n_units,)."""
    along = (slope_by_share * shares).sum(axis=1, keepdims=True)
    slope: FloatArray = (shares * (slope_by_share - along)).sum(axis=0)
    return slope
