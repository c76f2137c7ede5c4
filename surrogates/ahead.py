"""Texts of a remote model asked about side by side, so that it never waits for one text's last answers."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Answered = TypeVar("Answered")
N_TEXTS = 3  # one whose last answers come in, one under way, and the next, should fits take a moment
PATIENCE = 0.05  # seconds between two attempts to end a task


def side_by_side(
    tasks: Iterator[Callable[[], Answered]], give_up: Callable[[], None]
) -> Generator[Answered, None, None]:
    """What each task returns, in their order; the next ones are at work while a result is looked at.

    Parameters
    ----------
    tasks
        What asks about a text each.
    give_up
        Ends what a task at work is asking; called when no more results are wanted. Close the generator
        before what the tasks need is gone.
    """
    waiting: deque[Future[Answered]] = deque()
    with ThreadPoolExecutor(N_TEXTS, "piste-text") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(task))
                if len(waiting) == N_TEXTS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            at_work = [future for future in waiting if not future.cancel()]
            while wait(at_work, timeout=PATIENCE).not_done:
                give_up()  # again, as a task asks more than once
