"""What every door does first: flags, the config file, its overrides, and readable errors."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import select
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from absl import flags
from ml_collections import config_flags

from xlj.config import checks
from xlj.config.fields import ConfigError, nearest
from xlj.config.paths import local_path

_CHECK = flags.DEFINE_bool("check", False, "check the config, print it as JSON, and do nothing")

_TUNABLES = "GLIBC_TUNABLES"


class Schema(Protocol):
    """What a door's config is checked against: the module of its schema."""

    def keys(self) -> Iterable[tuple[str, Any]]:
        """(full path, field) of every key."""

    def parse(self, config: Any, explicit: Collection[str]) -> Any:
        """The checked config; `explicit` are the paths set on the command line."""


def main(run: Callable[[Any], None], doc: str | None, schema: Schema = checks) -> None:
    """Parses the command line, and calls `run` with the checked config.

    Errors that a user can mend (`ConfigError`, `RowStoreError`) are printed as one `error:` line,
    with exit code 2.

    Args:
      run: the door's work; it reads flags of its own from `absl.flags.FLAGS`.
      doc: the door's docstring, the first part of `--help`.
      schema: of its config.
    """
    if not {"-h", "--help", "--helpfull"}.isdisjoint(sys.argv):
        with readable_errors():
            print(_help(doc or "", schema))
        return
    _use_huge_pages()
    with readable_errors():
        config = _parse(sys.argv, schema)
        if _CHECK.value:
            print(json.dumps(dataclasses.asdict(config)))
        else:
            run(config)


def _use_huge_pages() -> None:
    """Starts this command again with glibc's memory in huge pages, which it asks for only at the
    start of a process: on CPUs XLA takes its buffers from there anew each step, and a sixth of a
    small model's step is saved (docs/benchmarks.md). Nothing is done where GLIBC_TUNABLES is set,
    nor in a program that calls `main` without being a door.
    """
    spec = sys.modules["__main__"].__spec__
    is_door = spec is not None and spec.name.startswith("xlj.")  # python -m xlj.train
    if is_door and sys.platform == "linux" and _TUNABLES not in os.environ:
        os.environ[_TUNABLES] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Turns errors that a user can mend (`ConfigError`, `RowStoreError`) into one line, and exit
    code 2."""
    try:
        with _output_that_may_close():
            yield
    except (ConfigError, RuntimeError) as error:
        if not _can_be_mended(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # `| tee` ends with it
            print("interrupted", file=sys.stderr)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(130)  # Python's own end crashes now and then while XLA is still computing


@contextlib.contextmanager
def _output_that_may_close() -> Iterator[None]:
    """Ends without a traceback where nobody reads the output any more (`| head`), with the exit
    code of a shell, 141."""
    try:
        try:
            yield
        except SystemExit:  # --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):
            raise  # it is another pipe that broke
        # Python flushes it again as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None


def _can_be_mended(error: Exception) -> bool:
    from xlj.data.rows.store import RowStoreError  # late: --help needs no NumPy

    return isinstance(error, (ConfigError, RowStoreError))


CHECKPOINT = (
    "a workdir (its latest checkpoint; of a finished fine-tuning run, as seed-0/, that which was "
    "scored), one checkpoint's folder, or a Hugging Face folder"
)
"""What a flag --checkpoint takes."""


class Parser(argparse.ArgumentParser):
    """Reads the flags of a door that has no config; its errors are `ConfigError`s.

    Args:
      doc: the door's docstring, the first part of `--help`.
      prog: what it is called; argparse gives it to the parsers of sub-commands.
    """

    def __init__(self, doc: str | None, prog: str = ""):
        super().__init__(
            prog=prog or f"python -m xlj.{Path(sys.argv[0]).stem}",
            usage=argparse.SUPPRESS,
            description=textwrap.dedent(doc or "").strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would print, without its usage."""
        raise ConfigError(message)


PLOTS = (".png", ".svg", ".pdf")
"""How the name of a plot may end."""


def check_output(flag: str, path: str | Path, endings: Sequence[str] = ()) -> None:
    """Raises a `ConfigError` if a file cannot be written there, before any work for it is done.

    Args:
      endings: its name must have one of them.
    """
    shown = f"--{flag}={path}"
    path = local_path(f"--{flag}", path)
    try:
        path = path.resolve()
    except (OSError, RuntimeError):
        raise ConfigError(f"{shown}: these links lead in a circle") from None
    if not path.parent.is_dir():
        raise ConfigError(f"{shown}: there is no such folder")
    if path.is_dir():
        raise ConfigError(f"{shown}: this is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{shown}: this is a pipe or a device, not a file")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{shown}: nothing can be written into this folder")
    if endings and path.suffix.lower() not in endings:
        raise ConfigError(f"{shown}: a file ends in {' or '.join(endings)}")


