"""Old names of config keys, which users' configs and the records of runs may still contain."""

import copy
import functools
import sys
from collections.abc import Collection, Iterator, MutableMapping
from typing import Any

from ml_collections import ConfigDict

from xlj.config.fields import ConfigTree
from xlj.config.objectives.options import objectives_in

RENAMED: dict[str, tuple[str, ...]] = {
    f"model.{name}": (f"objectives.mrtd.{name}", f"objectives.trtd.{name}")
    for name in ("generator_layers", "generator_embeddings")
} | {"data.invalid_utf8": ("data.malformed",)}
"""The new keys of each old key. A new key of an objective gets the value only if the objective is
on."""

Tree = MutableMapping[str, Any]


def accept_old_keys(config: ConfigDict) -> ConfigDict:
    """Adds the old keys to a ConfigDict of defaults, so that recipes can set the old keys. Their
    value is None."""
    with config.unlocked():
        for old, new_keys in RENAMED.items():
            section, other = _section(config, old), _section(config, new_keys[0])
            if section is not None and other is not None:
                section[_name(old)] = None
    return config


def translate(config: Tree, explicit: Collection[str] = ()) -> list[str]:
    """Moves the values of old keys to the new keys of a user's config, in place, and prints a line
    for each old key.

    Args:
      config: nested sections; a ConfigDict must be unlocked.
      explicit: keys that were set on the command line. A new key in this list keeps its value, even
        if the config has the old key too.

    Returns:
      The explicit keys, with old names replaced by new ones.
    """
    _rename(config, explicit, recorded=False)
    train = _section(config, "train.allow_change") or {}
    allowed = train.get("allow_change") or ""
    names = [name.strip() for name in allowed.split(",")] if isinstance(allowed, str) else allowed
    if RENAMED.keys() & set(names):
        train["allow_change"] = ",".join(dict.fromkeys(_new_names(names)))
    return list(_new_names(explicit))


def translate_recorded(config: ConfigTree) -> ConfigTree:
    """Returns a copy of a config that a run recorded, with the new keys, and prints a line for each
    old key that an objective of the run used."""
    renamed = copy.deepcopy(config)
    _rename(renamed, (), recorded=True)
    return renamed


def _rename(config: Tree, explicit: Collection[str], recorded: bool) -> None:
    phases = config.get("phases")
    parts = list(phases.values()) if isinstance(phases, dict | ConfigDict) else []
    for part in (config, *parts):
        for old, new_keys in RENAMED.items():
            section, name = _section(part, old), _name(old)
            value = section.get(name) if section is not None else None
            if isinstance(section, dict):
                section.pop(name, None)
            elif value is not None:
                section[name] = None
            if value is None:
                continue
            # An unused value is dropped from a record. In a user's config it remains, so that the
            # checks report it.
            read = [new for new in new_keys if _is_read(config, new)]
            new_keys = tuple(read) if recorded or read else new_keys
            for new in new_keys:
                if new not in explicit:
                    _section(part, new, make=True)[_name(new)] = value
            # For a record, print only keys that affect what the run computes.
            if new_keys and (not recorded or new_keys[0].startswith("objectives.")):
                where = "in a recorded config, " if recorded else ""
                _print_once(f"{where}{old}={value} is read as {' and '.join(new_keys)}")


def _is_read(config: Tree, key: str) -> bool:
    """Whether the objective of a key is on; True for keys that are not of an objective."""
    section, _, rest = key.partition(".")
    objective, is_of_objective, _ = rest.partition(".")
    return section != "objectives" or not is_of_objective or objective in objectives_in(config)


@functools.cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def _new_names(keys: Collection[str]) -> Iterator[str]:
    for key in keys:
        yield from RENAMED.get(key, (key,))


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def _section(config: Tree, key: str, make: bool = False) -> Any:
    """Returns the section of a key. If the section does not exist, creates it if `make` is true,
    else returns None."""
    node: Any = config
    for name in key.split(".")[:-1]:
        if make and node.get(name) is None:
            node[name] = {}
        node = node.get(name) if isinstance(node, dict | ConfigDict) else None
    return node if isinstance(node, dict | ConfigDict) else None
