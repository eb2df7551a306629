"""Runs a sweep: one recipe with many settings, one run after another, or each on a cluster.

    python -m xlj.sweep --config=configs/sweeps/NAME.py [--folder=DIR] [--config.KEY=VALUE]
    python -m xlj.sweep --config=configs/sweeps/NAME.py --print
    python -m xlj.sweep --config=... --submit='env NAME={name} launch/slurm.sh {arguments}'

The same command again runs what is not finished. --config.KEY=VALUE changes all runs.
docs/sweep.md tells more.
"""

import fnmatch
import shlex
from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.paths import local_path


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    parser.add_file("--config", "the sweep (configs/sweeps/)", required=True)
    add(
        "--folder",
        metavar="DIR",
        type=Path,
        help="where the workdirs are; runs/ and the sweep's name by itself",
    )
    add("--only", metavar="PATTERN", default="*", help="only the runs of such names, as 'tlm-*'")
    add("--print", action="store_true", help="print the command of each unfinished run, and end")
    add(
        "--submit",
        metavar="COMMAND",
        help="call this for each unfinished run, and end. {command} in it becomes the run's "
        "command, {arguments} what follows its `python -m xlj.train`, {name} the run's name",
    )


@command.entry("sweep", __doc__, _add_flags)
def main(flags: Namespace) -> int:
    """Runs, prints or submits; returns 1 if a run failed."""
    from xlj.sweeping import definition, running, state

    if flags.submit is not None:
        running.check_template(flags.submit)
    folder = local_path("--folder", flags.folder or Path("runs") / flags.config.stem)
    every = definition.runs(definition.read(flags.config, folder), folder, flags.overrides)
    chosen = [run for run in every if fnmatch.fnmatchcase(run.name, flags.only)]
    if not chosen:
        names = ", ".join(run.name for run in every)
        raise ConfigError(f"--only={flags.only} is no run of {flags.config}: {names}")
    for run in chosen:
        outputs.check_folder("folder", run.workdir)
    configs = state.check(chosen)
    left = [run for run in chosen if not state.is_finished(run, configs[run.name])]
    if flags.print:
        for run in left:
            print(shlex.join(run.command()))
        return 0
    if flags.submit:
        failed = sum(not running.submit(run, configs[run.name], flags.submit) for run in left)
    else:
        failed = running.run_all(chosen, left, configs)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
