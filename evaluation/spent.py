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


def spent_so_far(model: BlackBox, n_known: int = 0) -> Spent:
    """What a model has been asked in its life, and how many queries a store has spared."""
    return Spent(n_known, model.usage if isinstance(model, Concurrent) else None)


def between(before: Spent, now: Spent) -> Spent:
    """What was taken from one moment to another of the same model.

    >>> between(Spent(2, Usage(n_requests=7)), Spent(5, Usage(n_requests=9))).plain()["n_known"]
    3
    """
    n_known = now.n_known - before.n_known
    if now.usage is None or before.usage is None:
        return Spent(n_known, now.usage)
    differences = (
        getattr(now.usage, each.name) - getattr(before.usage, each.name) for each in fields(Usage)
    )
    return Spent(n_known, Usage(*differences))


def both(first: Spent, second: Spent) -> Spent:
    """What two runs took together.

    >>> both(Spent(2), Spent(3, Usage(n_requests=7))).plain()["n_known"]
    5
    """
    usages = [each.usage for each in (first, second) if each.usage is not None]
    total = [sum(getattr(usage, each.name) for usage in usages) for each in fields(Usage)]
    return Spent(first.n_known + second.n_known, Usage(*total) if usages else None)
