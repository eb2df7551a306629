"""Orbax's errors in a line; its own accounts of them are kept off the screen."""

import logging
import os
import re
import sys


def reason(error: BaseException) -> str:
    """The first line of what an error came from; of one of the disk, the system's own words."""
    while error.__cause__ is not None:
        error = error.__cause__
    if of_disk := disk_error(error):
        return of_disk
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]


def disk_error(error: BaseException | None) -> str:
    """The system's words for an error of the disk, such as that it is full; empty for others."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        if code := re.search(r"os_error_code='(\d+)'", str(error)):  # TensorStore's
            return os.strerror(int(code[1]))
        error = error.__cause__ or error.__context__
    return ""


def of_server(error: BaseException | None) -> bool:
    """Whether a bucket's server could not be asked or refused to answer, which may pass."""
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
    """Keeps the tracebacks off the screen that Orbax writes beside the error that it raises.

    When one tensor fails, it logs that in each of its threads and abandons the others, of which
    Python then says that nobody waits for them.
    """
    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = _unless_abandoned


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _unless_abandoned(found: "sys.UnraisableHookArgs") -> None:
    code = getattr(found.object, "cr_code", None)
    if "Event loop is closed" in str(found.exc_value) or code and "orbax" in code.co_filename:
        return
    sys.__unraisablehook__(found)
