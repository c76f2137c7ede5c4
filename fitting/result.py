"""How a fit ended, with advice."""

from enum import StrEnum


class Status(StrEnum):
    """How a fit, or one of its parameters, came out; the value is what tables show."""

    OK = "ok"
    NO_VARIATION = "no variation"
    UNDERDETERMINED = "underdetermined"
    IMPORTANCE_NOT_IDENTIFIABLE = "importance not identifiable"
    NOT_CONVERGED = "not converged"

    @property
    def advice(self) -> str:
        """What happened and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Status.OK: "The responses determine every parameter.",
    Status.NO_VARIATION: (
        "The model gave the same answer to every mask, so there is nothing to attribute. Check "
        "the target, the output kind and that the masked units reach the model."
    ),
    Status.UNDERDETERMINED: (
        "The responses cannot determine every parameter: the smallest of the equally good solutions "
        "is shown. Raise the budget to at least the minimum stated, or use larger units."
    ),
    Status.IMPORTANCE_NOT_IDENTIFIABLE: (
        "The unit's value equals the prediction wherever it takes part (or it is the only unit), so "
        "its importance has no effect on the answers. Read the value and the removal effect instead."
    ),
    Status.NOT_CONVERGED: (
        "The solver stopped at its iteration limit before reaching its tolerance. Raise max_iter."
    ),
}
