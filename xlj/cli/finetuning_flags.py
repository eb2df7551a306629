"""Flags of `xlj.finetune`, and checks of their combinations."""

from argparse import Namespace
from pathlib import Path

from xlj.cli import distributed_flags, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError


def add(parser: Parser) -> None:
    """Adds all flags except those of the config."""
    add = parser.add_argument
    add("--workdir", metavar="DIR", help="folder for runs and results [runs/finetune/NAME]")
    add(
        "--submission",
        metavar="DIR",
        help="folder for prediction files in the format of XTREME, in a subfolder NAME",
    )
    add("--name", help="name of the task in results [the name of the config]")
    add(
        "--plot",
        metavar="FILE",
        help="file for a plot of the scores by language (.png, .svg, .pdf)",
    )
    distributed_flags.add_flags(parser)


def check(flags: Namespace, name: str) -> None:
    """Checks that outputs can be written and do not overwrite data of the task.

    Args:
      name: name of the task.

    Raises:
      ConfigError: if not, or if a file of the task is missing.
    """
    task = flags.config.task
    if flags.submission and not task.test:
        raise ConfigError("--submission needs test sets, but task.test is empty")
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
            outputs.check_other("submission", file, inputs)
