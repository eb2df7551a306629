"""Shortens Orbax's errors to one line, and suppresses Orbax's own messages."""

import logging
import os
import re
import sys


def reason(error: BaseException) -> str:
    """Returns the system's message for a disk error; else the first line of an error's root
    cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if disk_message := disk_error(error):
        return disk_message
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]


def disk_error(error: BaseException | None) -> str:
    """Returns the system's message for a disk error, such as a full disk; else an empty text."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        if code := re.search(r"os_error_code='(\d+)'", str(error)):  # an error of TensorStore
            return os.strerror(int(code[1]))
        error = error.__cause__ or error.__context__
    return ""


def is_server_error(error: BaseException | None) -> bool:
    """Returns whether a bucket's server was unreachable or denied access. This may be temporary."""
    while error is not None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return True
        if re.search(
            r"UNAVAILABLE|PERMISSION_DENIED|UNAUTHENTICATED|DEADLINE_EXCEEDED", str(error)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def silence() -> None:
    """Suppresses the tracebacks that Orbax prints in addition to the error that it raises.

    If one tensor fails, Orbax logs the error in each thread, and abandons the coroutines of the
    other tensors. Python then warns that these were never awaited.
    """
    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = _report_unless_abandoned


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _report_unless_abandoned(event: "sys.UnraisableHookArgs") -> None:
    code = getattr(event.object, "cr_code", None)
    if "Event loop is closed" in str(event.exc_value) or code and "orbax" in code.co_filename:
        return
    sys.__unraisablehook__(event)
