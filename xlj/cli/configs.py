"""Config files, `--config=FILE[:VARIANT]`, and their overrides, `--config.KEY=VALUE`."""

import functools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from absl import flags
from ml_collections import ConfigDict, config_flags

from xlj.config import recipes
from xlj.config.families import options_of
from xlj.config.fields import ConfigError, Section, nearest
from xlj.config.objectives.options import import_modules
from xlj.config.renamed import RENAMED
from xlj.config.variants import Variant
from xlj.io.quoting import shortened

_MOST = 2000
"""Characters of an error: a bug in a config file comes with its traceback."""


Schema = ModuleType
"""The module that a command's config is checked by: its `keys()` are (full path, field) of every
key, and `parse(config, explicit)` is the checked config, where the paths `explicit` were set on the
command line."""


class Implied(NamedTuple):
    """What other flags of a command set in its config."""

    file: str | None = None
    """The config file without --config."""
    overrides: Sequence[str] = ()
    """Arguments `--config.KEY=VALUE`; those of the user come later, and win."""
    change: Variant | None = None
    """Changes the config after all overrides."""


def load(
    file: str | None, overrides: Sequence[str], schema: Schema, change: Variant | None = None
) -> Section:
    """The checked config of a file.

    Args:
      file: `FILE` or `FILE:VARIANT`, or a recipe's name instead of its file.
      overrides: arguments `--config.KEY=VALUE`.
      change: changes the config after the overrides.

    Raises:
      ConfigError: if there is no such file or key, or a value does not fit.
    """
    if file is None:
        raise ConfigError("say which recipe with --config=NAME or --config=FILE.py (see configs/)")
    file = recipes.find(file)
    autos = {name for name, field in schema.keys() if field.metadata.get("auto")}
    overrides = [
        f"--config.{key_of(given)}=0"
        if given.endswith("=auto") and key_of(given) in autos
        else given
        for given in overrides
    ]
    with recipes.importable(
        Path(file.partition(":")[0]).parent
    ):  # so that a config can build on its neighbours
        import_modules(_objective_modules(overrides))
        try:
            config = _read(file, overrides, schema)
            if change:
                change(config)
        except ConfigError:
            _overridden(overrides, schema)  # says which key was meant, if one is unknown
            raise
        return schema.parse(config, _overridden(overrides, schema))


def _read(file: str, overrides: Sequence[str], schema: Schema) -> ConfigDict:
    """The ConfigDict of a file. A flag's value is read as the type that the key has: by
    ml_collections, with flags of its own."""
    old = [argument for argument in overrides if key_of(argument) in RENAMED]
    lasting = [argument for argument in overrides if _is_duration(argument, schema)]
    new = [argument for argument in overrides if argument not in old + lasting]
    new = [*_of_family(new), *new]
    argv, own = ["", f"--config={file}", *new], flags.FlagValues()
    config_flags.DEFINE_config_file("config", lock_config=True, flag_values=own, sys_argv=argv)
    try:
        own(argv)
        for argument in old:
            _set_old(own.config, argument)
        for argument in lasting:
            *sections, name = key_of(argument).split(".")
            with own.config.ignore_type():
                section = functools.reduce(getattr, sections, own.config)
                section[name] = argument.partition("=")[2]
        return own.config
    except ConfigError:
        raise
    except ImportError as error:
        raise ConfigError(f"--config={file}: it imports what is not there: {error}") from error
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        # ConfigDict's own errors (a typo in the file, a wrong type) say what is wrong; a bug in the
        # config file comes with its traceback in the message.
        message = str(error).strip('"').rpartition("ConfigError: ")[2].strip()
        if isinstance(error, (AttributeError, KeyError)) and " " not in message:
            message = f"it has no key {message}"
        if len(message) > _MOST:  # a value may be of any length
            message = f"{message[:_MOST]} ..."
        raise ConfigError(f"--config={file}: {message}") from error


def _of_family(overrides: Sequence[str]) -> list[str]:
    """The overrides that `--config.model.family=...` expands to. The user's come later, and win."""
    found = []
    for argument in overrides:
        if key_of(argument) == "model.family":
            for name, value in options_of(argument.partition("=")[2]).items():
                shown = ",".join(value) if isinstance(value, tuple) else value
                found.append(f"--config.model.{name}={shown}")
    return found


def _set_old(config: ConfigDict, argument: str) -> None:
    """Sets a key of an old name to the value of an argument, read as the type of the new key."""
    key, own = key_of(argument), flags.FlagValues()
    new, (*sections, name) = RENAMED[key][0], key.split(".")
    argv = ["", f"--config.{new}={argument.partition('=')[2]}"]
    changed = config.copy_and_resolve_references()
    config_flags.DEFINE_config_dict("config", changed, flag_values=own, sys_argv=argv)
    own(argv)
    functools.reduce(getattr, sections, config)[name] = functools.reduce(
        getattr, new.split("."), changed
    )


def _is_duration(argument: str, schema: Schema) -> bool:
    """Whether an argument sets a duration to no number of steps, which is all that flags know."""
    names = [path for path, field in schema.keys() if field.metadata.get("duration")]
    name = key_of(argument).rpartition(".")[2]
    is_duration = name in ("start_step", *(path.rpartition(".")[2] for path in names))
    return is_duration and not argument.partition("=")[2].isdecimal()


def key_of(argument: str) -> str:
    """The key of `--config.KEY=VALUE`."""
    return argument.partition("=")[0].partition(".")[2]


def _objective_modules(overrides: Sequence[str]) -> str:
    """The value of `--config.objective_modules=...`, the last one; empty without one."""
    values = [x.partition("=") for x in overrides]
    return next((v for key, _, v in reversed(values) if key.endswith("objective_modules")), "")


def name_of(file: str) -> str:
    """The name of a config file, without folder and ending; its variants join it."""
    path, _, variants = file.partition(":")
    return "-".join([Path(path).stem, *variants.split(",")]) if variants else Path(path).stem


def help_of(schema: Schema) -> str:
    """All keys, for `--help`."""
    lines = ["keys of the config (set any with --config.KEY=VALUE; defaults of the schema):"]
    for name, field in schema.keys():
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


def _overridden(overrides: Sequence[str], schema: Schema) -> list[str]:
    """Paths of the keys that are overridden; raises a `ConfigError` if one is no key."""
    known = [name for name, _ in schema.keys()]
    names = list(map(key_of, overrides))
    paths = [name for name in names if not name.startswith("phases.")]  # which the file adds
    for name in paths:
        if name not in known and name not in RENAMED:
            raise ConfigError(f"unknown config key {shortened(name)}{nearest(name, known)}")
    return paths
