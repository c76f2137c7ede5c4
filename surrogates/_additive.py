"""The status of each unit and of the whole fit, as the additive surrogates report them."""

from collections.abc import Sequence

from piste._typing import BoolArray
from piste.fitting.result import Status

UnitStatus = tuple[Status, ...] | tuple[tuple[Status, ...], ...]


def unit_statuses(identified: BoolArray, constant: BoolArray) -> tuple[tuple[Status, ...], ...]:
    """One status per output and unit.

    ``identified`` (n_outputs, n_units): the responses determine the number; ``constant`` (n_outputs,):
    the output is the same for all masks, so that there is nothing to attribute, identified or not.
    """
    return tuple(
        (Status.NO_VARIATION,) * len(row)
        if same
        else tuple(Status.OK if known else Status.UNDERDETERMINED for known in row)
        for row, same in zip(identified, constant, strict=True)
    )


def overall_status(statuses: Sequence[Sequence[Status]]) -> Status:
    """The status of the fit as a whole: no variation if nowhere any, else the worst of the units'."""
    present = {status for row in statuses for status in row}
    if present == {Status.NO_VARIATION}:
        return Status.NO_VARIATION
    return Status.UNDERDETERMINED if Status.UNDERDETERMINED in present else Status.OK
