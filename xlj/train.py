"""Pretrains an encoder: builds the rows if need be, trains, evaluates, checkpoints, resumes.

    python -m xlj.train --config=configs/NAME.py [--workdir=DIR] [--config.train.steps=1000]

The same command again goes on from the workdir's latest checkpoint. SIGTERM saves and ends with
exit code 0. docs/getting_started.md tells more.
"""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from xlj import config as schema
from xlj.cli import command, configs, outputs
from xlj.cli.parser import DISTRIBUTED, Parser
from xlj.config import ConfigError
from xlj.config.paths import local_path


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("train", __doc__, schema)
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        help="checkpoints and metrics; runs/ and the config's name by itself",
    )
    parser.add_argument("--distributed", action="store_true", help=DISTRIBUTED)
    return command.run(parser, _train, argv)


def _train(flags: Namespace) -> None:
    """Trains to the end, and prints a summary."""
    default = Path("runs") / configs.name_of(flags.config_file)
    workdir = local_path("--workdir", flags.workdir or default)
    outputs.check_folder("workdir", workdir)
    import jax

    if flags.distributed:
        jax.distributed.initialize()

    from xlj.data.rows.batches import Batches
    from xlj.data.rows.opening import with_rows
    from xlj.data.rows.preparing import finished_rows, prepare_rows
    from xlj.data.rows.report import report
    from xlj.evaluation import probes
    from xlj.training import initialisation, loop, memory, partitioning, summary
    from xlj.training.run_flops import RunFlops
    from xlj.training.workdir import only_run

    # All of these refuse what does not fit before any rows are built.
    config = with_rows(flags.config)
    mesh = partitioning.make_mesh(config)
    partitioning.check_batches(config, mesh)
    initialisation.check_resumable(config, workdir)
    config = initialisation.adopt_vocabulary(config, workdir)
    memory.check_fits(config, memory.expected(config), mesh)
    files = probes.read(config)
    main_process = jax.process_index() == 0
    try:
        with only_run(workdir) if main_process else contextlib.nullcontext():
            store = prepare_rows(config) if jax.process_count() == 1 else finished_rows(config)
            batches = Batches(store, config)
            flops = RunFlops(config, batches.corpus, batches.shapes)
            if main_process:
                print(report(store, config.data.alpha), "\n")
                print(f"operations of the run: {flops.until(config.train.steps)}\n", flush=True)
            outcome = loop.train(config, workdir, store, probes.make(config, files, store))
    except FloatingPointError as error:
        raise ConfigError(str(error)) from error
    if main_process:
        # Without what is this run's own.
        again = command.line("train", flags.arguments, ("workdir", "config.init_from"))
        print(summary.summary(outcome, again, flops.until(outcome.step)))


if __name__ == "__main__":
    sys.exit(main())
