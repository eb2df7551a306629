"""Gives malformed inputs to readers: each input must cause a clear error or be read completely."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_readers import Lost, Reader, fill
from mutations import mutated

from xlj.config import ConfigError

SECONDS = 20.0
"""Time limit of a reader for one input of some kilobytes."""
MEMORY = 3 << 30
"""Limit of the address space that reading adds, in bytes."""
_MAX_CHARACTERS = 3000  # of an error message


@dataclass(frozen=True)
class Fault:
    """An input that a reader handled wrongly: its number, what happened, and the changed file."""

    reader: str
    number: int
    what: str
    file: str
    content: bytes


@dataclass
class Outcome:
    """Counts of refused and of read inputs by reader, and the faults."""

    refused: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.refused.total() + self.read.total() + len(self.faults)


class _TooLong(BaseException):
    pass


def run(readers: Sequence[Reader], seed: int, first: int, count: int, began: Any = None) -> Outcome:
    """Draws inputs from a seed and reads them; input n does not depend on the other inputs.

    Args:
      began: called with the number of each input before it is read.
    """
    outcome, weighted = Outcome(), [reader for reader in readers for _ in range(reader.weight)]
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as scratch:
        for number in range(first, first + count):
            if began:
                began(number)
            draw = random.Random(f"{seed}-{number}")
            reader = draw.choice(weighted)
            changed = draw.choice(sorted(reader.files))
            content = mutated(reader.files[changed], draw)
            folder = Path(scratch) / "input"
            folder.mkdir()
            fill(folder, {**reader.files, changed: content})
            what = _read(reader, folder, outcome)
            if what:
                outcome.faults.append(Fault(reader.name, number, what, changed, content))
            shutil.rmtree(folder)
    return outcome


def _read(reader: Reader, folder: Path, outcome: Outcome) -> str:
    """Reads an input and returns a description of the fault, or an empty string."""
    before = sorted(os.listdir(folder))
    try:
        with _limit():
            reader.read(folder)
    except Lost as lost:
        return f"lost: {lost}"
    except (ConfigError, *reader.errors) as error:
        message = str(error)
        if (
            (reader.named and str(folder) not in message)
            or "\n" in message
            or len(message) > _MAX_CHARACTERS
        ):
            return f"unclear error: {message[:200]!r}"
        outcome.refused[reader.name] += 1
    except _TooLong:
        return f"it took more than {SECONDS:g} s"
    except MemoryError:
        return "it took too much memory"
    except BaseException as error:  # a panic in Rust code is not an Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return f"{type(error).__name__}: {str(error)[:150]} ({place})"
    else:
        outcome.read[reader.name] += 1
    return "" if sorted(os.listdir(folder)) == before else "files were left in the folder"


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Raises `_TooLong` in the block after `SECONDS` seconds."""

    def raise_too_long(*_: Any) -> None:
        raise _TooLong

    old_handler = signal.signal(signal.SIGALRM, raise_too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)


def limit_memory() -> None:
    """Limits the memory that this process may allocate from now on to `MEMORY`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
