"""Config keys: how frozen dataclasses declare, list and check them.

The keys themselves are declared in `config/sections.py` and `config/data_section.py`.
"""

import dataclasses
import difflib
import functools
import math
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

import ml_collections

from xlj.config import durations

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class ConfigError(ValueError):
    """Raised if a config, or a file that the config names, cannot be used. The message names the
    key and a remedy."""


class Unused(NamedTuple):
    """Reason why a config key has no effect."""

    reason: str
    allowed_in_recipes: bool = False
    """Whether a recipe may set the key anyway. On the command line, setting it is an error."""


Value = bool | int | float | str | tuple[str, ...]
"""The value of a config key."""
ConfigTree = dict[str, Any]
"""A config as nested dicts: each value is a section (again a dict) or a `Value`."""
Schema = TypeVar("Schema", bound="DataclassInstance")
"""A frozen dataclass whose fields are keys, or sections that are such dataclasses."""


class Section:
    """A config section: a frozen dataclass that checks the values of its keys when it is built.

    Values are converted to the type of their key: 1 to 1.0, a list or a comma-separated string to
    a tuple.

    Args:
      path: the path of the section in a config, for errors; a class keyword of each subclass. The
        default is the path of the base class.

    Raises:
      ConfigError: if a value has a wrong type or is out of range; names the key.
    """

    _path: ClassVar[str] = ""

    def __init_subclass__(cls, path: str | None = None) -> None:
        super().__init_subclass__()
        cls._path = cls._path if path is None else path

    def __post_init__(self) -> None:
        schema: type = type(self)
        for name, hint, metadata in _key_types(schema):
            path = f"{self._path}.{name}".lstrip(".")
            value = _convert(hint, metadata, getattr(self, name), path)
            object.__setattr__(self, name, value)


@functools.cache
def _key_types(schema: type) -> list[tuple[str, Any, Mapping]]:
    """Returns (name, type, metadata) of each key of a section, without its subsections."""
    hints = typing.get_type_hints(schema)
    key_fields = [field for field in dataclasses.fields(schema) if "choices" in field.metadata]
    return [(field.name, hints[field.name], field.metadata) for field in key_fields]


UsedWhen = Callable[[Any, str], Unused | None]
"""A function (config, path of a key) -> why the key is unused, or None if it is used."""


def key(
    default: Value,
    doc: str,
    *,
    choices: Collection[str] = (),
    low: float | None = None,
    high: float | None = None,
    auto: bool = False,
    duration: Collection[str] = (),
    used_when: UsedWhen | None = None,
) -> Any:
    """Declares a config key: its default, one line of documentation, and its possible values.

    Args:
      choices: the allowed values of a string.
      low, high: inclusive bounds of a number.
      auto: whether the value may be `auto`, which is stored as 0.
      duration: the units that the value, a number of steps, may have as a string (`durations`).
        Such strings are converted to steps once the rows are known, before any code computes with
        the value. So annotate the key as int.
      used_when: a condition; None if the key is always used. docs/configs.md prints the docstring
        of the condition if it starts with "only".
    """
    bounds = {"low": low, "high": high, "auto": auto, "duration": duration}
    metadata = {"doc": doc, "choices": choices, **bounds, "used_when": used_when}
    return dataclasses.field(default=default, metadata=metadata)


def only_with(path: str, *values: str) -> UsedWhen:
    """Returns a condition: the key is used if the key at `path` has one of these values."""

    def check(config: "DataclassInstance", _: str) -> Unused | None:
        value = lookup(config, path)
        reason = f"{path} is {value!r}, not {' or '.join(values)}"
        return None if value in values else Unused(reason)

    check.__doc__ = f"only with `{path}` = {' or '.join(f'`{value}`' for value in values)}"
    return check


def only_if_set(path: str) -> UsedWhen:
    """Returns a condition: the key is used if the key at `path` is on, or not empty."""

    def check(config: "DataclassInstance", _: str) -> Unused | None:
        value = lookup(config, path)
        shown = {bool: "off", float: "0"}.get(type(value), "empty")
        return None if value else Unused(f"{path} is {shown}")

    check.__doc__ = f"only if `{path}` is set"
    return check


def sections(known: Callable[[], Mapping[str, "DataclassInstance"]]) -> Any:
    """Declares a field that holds several sections by name.

    In a config, these sections are at the same level as the other fields of the schema.

    Args:
      known: returns the current sections by name, each a frozen dataclass of defaults.
    """
    return dataclasses.field(
        default_factory=lambda: dict(known()), metadata={"sections": known, "doc": ""}
    )


def shared(schema: type[Schema]) -> Any:
    """Declares a field that holds a section which several sections share.

    The field has the name of that section in the schema that contains all of them. It is not a key:
    the schema sets it.
    """
    return dataclasses.field(default=schema(), metadata={"shared": True})


def shared_in(section: "DataclassInstance") -> list[str]:
    """Returns the names of the shared fields of a section."""
    return [field.name for field in dataclasses.fields(section) if "shared" in field.metadata]


