"""Pretrains an encoder: builds missing rows, trains, evaluates, saves checkpoints, and resumes.

    python -m xlj.train --config=configs/NAME.py [--workdir=DIR] [--config.train.steps=1000]

The same command resumes from the latest checkpoint of the workdir. On SIGTERM, the command saves a
checkpoint and exits with code 75. More: docs/train.md
"""

from argparse import Namespace
from pathlib import Path

from xlj import config as schema
from xlj.cli import command, configs, distributed_flags, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.io import own_process
from xlj.io.storage import AnyPath


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        help="folder or gs://BUCKET/FOLDER for checkpoints and metrics [runs/NAME or "
        "runs/NAME-VARIANT, with the name of the config file]",
    )
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="build missing rows, then print and draw the schedule of the run without training",
    )
    distributed_flags.add_flags(parser)


@command.entry("train", __doc__, _add_flags, schema)
def main(flags: Namespace) -> int:
    """Trains and prints a summary."""
    default = Path("runs") / configs.name_of(flags.config_file)
    from xlj.checkpoints.workdir import resolve

    workdir = resolve("--workdir", flags.workdir or default)
    if isinstance(workdir, Path):
        outputs.check_folder("workdir", workdir)
    code = distributed_flags.join(flags)
    if code is not None:
        return code
    import jax

    from xlj.api import runs
    from xlj.distributed.preemption import Preemption
    from xlj.training import summary

    if flags.dry_run:
        runs.dry_run(flags.config, workdir)
        return 0
    Preemption.owns_process = flags.is_process
    outcome = runs.pretrain(flags.config, workdir)
    # All processes call this, since Orbax waits until all of them open a checkpoint.
    can_export = outcome.finished and _can_export(outcome.checkpoint)
    if jax.process_index() == 0:
        # The summary suggests this command for a new run, without the flags of this run.
        omitted = ("workdir", "config.init_from", *distributed_flags.FLAGS)
        new_run = command.line("train", flags.arguments, omitted)
        print(summary.summary(outcome, new_run, can_export))
    return 0 if outcome.finished else own_process.CONTINUE


def _can_export(checkpoint: AnyPath) -> bool:
    from xlj.checkpoints import stored_models
    from xlj.interop import to_hugging_face

    source = stored_models.find(checkpoint)
    try:
        to_hugging_face.plan(source.leaves, source.model, source.vocabulary(), headless=False)
    except ConfigError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
