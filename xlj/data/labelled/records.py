"""Reads records of labelled examples from JSON lines, JSON and Parquet."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlj.config import ConfigError
from xlj.data.labelled.examples import Words, prefix_of
from xlj.io import files, formats, json_file
from xlj.io.quoting import examples, quoted, shortened
from xlj.io.storage import AnyPath

WORDS = ("tokens", "words")
"""Keys of lists of words."""
_TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")


def are_in(path: AnyPath) -> bool:
    """Whether a file contains records, by its name and its first bytes."""
    form = formats.detect(path)
    form = form if form and not form.is_text else formats.detect(path, files.head(path))
    return form is not None and form.name in ("JSON", "Parquet")


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """Yields the values of a file, usually objects, each with its place.

    Raises:
      ConfigError: if the file cannot be read.
    """
    form = formats.detect(path)
    if not form or form.name != "Parquet":
        yield from json_file.values(path)
        return
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        with path.open("rb") as file:
            rows = parquet.read_table(file).to_pylist()
    except Exception as error:  # pyarrow raises many types, including Python's own
        raise ConfigError(f"{path}: cannot be read as Parquet ({shortened(str(error))})") from None
    for number, row in enumerate(rows, 1):
        yield row, f"{path}: row {number}"


def read(path: AnyPath) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields the objects of a file, each with its place.

    Raises:
      ConfigError: as `values`, or if a value is not an object.
    """
    for value, place in values(path):
        if not isinstance(value, dict):
            raise ConfigError(f"{place}: not a JSON object (in braces)")
        yield value, place


def name_of(number: int, names: Sequence[str], place: str) -> str | None:
    """Returns the name of a class that a file gives as a number.

    Args:
      names: names of the classes, from 0; -1 means no class. If empty, the number is the name.

    Raises:
      ConfigError: if there is no such class.
    """
    if not names:
        return str(number)
    if not -1 <= number < len(names):
        raise ConfigError(f"{place}: no class {number}: task.names has {len(names)} names")
    return names[number] if number >= 0 else None


def read_words(
    path: AnyPath, language: str, columns: Sequence[str], names: Sequence[str], chunk_tags: bool
) -> list[Words]:
    """Reads the sentences of a tagging file, one per record; skips records without words.

    Args:
      language: as in `conll.read`.
      columns: the keys of words and tags. Empty: the usual keys, if there is one of each.
      names: names of the tags that the file gives as numbers, from 0.
      chunk_tags: whether tags must be chunk tags; `ner_tags` are then preferred.

    Raises:
      ConfigError: if the file cannot be read, or a record does not fit; with its place.
    """
    sentences: list[tuple[list[str], list[str | None] | None, str]] = []
    keys: tuple[str, str] | None = None
    for record, place in read(path):
        keys = keys or _keys(record, place, columns, chunk_tags)
        words = _list(record, keys[0], place)
        for word in words:
            if not isinstance(word, str) or not word or not json_file.is_text(word):
                raise ConfigError(f"{place}: {keys[0]} contains {quoted(word)}, expected a word")
        tags = _list(record, keys[1], place) if record.get(keys[1]) is not None else None
        if tags is not None and len(tags) != len(words):
            raise ConfigError(f"{place}: {len(words)} {keys[0]} but {len(tags)} {keys[1]}")
        if words:
            named = tags and [_tag(tag, keys[1], names, chunk_tags, place) for tag in tags]
            sentences.append((words, named, place))
    prefix = prefix_of(language, (word for words, _, _ in sentences for word in words))
    return [
        Words(
            tuple(word.removeprefix(prefix) for word in words),
            None if tags is None or None in tags else tuple(tag or "" for tag in tags),
            place,
        )
        for words, tags, place in sentences
    ]


def _keys(
    record: Mapping[str, Any], place: str, columns: Sequence[str], chunk_tags: bool
) -> tuple[str, str]:
    """Returns the keys of words and of tags."""
    lists = {key: value for key, value in record.items() if isinstance(value, list)}
    shown = ", ".join(f"{key} has {examples(map(str, value))}" for key, value in lists.items())
    choose = f"set task.columns=WORDS,TAGS to two keys of lists; {shortened(shown)}"
    if columns:
        if len(columns) != 2 or columns[0] not in record:
            raise ConfigError(f"{place}: task.columns={','.join(columns)}: {choose}")
        return columns[0], columns[1]
    word_keys = [key for key in WORDS if key in lists]
    tag_keys = [key for key in _TAGS if key in lists]
    if chunk_tags and "ner_tags" in tag_keys:
        tag_keys = ["ner_tags"]
    if len(word_keys) != 1 or len(tag_keys) > 1:
        raise ConfigError(f"{place}: it is unclear which keys have words and tags; {choose}")
    if not tag_keys and len(lists) > 1:
        raise ConfigError(f"{place}: it is unclear which key has the tags; {choose}")
    return word_keys[0], (tag_keys or ["tags"])[0]


def _list(record: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise ConfigError(f"{place}: {key} is {quoted(value)}, expected a list")
    return value


def _tag(tag: Any, key: str, names: Sequence[str], chunk_tags: bool, place: str) -> str | None:
    if isinstance(tag, str) and tag:
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise ConfigError(
            f"{place}: {key} contains {quoted(tag)}, expected a tag or the number of a class"
        )
    if chunk_tags and not names:
        raise ConfigError(
            f"{place}: {key} are numbers of classes; set task.names=O,B-PER,I-PER,... to the names "
            "of the classes in order from 0, as listed on the data set's card"
        )
    return name_of(tag, names, place)
