"""Checks of output paths before any work, and opening of output files.

The flag --shard is here too: with it, several hosts divide the input of a command and write parts
of its output to one folder.
"""

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli.parser import Parser

if TYPE_CHECKING:  # types only: a command reads its flags without the imports of these modules
    from xlj.io.json_file import Record
    from xlj.io.part_files import PartFiles

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import BinaryIO

from xlj.config import ConfigError
from xlj.config.paths import local_path

PLOTS = (".png", ".svg", ".pdf")
"""Possible endings of the file name of a plot."""

Inputs = Iterable[tuple[str, str | Path | None]]
"""(flag, file or model that the flag names, None if the flag is not set). The flag is empty for
files that no flag names."""


def check_output(
    flag: str, path: str | Path | None, inputs: Inputs = (), endings: Sequence[str] = ()
) -> None:
    """Checks that a file can be written and does not replace an input of the same command.

    Args:
      path: the value of the flag; None if the command writes no such file.
      inputs: the inputs and the other outputs of the command. The file must differ from all of
        them.
      endings: possible endings of the file name; empty for any.

    Raises:
      ConfigError: if the file cannot be written, or is one of `inputs`.
    """
    if not path:
        return
    shown, real = f"--{flag}={path}", _real(flag, path)
    if not real.parent.is_dir():
        raise ConfigError(f"{shown}: the folder {real.parent} does not exist")
    if real.is_dir():
        raise ConfigError(f"{shown}: this is a folder; name a file in it")
    if real.exists() and not real.is_file():
        raise ConfigError(f"{shown}: this is a pipe or a device, not a file")
    if not os.access(real.parent, os.W_OK):
        raise ConfigError(f"{shown}: the folder {real.parent} is not writable")
    if endings and real.suffix.lower() not in endings:
        raise ConfigError(f"{shown}: the file name must end in {' or '.join(endings)}")
    check_no_input(flag, path, inputs)


def check_plot_of_layers(path: Path | None, layers: str | None, inputs: Inputs) -> None:
    """Raises a `ConfigError` if --plot cannot be written, or is used without --layers=all."""
    if path and not layers:
        raise ConfigError(f"--plot={path} needs --layers=all")
    check_output("plot", path, inputs, PLOTS)


def check_no_input(flag: str, path: str | Path, inputs: Inputs) -> None:
    """Checks that an output is not an input of the same command, following symbolic links.

    Raises:
      ConfigError: if the output is an input. The message names both.
    """
    real = _real(flag, path)
    for name, source in inputs:
        if source and _is_part(real, Path(source).expanduser()):
            other = f"--{name}={source}" if name else source
            raise ConfigError(f"--{flag}={path} would overwrite {other}; use another name")


def check_folder(flag: str, path: str | Path) -> None:
    """Raises a `ConfigError` if a folder cannot be created, because it or a parent is a file."""
    real = _real(flag, path)
    existing = next(folder for folder in (real, *real.parents) if folder.exists())
    if not existing.is_dir():
        raise ConfigError(f"--{flag}={path}: {existing} is a file, not a folder")


def open_output(path: str | None) -> contextlib.AbstractContextManager[BinaryIO | None]:
    """Opens an output file with `atomic.writing`.

    Args:
      path: the value of the flag: `-` for standard output, None for no output.
    """
    from xlj.io import atomic

    if path is None or path == "-":
        return contextlib.nullcontext(sys.stdout.buffer if path else None)
    return atomic.writing(Path(path))


def hides_bar(*paths: str | None) -> bool | None:
    """Returns the argument `disable` of a progress bar: True if a result goes to the terminal,
    where the bar would share its lines; else None, which shows the bar on terminals only.

    Args:
      paths: the outputs, as for `open_output`.
    """
    return True if "-" in paths and sys.stdout.isatty() else None