def with_default(field: dataclasses.Field, default: Any) -> dataclasses.Field:
    """Returns the declaration of a key with another default."""
    return cast(dataclasses.Field, dataclasses.field(default=default, metadata=field.metadata))


def _parts(schema: type) -> Iterator[tuple[str, Any, dataclasses.Field]]:
    """Yields (name, default, field) of the keys and sections of a schema, in order."""
    for field in dataclasses.fields(schema):
        if "shared" in field.metadata:
            continue
        if "sections" in field.metadata:
            for name, default in field.metadata["sections"]().items():
                yield name, default, field
        elif dataclasses.is_dataclass(field.default_factory):
            yield field.name, field.default_factory(), field
        else:
            yield field.name, field.default, field


def keys_of(schema: type, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field]]:
    """Yields (full path, field) of every key of a schema, in order."""
    for name, default, field in _parts(schema):
        if dataclasses.is_dataclass(default):
            yield from keys_of(type(default), f"{prefix}{name}.")
        else:
            yield prefix + name, field


_auto_keys: set[str] = set()
_duration_keys: set[str] = set()


class _Section(ml_collections.ConfigDict):
    """A ConfigDict that stores `auto` as 0 for keys that allow `auto`, and accepts numbers and
    strings for durations."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key in _duration_keys and isinstance(value, int | str):
            with self.ignore_type():
                super().__setitem__(key, value)
            return
        if isinstance(value, str) and value == "auto" and key in _auto_keys:
            value = 0
        elif isinstance(value, ml_collections.ConfigDict) and not isinstance(value, _Section):
            value = _Section(value)  # a ConfigDict refuses to replace a section by another type
        super().__setitem__(key, value)


def default_of(schema: type) -> ml_collections.ConfigDict:
    """Returns a ConfigDict with every key of a schema at its default. Setting any other key is an
    error."""
    config = _Section()
    for name, _, field in _parts(schema):
        _auto_keys.update([name] * bool(field.metadata.get("auto")))
        _duration_keys.update([name] * bool(field.metadata.get("duration")))
    for name, value, _ in _parts(schema):
        if dataclasses.is_dataclass(value):
            value = default_of(type(value))
        elif value is dataclasses.MISSING:
            value = ml_collections.ConfigDict()
        elif isinstance(value, tuple):  # a comma-separated list is readable on the command line
            value = ",".join(value)
        config[name] = value
    return config.lock()


def as_tree(config: "DataclassInstance") -> ConfigTree:
    """Converts a config to the nested dict that `build` reads."""
    tree: ConfigTree = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if "shared" in field.metadata:
            continue
        if "sections" in field.metadata:
            tree |= {name: as_tree(section) for name, section in value.items()}
        else:
            is_section = dataclasses.is_dataclass(value) and not isinstance(value, type)
            tree[field.name] = as_tree(value) if is_section else value
    return tree


def merge(tree: dict, changes: Mapping, path: str) -> dict:
    """Returns a copy of a nested dict in which `changes`, nested in the same way, replace values.

    Args:
      path: the path of `tree`.
    """
    merged = dict(tree)
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), Mapping):
            value = merge(tree[name], value, f"{path}.{name}")
        merged[name] = value
    return merged


def build(schema: type[Schema], tree: Mapping) -> Schema:
    """Builds the dataclass `schema` from a nested dict of values.

    Raises:
      ConfigError: if a key is unknown (suggests the nearest), or a value has a wrong type or is out
        of range.
    """
    return _section(schema, tree, [path for path, _ in keys_of(schema)], "")


def _section(schema: type[Schema], tree: Mapping, known: Iterable[str], prefix: str) -> Schema:
    parts = {name: (default, field) for name, default, field in _parts(schema)}
    hints = typing.get_type_hints(schema)
    for name in tree:
        if name not in parts:
            raise ConfigError(f"unknown config key {prefix}{name}{nearest(prefix + name, known)}")
    values: dict[str, Any] = {}
    for name, (default, field) in parts.items():
        if name not in tree:
            continue
        value, path = tree[name], prefix + name
        if not dataclasses.is_dataclass(default) or isinstance(default, type):
            values[name] = _convert(hints[name], field.metadata, value, path)
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path} is {value!r}; it must be a section of keys")
        section = _section(type(default), value, known, path + ".")
        if "sections" in field.metadata:
            values.setdefault(field.name, dict(field.metadata["sections"]()))[name] = section
        else:
            values[name] = section
    return schema(**values)


def _convert(hint: Any, metadata: Mapping, value: Any, path: str) -> Any:
    """Returns the value of the key at `path`, converted to the type `hint` and checked."""
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")] if value.strip() else []
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{path} is {value!r}; it must be names separated by commas")
        if any(not part for part in value) or len(set(value)) < len(value):
            raise ConfigError(f"{path} is {','.join(value)!r}; an entry is empty or repeated")
        return tuple(value)
    if typing.get_origin(hint) is Mapping:
        if not isinstance(value, Mapping) or not all(
            isinstance(entry, Mapping) for entry in value.values()
        ):
            raise ConfigError(f"{path} is {value!r}; it must map names to sections of keys")
        return dict(value)
    if metadata["duration"] and isinstance(value, str):
        value = duration(value, path, metadata["duration"])
        if isinstance(value, str):
            if metadata["low"] and not durations.read(value).amount:
                raise ConfigError(f"{path} is {value!r}; it must be more than 0")
            return value
    if metadata["auto"] and (value == "auto" or value == 0 and type(value) is int):
        return 0
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(
            f"{path} is {value!r} ({type(value).__name__}); it must be {hint.__name__}"
            + " or auto" * metadata["auto"]
        )
    if metadata["choices"]:
        check_choice(path, value, metadata["choices"])
    low, high = metadata["low"], metadata["high"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if (
            not math.isfinite(value)
            or (low is not None and value < low)
            or (high is not None and value > high)
        ):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            bounds += ", or auto" * metadata["auto"]
            raise ConfigError(f"{path} is {value}; it must be {bounds}")
    return value


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raises a `ConfigError` if the value of the key or argument `name` is not in `known`."""
    if value not in known:
        raise ConfigError(
            f"{name} is {value!r}; it must be one of {', '.join(known)}"
            f"{suggestion(str(value), known)}"
        )


