"""Shows a clock while a library computes, and lets signals through meanwhile."""

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tqdm import tqdm

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_TICK = 0.2  # seconds


def run_with_clock(
    doing: str,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Result:
    """Runs a function in a thread; on a terminal, shows `doing` and the elapsed time meanwhile.

    A library in C++ that computes in the main thread delays Ctrl-C and SIGTERM until it returns.
    Here the main thread waits, so a signal raises its exception at once. The function is then left
    running until the process ends.

    Args:
      doing: what the function does, for the terminal.
      function: a function that releases Python's lock (GIL) while it computes.
      arguments, named: positional and keyword arguments of the function.

    Returns:
      The result of the function.

    Raises:
      BaseException: the exception that the function or a signal raises.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(function(*arguments, **named))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    form = "[{elapsed}] {desc}"  # a narrow terminal cuts the end
    with tqdm(desc=doing, bar_format=form, disable=None, leave=False) as bar:
        threading.Thread(target=run, daemon=True).start()
        while not done.wait(_TICK):
            bar.refresh()
    if errors:
        raise errors[0]
    return results[0]