def draw(path: Path, plot: Callable[[], None]) -> None:
    """Draws the file of --plot and prints its name. If matplotlib is missing, prints how to install
    matplotlib.

    Args:
      path: the value of --plot, which `check_output` has checked.
      plot: draws into the file `path`.
    """
    from xlj.io import atomic

    try:
        with atomic.as_config_error(path):
            plot()
    except ImportError:
        print("no plot: matplotlib is not installed (pip install -e '.[plots]')", file=sys.stderr)
    else:
        print(f"plot: {path}", file=sys.stderr)


def _real(flag: str, path: str | Path) -> Path:
    path = local_path(f"--{flag}", path)
    real = Path(os.path.realpath(path))
    try:
        is_cycle = any(part.is_symlink() for part in (real, *real.parents))
    except OSError as error:  # for example, the name is too long
        raise ConfigError(f"--{flag}={path}: {error.strerror}") from None
    if is_cycle:  # realpath resolves all links except the links of a cycle
        raise ConfigError(f"--{flag}={path}: the symbolic links of this path form a cycle")
    return real


def _is_part(output: Path, source: Path) -> bool:
    """Whether an output, with its links resolved, is an input or a file of an input model."""
    if source.is_dir():
        return output.is_file() and _is_of_model(output, source.resolve())
    try:
        return os.path.samestat(output.stat(), os.stat(0 if source == Path("-") else source))
    except OSError:  # one of the files does not exist
        return output == Path(os.path.realpath(source))


def _is_of_model(file: Path, folder: Path) -> bool:
    """Whether a file belongs to the model in a folder, not to other contents of the folder."""
    checkpoints = folder if (folder / "meta").is_dir() else folder / "checkpoints"
    if checkpoints in file.parents:
        return True
    tokenizer = ("vocab.txt", "merges.txt")
    return file.parent == folder and (
        file.suffix in (".json", ".safetensors", ".model") or file.name in tokenizer
    )


def add_scores(parser: Parser, scores: str) -> None:
    """Adds --scores; `scores` are what the command writes, such as "margin of each pair"."""
    parser.add_argument(
        "--scores",
        action="store_true",
        help=f"write the {scores} as the last column of --output",
    )


def add_shard_flag(parser: Parser) -> None:
    """Adds --shard."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        type=_shard,
        help="process shard I of N of the input; I is one-based. --output is then a folder that N "
        "commands share; the command that finishes last writes the manifest of the folder. The "
        "same command resumes an interrupted shard. --shard=1/1 processes the whole input. An "
        "input may be several files: a pattern ('text/*.txt') or names separated by commas [the "
        "whole input, into one file]",
    )


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text} is not I/N with I from 1 to N, such as 3/16")
    return int(match[1]), int(match[2])


def shard_job(flags: Namespace, paths: Sequence[Path], names: Sequence[str]) -> "Record":
    """Returns a record of everything that determines the parts: the model, the inputs with their
    sizes in bytes, and the values of the flags in `names`."""
    more = [name for name in ("backend", "compute") if getattr(flags, name, None)]
    values = {name: getattr(flags, name) for name in (*names, *more)}
    return {
        "checkpoint": _digest(flags),
        "inputs": [[str(path), path.stat().st_size] for path in paths],
        # As JSON returns them:
        **{name: list(x) if isinstance(x, tuple) else x for name, x in values.items()},
    }


def _digest(flags: Namespace) -> str:
    """Returns a hash of the model of --checkpoint, as --backend reads it."""
    backend = getattr(flags, "backend", "jax")
    if backend != "jax":
        from xlj.config.choices import BACKENDS
        from xlj.inference import onnx_model

        return onnx_model.digest(local_path("checkpoint", flags.checkpoint), BACKENDS[backend])
    from xlj.checkpoints import stored_models

    return stored_models.find(flags.checkpoint).digest()


def finish_shard(part_files: "PartFiles") -> bool:
    """Writes the manifest if all parts of the folder exist; otherwise prints how many parts are
    missing. Returns whether all parts exist."""
    if part_files.finish() is not None:
        return True
    print(
        f"parts of other shards that are still missing: {part_files.count_missing()}; the shard "
        "that finishes last writes the manifest",
        file=sys.stderr,
    )
    return False
