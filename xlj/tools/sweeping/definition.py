"""Definition of a sweep: runs of one recipe with different settings, their names and commands.

A file `configs/sweeps/NAME.py` has a function `get_sweep(folder)` that returns a `Sweep`. The
argument `folder` is the folder of the workdirs.
"""

import dataclasses
import itertools
import re
import runpy
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlj.config import recipes
from xlj.config.fields import ConfigError
from xlj.io.quoting import shortened

Settings = Mapping[str, Any]
"""Values by config key. Two names are not config keys: `variant` selects a variant of the recipe,
and `name` is the name of the run."""

_LONGEST_NAME = 200  # bytes of the name of a run; file systems allow 255


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of one recipe, in the order in which they run.

    Attributes:
      config: the recipe, such as configs/quickstart.py.
      runs: the settings of each run. If they do not contain `name`, the name of the run consists of
        all its settings.
      settings: settings of all runs; the settings of a run override them.
      command: the module that runs the config, `xlj.train` or `xlj.finetune`.
    """

    config: str
    runs: Sequence[Settings]
    settings: Settings = dataclasses.field(default_factory=dict)
    command: str = "xlj.train"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a sweep: its name, workdir and command.

    Attributes:
      module: the module of the command, such as `xlj.train`.
      arguments: the arguments of the command.
    """

    name: str
    workdir: Path
    module: str
    arguments: tuple[str, ...]

    def command(self, python: str = "python") -> list[str]:
        """Returns the command line as a list of words."""
        return [python, "-m", self.module, *self.arguments]


def grid(values: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Returns the settings of a run for each combination of values; the last key varies fastest.

    Args:
      values: the values of each config key.
    """
    return [
        dict(zip(values, combination, strict=True))
        for combination in itertools.product(*values.values())
    ]


def read(file: Path, folder: Path) -> Sweep:
    """Reads the sweep that a file defines.

    Args:
      file: a file, or the name of a recipe such as `sweeps/NAME`.
      folder: the folder of the workdirs, the argument of `get_sweep`.

    Raises:
      ConfigError: if the file does not define a sweep, or raises an error. For an error in the
        file, the message names the line.
    """
    file = Path(recipes.find(str(file)))
    try:
        sweep = runpy.run_path(str(file))["get_sweep"](folder)
    except ConfigError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        where = f"{file}:{lines[-1]}" if lines else str(file)
        raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(sweep, Sweep):
        raise ConfigError(f"{file}: get_sweep must return a Sweep, not {shortened(repr(sweep))}")
    return sweep


def make_runs(sweep: Sweep, folder: Path, overrides: Sequence[str] = ()) -> list[Run]:
    """Returns the runs of a sweep in order, with workdirs `folder/NAME`.

    Args:
      overrides: arguments `--config.KEY=VALUE` that are added to each command.

    Raises:
      ConfigError: if there are no runs, a name cannot be a folder, two runs have the same name, or
        an override changes a key that runs set.
    """
    result = [_run(sweep, settings, folder, overrides) for settings in sweep.runs]
    for name, count in Counter(run.name for run in result).items():
        if count > 1:
            raise ConfigError(f'{count} runs are named {name}; give each a different "name"')
    if not result:
        raise ConfigError("the sweep has no runs; return at least one from get_sweep")
    return result


def _run(sweep: Sweep, settings: Settings, folder: Path, overrides: Sequence[str]) -> Run:
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"the settings of a run are {shortened(repr(settings))}; expected a dict of values by "
            "config key"
        )
    for argument in overrides:
        key = argument.removeprefix("--config.").partition("=")[0]
        if key in settings:
            raise ConfigError(f"{argument}: the runs of this sweep set {key}; remove the argument")
    changes = {**sweep.settings, **settings}
    own_name, variant = changes.pop("name", None), changes.pop("variant", "")
    name = _name(settings) if own_name is None else str(own_name)
    if not re.fullmatch(r"\w[\w.+=-]*", name) or len(name.encode()) > _LONGEST_NAME:
        raise ConfigError(
            f"a run is named {shortened(repr(name))}; names have at most {_LONGEST_NAME} bytes, "
            'start with a letter, a digit or _, and may also contain . - + =; set another "name"'
        )
    recipe = f"{sweep.config}:{variant}" if variant else sweep.config
    keys = [f"--config.{key}={_format(value)}" for key, value in changes.items()]
    workdir = folder / name
    arguments = (f"--config={recipe}", *keys, f"--workdir={workdir}", *overrides)
    return Run(name, workdir, sweep.command, arguments)


def _name(settings: Settings) -> str:
    """Returns the name `VARIANT-KEY=VALUE-...` of a run.

    A key such as `train.seed` is shortened to `seed`, unless another key ends in the same word.
    """
    short = {key: key.rpartition(".")[2] for key in settings}
    ambiguous = {name for name, count in Counter(short.values()).items() if count > 1}
    named = {key if short[key] in ambiguous else short[key]: settings[key] for key in settings}
    words = [
        _format(value) if key == "variant" else f"{key}={_format(value)}"
        for key, value in named.items()
    ]
    return re.sub(r"[^\w.+=-]", "_", "-".join(filter(None, words))) or "default"


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
