"""Tests run on mutants: one process collects them, and each mutant has a fork of it.

A mutant is code that is put into the living functions, so that nothing is written or imported
again.
"""

from __future__ import annotations

import importlib
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from operators import Mutant
from sources import Living
from tqdm import tqdm

MEMORY = 20 * 2**30
LATE = "it took too long"


class Session:
    """A plugin of pytest that runs the tests of mutants in the place of all tests.

    Args:
      tests: the tests that may be run for a file, those first that are likely to notice:
        {file: folders and files of tests}.
      limit: seconds after which a mutant is taken for an endless loop, and killed.
    """

    def __init__(self, mutants: Sequence[Mutant], tests: Mapping[str, Sequence[str]], limit: float):
        self._mutants, self._tests, self._limit = mutants, tests, limit
        self._write: Callable[[str], None] | None = None  # where a fork reports its first failure
        self.alive: list[Mutant] = []
        self.error = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._write:
            self._write(report.nodeid)
            os._exit(0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Leaves in `alive` those mutants on which every test passes."""
        import jax
        from jax._src import xla_bridge

        for file in {mutant.source.file for mutant in self._mutants}:
            module = file.removesuffix(".py").removeprefix("configs/").replace("/", ".")
            importlib.import_module(module)
        if xla_bridge.backends_are_initialized():
            self.error = "a test module uses JAX when it is imported: nothing can fork after that"
            return True
        # Programs that were compiled for the tests are read, and none of mutants are kept.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        living, items = Living(), list(session.items)
        killers: Counter[tuple[str, pytest.Item]] = Counter()
        with tqdm(self._mutants, unit=" mutants", smoothing=0) as bar:
            for mutant in bar:
                bar.set_postfix_str(f"{len(self.alive)} alive; {mutant.place}")
                chosen = self._chosen(mutant, items, killers)
                found = self._first_failure(chosen, mutant, living)
                killers.update(
                    (key, item)
                    for item in chosen
                    if item.nodeid == found
                    for key in (mutant.place, mutant.source.file)
                )
                if not found:
                    self.alive.append(mutant)
                    bar.write(f"alive: {describe(mutant)}", file=sys.stderr)
        used = {item for _, item in killers}
        wrong = [item.nodeid for item in used if self._first_failure([item])]
        if wrong:
            self.error = f"fails without a mutant: {', '.join(sorted(wrong))}"
        return True

    def _chosen(
        self,
        mutant: Mutant,
        items: Sequence[pytest.Item],
        killers: Counter[tuple[str, pytest.Item]],
    ) -> list[pytest.Item]:
        """The tests for a mutant, those first that killed others of its function or have its name,
        then those that killed others of its file, then those against NumPy."""
        file, name = mutant.source.file, mutant.function.name.rpartition(".")[2]
        found = []
        for item in items:
            folders = [n for n, p in enumerate(self._tests[file]) if item.nodeid.startswith(p)]
            if folders:
                order = (
                    -killers[mutant.place, item],
                    name not in item.nodeid,
                    -killers[file, item],
                    folders[0],
                    "numpy" not in item.nodeid,
                )
                found.append((order, len(found), item))
        return [item for *_, item in sorted(found, key=lambda entry: entry[:2])]

    def _first_failure(
        self,
        items: Sequence[pytest.Item],
        mutant: Mutant | None = None,
        living: Living | None = None,
    ) -> str:
        """The first test that fails, or how else the fork ended; nothing if all pass."""
        read, write = os.pipe()
        process = os.fork()
        if not process:
            os.close(read)
            try:
                self._write = lambda text: os.write(write, text.encode())
                _be_quiet()
                if mutant and living:
                    mutant.source.install(mutant.function, mutant.changes, living)
                for item, following in zip(items, [*items[1:], None], strict=True):
                    hook = item.config.hook.pytest_runtest_protocol
                    hook(item=item, nextitem=following)
            except BaseException:
                self._write(traceback.format_exc())
            os._exit(0)
        os.close(write)
        found, deadline = b"", time.monotonic() + self._limit
        while select.select([read], [], [], max(0, deadline - time.monotonic()))[0]:
            part = os.read(read, 65_536)
            if not part:
                break
            found += part
        else:
            os.kill(process, signal.SIGKILL)
            found = found or LATE.encode()
        os.close(read)
        _, status = os.waitpid(process, 0)
        return found.decode(errors="replace") or (f"status {status}" if status else "")


def describe(mutant: Mutant) -> str:
    """File, function, operator and the changed line."""
    head = f"{mutant.place}, {mutant.operator}"
    return f"{head}\n  - {mutant.before}\n  + {mutant.after}"


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
