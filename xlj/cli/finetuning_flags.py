"""Flags of `xlj.finetune`, and checks of their combinations."""

from argparse import Namespace
from pathlib import Path

from xlj.cli import distributed_flags, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError


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
