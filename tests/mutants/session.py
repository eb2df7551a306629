"""Tests run on mutants: one process collects them, and each mutant has a fork of it.

A mutant is code that is put into the living functions, so that nothing is written or imported
again. Which tests reach which function, and how long each takes, is found once, on the code as it
is, and kept as long as nothing changes.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from operators import Mutant
from sources import Living, Source
from tqdm import tqdm

REACHED = "__reached_by_a_test__"
MEMORY = 20 * 2**30


class Session:
    """A plugin of pytest that runs the tests of mutants in the place of all tests.

    Args:
      tests: which tests may be run for a file: {file: folders and files of tests}.
      most: seconds of tests, as they take without a mutant, after which it is left alive.
    """

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        sources: Sequence[Source],
        tests: dict[str, list[str]],
        most: float,
    ):
        self._root, self._mutants, self._sources = root, mutants, sources
        self._tests, self._most = tests, most
        self._failed: Callable[[object], None] | None = None
        self.alive: list[Mutant] = []
        self.error = ""

    def pytest_runtest_logreport(self, report: object) -> None:
        if report.failed and self._failed:
            self._failed(report)

    def pytest_runtestloop(self, session: object) -> bool:
        """Collected tests -> the mutants that they leave alive."""
        import jax
        from jax._src import xla_bridge

        for source in self._sources:
            module = source.file.removesuffix(".py").removeprefix("configs/")
            importlib.import_module(module.replace("/", "."))
        if xla_bridge.backends_are_initialized():
            self.error = "a test module uses JAX when it is imported, so that nothing can fork"
            return True
        self._session, self._living = session, Living()
        self._items = {item.nodeid: item for item in session.items}
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        reached = self._baseline()
        if self.error:
            return True
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # mutants only read
        killers: dict[tuple[str, str], Counter[str]] = {}
        with tqdm(self._mutants, unit=" mutants", smoothing=0) as bar:
            for mutant in bar:
                place = mutant.source.file, mutant.function.name
                bar.set_postfix_str(f"{len(self.alive)} alive; {place[0]} {place[1]}")
                counts = killers.setdefault(place, Counter())
                killer = self._run(mutant, reached, counts)
                if killer is None:
                    self.alive.append(mutant)
                    bar.write(f"alive: {describe(mutant)}", file=sys.stderr)
                else:
                    counts[killer] += 1
        return True

    def _baseline(self) -> dict[str, list]:
        """{test: (seconds, the functions that it reaches)}."""
        digests = {
            path: self._digest(path) for path in {item.path for item in self._items.values()}
        }
        kept = self._root / "build" / "cache" / "mutants.json"
        known = _kept(kept)
        found = {}
        for name, item in self._items.items():
            digest, *measured = known.get(name, [""])
            if digest == digests[item.path]:
                found[name] = measured
        new = [item for name, item in self._items.items() if name not in found]
        if not new:
            return found

        def run(write: Callable[[str], None]) -> None:
            import jax

            reached: set[str] = set()
            setattr(builtins, REACHED, reached.add)
            for source in self._sources:
                source.instrument(REACHED, self._living)
            self._failed = lambda report: write(f"{report.nodeid}\n")
            for number, item in enumerate(new):
                began = time.monotonic()
                self._test(item, new[number + 1 : number + 2])
                line = item.nodeid, time.monotonic() - began, sorted(reached)
                write(f"#{json.dumps(line)}\n")
                reached.clear()
                jax.clear_caches()  # what a test has traced is traced again for the next

        written = ""
        with tqdm(total=len(new), unit=" tests", desc="without a mutant") as bar:
            for part in _forked(run, 3600):
                *lines, written = (written + part).split("\n")
                for line in lines:
                    if not line.startswith("#"):
                        self.error = f"a test fails without any mutant: {line}"
                        return found
                    name, *measured = json.loads(line[1:])
                    found[name] = measured
                    known[name] = [digests[self._items[name].path], *measured]
                    bar.update()
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(_kept(kept) | known), "utf-8")
        return found

    def _digest(self, test: Path) -> str:
        """Of a file of tests, and of all that is tested."""
        digest = hashlib.sha256(test.read_bytes())
        for path in sorted((self._root / "xlj").rglob("*.py")):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def _run(self, mutant: Mutant, reached: dict[str, list], killers: Counter[str]) -> str | None:
        """The test that fails, or `timeout`; None if none does."""
        place = f"{mutant.source.file}:{mutant.function.name}"
        allowed = tuple(self._tests[mutant.source.file])
        names = [n for n in self._items if n.startswith(allowed) and place in reached[n][1]]
        names.sort(key=lambda name: (-killers[name], reached[name][0]))
        chosen, seconds = [], 0.0
        for name in names:
            if seconds < self._most:
                chosen.append(self._items[name])
                seconds += reached[name][0]

        def run(write: Callable[[str], None]) -> None:
            def failed(report: object) -> None:
                write(report.nodeid)
                os._exit(0)

            self._failed = failed
            try:
                mutant.source.install(mutant.function, mutant.changes, self._living)
            except Exception:
                write("not even a function")
                return
            for number, item in enumerate(chosen):
                self._test(item, chosen[number + 1 : number + 2])

        found = "".join(_forked(run, 60 + 5 * seconds))
        return found or None

    def _test(self, item: object, following: list) -> None:
        nextitem = following[0] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)


def describe(mutant: Mutant) -> str:
    """File, function, operator and the changed line."""
    head = f"{mutant.source.file} {mutant.function.name}, {mutant.operator}"
    return f"{head}\n  - {mutant.before}\n  + {mutant.after}"


def _kept(path: Path) -> dict[str, list]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _forked(run: Callable[[Callable[[str], None]], None], seconds: float):
    """Parts of what `run` writes in a fork of this process; `timeout` at the end of a late one, and
    `crash` of one that dies."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        code = 1
        try:
            os.close(read)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            run(lambda text: os.write(write, text.encode()))
            code = 0
        except BaseException:
            os.write(write, f"crash: {traceback.format_exc()}".encode())
        finally:
            os._exit(code)
    os.close(write)
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([read], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            os.kill(process, signal.SIGKILL)
            yield "timeout"
            break
        part = os.read(read, 65_536)
        if not part:
            break
        yield part.decode(errors="replace")
    os.close(read)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        yield "crash"
