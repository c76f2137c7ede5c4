"""How far the answers to be explained may be off by chance: what the model tells, or what repeats show."""

from dataclasses import dataclass

import numpy as np

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling.collect import Answers
from piste.sampling.models._foreign import model_errors
from piste.sampling.models._samples import sampling_errors
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Noise, probe_noise
from piste.sampling.records import Query
from piste.sampling.space import InSpace, to_space
from piste.sampling.store import Stored, StoredOnly, StoredTokenizing

LEAST_REPEATS = 4  # with fewer, the t distribution of what they show has no variance


@dataclass(frozen=True)
class ScoreErrors:
    r"""Standard errors of one text's scores.

    Parameters
    ----------
    values
        Shape (n_masks, n_outputs), float64, in units of the scores; the same for every mask where they
        come from repeats of the unmasked text.
    n_repeats
        How many answers they were estimated from; 0 where the model itself tells them.
    """

    values: FloatArray
    n_repeats: int = 0

    @property
    def in_intervals(self) -> FloatArray:
        r"""The errors as intervals need them, shape of ``values``.

        Errors estimated from m repeats are multiplied by :math:`\sqrt{(m - 1) / (m - 3)}`, the standard
        deviation of the t distribution with m - 1 degrees of freedom: 1.13 for ten.
        """
        spare = self.n_repeats - 1
        return self.values * np.sqrt(spare / (spare - 2)) if self.n_repeats else self.values

    def of(self, rows: slice, columns: list[int]) -> "ScoreErrors":
        """Those of some masks and outputs."""
        return ScoreErrors(self.values[rows, columns], self.n_repeats)


def check_repeatable(model: BlackBox) -> None:
    """Refuse to probe what gives a stored answer again.

    Raises
    ------
    InputError
        If the model answers from a store.
    """
    if isinstance(model, Stored | StoredTokenizing | StoredOnly):
        raise InputError(
            "Got noise_probe for a model that answers from a store, and so always the same; expected one "
            "that answers anew. Pass the model itself, and the store as store=."
        )


def probed(model: BlackBox, query: Query, n_repeats: int) -> Noise:
    """Ask about the unmasked text again and again.

    Raises
    ------
    ModelError
        If the model fails, or some answer is not finite.
    """
    with model_errors([query]):
        noise = probe_noise(model, query, n_repeats)
    if not np.isfinite(noise.values).all():
        raise ModelError(
            "Got NaN or infinity among repeated answers to the unmasked text; expected finite numbers. "
            "Check the model on this text."
        )
    return noise


def scored(
    answers: Answers, fingerprint: str, noise: Noise | None, *, space: str, epsilon: float
) -> tuple[InSpace, ScoreErrors | None]:
    """Answers in the space to be explained, with their errors (n_masks, n_outputs) where they are known.

    A model that samples its answers tells the error of each. Where it does not, the variance of repeats
    of the unmasked text, taken in the space to be explained, stands for every answer's.
    """
    told = sampling_errors(fingerprint, answers.values, answers.kind)
    found = to_space(answers.values, answers.kind, space, epsilon, errors=told)
    if found.errors is not None:
        return found, ScoreErrors(found.errors)
    if noise is None:
        return found, None
    spread = np.sqrt(variance_of(noise, found.space, epsilon))
    return found, ScoreErrors(np.broadcast_to(spread, found.scores.shape), len(noise.values))


def variance_of(noise: Noise, space: str, epsilon: float) -> FloatArray:
    """Unbiased variance of the repeats in the space that answers were expressed in, shape (n_outputs,)."""
    kind = noise.kind
    if kind == "unknown":  # as the answers to all masks were taken
        kind = "raw" if space == "raw" else "probability"
    variance: FloatArray = to_space(noise.values, kind, space, epsilon).scores.var(axis=0, ddof=1)
    return variance
