"""Fits of texts that have been asked about: here, or in other processes while the model is asked on."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from pickle import PicklingError
from typing import TypeGuard

from piste._errors import InputError
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import with_fits
from piste.surrogates.records import Explained, Failed

_logger = logging.getLogger(__name__)

AHEAD = 2  # texts that wait for each process, so that none is idle: what bounds the memory


def check_fit_jobs(n_jobs: object) -> int:
    """How many processes fit; InputError unless it is a whole number, at least 1."""
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs < 1:
        raise InputError(f"Got fit_jobs={n_jobs!r}; expected a whole number, at least 1.")
    return n_jobs


def fitted(
    outcomes: Iterator[Explained | Failed], surrogates: Mapping[str, Surrogate], n_jobs: int
) -> Iterator[Explained | Failed]:
    """The outcomes in their order, those that have no fits yet with them, the same bytes either way.

    Parameters
    ----------
    outcomes
        Texts as they are answered; with processes taken on while fits are made, `AHEAD` texts for each.
    surrogates
        What to fit.
    n_jobs
        How many processes fit, which start with the first text and stay for later runs; 1 fits here.
    """
    if n_jobs == 1:
        yield from (_with_fits(outcome, surrogates) for outcome in outcomes)
        return
    from joblib.externals.loky import get_reusable_executor  # its processes need no guarded main module

    executor = get_reusable_executor(max_workers=n_jobs)
    waiting: deque[_Fitting] = deque()
    try:
        for outcome in outcomes:
            waiting.append(_Fitting(outcome, _submitted(executor, outcome, surrogates)))
            while waiting and (len(waiting) > AHEAD * n_jobs or waiting[0].is_done):
                yield waiting.popleft().result(surrogates)
        while waiting:
            yield waiting.popleft().result(surrogates)
    finally:
        for left in waiting:
            if left.future is not None:
                left.future.cancel()


@dataclass(frozen=True)
class _Fitting:
    """A text, and its fits in the making if it needs any and a process could take it."""

    outcome: Explained | Failed
    future: Future[Explained] | None

    @property
    def is_done(self) -> bool:
        return self.future is None or self.future.done()

    def result(self, surrogates: Mapping[str, Surrogate]) -> Explained | Failed:
        """The text with its fits; those that no process could make are made here."""
        if self.future is not None:
            try:
                return self.future.result()
            except (BrokenExecutor, PicklingError) as error:
                _logger.warning("Text %s is fitted here: %s", self.outcome.text_id, error)
        return _with_fits(self.outcome, surrogates)


def _with_fits(outcome: Explained | Failed, surrogates: Mapping[str, Surrogate]) -> Explained | Failed:
    return with_fits(outcome, surrogates) if _lacks_fits(outcome) else outcome


def _submitted(
    executor: Executor, outcome: Explained | Failed, surrogates: Mapping[str, Surrogate]
) -> Future[Explained] | None:
    if not _lacks_fits(outcome):
        return None
    try:
        return executor.submit(with_fits, outcome, surrogates)
    except BrokenExecutor:  # by an earlier text, which says so
        return None


def _lacks_fits(outcome: Explained | Failed) -> TypeGuard[Explained]:
    return isinstance(outcome, Explained) and not outcome.fits and not outcome.failures
