"""Table of objectives, which users can extend; the options of an objective, which need no JAX."""

import dataclasses
import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from xlj.config import row_kinds
from xlj.config.fields import ConfigError, Section, Unused, UsedWhen, Value, key, shared_in
from xlj.config.sections import Sections
from xlj.config.user_code import function_of

OBJECTIVES = {
    "mmlm": "xlj.objectives.mlm.options:MultilingualMLM",
    "tlm": "xlj.objectives.mlm.options:TranslationLM",
    "camlm": "xlj.objectives.camlm.options:CrossAttentionMLM",
    "btmlm": "xlj.objectives.btmlm.options:BackTranslation",
    "mrtd": "xlj.objectives.rtd.options:MultilingualRTD",
    "trtd": "xlj.objectives.rtd.options:TranslationRTD",
    "dwa": "xlj.objectives.dwa.options:WordAlignment",
    "xlco": "xlj.objectives.xlco.options:CrossLingualContrast",
    "retrieval": "xlj.objectives.contrast.options:Retrieval",
    "contrast": "xlj.objectives.contrast.options:Contrast",
    "distillation": "xlj.objectives.distillation.options:Distillation",
    "sentence_distillation": "xlj.objectives.sentence_distillation.options:SentenceDistillation",
    "text_distillation": "xlj.objectives.sentence_distillation.options:TextDistillation",
    "word_hmm": "xlj.objectives.word_hmm.options:WordHMM",
    "word_agreement": "xlj.objectives.word_agreement.options:WordAgreement",
}
"""xlj's objectives by name, in the order of the schema: `module:class`, where the class is a
subclass of `Options`. Users register their objectives (`register`)."""


def while_on(config: Sections, path: str) -> Unused | None:
    """Checks that the objective of a key is on in at least one phase."""
    section, _, name = path.rpartition(".")
    if name == "batch_size" or section.rpartition(".")[2] in config.objectives_on():
        return None
    return Unused(f"{section}.batch_size is 0")


def option(default: Value, doc: str, used_when: UsedWhen = while_on, **values: Any) -> Any:
    """Declares a key of an objective, as `fields.key` does. The key is unused while the objective
    is off."""
    return key(default, doc, used_when=used_when, **values)


@dataclasses.dataclass(frozen=True)
class Options(Section, path="objectives"):
    """The keys `objectives.NAME.*` of all objectives, and the properties of an objective.

    A subclass declares its keys with `option`. It sets `rows` and `implementation`, and other class
    variables if needed. `@register("NAME")` registers it. docs/own_objective.md has an example.
    """

    rows: ClassVar[str]
    """The kind of rows that the objective reads: one of `row_kinds.KINDS`, or `module:function`."""
    implementation: ClassVar[str]
    """`module:function`, where the function makes the `Objective` from (name, options, model,
    corpus). Imported when a run starts, so that configs need no JAX."""
    state_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that determine the shape or meaning of the objective's state. Their values must be equal
    in all phases."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Keys of the model that only some objectives read, among them this one. Such a key is unused
    if no objective that reads it is on."""
    sampled_by: ClassVar[str] = "tokens"
    """The unit in which languages are counted for sampling with alpha: `tokens` or `rows`."""

    batch_size: int = option(0, "rows per step; 0: the objective is off", low=0)
    weight: float = option(1.0, "weight of the objective in the loss", low=0)

    def check(self, path: str, config: Sections) -> None:
        """Refuses values that contradict each other or the rest of a phase's config.

        Args:
          path: the path of the objective's section, `objectives.NAME`.

        Raises:
          ConfigError: names the keys.
        """

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses languages that the objective cannot use.

        Args:
          path: the path of the objective's section.
          languages: the languages of the text.
          where: the config key that names the languages, for the error.

        Raises:
          ConfigError: names the keys.
        """

    def path(self, name: str) -> str:
        """Returns the path of the section of the objective with this name."""
        return f"objectives.{name}"

    @property
    def draws_together(self) -> int:
        """How many consecutive rows of a batch have the same language or pair: 1, or all."""
        return 1

    @property
    def token_axes(self) -> Mapping[str, tuple[int, ...]]:
        """The axes of each field of a row that run over its tokens, if batches are cut to their
        longest row (`data.labelled.kind.TaskKind.token_axes`); empty if they are not."""
        return {}

    @property
    def extra_layers(self) -> int:
        """The number of layers that a row passes in addition to the layers of the model. They are
        as wide as the model's layers."""
        return 0

    def models(self) -> Mapping[str, str]:
        """Returns the paths of the stored models that the objective's state starts from, by name.
        The encoder of each model becomes the part of the state with this name."""
        return {}

    @property
    def row_kind(self) -> Any:
        """The kind of rows that the objective reads (`data.rows.row_kind.RowKind`)."""
        return row_kinds.load(self.rows)

    @property
    def rows_name(self) -> str:
        """The name of the rows in a row store."""
        return str(self.row_kind.name)

    @classmethod
    def shrink(
        cls, values: MutableMapping[str, Value], rows: int, layer: Callable[[int], int]
    ) -> None:
        """Changes the values of a recipe or a phase, in place, for the variant `tiny`.

        Args:
          values: the keys of the objective that the recipe or the phase sets.
          rows: rows per step.
          layer: maps a layer number of the recipe's model to the small model.
        """
        if values.get("batch_size"):
            values["batch_size"] = rows
        cls.scale_layers(values, layer)

    @classmethod
    def scale_layers(cls, values: MutableMapping[str, Value], layer: Callable[[int], int]) -> None:
        """Maps the layer numbers that a recipe or a phase sets, in place.

        Args:
          values: the keys of the objective that the recipe or the phase sets.
          layer: maps a layer number of the recipe's model to the new model.
        """
        for name, value in values.items():
            if isinstance(value, int) and value > 0 and name.endswith(("layer", "layers")):
                values[name] = layer(value)


