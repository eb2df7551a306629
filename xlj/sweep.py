"""Runs a sweep of one recipe with many settings, one run after another or on a cluster.

    python -m xlj.sweep --config=configs/sweeps/NAME.py [--folder=DIR] [--config.KEY=VALUE]
    python -m xlj.sweep --config=configs/sweeps/NAME.py --print
    python -m xlj.sweep --config=... --submit='env NAME={name} launch/slurm.sh {arguments}'

The same command, called again, runs only the unfinished runs. --config.KEY=VALUE changes all runs.
More: docs/sweep.md
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
    parser.add_file("--config", "file that defines the sweep, see configs/sweeps/", required=True)
    add(
        "--folder",
        metavar="DIR",
        type=Path,
        help="folder for the workdirs [runs/NAME, with the name of the sweep's file]",
    )
    add(
        "--only",
        metavar="PATTERN",
        default="*",
        help="run only the runs whose names match this pattern, such as 'tlm-*' [*, all runs]",
    )
    add(
        "--print",
        action="store_true",
        help="print the command of each unfinished run, and run nothing",
    )
    add(
        "--submit",
        metavar="COMMAND",
        help="run nothing here, but call this command for each unfinished run, for example to "
        "submit the run to a cluster. {command} is replaced by the command of the run, {arguments} "
        "by the arguments after `python -m xlj.train`, and {name} by the name of the run",
    )


@command.entry("sweep", __doc__, _add_flags)
def main(flags: Namespace) -> int:
    """Runs, prints or submits the runs of the sweep; returns 1 if a run failed."""
    from xlj.tools.sweeping import definition, runner

    if flags.submit is not None:
        runner.check_template(flags.submit)
    folder = local_path("--folder", flags.folder or Path("runs") / flags.config.stem)
    runs = definition.make_runs(definition.read(flags.config, folder), folder, flags.overrides)
    selected = [run for run in runs if fnmatch.fnmatchcase(run.name, flags.only)]
    if not selected:
        names = ", ".join(run.name for run in runs)
        raise ConfigError(f"--only={flags.only} matches no run of {flags.config}: {names}")
    for run in selected:
        outputs.check_folder("folder", run.workdir)
    configs = runner.check(selected)
    unfinished = [run for run in selected if not runner.is_finished(run)]
    if flags.print:
        for run in unfinished:
            print(shlex.join(run.command()))
        return 0
    if flags.submit:
        failed = sum(not runner.submit(run, configs[run.name], flags.submit) for run in unfinished)
    else:
        failed = runner.run_all(selected, unfinished, configs)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
