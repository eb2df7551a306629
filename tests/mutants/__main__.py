"""Mutation testing: makes likely mistakes in the code and reports mistakes that no test detects.

    python tests/mutants --seed=0

Each change of a function is a mutant. Operators (`operators.py`) generate mutants, and the seed
selects the mutants that run. The mutants in `named.toml` always run. Changes without an effect on
the compiled code are skipped. `equivalent.toml` lists mutants that do not change any result, with
the reason; these do not run. The exit code is 1 if a mutant survives, i.e. all its tests pass.
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import sys
import time
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
from log import Log
from operators import Mutant, mutants_of
from session import Session, describe
from sources import Source

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests"))

from related import tests_of  # noqa: E402

FEWEST = 5
"""Smallest number of mutants of a function, if it has as many."""

# JAX caches all compiled programs, also small ones, so that mutants compile only what they change.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "cache" / "mutants"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

FILES = (
    "xlj/alignment_math/*.py",
    "xlj/models/**/*.py",
    "xlj/objectives/*.py",
    *(f"xlj/objectives/*/{name}.py" for name in ("head", "loss")),
    "xlj/objectives/vocabulary/*.py",
    "xlj/optimizers/*.py",
    "xlj/sharding/*.py",
    *(f"xlj/config/{name}.py" for name in ("batch_sizes", "durations")),
    *(f"xlj/data/rows/{name}.py" for name in ("batches", "draws")),
    "xlj/data/tokenizer/tokenizer_json.py",
    "xlj/families/modern.py",
    *(
        f"xlj/interop/{name}.py"
        for name in ("bpe_growth", "vocabulary_extension", "vocabulary_matching")
    ),
    *(
        f"xlj/training/{name}.py"
        for name in ("duration_steps", "evaluation", "resources", "schedule", "step")
    ),
    *(f"xlj/word_alignment/{name}.py" for name in ("gold_alignments", "methods")),
    "configs/xlm_e.py",
)  # fmt: skip
"""The files that have mutants. `tests/related.py` finds their tests."""


def draw(of_operators: Mapping[str, list[Mutant]], seed: str) -> list[Mutant]:
    """Draws mutants of a function: `FEWEST`, or 5% if that is more.

    The mutants come from as many operators as possible.
    """
    rng = random.Random(seed)
    left = [mutants.copy() for _, mutants in sorted(of_operators.items())]
    for mutants in left:
        rng.shuffle(mutants)
    rng.shuffle(left)
    count = max(FEWEST, math.ceil(sum(map(len, left)) / 20))
    drawn: list[Mutant] = []
    while len(drawn) < count and any(left):
        for mutants in left:
            while mutants and len(drawn) < count:
                mutant = mutants.pop()
                if mutant.source.differs(mutant.function, mutant.changes):
                    drawn.append(mutant)
                    break
    return drawn


def named(sources: dict[str, Source]) -> list[Mutant]:
    """Returns the mutants of `named.toml`; exits with an error if a statement no longer exists."""
    mutants = []
    for entry in tomllib.loads((HERE / "named.toml").read_text("utf-8"))["named"]:
        source = sources[entry["file"]]
        function = next((f for f in source.functions if f.name == entry["function"]), None)
        places = list(function.places()) if function else []
        changes = []
        for before, after in entry["changes"]:
            matches = [p for p in places if p.node is p.statement and p.line() == before]
            if len(matches) != 1:
                where = f"{entry['file']} {entry['function']}"
                sys.exit(
                    f"named.toml: {entry['name']}: expected one statement {before!r} in {where}, "
                    f"found {len(matches)}"
                )
            changes.append((matches[0], ast.parse(after).body[0]))
        lines = ["; ".join(texts) for texts in zip(*entry["changes"], strict=True)]
        mutants.append(Mutant(source, function, entry["name"], *lines, changes))
    return mutants


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="number of mutants; at most half are named")
    parser.add_argument("--named", action="store_true", help="only the mutants of named.toml")
    parser.add_argument("--only", default="", help="only mutants with this text in FILE:FUNCTION")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument("--limit", type=float, default=300, help="time limit of a test, in seconds")
    parser.add_argument("--log", type=Path, help="file of results, to resume from or to share")
    flags = parser.parse_args()

    files = sorted(str(p.relative_to(ROOT)) for pattern in FILES for p in ROOT.glob(pattern))
    # The tests of contracts use JAX when they are imported, and JAX allows no fork after that.
    tests = {
        file: [path for path in tests_of(ROOT, file) if not path.startswith("tests/contracts/")]
        for file in files
    }
    sources = {file: Source(ROOT, file) for file in tests}
    warnings.simplefilter("ignore", SyntaxWarning)  # from mutants such as True[0]
    known = tomllib.loads((HERE / "equivalent.toml").read_text("utf-8")).get("equivalent", [])
    equivalent = {(e["file"], e["function"], e["before"], e["after"]) for e in known}

    first, drawn, every = named(sources), [], set()
    for file, source in sources.items():
        if file.startswith("xlj"):
            for function in source.functions:
                by_operator = mutants_of(source, function)
                every |= {mutant.key for mutants in by_operator.values() for mutant in mutants}
                drawn += draw(by_operator, f"{flags.seed} {file} {function.name}")
    if missing := equivalent - every:
        sys.exit(
            "\n".join(
                f"equivalent.toml: no such mutant: {' | '.join(key)}" for key in sorted(missing)
            )
        )
    chosen = first if flags.named else [*first, *drawn]
    mutants = [m for m in chosen if flags.only in f"{m.source.file}:{m.function.name}"]
    skipped = sum(mutant.key in equivalent for mutant in mutants)
    mutants = [mutant for mutant in mutants if mutant.key not in equivalent]
    if flags.count is not None:
        # The order depends on a hash of each mutant, so that a change of the code does not change
        # which other mutants are selected.
        mutants.sort(key=lambda mutant: random.Random(f"{flags.seed} {mutant.key}").random())
        by_name = [mutant for mutant in mutants if mutant in first][: flags.count // 2]
        others = [mutant for mutant in mutants if mutant not in first]
        mutants = [*by_name, *others[: flags.count - len(by_name)]]
    if flags.list:
        print("\n".join(map(describe, mutants)))
        print(f"{len(mutants)} mutants, {skipped} equivalent")
        return 0

    sys.path.insert(0, str(ROOT))  # import xlj from this repository, also if xlj is installed
    began = time.monotonic()
    log = Log(flags.log)
    left = [mutant for mutant in mutants if mutant.key not in log.results]
    if flags.log:
        random.shuffle(left)  # so that runs that share a log seldom run the same mutant
    used = {mutant.source.file for mutant in left}
    paths = sorted({path for file in used for path in tests[file]})
    session = Session(left, tests, flags.limit, log)
    options = ["-q", "-s", "-n0", "-p", "no:cacheprovider", "--no-header", "--rootdir", str(ROOT)]
    if left and ((code := pytest.main([*options, *paths], [session])) or session.error):
        sys.exit(session.error or f"pytest ended with {code!r}")
    minutes = (time.monotonic() - began) / 60
    alive = [mutant for mutant in mutants if not log.results[mutant.key]]
    for mutant in alive:
        print(f"alive: {describe(mutant)}")
    print(
        f"seed {flags.seed}: {len(mutants)} mutants, {len(alive)} alive "
        f"({len(alive) / max(1, len(mutants)):.1%}), {skipped} equivalent mutants skipped, "
        f"{minutes:.0f} minutes"
    )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
