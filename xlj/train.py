"""Pretrains an encoder: makes the rows if need be, trains, evaluates, checkpoints, resumes.

    python -m xlj.train --config=configs/NAME.py [--workdir=DIR] [--config.train.steps=1000]

The same command again goes on from the workdir's latest checkpoint. SIGTERM saves and ends with
exit code 0. docs/getting_started.md tells more.
"""

import contextlib
from pathlib import Path

from absl import flags

from xlj import cli
from xlj.config import Config
from xlj.config.paths import local_path

_WORKDIR = flags.DEFINE_string(
    "workdir", "", "checkpoints and metrics; empty means runs/ and the config's name"
)
_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "this is one of several processes (Slurm, a TPU pod, mpirun): join them"
)


def run(config: Config) -> None:
    """Trains to the end, and prints a summary."""
    import jax

    if _DISTRIBUTED.value:
        jax.distributed.initialize()

    from xlj.data.rows.making import ensure_rows, finished_rows
    from xlj.data.rows.report import report
    from xlj.evaluation import probes
    from xlj.training import initialisation, loop, memory, partitioning, summary
    from xlj.training.workdir import only_run

    workdir = local_path("--workdir", _WORKDIR.value or Path("runs") / cli.config_name())
    # All of these refuse what does not fit before any rows are made.
    mesh = partitioning.make_mesh(config)
    initialisation.check_resumable(config, workdir)
    config = initialisation.adopt_vocabulary(config, workdir)
    memory.check_fits(config, memory.expected_corpus(config), mesh)
    files = probes.read(config)
    main_process = jax.process_index() == 0
    try:
        with only_run(workdir) if main_process else contextlib.nullcontext():
            store = ensure_rows(config) if jax.process_count() == 1 else finished_rows(config)
            if main_process:
                print(report(store, config.data.alpha), "\n", flush=True)
            outcome = loop.train(config, workdir, store, probes.make(config, files, store))
    except FloatingPointError as error:
        raise cli.ConfigError(str(error)) from error
    if main_process:
        print(summary.summary(outcome, cli.command()))


if __name__ == "__main__":
    cli.main(run, __doc__)
