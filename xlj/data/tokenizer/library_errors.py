"""Errors of the `tokenizers` library, which raises no narrower class than `Exception` where it
refuses a file, and panics on some damaged ones, with a note of Rust's on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from xlj.config import ConfigError
from xlj.io.quiet import quiet
from xlj.io.quoting import shortened


@contextmanager
def explained(problem: str) -> Iterator[None]:
    """Turns what the library raises in the block into one line, and keeps it quiet.

    Args:
      problem: what is wrong then; the library's own words follow in brackets.

    Raises:
      ConfigError: for whatever is raised but a `ConfigError`, an interrupt or an exit.
    """
    try:
        with quiet():
            yield
    except ConfigError:
        raise
    except BaseException as error:
        # PyO3's PanicException is no Exception, and cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ConfigError(f"{problem} ({shortened(str(error))})") from None
