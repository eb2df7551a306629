"""Finished rows that a config names, `data.rows`: neither their text nor the cache is needed."""

import dataclasses
from pathlib import Path
from typing import Any

from xlj.config import ROW_KINDS, Config, ConfigError
from xlj.config.checks import check_languages
from xlj.data.rows.store import RowStore, RowStoreError, TaskRows
from xlj.data.tokenizer.vocabulary import Vocabulary


def with_rows(config: Config) -> Config:
    """The config with the languages, pairs, lengths and vocabulary of the rows that it names; as it
    is, if it names none.

    Raises:
      ConfigError: if the rows do not serve the config; it names the folder and the key.
    """
    if not config.data.rows:
        return config
    store = _open(config)
    tasks = store.manifest.tasks
    known: dict[str, Any] = {
        ROW_KINDS[task.kind].length.removeprefix("data."): task.length for task in tasks
    }
    known["languages"], known["pairs"] = _names(tasks, sides=1), _names(tasks, sides=2)
    known["vocabulary"] = str(store.vocabulary_file)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, **known))
    check_languages(config)
    return config


def open_rows(config: Config) -> RowStore:
    """The rows that a config names, of the kinds that its objectives read.

    Raises:
      ConfigError: if they do not serve the config; it names the folder and the key.
    """
    return RowStore(_open(config).path, config.row_kinds())


def _open(config: Config) -> RowStore:
    """The rows, if they serve the config."""
    data, allowed = config.data, config.model.positions - 2
    try:
        store = RowStore(Path(data.rows).expanduser())
    except RowStoreError as error:
        raise ConfigError(f"data.rows={data.rows}: {error}") from error
    there = ", ".join(dict.fromkeys(task.kind for task in store.manifest.tasks))
    for name, options in config.objectives_on().items():
        kind = options.rows
        tasks = store.tasks(kind)
        if not tasks:
            raise ConfigError(
                f"data.rows={data.rows} has rows of {there}, but none of {kind}, which "
                f"objectives.{name} reads; prepare them with this config"
            )
        if tasks[0].length > allowed:
            raise ConfigError(
                f"data.rows={data.rows} has {kind} rows of {tasks[0].length} tokens, beyond the "
                f"model's positions: model.positions={config.model.positions} allows {allowed}"
            )
    if data.vocabulary:
        if Vocabulary.load(data.vocabulary).digest != store.manifest.vocabulary_digest:
            raise ConfigError(
                f"data.rows={data.rows} was built with another vocabulary than data.vocabulary="
                f"{data.vocabulary}; leave that key empty to take the rows' own"
            )
    return store


def _names(tasks: tuple[TaskRows, ...], sides: int) -> tuple[str, ...]:
    """Languages (one side) or pairs (two) of rows, each once, in order."""
    of = (task for task in tasks if len(task.languages) == sides)
    return tuple(dict.fromkeys(task.name.partition(".")[2] for task in of))
