"""A command from its flags to its exit code: an error that a user can mend is one line."""

import contextlib
import json
import os
import select
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from xlj.cli import configs
from xlj.cli.configs import Implied, Schema
from xlj.cli.parser import Parser
from xlj.config import ConfigError, as_tree
from xlj.io import compiled, storage_errors

Work = Callable[[Namespace], int | None]
_TUNABLES = "GLIBC_TUNABLES"


def entry(
    name: str,
    doc: str | None,
    add_flags: Callable[[Parser], None],
    schema: Schema | None = None,
    implied: Callable[[Namespace], Implied] = lambda flags: Implied(),
) -> Callable[[Work], Callable[..., int]]:
    """Makes `main(argv=None) -> exit code` of a function of a command's flags, as `run` does;
    `main.parser()` is the parser of its flags.

    Args:
      name, doc, schema: as of `Parser`.
      add_flags: adds the flags beside those of the config.
      implied: what these flags set in the config.
    """

    def main_of(work: Work) -> Callable[..., int]:
        def parser() -> Parser:
            made = Parser(name, doc, schema)
            add_flags(made)
            return made

        def main(argv: Sequence[str] | None = None) -> int:
            return run(parser(), work, argv, implied)

        main.parser = parser  # type: ignore[attr-defined]
        return main

    return main_of


def run(
    parser: Parser,
    work: Work,
    argv: Sequence[str] | None = None,
    implied: Callable[[Namespace], Implied] = lambda flags: Implied(),
) -> int:
    """Reads the flags of a command, and does its work.

    Args:
      work: gets the flags, with the checked config in `config` and its file in `config_file` where
        the parser has a schema; returns the exit code, None for 0.
      argv: the arguments; those of the process if None.
      implied: what other flags set in the config.

    Returns:
      The exit code: that of the work, or 2 after an error that a user can mend (`ConfigError`,
      `RowStoreError`, one of storage), which is printed in a line. Where nobody reads the output
      any more (`| head`) it is a shell's, 141. Ctrl-C ends the process with 130, if the arguments
      are its own; after it a run has saved (`loop.train`), and the command that goes on is printed.
    """
    try:
        try:
            code = _done(parser, work, argv, implied)
        except SystemExit as end:  # --help; SIGTERM in io.processes
            if not isinstance(end.code, int):
                raise
            code = end.code
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _drop_closed_output():
            raise  # it is another pipe that broke
        return 141
    except OSError as error:
        if not (said := storage_errors.describe(error)):
            raise
        _drop_full_output()
        print(f"error: {said}", file=sys.stderr)
        return 2
    except (ConfigError, RuntimeError) as error:
        if not _can_be_mended(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if argv is not None:
            raise
        with contextlib.suppress(OSError):  # `| tee` ends with it
            if step := str(stop):  # of a run
                step = f": {step}\nto go on:\n  {line(parser.command, sys.argv[1:])}"
            print(f"interrupted{step}", file=sys.stderr)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(130)  # Python's own end crashes now and then while XLA is still computing


def _done(
    parser: Parser,
    work: Work,
    argv: Sequence[str] | None,
    implied: Callable[[Namespace], Implied],
) -> int:
    flags = parser.read(argv)
    if argv is None:
        compiled.keep()
    if parser.schema:
        if argv is None:
            _use_huge_pages()
        more = implied(flags)
        flags.config_file = flags.config or more.file
        overrides = [*more.overrides, *flags.overrides]
        flags.config = configs.load(flags.config_file, overrides, parser.schema, more.change)
        if flags.check:
            print(json.dumps(as_tree(flags.config)))
            return 0
    return work(flags) or 0


def line(name: str, arguments: Sequence[str], without: Sequence[str] = ()) -> str:
    """The command line of these arguments.

    Args:
      without: names of flags that are left out.
    """
    kept, left_out = [], False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if argument.startswith("--"):
            left_out = flag.removeprefix("--") in without
        if not left_out:
            kept.append(argument)
        elif equals or not argument.startswith("--"):
            left_out = False  # its value was in it, or was this one
    return shlex.join(["python", "-m", f"xlj.{name}", *kept])


def _use_huge_pages() -> None:
    """Starts this command again with glibc's memory in huge pages, which it asks for only at the
    start of a process: on CPUs XLA takes its buffers from there anew each step, and a sixth of a
    small model's step is saved (docs/benchmarks.md). Nothing is done where GLIBC_TUNABLES is set,
    nor in a program that calls a command.
    """
    main = sys.modules["__main__"]
    spec, script = main.__spec__, getattr(main, "__file__", None) or ""
    # python -m xlj.train, or the script `xlj`
    is_command = spec.name.startswith("xlj.") if spec else os.path.basename(script) == "xlj"
    if is_command and sys.platform == "linux" and _TUNABLES not in os.environ:
        os.environ[_TUNABLES] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _drop_closed_output() -> bool:
    """Whether nobody reads standard output any more; what is left to be written is dropped, since
    Python flushes it again as it ends."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    is_closed = any(event & select.POLLERR for _, event in poll.poll(0))
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return is_closed


def _drop_full_output() -> None:
    """Drops what is left to be written to a full disk, which Python would try again as it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _can_be_mended(error: Exception) -> bool:
    from xlj.data.rows.store import RowStoreError  # late: --help needs no NumPy

    return isinstance(error, (ConfigError, RowStoreError))
