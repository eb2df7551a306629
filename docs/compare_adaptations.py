"""Adapts a small encoder to Yoruba and Swahili in several ways, and prints a table.

    python docs/compare_adaptations.py --data=../shared/data [--folder=runs/adapting]

The script trains a base encoder for eight languages. Then it runs `python -m xlj.adapt` for each
way to adapt and each seed. Finished runs are not repeated, so the same command resumes.
docs/experiments/adapting.md contains the table and describes the data and the ways.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

OLD = ("en", "de", "fr", "es", "ru", "ar", "tr", "vi")
NEW = ("yo", "sw")
ARMS = {
    "no new pieces": ("--pieces=0",),
    "new pieces": (),
    "new pieces, from nothing": (),
    "new pieces, without ranking": ("--config=configs/adapt.py:tlm",),
    "new pieces, text only": (),
}
"""The flags of each way to adapt, in addition to the flags of `adaptation`. "From nothing" adapts
an encoder with random weights: `base` with one step at a learning rate of 0."""
STEPS = 120
SIZES = {
    "objectives.mmlm.batch_size": 16,
    "objectives.tlm.batch_size": 8,
    "objectives.retrieval.batch_size": 8,
    "optimizer.learning_rate": 5e-4,
    "train.eval_rows": 8,
}
"""Config keys for this small model that differ from the recipe."""
COLUMNS = {
    "pieces per word, yo": ("pieces_per_word", ["yo"]),
    "pieces per word, sw": ("pieces_per_word", ["sw"]),
    "nats per character, yo": ("nats_per_character", ["yo"]),
    "nats per character, sw": ("nats_per_character", ["sw"]),
    "nats per character, old languages": ("nats_per_character", list(OLD)),
    "found, en-yo (%)": ("accuracy_percent", ["en-yo"]),
    "found, en-sw (%)": ("accuracy_percent", ["en-sw"]),
}
"""By title of a column: the key of the metric in adaptation.json, and the languages or language
pairs whose mean is shown."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="folder with mono/ and parallel/ [../shared/data]",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/adapting"),
        help="folder for all runs [runs/adapting]",
    )
    parser.add_argument("--seeds", default="0,1,2", help="seeds, separated by commas [0,1,2]")
    parser.add_argument(
        "--arms", help=f"ways to adapt, separated by semicolons without spaces [{';'.join(ARMS)}]"
    )
    parser.add_argument(
        "--table", action="store_true", help="only print the table of finished runs"
    )
    flags = parser.parse_args()
    arms = flags.arms.split(";") if flags.arms else list(ARMS)
    if unknown := [arm for arm in arms if arm not in ARMS]:
        parser.error(f"--arms: unknown way {unknown[0]!r}; expected some of {'; '.join(ARMS)}")
    seeds = [int(seed) for seed in flags.seeds.split(",")]
    if not flags.table:
        run_all(flags.data, flags.folder, arms, seeds)
    print(table(flags.folder, arms, seeds))


def run_all(data: Path, folder: Path, arms: list[str], seeds: list[int]) -> None:
    """Trains the base encoder, and runs all ways for each seed."""
    run(base(data, folder / "base", seed=0))
    if not (folder / "encoder").exists():
        run(["convert", "export", f"--checkpoint={folder}/base", f"--output={folder}/encoder"])
    for seed in seeds:
        for arm in arms:
            source = folder / "encoder"
            if "from nothing" in arm:
                source = folder / f"nothing-{seed}"
                run([*base(data, source, seed), "--config.train.steps=1",
                     "--config.optimizer.learning_rate=0", "--config.optimizer.decay_steps=1",
                     "--config.optimizer.warmup_steps=0"])  # fmt: skip
            run(adaptation(data, folder, source, arm, seed))


