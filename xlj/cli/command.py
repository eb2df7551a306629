"""Runs a command from its flags to its exit code, and prints user errors as one line."""

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
from xlj.io import own_process, storage

Work = Callable[[Namespace], int | None]


def entry(
    name: str,
    doc: str | None,
    add_flags: Callable[[Parser], None],
    schema: Schema | None = None,
    implied: Callable[[Namespace], Implied] = lambda flags: Implied(),
) -> Callable[[Work], Callable[..., int]]:
    """Returns a decorator that turns a function of a command's flags into `main(argv=None) -> exit
    code`, which calls `run`. `main.parser()` returns the parser of the flags.

    Args:
      name: the name of the command, `align` for `python -m xlj.align`.
      doc: the docstring of the command, which `--help` prints.
      add_flags: adds the flags of the command, except the flags of the config.
      schema: the module that checks the config; None for a command without a config.
      implied: returns the config values that these flags set.
    """

    def decorator(work: Work) -> Callable[..., int]:
        def build_parser() -> Parser:
            parser = Parser(name, doc, schema)
            add_flags(parser)
            return parser

        def main(argv: Sequence[str] | None = None) -> int:
            return run(build_parser(), work, argv, implied)

        main.parser = build_parser  # type: ignore[attr-defined]
        return main

    return decorator


def run(
    parser: Parser,
    work: Work,
    argv: Sequence[str] | None = None,
    implied: Callable[[Namespace], Implied] = lambda flags: Implied(),
) -> int:
    """Reads the flags of a command and runs it.

    Args:
      work: takes the flags and returns the exit code, None for 0. If the parser has a schema,
        `flags.config` is the checked config and `flags.config_file` its file.
      argv: the arguments; None for the arguments of the process.
      implied: returns the config values that other flags set.

    Returns:
      The exit code of `work`, or 2 after a user error (`ConfigError`, `RowStoreError` or a storage
      error), which is printed as one line. If the reader of standard output has closed it
      (`| head`), the code is 141, as in shells. If `argv` is None, Ctrl-C ends the process with
      code 130. A training run saves a checkpoint first (`loop.train`), and the command that resumes
      the run is printed.
    """
    try:
        try:
            code = _execute(parser, work, argv, implied)
        except SystemExit as end:  # raised by --help, and by SIGTERM in io.processes
            if not isinstance(end.code, int):
                raise
            code = end.code
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _drop_closed_output():
            raise  # another pipe broke
        return 141
    except OSError as error:
        if not (message := storage.describe_storage_error(error)):
            raise
        _drop_full_output()
        print(f"error: {message}", file=sys.stderr)
        return 2
    except (ConfigError, RuntimeError) as error:
        if not _is_user_error(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if argv is not None:
            raise
        with contextlib.suppress(OSError):  # Ctrl-C also ends a reader such as `| tee`
            if step := str(stop):  # set by a training run
                step = f": {step}\nto resume:\n  {line(parser.command, sys.argv[1:])}"
            print(f"interrupted{step}", file=sys.stderr)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        own_process.end(130)


def _execute(
    parser: Parser,
    work: Work,
    argv: Sequence[str] | None,
    implied: Callable[[Namespace], Implied],
) -> int:
    flags = parser.read(argv)
    if argv is None:
        own_process.enable_cache()
    if parser.schema:
        if argv is None:
            own_process.use_huge_pages()
        values = implied(flags)
        flags.config_file = flags.config or values.file
        overrides = [*values.overrides, *flags.overrides]
        flags.config = configs.load(flags.config_file, overrides, parser.schema, values.change)
        if flags.check:
            print(json.dumps(as_tree(flags.config)))
            return 0
    return work(flags) or 0


def line(name: str, arguments: Sequence[str], without: Sequence[str] = ()) -> str:
    """Returns the command line of a command, quoted for a shell.

    Args:
      name: the name of the command, `align` for `python -m xlj.align`.
      without: names of flags to leave out, together with their values.
    """
    words, is_dropped = [], False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if argument.startswith("--"):
            is_dropped = flag.removeprefix("--") in without
        if not is_dropped:
            words.append(argument)
        elif equals or not argument.startswith("--"):
            is_dropped = False  # this argument contains the flag's value, or is the value
    return shlex.join(["python", "-m", f"xlj.{name}", *words])


def _drop_closed_output() -> bool:
    """Returns whether the reader of standard output has closed it. If so, drops the output that is
    not yet written, which Python would flush again at its exit."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    is_closed = any(event & select.POLLERR for _, event in poll.poll(0))
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return is_closed


def _drop_full_output() -> None:
    """Drops output that does not fit on a full disk, which Python would flush again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_user_error(error: Exception) -> bool:
    from xlj.data.rows.store import RowStoreError  # imported late, since --help needs no NumPy

    return isinstance(error, (ConfigError, RowStoreError))
