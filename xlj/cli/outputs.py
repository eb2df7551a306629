"""Where a command may write: seen to before any work is done."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from xlj.config import ConfigError
from xlj.config.paths import local_path

PLOTS = (".png", ".svg", ".pdf")
"""How the name of a plot may end."""

Inputs = Iterable[tuple[str, str | Path | None]]
"""(flag, the file or model that it names, if any); an empty flag for a file that it implies."""


def check_output(
    flag: str, path: str | Path | None, inputs: Inputs = (), endings: Sequence[str] = ()
) -> None:
    """Refuses a file that cannot be written, or would replace an input of the same command.

    Args:
      path: what the flag names; without any, nothing is to be written.
      inputs: also the other outputs, which must be other files.
      endings: its name must have one of them.

    Raises:
      ConfigError: if so.
    """
    if not path:
        return
    shown, real = f"--{flag}={path}", _real(flag, path)
    if not real.parent.is_dir():
        raise ConfigError(f"{shown}: there is no such folder")
    if real.is_dir():
        raise ConfigError(f"{shown}: this is a folder; name a file in it")
    if real.exists() and not real.is_file():
        raise ConfigError(f"{shown}: this is a pipe or a device, not a file")
    if not os.access(real.parent, os.W_OK):
        raise ConfigError(f"{shown}: nothing can be written into this folder")
    if endings and real.suffix.lower() not in endings:
        raise ConfigError(f"{shown}: a file ends in {' or '.join(endings)}")
    check_other(flag, path, inputs)


def check_plot_of_layers(path: Path | None, layers: str | None, inputs: Inputs) -> None:
    """Refuses a --plot that cannot be written, or is given without --layers, whose plot it is
    (`ConfigError`)."""
    if path and not layers:
        raise ConfigError(f"--plot={path}: only --layers=all draws")
    check_output("plot", path, inputs, PLOTS)


def check_other(flag: str, path: str | Path, inputs: Inputs) -> None:
    """Refuses an output that is an input of the same command, links followed (`ConfigError`, naming
    both)."""
    real = _real(flag, path)
    for name, given in inputs:
        if given and _is_part(real, Path(given).expanduser()):
            other = f"--{name}={given}" if name else given
            raise ConfigError(f"--{flag}={path} would overwrite {other}; take another name")


def check_folder(flag: str, path: str | Path) -> None:
    """Refuses a folder that cannot be made, since a file has its name, or that of one above
    (`ConfigError`)."""
    real = _real(flag, path)
    there = next(folder for folder in (real, *real.parents) if folder.exists())
    if not there.is_dir():
        raise ConfigError(f"--{flag}={path}: {there} is a file, not a folder")


def opened(path: str | None) -> contextlib.AbstractContextManager[BinaryIO | None]:
    """The file of a flag --output, as `atomic.writing` makes it; standard output for `-`."""
    from xlj.io import atomic

    if path is None or path == "-":
        return contextlib.nullcontext(sys.stdout.buffer if path else None)
    return atomic.writing(Path(path))


def draw(path: Path, plot: Callable[[], None]) -> None:
    """Draws the file of --plot, and says so; without matplotlib, says how to get it.

    Args:
      plot: draws into `path`, which `check_output` has seen.
    """
    from xlj.io import atomic

    try:
        with atomic.as_config_error(path):
            plot()
    except ImportError:
        print("no plot: matplotlib is missing (pip install -e '.[plots]')", file=sys.stderr)
    else:
        print(f"plot: {path}", file=sys.stderr)


def _real(flag: str, path: str | Path) -> Path:
    path = local_path(f"--{flag}", path)
    real = Path(os.path.realpath(path))
    try:
        circle = any(part.is_symlink() for part in (real, *real.parents))
    except OSError as error:  # a name is too long, say
        raise ConfigError(f"--{flag}={path}: {error.strerror}") from None
    if circle:  # what else is a link is resolved
        raise ConfigError(f"--{flag}={path}: these links lead in a circle")
    return real


def _is_part(output: Path, given: Path) -> bool:
    """Whether an output, its links resolved, is an input, or a file of a model that is one."""
    if given.is_dir():
        return output.is_file() and _is_of_model(output, given.resolve())
    try:
        return os.path.samestat(output.stat(), os.stat(0 if given == Path("-") else given))
    except OSError:  # one is not there yet
        return output == Path(os.path.realpath(given))


def _is_of_model(file: Path, folder: Path) -> bool:
    """Whether a model is read from a file, and not just beside it."""
    whole = folder if (folder / "meta").is_dir() else folder / "checkpoints"
    if whole in file.parents:
        return True
    tokenizer = ("vocab.txt", "merges.txt")
    return file.parent == folder and (
        file.suffix in (".json", ".safetensors", ".model") or file.name in tokenizer
    )