def duration(value: Any, path: str, units: Collection[str]) -> durations.Value:
    """Converts a duration to the form that configs store: an int of steps, or a string with a unit.

    Args:
      units: the possible units.

    Raises:
      ConfigError: if the value is not a duration, or has another unit.
    """
    try:
        return durations.value(value, units)
    except ValueError as error:
        raise ConfigError(f"{path} is {value!r}; it {error}") from None


def flat(tree: Mapping, prefix: str = "") -> dict[str, Value]:
    """Returns the values of nested sections by full path.

    Args:
      prefix: the path of the tree, ending with a dot.
    """
    values: dict[str, Value] = {}
    for name, value in tree.items():
        path = prefix + name
        values |= flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return values


def check_unused(
    config: "DataclassInstance",
    explicit: Collection[str],
    keys: Iterable[tuple[str, dataclasses.Field]],
) -> None:
    """Checks that every key that is set has an effect.

    Args:
      explicit: paths of the keys that the user set on the command line.
      keys: the keys to check, by full path.

    Raises:
      ConfigError: names the key and the reason why it is unused.
    """
    for path, field in keys:
        unused = field.metadata.get("used_when") and field.metadata["used_when"](config, path)
        if not unused:
            continue
        value = lookup(config, path)
        if path in explicit if unused.allowed_in_recipes else value != field.default:
            raise unused_key_error(path, value, unused.reason)


def unused_key_error(path: str, value: Value | Mapping, reason: str) -> ConfigError:
    """Returns the error for a key that is set but has no effect."""
    shown = ",".join(value) if isinstance(value, tuple) else value
    return ConfigError(f"{path} is set to {shown!r} but has no effect, because {reason}")


def lookup(config: object, path: str) -> Any:
    """Returns the value of the key with this full path."""
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error about an unknown name: "; did you mean X?", or "" if no known
    name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


_OTHER_NAMES = {
    "lr": "optimizer.learning_rate",
    "epochs": "train.steps",
    "num_epochs": "train.steps",
    "num_train_epochs": "train.steps",
    "max_steps": "train.steps",
    "batch_size": "objectives.mmlm.batch_size task.batch_size",
    "per_device_train_batch_size": "objectives.mmlm.batch_size task.batch_size",
    "accumulation": "train.gradient_accumulation_steps",
    "mlm_probability": "objectives.masking.rate",
    "mask_rate": "objectives.masking.rate",
    "max_length": "data.length task.length",
    "max_seq_length": "data.length task.length",
    "num_layers": "model.layers",
    "num_hidden_layers": "model.layers",
    "hidden_size": "model.hidden",
    "vocab_size": "data.vocabulary_size",
    "warmup_ratio": "optimizer.warmup_steps",
    "model_name_or_path": "init_from",
}
"""Maps key names of other libraries to xlj's keys for the same option, separated by spaces. If
there are two, the first is of pretraining and the second of fine-tuning."""


def other_name(name: str, known: Collection[str]) -> str:
    """Returns the known key for a name that another library uses; empty if there is none."""
    keys = _OTHER_NAMES.get(name.replace("-", "_").lower(), "").split()
    return next((key for key in keys if key in known), "")


def nearest(path: str, known: Iterable[str]) -> str:
    """Returns the end of an error about an unknown key: it suggests the most similar known key."""
    known = list(known)
    if other := other_name(path.split(".")[-1], known):
        return f"; did you mean {other}?"
    close = [name for name in known if name.split(".")[-1] == path.split(".")[-1]]
    if len(close) != 1:  # a single match is the right name in another section
        close = difflib.get_close_matches(path, known, n=1, cutoff=0.6) or close
    return f"; did you mean {close[0]}?" if close else "; docs/configs.md lists all keys"
