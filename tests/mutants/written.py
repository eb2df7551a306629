"""Writes mutants from a list into a copy of the repository, one after another, and runs tests.

    python tests/mutants/written.py LIST --log=build/written.jsonl

Unlike `python tests/mutants`, the mutants are also in the processes that tests start, and slow
tests run. `LIST` has a JSON object per line: `file` below the root of the repository, `line` (its
number), and the texts `old` and `new` of the line, without indentation. The tests of a mutant are
those of its area, and those that import its file (`tests/related.py`), slow ones last. They stop at
the first failure, or after `--limit` seconds. Each result goes to the log: "noticed" with the test
that failed, "unnoticed", or "not finished". Several processes can share a log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from related import tests_of  # noqa: E402

CONTAINED = (
    ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") and os.geteuid() == 0
    else []
)
"""With root's rights, all processes that a mutant starts end with its tests: one mutant starts
processes without end."""


def run(copy: Path, tests: list[str], marker: str, seconds: float) -> tuple[str, str]:
    """Runs tests until one fails: ("passed", ""), ("failed", test) or ("late", "")."""
    options = ["-x", "-q", "-n0", "-m", marker, "-p", "no:cacheprovider", "--tb=no", "--no-header"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build/cache/written"))
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*CONTAINED, sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "late", ""
        output.seek(0)
        text = output.read()
    if code in (0, 5):  # 5: no test has this marker
        return "passed", ""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return "failed", failed[0] if failed else text.strip()[-200:]


def result_of(copy: Path, mutant: dict, limit: float) -> dict:
    """Writes a mutant into the copy, runs its tests, and restores the file."""
    path = copy / mutant["file"]
    content = path.read_text("utf-8")
    lines = content.split("\n")
    old = lines[mutant["line"] - 1]
    if old.strip() != mutant["old"]:
        places = [n for n, line in enumerate(lines, 1) if line.strip() == mutant["old"]]
        if len(places) != 1:
            return {"result": "not finished", "by": f"{len(places)} lines are the old line"}
        mutant = mutant | {"line": places[0]}  # lines above were added or removed
        old = lines[mutant["line"] - 1]
    indentation = old[: len(old) - len(old.lstrip())]
    lines[mutant["line"] - 1] = indentation + mutant["new"]
    began, tests = time.monotonic(), tests_of(copy, mutant["file"])
    path.write_text("\n".join(lines), "utf-8")
    try:
        for marker in ("not slow and not extra", "slow or extra"):
            left = began + limit - time.monotonic()
            outcome, test = run(copy, tests, marker, left) if left > 0 else ("late", "")
            if outcome == "failed":
                return {"result": "noticed", "by": test}
            if outcome == "late":
                return {"result": "not finished", "by": marker}
    finally:
        path.write_text(content, "utf-8")
    return {"result": "unnoticed", "by": ""}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tests/mutants/written.py", description=__doc__)
    parser.add_argument("list", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=120, help="seconds of tests of a mutant")
    flags = parser.parse_args()
    mutants = [json.loads(line) for line in flags.list.read_text("utf-8").splitlines()]
    random.shuffle(mutants)  # so that runs that share a log seldom run the same mutant
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "xlj"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", "build", "runs"))
        for mutant in mutants:
            done = flags.log.read_text("utf-8").splitlines() if flags.log.exists() else []
            if any(json.loads(line)["mutant"] == mutant for line in done):
                continue
            began = time.monotonic()
            result = result_of(copy, mutant, flags.limit)
            result |= {"seconds": round(time.monotonic() - began), "mutant": mutant}
            with flags.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(result) + "\n")
            print(result["result"], mutant["file"], mutant["line"], result["by"], flush=True)
        results = [json.loads(line) for line in flags.log.read_text("utf-8").splitlines()]
        killers = {r["by"] for r in results if r["result"] == "noticed" and "::" in r["by"]}
        failing = [test for test in sorted(killers) if run(copy, [test], "", 600)[0] == "failed"]
    if failing:
        sys.exit(f"fails without a mutant: {', '.join(failing)}")


if __name__ == "__main__":
    main()
