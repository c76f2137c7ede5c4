"""What a run took: queries that a store spared, requests, tokens and money."""

from dataclasses import asdict, dataclass, fields

from piste.sampling.models.limits import Usage
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Concurrent


@dataclass(frozen=True)
class Spent:
    """What a run took beside its number of queries.

    Parameters
    ----------
    n_known
        How many of its queries a store knew the answers of, from this run or from another.
    usage
        What the remote model was asked in this run; None of a local one.
    """

    n_known: int = 0
    usage: Usage | None = None

    def plain(self) -> dict[str, object]:
        """As JSON can hold it."""
        return {"n_known": self.n_known, "usage": None if self.usage is None else asdict(self.usage)}


def usage_so_far(model: BlackBox) -> Usage | None:
    """What a remote model has been asked in its life; None of a local one."""
    return model.usage if isinstance(model, Concurrent) else None


def usage_since(model: BlackBox, before: Usage | None) -> Usage | None:
    """What a model has been asked since then."""
    now = usage_so_far(model)
    if now is None or before is None:
        return now
    return Usage(*(getattr(now, each.name) - getattr(before, each.name) for each in fields(Usage)))


def both(first: Spent, second: Spent) -> Spent:
    """What two runs took together.

    >>> both(Spent(2), Spent(3, Usage(n_requests=7))).plain()["n_known"]
    5
    """
    usages = [each.usage for each in (first, second) if each.usage is not None]
    total = [sum(getattr(usage, each.name) for usage in usages) for each in fields(Usage)]
    return Spent(first.n_known + second.n_known, Usage(*total) if usages else None)
