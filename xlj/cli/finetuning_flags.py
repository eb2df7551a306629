"""The flags of `xlj.finetune`, and which of them go together."""

from argparse import Namespace
from pathlib import Path

from xlj.cli import distributed_flags, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError


def add(parser: Parser) -> None:
    """Adds all flags but those of the config."""
    add = parser.add_argument
    add("--workdir", metavar="DIR", help="runs and results; runs/finetune/ and the name by itself")
    add(
        "--submission",
        metavar="DIR",
        help="folder that gets XTREME's files of predictions, in a folder NAME",
    )
    add("--name", help="the task's name in results; the config's by itself")
    add("--plot", metavar="FILE", help="draw the scores by language into this .png, .svg or .pdf")
    distributed_flags.add_flags(parser)


def check(flags: Namespace, name: str) -> None:
    """Refuses outputs that cannot be written, or would overwrite data of the task.

    Args:
      name: of the task.

    Raises:
      ConfigError: if so, or a file of the task is missing.
    """
    task = flags.config.task
    if flags.submission and not task.test:
        raise ConfigError("--submission is of test sets, but task.test is empty")
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
