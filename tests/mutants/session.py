"""Runs tests on mutants: one process collects the tests, and each mutant runs in a fork of it.

In the fork, the code of the mutant replaces the code of function objects. So no file is written and
no module is imported again.
"""

from __future__ import annotations

import gc
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
from _pytest.runner import runtestprotocol
from log import Log
from operators import Mutant
from sources import FunctionObjects
from tqdm import tqdm

MEMORY = 20 * 2**30
LATE = "it took too long"
PASSED = "."
USUAL = 2.0
"""Assumed duration in seconds of a test that has not run yet."""


class Session:
    """A pytest plugin that runs the tests of mutants instead of all tests.

    Args:
      tests: {file: folders and files of its tests}, with the most relevant tests first.
      limit: seconds after which a test counts as an endless loop, and its mutant as killed.
      log: records results; mutants that are in it do not run again.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        tests: Mapping[str, Sequence[str]],
        limit: float,
        log: Log,
    ):
        self._mutants, self._tests, self._limit, self._log = mutants, tests, limit, log
        self._write: Callable[[str], None] | None = None  # where a fork reports its first failure
        self._runs: Counter[tuple[str, str]] = Counter()  # keys: (place or file, test)
        self._kills: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, float] = {}  # duration of the last run of each test
        for (file, function, *_), test in log.results.items():
            self._learn((file, f"{file} {function}"), [test] if test else [], test)
        self.error = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._write:
            self._write(report.nodeid)
            os._exit(0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs the tests of each mutant until one fails."""
        from jax._src import xla_bridge

        _make_rows(session)
        for file in {mutant.source.file for mutant in self._mutants}:
            module = file.removesuffix(".py").removeprefix("configs/").replace("/", ".")
            importlib.import_module(module)
        if xla_bridge.backends_are_initialized():
            self.error = "a test module uses JAX when it is imported: nothing can fork after that"
            return True
        gc.unfreeze()  # `tests/conftest.py` hides objects from `gc.get_objects`
        objects, items, alive = FunctionObjects(), list(session.items), 0
        for mutant in self._mutants:
            if not objects.find(mutant.source.path, mutant.function.outer):
                self.error = f"no function of this process has the code of {mutant.place}"
                return True
        with tqdm(self._mutants, unit=" mutants", smoothing=0) as bar:
            for mutant in bar:
                bar.set_postfix_str(f"{alive} alive; {mutant.place}")
                self._log.read()
                if mutant.key in self._log.results:
                    continue
                failure = self._first_failure(self._select(mutant, items), mutant, objects)
                self._log.add(mutant, failure)
                if not failure:
                    alive += 1
                    bar.write(f"alive: {describe(mutant)}", file=sys.stderr)
        killers = {test for _, test in self._kills}
        failing = [
            item.nodeid for item in items if item.nodeid in killers and self._first_failure([item])
        ]
        if failing:
            self.error = f"fails without a mutant: {', '.join(sorted(failing))}"
        return True

    def _select(self, mutant: Mutant, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Returns the tests of a mutant; the highest probability of a kill per second comes first.

        Probabilities come from the results of other mutants of the function and of the file. Before
        the first results, they come from the names of tests and their folders.
        """
        file, name = mutant.source.file, mutant.function.name.rpartition(".")[2]
        ranked = []
        for item in items:
            test = item.nodeid
            folders = [n for n, p in enumerate(self._tests[file]) if test.startswith(p)]
            if folders:
                share = 0.5 if name in test else 0.3 if "numpy" in test else 0.2 / (1 + folders[0])
                for key in ((file, test), (mutant.place, test)):
                    share = (self._kills[key] + share) / (self._runs[key] + 1)
                ranked.append((-share / self._seconds.get(test, USUAL), len(ranked), item))
        return [item for *_, item in sorted(ranked, key=lambda entry: entry[:2])]

    def _first_failure(
        self,
        items: Sequence[pytest.Item],
        mutant: Mutant | None = None,
        objects: FunctionObjects | None = None,
    ) -> str:
        """Returns the first test that fails, or how the fork ended; an empty string if all pass."""
        read, write = os.pipe()
        process = os.fork()
        if not process:
            os.close(read)
            try:
                self._write = lambda text: os.write(write, text.encode())
                _silence_and_limit_memory()
                if mutant and objects:
                    mutant.source.install(mutant.function, mutant.changes, objects)
                for item, following in zip(items, [*items[1:], None], strict=True):
                    hook = item.config.hook.pytest_runtest_protocol
                    hook(item=item, nextitem=following)
                    self._write(PASSED)
            except BaseException:
                self._write(traceback.format_exc())
            os._exit(0)
        os.close(write)
        output, passed, began = b"", 0, time.monotonic()
        while select.select([read], [], [], max(0, began + self._limit - time.monotonic()))[0]:
            part = os.read(read, 65_536)
            if not part:
                break
            output += part
            for item in items[passed : len(output) - len(output.lstrip(PASSED.encode()))]:
                self._seconds[item.nodeid] = time.monotonic() - began
                passed, began = passed + 1, time.monotonic()
        else:
            os.kill(process, signal.SIGKILL)
            output += LATE.encode()
        os.close(read)
        _, status = os.waitpid(process, 0)
        failure = output[passed:].decode(errors="replace") or (f"status {status}" if status else "")
        if mutant:
            tests = [item.nodeid for item in items[: passed + bool(failure)]]
            self._learn((mutant.source.file, mutant.place), tests, tests[-1] if failure else "")
        return failure

    def _learn(self, places: tuple[str, str], tests: Sequence[str], killer: str) -> None:
        self._runs.update((place, test) for place in places for test in tests)
        self._kills.update((place, killer) for place in places if killer)


def _make_rows(session: pytest.Session) -> None:
    """Builds the text and the rows of the tests once for all forks.

    To do so, it sets up the fixtures of a test that uses them, without running the test.
    """
    using = [item for item in session.items if "store" in item.fixturenames]
    if using:
        item = min(using, key=lambda item: len(item.fixturenames))  # others may start JAX
        item.runtest = lambda: None
        runtestprotocol(item, log=False, nextitem=session)  # keeps fixtures of session scope
        del item.runtest


def describe(mutant: Mutant) -> str:
    """Returns file, function, operator and the changed line."""
    head = f"{mutant.place}, {mutant.operator}"
    return f"{head}\n  - {mutant.before}\n  + {mutant.after}"


def _silence_and_limit_memory() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
