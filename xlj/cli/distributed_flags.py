"""The flags of commands that run as several processes, and how a process joins the others."""

import re
from argparse import Namespace

from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError
from xlj.distributed import guard
from xlj.io import processes

FLAGS = ("distributed", "coordinator", "processes", "process")
"""Names of the flags that `add_flags` adds."""


def add_flags(parser: Parser) -> None:
    """Adds --distributed and what says where the others are."""
    add = parser.add_argument
    add(
        "--distributed",
        action="store_true",
        help="this is one of several processes: join them. Slurm, a TPU pod and Open MPI tell who "
        "they are; elsewhere the next three flags do (launch/local.py gives them)",
    )
    add("--coordinator", metavar="HOST:PORT", help="where process 0 listens, on a free port")
    add("--processes", metavar="N", type=at_least(1), help="how many there are")
    add("--process", metavar="I", type=at_least(0), help="which of them this is, from 0")


def join(flags: Namespace) -> int | None:
    """Joins the other processes, if there are to be any.

    The command that was typed becomes the guard of a child that does the work (`cli.guard`): its
    exit code is then that of the command. In the child, and without --distributed, it is None.

    Raises:
      ConfigError: if the flags do not go together, or the others are not found.
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
        guard.report(process, count, hosts.told(guard.own_address))
    return None


def _check(flags: Namespace) -> None:
    given = {name: getattr(flags, name) for name in ("coordinator", "processes", "process")}
    alone = [f"--{name}" for name, value in given.items() if value is not None]
    if alone and not flags.distributed:
        raise ConfigError(f"{' and '.join(alone)} need --distributed")
    if flags.coordinator is not None and not re.fullmatch(r".+:[0-9]{1,5}", flags.coordinator):
        raise ConfigError(f"--coordinator={flags.coordinator} is not HOST:PORT, 10.0.0.1:1234 say")
    if flags.process is not None and flags.processes is not None:
        if flags.process >= flags.processes:
            raise ConfigError(
                f"--process={flags.process} of --processes={flags.processes}: they are counted "
                "from 0"
            )
