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
FEWEST = 5
"""Smallest number of mutants of a function, if it has as many."""

# JAX caches all compiled programs, also small ones, so that mutants compile only what they change.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "cache" / "mutants"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

TESTS = {
    "xlj/alignment_math/error_rate.py": "alignment_math/test_error_rate",
    "xlj/alignment_math/extraction.py": "alignment_math/test_extraction",
    "xlj/alignment_math/hmm.py": "alignment_math/test_hmm objectives/test_word_hmm",
    "xlj/alignment_math/similarity.py": "alignment_math/test_similarity",
    "xlj/alignment_math/sinkhorn.py": "alignment_math/test_sinkhorn",
    "xlj/word_alignment/methods.py": "word_alignment/test_methods word_alignment/test_method_hmm",
    "xlj/interop/matched_rows.py": "interop/test_matched_rows interop/test_vocabulary_matching",
    "xlj/interop/vocabulary_matching.py": "interop/test_vocabulary_matching",
    "xlj/data/tokenizer/tokenizer_json.py": "data/tokenizer interop/test_modern_tokenizer_files",
    "xlj/interop/bpe_growth.py": "interop/test_bpe_growth",
    "xlj/interop/vocabulary_extension.py": "interop/test_bpe_growth "
    "interop/test_vocabulary_extension",
    "xlj/interop/words.py": "interop/test_words interop/test_vocabulary_matching",
    "xlj/models/attention.py": "models objectives/test_mlm objectives/test_camlm",
    "xlj/models/attention_checks.py": "models/test_attention_checks",
    "xlj/models/block.py": "models/test_block models/test_encoder",
    "xlj/models/dense.py": "models objectives/test_mlm",
    "xlj/models/dense_attention.py": "models objectives/test_mlm",
    "xlj/models/dropout.py": "models",
    "xlj/models/embeddings.py": "models objectives/test_mlm objectives/test_camlm",
    "xlj/models/encoder.py": "models objectives/test_mlm objectives/test_camlm",
    "xlj/models/feed_forward.py": "models/test_dense models/test_heads models/test_encoder",
    **{
        f"xlj/models/fused_attention/{name}.py": "models/test_fused_attention "
        "models/test_lowered_kernels"
        for name in ("attend", "gpu", "tiles", "tpu")
    },
    "xlj/models/fused_norm.py": "models/test_block models/test_lowered_kernels",
    "xlj/models/gradients.py": "models objectives/test_cross_entropy",
    "xlj/models/heads.py": "models objectives/test_mlm objectives/test_rtd objectives/test_dwa "
    "objectives/test_xlco objectives/test_supervised",
    "xlj/models/local_blocks.py": "models/test_local_blocks models/test_dense_attention",
    "xlj/models/lookup.py": "sharding/test_devices models/test_encoder",
    "xlj/models/modules.py": "models objectives/test_mlm",
    "xlj/models/norms.py": "models/test_norms models/test_block models/test_modern_encoder",
    "xlj/models/pattern.py": "models/test_pattern models/test_modern_encoder models/test_encoder",
    "xlj/models/position_bias.py": "models/test_position_bias objectives/test_mlm",
    "xlj/models/rotary.py": "models/test_rotary models/test_modern_encoder",
    "xlj/models/word_hmm_head.py": "objectives/test_word_hmm",
    "xlj/objectives/__init__.py": "training/test_step",
    "xlj/objectives/bitext.py": "objectives/test_xlco objectives/test_retrieval_loss",
    "xlj/objectives/btmlm.py": "objectives/test_btmlm objectives/test_draws_stay "
    "objectives/test_flops objectives/test_dropout_of_losses",
    "xlj/objectives/camlm.py": "objectives/test_camlm objectives/test_dropout_of_losses",
    "xlj/objectives/kept_logits.py": "objectives/test_cross_entropy objectives/test_sharded_parts",
    "xlj/objectives/logits.py": "objectives/test_cross_entropy",
    "xlj/objectives/choosing.py": "objectives/test_cross_entropy objectives/test_rtd "
    "objectives/test_btmlm sharding/test_devices",
    "xlj/objectives/corruption.py": "objectives/test_corruption objectives/test_draws_stay "
    "objectives/test_mlm",
    "xlj/objectives/counting.py": "objectives/test_counting",
    "xlj/objectives/cross_entropy.py": "objectives/test_cross_entropy "
    "objectives/test_mlm sharding/test_devices",
    "xlj/objectives/distillation.py": "objectives/test_distillation objectives/test_flops "
    "objectives/test_dropout_of_losses",
    "xlj/objectives/dwa.py": "objectives/test_dwa objectives/test_draws_stay "
    "objectives/test_flops objectives/test_dropout_of_losses",
    "xlj/objectives/flops.py": "objectives/test_flops",
    "xlj/objectives/mlm.py": "objectives/test_mlm objectives/test_camlm objectives/test_flops "
    "objectives/test_dropout_of_losses",
    "xlj/objectives/objective.py": "training/test_step_numpy objectives/test_mlm",
    "xlj/objectives/retrieval.py": "objectives/test_retrieval_loss objectives/test_flops "
    "objectives/test_dropout_of_losses",
    "xlj/objectives/rtd.py": "objectives/test_rtd objectives/test_draws_stay "
    "objectives/test_flops objectives/test_dropout_of_losses objectives/test_sharded_parts",
    "xlj/objectives/segments.py": "objectives/test_segments objectives/test_mlm "
    "objectives/test_camlm",
    "xlj/objectives/supervised.py": "objectives/test_supervised objectives/test_flops",
    "xlj/objectives/task_heads.py": "objectives/test_supervised finetuning/test_task_scores",
    "xlj/objectives/word_hmm.py": "objectives/test_word_hmm objectives/test_draws_stay "
    "objectives/test_flops objectives/test_dropout_of_losses",
    "xlj/objectives/xlco.py": "objectives/test_xlco objectives/test_draws_stay "
    "objectives/test_flops objectives/test_dropout_of_losses objectives/test_sharded_parts",
    "xlj/optimizers/__init__.py": "optimizers",
    "xlj/optimizers/averaging.py": "optimizers/test_averaging training/test_averages",
    "xlj/optimizers/muon.py": "optimizers/test_muon",
    "xlj/optimizers/stable_adamw.py": "optimizers/test_stable_adamw training/test_step_numpy",
    "xlj/optimizers/adamw.py": "optimizers/test_adamw optimizers/test_own_optimizer",
    "xlj/optimizers/clipping.py": "optimizers/test_clipping training/test_step_numpy",
    "xlj/optimizers/guards.py": "optimizers",
    "xlj/optimizers/multipliers.py": "optimizers",
    "xlj/optimizers/schedules.py": "optimizers/test_schedules",
    "xlj/data/rows/batches.py": "data/rows/test_batches",
    "xlj/data/rows/draws.py": "data/rows/test_draws data/rows/test_batches",
    "xlj/data/rows/mixture.py": "training/test_durations training/test_whole_run",
    "xlj/config/batch_warmup.py": "config/test_batch_warmup",
    "xlj/training/evaluation.py": "training/test_evaluation",
    "xlj/training/phases.py": "training/test_phases",
    "xlj/sharding/devices.py": "sharding/test_devices",
    "xlj/sharding/rules.py": "sharding/test_devices training/test_step",
    "xlj/sharding/trees.py": "sharding/test_devices sharding/test_meshes training/test_step",
    "xlj/training/step.py": "training/test_step_numpy training/test_step",
    "configs/xlm_e.py": "test_recipe_values",
}
"""The tests that run on the mutants of each file: folders and modules below `tests`."""


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

    tests = {
        file: [
            str(path.relative_to(ROOT))
            for name in names.split()
            for path in (ROOT / "tests" / name, ROOT / "tests" / f"{name}.py")
            if path.exists()
        ]
        for file, names in TESTS.items()
    }
    packages = ("alignment_math", "models", "objectives", "optimizers")
    files = {str(p.relative_to(ROOT)) for name in packages for p in ROOT.glob(f"xlj/{name}/*.py")}
    if new := [file for file in files - set(TESTS) if Source(ROOT, file).functions]:
        sys.exit(f"tests/mutants: add the tests of {', '.join(sorted(new))} to TESTS")
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
