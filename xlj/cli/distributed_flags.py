"""Flags of commands that run as several processes; connects a process to the other processes."""

import re
from argparse import Namespace

from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError
from xlj.distributed import guard
from xlj.io import processes

FLAGS = ("distributed", "coordinator", "processes", "process")
"""Names of the flags that `add_flags` adds."""


def add_flags(parser: Parser) -> None:
    """Adds --distributed, and the flags that describe the processes of a run."""
    add = parser.add_argument
    add(
        "--distributed",
        action="store_true",
        help="run as one of several processes. Under Slurm, Open MPI and on TPU pods, the other "
        "processes are detected. Elsewhere set --coordinator, --processes and --process "
        "(launch/local.py sets them)",
    )
    add(
        "--coordinator",
        metavar="HOST:PORT",
        help="address of process 0, and a free port on which process 0 listens",
    )
    add("--processes", metavar="N", type=at_least(1), help="number of processes")
    add("--process", metavar="I", type=at_least(0), help="zero-based number of this process")


def join(flags: Namespace) -> int | None:
    """Joins the other processes, if --distributed is set.

    The command that the user started becomes the guard of a child process that does the work
    (`distributed.guard`).

    Returns:
      In the guard, the exit code of the command. In the child, and without --distributed, None.

    Raises:
      ConfigError: if flags contradict each other, or the other processes are not found.
    """
    _check(flags)
    if not flags.distributed:
        return None
    if flags.is_process and not guard.is_watched():
        return guard.run()
    if guard.is_watched():
        processes.be_killed_with_parent()
    from xlj.distributed import hosts

    process, count = hosts.join(flags.coordinator, flags.processes, flags.process)
    if guard.is_watched():
        guard.report(process, count, hosts.broadcast(guard.own_address))
    return None


def _check(flags: Namespace) -> None:
    names = ("coordinator", "processes", "process")
    used = [f"--{name}" for name in names if getattr(flags, name) is not None]
    if used and not flags.distributed:
        raise ConfigError(f"{' and '.join(used)} need --distributed")
    if flags.coordinator is not None and not re.fullmatch(r".+:[0-9]{1,5}", flags.coordinator):
        raise ConfigError(
            f"--coordinator={flags.coordinator} is not HOST:PORT, for example 10.0.0.1:1234"
        )
    if flags.process is not None and flags.processes is not None:
        if flags.process >= flags.processes:
            raise ConfigError(
                f"--process={flags.process}: with --processes={flags.processes} it must be from 0 "
                f"to {flags.processes - 1}"
            )
