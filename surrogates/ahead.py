"""Texts of a remote model asked about side by side, so that it never waits for one text's last answers."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from piste.sampling.models.limits import Batch

Answered = TypeVar("Answered")
N_TEXTS = 3  # one whose last answers come in, one under way, and the next, should fits take a moment


def side_by_side(tasks: Iterator[Callable[[], Answered]]) -> Generator[Answered, None, None]:
    """What each task returns, in their order; the next ones are at work while a result is looked at.

    Parameters
    ----------
    tasks
        What asks about a text each. Close the generator before what they need is gone: it gives up what
        is not asked yet, and waits for what is.
    """
    texts = Batch()

    def answered(task: Callable[[], Answered]) -> Answered:
        with texts.worked_for():
            return task()

    waiting: deque[Future[Answered]] = deque()
    with ThreadPoolExecutor(N_TEXTS, "piste-text") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(answered, task))
                if len(waiting) == N_TEXTS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            texts.halt()
            for future in waiting:
                future.cancel()
