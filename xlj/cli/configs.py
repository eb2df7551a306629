"""Loads config files, `--config=FILE[:VARIANT]`, with overrides, `--config.KEY=VALUE`."""

import functools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from absl import flags
from ml_collections import ConfigDict, config_flags

from xlj.config import finetuning, recipes
from xlj.config import schema as whole_schema
from xlj.config.families import options_of
from xlj.config.fields import ConfigError, Section, nearest
from xlj.config.objectives import import_modules
from xlj.config.variants import Variant
from xlj.io.quoting import shortened

_MAX_LENGTH = 2000
"""Maximum length of an error in characters. The error for a bug in a config file contains the
traceback."""


Schema = ModuleType
"""The module that checks the config of a command. `keys()` yields (full path, field) of every key;
`parse(config, explicit)` returns the checked config, where `explicit` has the paths of the keys
that were set on the command line."""


class Implied(NamedTuple):
    """Config values that other flags of a command set."""

    file: str | None = None
    """The config file if there is no --config."""
    overrides: Sequence[str] = ()
    """Arguments `--config.KEY=VALUE`. Overrides of the user have precedence over them."""
    change: Variant | None = None
    """Changes the config after all overrides."""


def load(
    file: str | None, overrides: Sequence[str], schema: Schema, change: Variant | None = None
) -> Section:
    """Loads and checks the config of a file.

    Args:
      file: `FILE` or `FILE:VARIANT`, or the name of a recipe instead of a file.
      overrides: arguments `--config.KEY=VALUE`.
      change: changes the config after the overrides.

    Raises:
      ConfigError: if there is no such file or key, or a value is impossible.
    """
    if file is None:
        raise ConfigError("name a recipe with --config=NAME or --config=FILE.py (see configs/)")
    file = recipes.find(file)
    autos = {name for name, field in schema.keys() if field.metadata.get("auto")}
    overrides = [
        f"--config.{key_of(x)}=0" if x.endswith("=auto") and key_of(x) in autos else x
        for x in overrides
    ]
    # A config file may import files in its folder.
    with recipes.importable(Path(file.partition(":")[0]).parent):
        import_modules(_objective_modules(overrides))
        try:
            config = _read(file, overrides, schema)
            if change:
                change(config)
        except ConfigError:
            _overridden_keys(overrides, schema)  # suggests a key if one is unknown
            raise
        return schema.parse(config, _overridden_keys(overrides, schema))


def _read(file: str, overrides: Sequence[str], schema: Schema) -> ConfigDict:
    """Reads the ConfigDict of a file. ml_collections converts the value of each override to the
    type of its key."""
    with_duration = [argument for argument in overrides if _is_duration(argument, schema)]
    others = [argument for argument in overrides if argument not in with_duration]
    others = [*_expand_family(others), *others]
    argv, values = ["", f"--config={file}", *others], flags.FlagValues()
    config_flags.DEFINE_config_file("config", lock_config=True, flag_values=values, sys_argv=argv)
    try:
        values(argv)
        for argument in with_duration:
            *sections, name = key_of(argument).split(".")
            with values.config.ignore_type():
                section = functools.reduce(getattr, sections, values.config)
                section[name] = argument.partition("=")[2]
        return values.config
    except ConfigError:
        raise
    except ImportError as error:
        raise ConfigError(f"--config={file}: an import of this file fails: {error}") from error
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        # ConfigDict's errors (a typo in the file, a wrong type) are clear. The message of a bug in
        # the config file contains the traceback.
        message = str(error).strip('"').rpartition("ConfigError: ")[2].strip()
        if isinstance(error, (AttributeError, KeyError)) and " " not in message:
            message = f"there is no key {message}"
        if len(message) > _MAX_LENGTH:  # a value in the message may have any length
            message = f"{message[:_MAX_LENGTH]} ..."
        raise ConfigError(f"--config={file}: {message}") from error


def _expand_family(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides of all options that `--config.model.family=...` sets. The other
    overrides of the user are applied later, and so have precedence."""
    options = []
    for argument in overrides:
        if key_of(argument) == "model.family":
            for name, value in options_of(argument.partition("=")[2]).items():
                shown = ",".join(value) if isinstance(value, tuple) else value
                options.append(f"--config.model.{name}={shown}")
    return options


def _is_duration(argument: str, schema: Schema) -> bool:
    """Whether an argument sets a duration with a unit; the flags accept only numbers of steps."""
    names = [path for path, field in schema.keys() if field.metadata.get("duration")]
    name = key_of(argument).rpartition(".")[2]
    is_duration = name in ("start_step", *(path.rpartition(".")[2] for path in names))
    return is_duration and not argument.partition("=")[2].isdecimal()


def key_of(argument: str) -> str:
    """Returns the key in `--config.KEY=VALUE`."""
    return argument.partition("=")[0].partition(".")[2]


def _objective_modules(overrides: Sequence[str]) -> str:
    """Returns the value of the last `--config.objective_modules=...`; empty if there is none."""
    values = [x.partition("=") for x in overrides]
    return next((v for key, _, v in reversed(values) if key.endswith("objective_modules")), "")


def name_of(file: str) -> str:
    """Returns the name of a config file without folder and extension, with its variants."""
    path, _, variants = file.partition(":")
    return "-".join([Path(path).stem, *variants.split(",")]) if variants else Path(path).stem


def help_of(schema: Schema) -> str:
    """Lists all keys for `--help`."""
    lines = ["config keys, set with --config.KEY=VALUE [default without a recipe]:"]
    for name, field in schema.keys():
        if name.startswith("task.") and schema is not finetuning:
            continue  # pretraining reads no task
        default = field.default
        if isinstance(default, tuple):
            default = ",".join(default)
        is_shown = isinstance(default, (int, float, str)) and default != ""
        lines.append(f"  --config.{name}" + (f" [{default}]" if is_shown else ""))
        indent = " " * 6
        lines += textwrap.wrap(
            field.metadata["doc"], 88, initial_indent=indent, subsequent_indent=indent
        )
    return "\n".join(lines)


def _overridden_keys(overrides: Sequence[str], schema: Schema) -> list[str]:
    """Returns the paths of the overridden keys; raises a `ConfigError` if a key is unknown, or
    the command does not read it."""
    known = [name for name, _ in schema.keys()]
    names = list(map(key_of, overrides))
    # The names of phases are in the file, not in the schema.
    paths = [name for name in names if not name.startswith("phases.")]
    for name in paths:
        if name not in known:
            is_key = any(name == key for key, _ in whole_schema.keys())
            problem = "this command does not read the" if is_key else "unknown"
            hint = nearest(name, known)
            raise ConfigError(f"{problem} config key {shortened(name)}{hint}")
    return paths
