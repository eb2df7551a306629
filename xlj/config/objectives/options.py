"""The options of an objective: its keys in a config, and all that is known of it without JAX."""

import dataclasses
import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from xlj.config.fields import ConfigError, Section, Unused, UsedWhen, Value, key
from xlj.config.row_kinds import ROW_KINDS
from xlj.config.sections import Sections


def while_on(config: Sections, path: str) -> Unused | None:
    """Says that an objective's key is read while the objective is on, in any phase."""
    section, _, name = path.rpartition(".")
    if name == "batch_rows" or section.rpartition(".")[2] in config.objectives_on():
        return None
    return Unused(f"{section}.batch_rows is 0")


def option(default: Value, doc: str, used_when: UsedWhen = while_on, **values: Any) -> Any:
    """A key of an objective: as `key`, but that nothing reads it while the objective is off."""
    return key(default, doc, used_when=used_when, **values)


@dataclasses.dataclass(frozen=True)
class Options(Section, path="objectives"):
    """The keys `objectives.NAME.*` that all objectives have, and the defaults of the rest.

    A subclass adds keys with `option`, says what stands below in capitals of its own, and is named
    with `@register("NAME")`. docs/own_objective.md writes one.
    """

    rows: ClassVar[str]
    """The kind of rows that it reads, one of `ROW_KINDS`."""
    implementation: ClassVar[str]
    """`module:function`, where the function makes its `Objective` of (name, options, model,
    corpus). Imported when a run starts, so that a config needs no JAX."""
    state_keys: ClassVar[tuple[str, ...]] = ()
    """Its keys that decide what it keeps from step to step: the same in all phases."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Keys of the model that it reads, and that nothing reads where no such objective is on."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Its keys of parameters that objectives of the same implementation share: one value in all of
    these objectives, in all phases and on resume."""
    sampled_by: ClassVar[str] = "tokens"
    """The measure that languages are weighed by before alpha: `tokens` or `rows`."""

    batch_rows: int = option(0, "rows a step; 0 turns the objective off", low=0)
    weight: float = option(1.0, "weight of the objective in the loss", low=0)

    def check(self, path: str, config: Sections) -> None:
        """Refuses values that contradict each other or the rest of a phase's config.

        Args:
          path: of its section, `objectives.NAME`.

        Raises:
          ConfigError: it names the keys.
        """

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses languages that the objective cannot do with.

        Args:
          path: of its section.
          languages: those of the text.
          where: what names them, for the error.

        Raises:
          ConfigError: it names the keys.
        """

    def path(self, name: str) -> str:
        """Where the keys of the objective of this name are."""
        return f"objectives.{name}"

    @property
    def extra_layers(self) -> int:
        """The number of layers, as wide as the model's, that a row passes beside the model's."""
        return 0

    def models(self) -> Mapping[str, str]:
        """The key of each stored model that its state starts from, and the model's path. The state
        has a part of the same name: the model's encoder."""
        return {}

    def text_length(self, length: int) -> int:
        """How many of a row's `length` numbers are tokens."""
        return length

    @classmethod
    def shrink(
        cls, values: MutableMapping[str, Value], rows: int, layer: Callable[[int], int]
    ) -> None:
        """Makes the values that a recipe or a phase sets suit `:tiny`, in place.

        Args:
          rows: rows a step.
          layer: what a layer of the recipe's model is in the small one.
        """
        if values.get("batch_rows"):
            values["batch_rows"] = rows
        cls.scale_layers(values, layer)

    @classmethod
    def scale_layers(cls, values: MutableMapping[str, Value], layer: Callable[[int], int]) -> None:
        """Changes the numbers of layers that a recipe or a phase sets, in place; `layer` is as in
        `shrink`."""
        for name, value in values.items():
            if isinstance(value, int) and value > 0 and name.endswith(("layer", "layers")):
                values[name] = layer(value)


Class = TypeVar("Class", bound=type[Options])
_REGISTERED: dict[str, Options] = {}


def register(name: str) -> Callable[[Class], Class]:
    """Makes a class the options of the objective NAME: its keys are `objectives.NAME.*`.

    Raises:
      ValueError: if there is one already, or the class names no kind of rows that there is.
    """

    def named(options: Class) -> Class:
        before = _REGISTERED.get(name)
        if not name.isidentifier() or name in ("normalisation", "options", "active"):
            raise ValueError(f"{name!r} cannot be the name of an objective")
        if before and type(before).__module__ != options.__module__:
            raise ValueError(f"{type(before).__module__} has registered an objective {name}")
        if getattr(options, "rows", "") not in ROW_KINDS or not hasattr(options, "implementation"):
            raise ValueError(
                f"{options.__name__} must say `rows`, one of {', '.join(ROW_KINDS)}, and "
                "`implementation`, module:function"
            )
        options._path = f"objectives.{name}"
        _REGISTERED[name] = options()
        return options

    return named


def registered() -> Mapping[str, Options]:
    """The objectives there are, at their defaults: those of xlj first, then users' own."""
    return _REGISTERED


def objectives_in(config: Mapping[str, Any]) -> set[str]:
    """Names of the objectives that are on in any phase of a config of nested sections."""
    phases = config.get("phases") or {}
    parts = [config, *phases.values()] if hasattr(phases, "values") else [config]
    return {
        name
        for part in parts
        for name, options in getattr(part.get("objectives"), "items", dict)()
        if hasattr(options, "get") and options.get("batch_rows")
    }


def check_common(path: str, options: Options, config: Sections) -> None:
    """Refuses values that no objective can have together with the rest of a phase's config.

    Raises:
      ConfigError: it names the keys.
    """
    if options.rows == "bitext" and options.batch_rows < 2:
        raise ConfigError(f"{path}.batch_rows=1: a pair needs others to be told from")
    if options.batch_rows % config.train.accumulation:
        raise ConfigError(
            f"{path}.batch_rows={options.batch_rows} is not divisible by "
            f"train.accumulation={config.train.accumulation}"
        )
    for field in dataclasses.fields(options):
        if field.name.endswith("layer") and getattr(options, field.name) > config.model.layers:
            raise ConfigError(
                f"{path}.{field.name}={getattr(options, field.name)} is beyond "
                f"model.layers={config.model.layers}"
            )


def import_modules(names: str) -> None:
    """Imports modules that register objectives.

    Args:
      names: of the modules, separated by commas.

    Raises:
      ConfigError: if one cannot be imported.
    """
    for module in filter(None, map(str.strip, names.split(","))):
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(
                f"objective_modules: {module} cannot be imported: {type(error).__name__}: {error}"
            ) from error


def module_digests(modules: Collection[str]) -> dict[str, str]:
    """sha256 of the source file of each module."""
    found = {}
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ConfigError(f"objective_modules: {module} has no file")
        found[module] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    return found