Class = TypeVar("Class", bound=type[Options])
_REGISTERED: dict[str, Options] = {}


def register(name: str) -> Callable[[Class], Class]:
    """Registers a class as the options of a user's objective, with the keys `objectives.NAME.*`.

    Raises:
      ValueError: if xlj or another module has an objective of this name, the name is reserved, or
        the class does not set `rows` to a known kind and `implementation`.
    """

    def decorator(options: Class) -> Class:
        previous = registered().get(name)
        if not name.isidentifier() or name in reserved():
            raise ValueError(f"{name!r} cannot be the name of an objective")
        if previous and type(previous).__module__ != options.__module__:
            raise ValueError(
                f"{type(previous).__module__} has already registered an objective {name}"
            )
        rows, kinds = getattr(options, "rows", ""), row_kinds.KINDS
        if (rows not in kinds and ":" not in rows) or not hasattr(options, "implementation"):
            raise ValueError(
                f"{options.__name__} must set `rows`, one of {', '.join(kinds)} or "
                "module:function, and `implementation`, module:function"
            )
        _REGISTERED[name] = _defaults(name, options)
        return options

    return decorator


def _defaults(name: str, options: Any) -> Options:
    """Returns the default options of an objective and sets the path of its keys."""
    options._path = f"objectives.{name}"
    defaults: Options = options()
    return defaults


@cache
def _of_xlj() -> Mapping[str, Options]:
    # Imported on first use, because the modules of the options import this module.
    return {
        name: _defaults(name, function_of(options, "objectives"))
        for name, options in OBJECTIVES.items()
    }


def registered() -> Mapping[str, Options]:
    """Returns all objectives with their default options: xlj's first, then users'."""
    return {**_of_xlj(), **_REGISTERED}


def shared_sections() -> Mapping[str, Any]:
    """Returns the sections that several objectives share, with their defaults, by name."""
    return {
        name: getattr(options, name)
        for options in registered().values()
        for name in shared_in(options)
    }


def reserved() -> tuple[str, ...]:
    """Returns the names that no objective can have, since `objectives` has other members of these
    names."""
    return ("normalisation", "shared", "options", "active", *shared_sections())


def objectives_in(config: Mapping[str, Any]) -> set[str]:
    """Returns the names of the objectives that are on in any phase of nested sections."""
    phases = config.get("phases") or {}
    parts = [config, *phases.values()] if hasattr(phases, "values") else [config]
    return {
        name
        for part in parts
        for name, options in getattr(part.get("objectives"), "items", dict)()
        if hasattr(options, "get") and options.get("batch_size")
    }


def trains_on_pairs(config: Mapping[str, Any]) -> bool:
    """Whether a recorded config has an objective on pairs that are encoded together.

    Unknown objectives, such as a user's whose module is not imported, do not count.

    Args:
      config: the config of a run, as nested sections (`schema.record`).
    """
    known = registered()
    return any(known[name].rows == "pairs" for name in objectives_in(config) & known.keys())


def check_common(path: str, options: Options, config: Sections) -> None:
    """Refuses values that contradict the rest of a phase's config, for any objective.

    Raises:
      ConfigError: names the keys.
    """
    if options.rows == "bitext" and options.batch_size < 2:
        raise ConfigError(
            f"{path}.batch_size=1: objectives that contrast pairs need at least 2 rows"
        )
    if options.batch_size % config.train.gradient_accumulation_steps:
        raise ConfigError(
            f"{path}.batch_size={options.batch_size} is not divisible by "
            f"train.gradient_accumulation_steps={config.train.gradient_accumulation_steps}"
        )
    for field in dataclasses.fields(options):
        if field.name.endswith("layer") and getattr(options, field.name) > config.model.layers:
            raise ConfigError(
                f"{path}.{field.name}={getattr(options, field.name)} is beyond "
                f"model.layers={config.model.layers}; lower it"
            )


def import_modules(names: str) -> None:
    """Imports modules that register objectives.

    Args:
      names: names of the modules, separated by commas.

    Raises:
      ConfigError: if a module cannot be imported.
    """
    for module in filter(None, map(str.strip, names.split(","))):
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(
                f"objective_modules: {module} cannot be imported: {type(error).__name__}: {error}"
            ) from error


def module_digests(modules: Collection[str]) -> dict[str, str]:
    """Returns the sha256 of the source file of each module."""
    digests = {}
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ConfigError(f"objective_modules: {module} has no source file")
        digests[module] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    return digests
