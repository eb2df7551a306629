"""Fine-tunes an encoder on a task, and scores it in all languages.

    python -m xlj.finetune --config=configs/finetune/NAME.py --config.init_from=DIR

DIR is a workdir, a checkpoint or a Hugging Face folder. The command writes results.json and
results.md to --workdir, and for each seed a folder with checkpoints, metrics and predictions. The
same command resumes an interrupted run. More: docs/finetune.md
"""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlj.cli import command, configs, distributed_flags, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError, finetuning
from xlj.config.paths import local_path
from xlj.io import own_process


def add(parser: Parser) -> None:
    """Adds all flags except the flags of the config."""
    add = parser.add_argument
    add(
        "--workdir",
        metavar="DIR",
        help="folder for runs and results [runs/finetune/NAME, with the NAME of --name]",
    )
    add(
        "--submission",
        metavar="DIR",
        help="folder for prediction files in the format of XTREME, which go to DIR/NAME",
    )
    add("--name", help="name of the task in the results [the name of the config file]")
    add(
        "--plot",
        metavar="FILE",
        help="file for a plot of the scores by language (.png, .svg, .pdf)",
    )
    distributed_flags.add_flags(parser)


def check(flags: Namespace, name: str) -> None:
    """Checks that the outputs can be written and do not overwrite inputs of the task.

    Args:
      name: name of the task.

    Raises:
      ConfigError: if an output cannot be written or is an input of the task, or if a file of the
        task is missing.
    """
    task = flags.config.task
    if flags.submission and not task.test:
        raise ConfigError("--submission needs test sets, but task.test is empty; set task.test")
    if not flags.plot and not flags.submission:
        return
    from xlj.finetuning import task_data, task_results

    inputs = [("config", flags.config_file.partition(":")[0])]
    inputs += [("config.init_from", flags.config.init_from)]
    inputs += [(f"config.task.{split}", source) for split, _, source in task_data.sources(task)]
    outputs.check_output("plot", flags.plot, inputs, outputs.PLOTS)
    if flags.submission:
        folder = Path(flags.submission).expanduser() / name
        outputs.check_folder("submission", folder)
        for file in task_results.submission_files(folder, task):
            outputs.check_no_input("submission", file, inputs)


@command.entry("finetune", __doc__, add, finetuning)
def main(flags: Namespace) -> int:
    """Fine-tunes, writes the results and prints them as a table."""
    name = flags.name or configs.name_of(flags.config_file)
    workdir = local_path("--workdir", flags.workdir or Path("runs") / "finetune" / name)
    outputs.check_folder("workdir", workdir)
    code = distributed_flags.join(flags)
    if code is not None:
        return code
    import jax

    from xlj.api import runs
    from xlj.distributed.preemption import Preemption

    check(flags, name)
    Preemption.owns_process = flags.is_process
    outcome = runs.fine_tune(flags.config, workdir)
    if not outcome.finished:
        if jax.process_index() == 0:
            print(f"stopped; the same command resumes the run in {workdir}")
        return own_process.CONTINUE
    if jax.process_index() == 0:
        _report(flags, workdir, name, outcome)
    return 0


def _report(flags: Namespace, workdir: Path, name: str, outcome: Any) -> None:
    """Writes and prints the results."""
    from xlj.evaluation import language_report
    from xlj.finetuning import task_results

    config = flags.config
    files = task_results.write(workdir, name, config, outcome)
    print("", task_results.as_text(name, config, outcome), "", *files, sep="\n")
    if flags.submission:
        submission = Path(flags.submission).expanduser()
        folder, others = task_results.submit(submission, name, config, outcome)
        print(folder)
        for file in others:
            print(f"{file} existed before and is not from this run", file=sys.stderr)
    panels = task_results.panels(outcome)
    if flags.plot and panels:
        path = Path(flags.plot)
        outputs.draw(path, lambda: language_report.plot(panels, path))
    elif flags.plot:
        print("no plot: the data has no labels", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
