"""Runs of one recipe that differ in some keys: their names and command lines.

A file `configs/sweeps/NAME.py` has `get_sweep(folder)`, which returns a `Sweep`; `folder` is where
its workdirs will be.
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
"""Values by config key. Two names are no keys: `variant`, of the recipe; `name`, of the run."""

_LONGEST_NAME = 200  # bytes; file systems allow 255


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of one recipe, in the order in which they run."""

    config: str
    """The recipe, such as configs/quickstart.py."""
    runs: Sequence[Settings]
    """Settings of each run; all of them are in its name, unless `name` gives that."""
    settings: Settings = dataclasses.field(default_factory=dict)
    """Those of all runs, before their own."""
    command: str = "xlj.train"
    """The command that runs them, `xlj.train` or `xlj.finetune`."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a sweep: its name, and how to call its command."""

    name: str
    workdir: Path
    module: str
    arguments: tuple[str, ...]

    def command(self, python: str = "python") -> list[str]:
        """The command line, as words."""
        return [python, "-m", self.module, *self.arguments]


def grid(values: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Settings for every combination of the values of each key; the last key varies fastest."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def read(file: Path, folder: Path) -> Sweep:
    """The sweep of a file, whose workdirs will be in a folder.

    Raises:
      ConfigError: if there is none; whatever goes wrong in it is said with its line.
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


def runs(sweep: Sweep, folder: Path, overrides: Sequence[str] = ()) -> list[Run]:
    """The runs of a sweep, in order, with workdirs `folder/NAME`; `overrides` follow the arguments
    of each.

    Raises:
      ConfigError: if there are none, on a name that is no folder's, on two runs with one name, on
        an override of what a run sets.
    """
    made = [_run(sweep, settings, folder, overrides) for settings in sweep.runs]
    for name, count in Counter(run.name for run in made).items():
        if count > 1:
            raise ConfigError(f'{count} runs are called {name}; give them a "name" each')
    if not made:
        raise ConfigError("the sweep has no runs")
    return made


def _run(sweep: Sweep, settings: Settings, folder: Path, overrides: Sequence[str]) -> Run:
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"a run sets {shortened(repr(settings))}; it must be a dict of values by config key"
        )
    for argument in overrides:
        key = argument.removeprefix("--config.").partition("=")[0]
        if key in settings:
            raise ConfigError(f"{argument}: runs of this sweep set {key} themselves")
    changes = {**sweep.settings, **settings}
    given, variant = changes.pop("name", None), changes.pop("variant", "")
    name = _name(settings) if given is None else str(given)
    if not re.fullmatch(r"\w[\w.+=-]*", name) or len(name.encode()) > _LONGEST_NAME:
        raise ConfigError(
            f"a run is called {shortened(repr(name))}; a name is at most {_LONGEST_NAME} bytes, a "
            'letter or digit and then also . _ - + =; give another with "name"'
        )
    recipe = f"{sweep.config}:{variant}" if variant else sweep.config
    keys = [f"--config.{key}={_shown(value)}" for key, value in changes.items()]
    workdir = folder / name
    arguments = (f"--config={recipe}", *keys, f"--workdir={workdir}", *overrides)
    return Run(name, workdir, sweep.command, arguments)


def _name(settings: Settings) -> str:
    """`VARIANT-KEY=VALUE-...`: keys without their sections, unless two would be the same."""
    short = {key: key.rpartition(".")[2] for key in settings}
    twice = {name for name, count in Counter(short.values()).items() if count > 1}
    shown = {key if short[key] in twice else short[key]: settings[key] for key in settings}
    parts = [
        _shown(value) if key == "variant" else f"{key}={_shown(value)}"
        for key, value in shown.items()
    ]
    return re.sub(r"[^\w.+=-]", "_", "-".join(filter(None, parts))) or "default"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
