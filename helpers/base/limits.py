"""A time limit for calls that have none of their own."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class TooLate(Exception):
    """A task did not end within its time limit."""


def within(seconds: float, task: Callable[[], Result]) -> Result:
    """Run a task that may hang, such as a name look-up, which no socket timeout reaches.

    It runs in a thread of its own, which is left behind if it is late. Its result and its errors
    are passed on.

    Raises:
        TooLate: The limit has passed; the message says so in one sentence.
    """
    results: queue.Queue = queue.Queue()

    def work() -> None:
        try:
            results.put((task(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TooLate(f"No answer in {seconds:g} seconds.") from None
    if error is not None:
        raise error
    return result
