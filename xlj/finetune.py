"""Fine-tunes an encoder on a task, and scores it in all languages.

    python -m xlj.finetune --config=configs/finetune/NAME.py --config.init_from=DIR

DIR is a workdir, a checkpoint or a Hugging Face folder. The workdir gets a folder a seed, with
checkpoints, metrics and predictions, and results.json, results.md. The same command again goes on
where it stopped. docs/finetune.md tells more.
"""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlj.cli import command, configs, distributed_flags, finetuning_flags, outputs
from xlj.config import finetuning
from xlj.config.paths import local_path
from xlj.io import exit_codes


@command.entry("finetune", __doc__, finetuning_flags.add, finetuning)
def main(flags: Namespace) -> int:
    """Fine-tunes to the end, writes the results and prints their table."""
    name = flags.name or configs.name_of(flags.config_file)
    workdir = local_path("--workdir", flags.workdir or Path("runs") / "finetune" / name)
    outputs.check_folder("workdir", workdir)
    code = distributed_flags.join(flags)
    if code is not None:
        return code
    import jax

    from xlj.api import runs
    from xlj.distributed.preemption import Preemption

    finetuning_flags.check(flags, name)
    Preemption.owns_process = flags.is_process
    outcome = runs.fine_tune(flags.config, workdir)
    if not outcome.finished:
        if jax.process_index() == 0:
            print(f"stopped; the same command goes on from there, in {workdir}")
        return exit_codes.CONTINUE
    if jax.process_index() == 0:
        _tell(flags, workdir, name, outcome)
    return 0


def _tell(flags: Namespace, workdir: Path, name: str, outcome: Any) -> None:
    """Writes and prints the results."""
    from xlj.evaluation import language_report
    from xlj.finetuning import task_results

    config = flags.config
    files = task_results.write(workdir, name, config, outcome)
    print("", task_results.as_markdown(name, config, outcome), *files, sep="\n")
    if flags.submission:
        submission = Path(flags.submission).expanduser()
        folder, others = task_results.submit(submission, name, config, outcome)
        print(folder)
        for file in others:
            print(f"{file} was there before, and is not of this run", file=sys.stderr)
    panels = task_results.panels(outcome)
    if flags.plot and panels:
        path = Path(flags.plot)
        outputs.draw(path, lambda: language_report.plot(panels, path))
    elif flags.plot:
        print("no plot: no labels are known", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
