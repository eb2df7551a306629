"""The rows of a config: opened where `data.rows` names them, else built from its text."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from xlj.config import ROW_KINDS, Config, ConfigError
from xlj.config.checks import check_languages, check_phases
from xlj.data.rows.building import build_rows, measure_pairs
from xlj.data.rows.draws import rates
from xlj.data.rows.lengths import auto_length
from xlj.data.rows.request import Request, request_of
from xlj.data.rows.store import RowStore, RowStoreError, TaskRows
from xlj.data.text import seqio_tasks
from xlj.data.text.seqio_tasks import seqio_name
from xlj.data.text.text_tasks import unused
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import storage
from xlj.io.processes import in_child
from xlj.io.quiet import import_quietly


def open_rows(config: Config) -> tuple[Config, RowStore | None]:
    """Opens the rows that a config names: the config with their languages, pairs, lengths and
    vocabulary, and the rows of the kinds that its objectives read. If it names none, the config as
    it is, and None.

    Raises:
      ConfigError: if the rows do not serve the config; it names the folder and the key.
    """
    if not config.data.rows:
        return config, None
    store = _open(config)
    tasks = store.manifest.tasks
    known: dict[str, Any] = {
        ROW_KINDS[task.kind].length.removeprefix("data."): task.length
        for task in reversed(tasks)  # the first has the length of the first phase
    }
    known["languages"], known["pairs"] = _names(tasks, sides=1), _names(tasks, sides=2)
    known["vocabulary"] = str(store.vocabulary_file)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, **known))
    check_languages(config)
    return config, RowStore(store.path, config.row_kinds())


def prepare_rows(
    config: Config,
    runner: str = "",
    arguments: Sequence[str] = (),
    processes: int = 1,
    vocabulary: Vocabulary | None = None,
) -> RowStore:
    """The row store of a config. If `data.rows` names none, it is that of the text as it is listed;
    what is missing of it is built (`processes.in_child`).

    Args:
      runner: an Apache Beam runner that builds the rows; empty for processes on this machine.
      arguments: further pipeline options for Beam.
      processes: how many ask for the rows; of several none builds them.
      vocabulary: that of `data.vocabulary`, if it is loaded already.

    Raises:
      ConfigError: if the config, its text or the rows that it names cannot be used, or several
        processes ask for rows that are not there.
      RowStoreError: if the rows that it names are damaged.
    """
    if (opened := open_rows(config)[1]) is not None:
        return opened
    config = with_pair_length(config, runner, arguments, processes, vocabulary)
    request = request_of(config, vocabulary)
    if (store := _finished(request)) is not None:
        return store
    _check_alone(config, processes)
    for note in unused(config.data, request.tasks):
        print(note, file=sys.stderr)
    return RowStore(in_child("building rows", build_rows, request, runner, tuple(arguments)))


def with_pair_length(
    config: Config,
    runner: str = "",
    arguments: Sequence[str] = (),
    processes: int = 1,
    vocabulary: Vocabulary | None = None,
) -> Config:
    """The config with a number in the place of `data.pair_length=auto`: the length that keeps 99 %
    of the pairs of each source, within the model's positions. Pairs are read for it once, and a
    vocabulary is trained if none is given; what was found stays in `data.cache`.

    Args, errors: as of `prepare_rows`.
    """
    read = {ROW_KINDS[kind].length for kind in config.row_kinds()}
    if config.data.rows or config.data.pair_length or "data.pair_length" not in read:
        return config
    request = request_of(config, vocabulary)
    if not request.lengths_file.is_file():
        _check_alone(config, processes)
        in_child("measuring pairs", measure_pairs, request, runner, tuple(arguments))
    length = auto_length(request, config.model.positions - 2)
    data = dataclasses.replace(config.data, pair_length=length)
    config = dataclasses.replace(config, data=data)
    check_phases(config)
    return config


def register_seqio(config: Config) -> list[str]:
    """Registers a config's text as seqio Tasks, and once its rows are there the Mixtures `xlj.text`
    and `xlj.pairs` at the rates of training, instead of earlier ones; returns their names.

    Raises:
      ConfigError: if the text or the vocabulary cannot be used.
    """
    request = request_of(with_pair_length(config))
    names = []
    for task in request.tasks:
        for kind in dict.fromkeys((task.kind, *request.row_kinds(task))):
            of_kind = task.of_kind(kind)
            seqio_tasks.register(of_kind, config.data)
            names.append(seqio_name(of_kind.name))
    store = _finished(request)
    if store is None:
        return names
    seqio = import_quietly("seqio")
    for kind in ROW_KINDS:
        tokens = {rows.name: rows.train.tokens for rows in store.tasks(kind)}
        # Rows of other lengths are no Tasks.
        if tokens := {name: of for name, of in tokens.items() if name.startswith(f"{kind}.")}:
            name = f"xlj.{kind}"
            if name in seqio.MixtureRegistry.names():
                seqio.MixtureRegistry.remove(name)
            shares = rates(tokens, config.data.alpha)
            seqio.MixtureRegistry.add(name, [(seqio_name(t), p) for t, p in shares.items()])
            names.append(name)
    return names


def _finished(request: Request) -> RowStore | None:
    """The store of a request, if all of it is there."""
    try:
        return RowStore(request.folder)
    except RowStoreError as error:
        if request.finished:
            print(f"{error}\nso what is missing is made now", file=sys.stderr)
        return None


def _check_alone(config: Config, processes: int) -> None:
    if processes > 1:
        raise ConfigError(
            f"several processes train, and data.cache={config.data.cache} holds no finished rows "
            "of this config; build them once with python -m xlj.prepare and the same config, in a "
            "folder that every host sees"
        )


def _open(config: Config) -> RowStore:
    """The rows, if they serve the config."""
    data, allowed = config.data, config.model.positions - 2
    try:
        store = RowStore(storage.place(data.rows_folder))
    except (RowStoreError, OSError) as error:
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
        if (longest := max(task.length for task in tasks)) > allowed:
            raise ConfigError(
                f"data.rows={data.rows} has {kind} rows of {longest} tokens, beyond the "
                f"model's positions: model.positions={config.model.positions} allows {allowed}"
            )
    lengths = {task.length for task in store.manifest.tasks}
    for name, changes in config.phases.items():
        if changes.get("data", {}).get("length", 0) not in (0, *lengths):
            raise ConfigError(
                f"data.rows={data.rows} has no rows of phases.{name}.data.length="
                f"{changes['data']['length']}; prepare them with this config"
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
