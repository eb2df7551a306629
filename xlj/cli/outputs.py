"""Checks of output paths before any work, and opening of output files."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
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