def draw(path: Path, plot: Callable[[], None]) -> None:
    """Draws what --plot names, and says so; without matplotlib, says how to get it.

    Args:
      plot: draws into `path`, which `check_output` has seen.
    """
    try:
        plot()
    except ImportError:
        print("no plot: matplotlib is missing (pip install -e '.[plots]')", file=sys.stderr)
    else:
        print(f"plot: {path}", file=sys.stderr)


def command() -> str:
    """The command line of this run, without its workdir and the checkpoint it started from."""
    arguments, given = [], iter(sys.argv[1:])
    for argument in given:
        name, equals, _ = argument.partition("=")
        if name.lstrip("-") not in ("workdir", "config.init_from"):
            arguments.append(argument)
        elif not equals:
            next(given, None)  # its value
    return shlex.join(["python", "-m", f"xlj.{Path(sys.argv[0]).stem}", *arguments])


def config_name() -> str:
    """The name of the config file of this run, without folder and ending; its variants join it."""
    filename = config_flags.get_config_filename(flags.FLAGS["config"])
    path, _, variants = filename.partition(":")
    return "-".join([Path(path).stem, *variants.split(",")]) if variants else Path(path).stem


def _parse(argv: list[str], schema: Schema) -> Any:
    given = [argument for argument in argv[1:] if re.match(r"--?config[.=]", argument)]
    path = next((a.split("=", 1)[1] for a in given if re.match(r"--?config=", a)), None)
    if path is None:
        raise ConfigError("say which recipe with --config=configs/NAME.py (see configs/)")
    if not Path(path.split(":")[0]).is_file():
        raise ConfigError(f"--config={path}: there is no such file")
    explicit = _overridden(given, schema)
    sys.path.insert(0, str(Path(path).parent))  # so that a config can build on its neighbours
    config_flags.DEFINE_config_file("config", lock_config=True)
    # The file must be known before its keys are set, wherever it stands. In place: ml_collections
    # reads sys.argv itself.
    argv[1:] = sorted(argv[1:], key=lambda flag: not re.match(r"--?config=", flag))
    try:
        rest = flags.FLAGS(argv)
        config = flags.FLAGS.config
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        # ConfigDict's own errors (a typo in the file, a wrong type) say what is wrong; a bug in the
        # config file comes with its traceback in the message.
        message = str(error).strip('"').rpartition("ConfigError: ")[2].strip()
        if isinstance(error, (AttributeError, KeyError)) and " " not in message:
            message = f"it has no key {message}"
        raise ConfigError(f"--config={path}: {message}") from error
    if rest[1:]:
        raise ConfigError(f"cannot read {rest[1]!r}; flags look like --config.train.steps=100")
    return schema.parse(config, explicit)


def _overridden(given: list[str], schema: Schema) -> list[str]:
    """Paths of the keys that arguments --config.KEY=VALUE set.

    Raises:
      ConfigError: if one is no key, or has no value.
    """
    known, paths = [name for name, _ in schema.keys()], []
    for argument in given:
        name, equals, _ = argument.lstrip("-").partition("=")
        name = name.removeprefix("config").lstrip(".")
        if not equals:
            raise ConfigError(f"{argument}: give the value after an equals sign")
        if name.startswith("phases."):  # keys that the config file sets in a phase
            continue
        if name and name not in known:
            raise ConfigError(f"unknown config key {name}{nearest(name, known)}")
        paths += [name] * bool(name)
    return paths


def _help(doc: str, schema: Schema) -> str:
    lines = [textwrap.dedent(doc).strip(), "", "Flags:"]
    for flag in flags.FLAGS.get_flags_for_module(sys.argv[0]):
        lines += _entry(f"--{flag.name}", flag.default, flag.help)
    lines += _entry(
        "--config", None, "config file; NAME.py:VARIANT for a variant, e.g. xlm_r_base.py:tiny"
    )
    lines += _entry("--check", None, flags.FLAGS["check"].help)
    lines += ["", "Keys of the config (set any with --config.KEY=VALUE; defaults of the schema):"]
    for name, field in schema.keys():
        lines += _entry(f"--config.{name}", field.default, field.metadata["doc"])
    return "\n".join(lines)


def _entry(name: str, default: object, doc: str) -> list[str]:
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = f" [{default}]" if isinstance(default, (int, float, str)) and default != "" else ""
    body = textwrap.wrap(doc, 88, initial_indent="      ", subsequent_indent="      ")
    return [f"  {name}{shown}", *body]