def base(data: Path, workdir: Path, seed: int) -> list[str]:
    """Returns the command that trains an encoder for the old languages."""
    return [
        "train", "--config=configs/xlm_tiny.py:modern", f"--workdir={workdir}",
        f"--config.data.mono={data}/mono/{{language}}.txt.gz",
        f"--config.data.languages={','.join(OLD)}",
        "--config.data.pairs=", "--config.data.parallel=",
        f"--config.data.exclude={data}/parallel/ntrex/test/*.tsv.gz",
        "--config.data.vocabulary_type=bpe", "--config.data.vocabulary_size=12000",
        "--config.objectives.tlm.batch_size=0", "--config.objectives.mmlm.batch_size=32",
        "--config.objectives.mmlm.mask_rate=0.3", "--config.model.layers=4",
        "--config.optimizer.learning_rate=1e-3", "--config.optimizer.warmup_steps=200",
        "--config.optimizer.schedule=wsd", "--config.optimizer.decay=sqrt",
        "--config.optimizer.decay_steps=400", "--config.train.steps=2000",
        f"--config.train.seed={seed}",
    ]  # fmt: skip


def adaptation(data: Path, folder: Path, source: Path, arm: str, seed: int) -> list[str]:
    """Returns the command that adapts the encoder in one way, with one seed."""
    command = [
        "adapt", f"--from={source}", f"--languages={','.join(NEW)}",
        f"--mono={data}/mono/{{language}}.txt.gz", f"--replay={','.join(OLD)}",
        f"--steps={STEPS}", f"--output={output(folder, arm, seed)}", *ARMS[arm],
        *(f"--config.{key}={value}" for key, value in SIZES.items()
          if not (key.startswith("objectives.retrieval") and "without ranking" in arm)
          and not (key.startswith(("objectives.tlm", "objectives.retrieval")) and "text" in arm)),
        f"--config.train.seed={seed}",
    ]  # fmt: skip
    pairs = [
        "--pairs=en-yo,en-sw",
        f"--parallel={data}/parallel/mafand/train/{{pair}}.tsv.gz,"
        f"{data}/parallel/bible/train/{{pair}}.tsv.gz",
        f"--test={data}/parallel/ntrex/test/{{pair}}.tsv.gz",
        "--config.evaluation.retrieval.sentences=1997",
    ]
    if "text only" not in arm:
        return [*command, *pairs]
    tested = f"{data}/parallel/ntrex/test/{{pair}}.tsv.gz"
    return [
        *command,
        f"--config.evaluation.retrieval.source={tested}",
        "--config.evaluation.retrieval.pairs=en-yo,en-sw",
        "--config.evaluation.retrieval.sentences=1997",
        f"--config.data.exclude={tested.replace('{pair}', 'en-*')}",
    ]


def output(folder: Path, arm: str, seed: int) -> Path:
    """Returns the folder of a run: one way and one seed."""
    return folder / f"{arm.replace(',', '').replace(' ', '_')}-{seed}"


def run(arguments: list[str]) -> None:
    """Runs a command of xlj. If the command fails, the script ends with the same exit code."""
    name, *options = arguments
    print("$", shlex.join(["python", "-m", f"xlj.{name}", *options]), flush=True)
    process = subprocess.run([sys.executable, "-m", f"xlj.{name}", *options])
    if process.returncode:
        raise SystemExit(process.returncode)


def table(folder: Path, arms: list[str], seeds: list[int]) -> str:
    """Returns a Markdown table of all ways, with means and standard deviations over the finished
    seeds."""
    lines = [f"| way | {' | '.join(COLUMNS)} | seeds |", "|---" * (len(COLUMNS) + 2) + "|"]
    records = {arm: finished(folder, arm, seeds) for arm in arms}
    first_record = next((arm_records[0] for arm_records in records.values() if arm_records), None)
    if first_record:
        lines.append(row("unadapted", [first_record["before"]]))
    lines += [
        row(arm, [r["after"] for r in arm_records])
        for arm, arm_records in records.items()
        if arm_records
    ]
    return "\n".join(lines)


def finished(folder: Path, arm: str, seeds: list[int]) -> list[dict]:
    """Returns the records of the finished seeds of one way."""
    files = [output(folder, arm, seed) / "adaptation.json" for seed in seeds]
    records = [json.loads(file.read_text()) for file in files if file.is_file()]
    return [record for record in records if "after" in record]


def row(name: str, scores: list[dict]) -> str:
    """Returns a line of the table."""
    cells = []
    for measure, of in COLUMNS.values():
        values = [statistics.mean(score[measure][each] for each in of) for score in scores]
        digits = 3 if measure == "nats_per_character" else 2 if "pieces" in measure else 1
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.{digits}f}{spread}")
    return f"| {name} | {' | '.join(cells)} | {len(scores)} |"


if __name__ == "__main__":
    main()
