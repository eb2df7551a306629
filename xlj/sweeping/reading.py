"""Sweep files, those of `configs/sweeps/`."""

import runpy
import traceback
from pathlib import Path

from xlj.config import ConfigError
from xlj.io.quoting import shortened
from xlj.sweeping.definition import Sweep


def read(file: Path, folder: Path) -> Sweep:
    """The sweep of a file; whatever goes wrong in it is said with its line.

    Args:
      folder: where the workdirs will be; the file may name those of other runs.

    Raises:
      ConfigError: if there is none.
    """
    if not file.is_file():
        raise ConfigError(f"--config={file}: there is no such file")
    try:
        sweep = runpy.run_path(str(file))["get_sweep"](folder)
    except ConfigError:
        raise
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(file)
        ]
        where = f"{file}:{lines[-1]}" if lines else str(file)
        raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(sweep, Sweep):
        raise ConfigError(f"{file}: get_sweep must return a Sweep, not {shortened(repr(sweep))}")
    return sweep
