"""Records of labelled examples: JSON lines, JSON and Parquet, as Hugging Face's `datasets` has."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlj.config import ConfigError
from xlj.data.labelled.examples import Words, prefix_of
from xlj.io import files, formats, json_file
from xlj.io.quoting import examples, quoted, shortened
from xlj.io.storage import AnyPath

WORDS = ("tokens", "words")
"""Keys of the lists of words."""
_TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")


def are_in(path: AnyPath) -> bool:
    """Whether a file holds records, by its name and by how it begins."""
    form = formats.of(path)
    form = form if form and not form.is_text else formats.of(path, files.head(path))
    return form is not None and form.name in ("JSON", "Parquet")


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """The values of a file, each with its place: objects, unless the file is another; a
    `ConfigError` if it cannot be read."""
    form = formats.of(path)
    if not form or form.name != "Parquet":
        yield from json_file.values(path)
        return
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        with path.open("rb") as file:
            rows = parquet.read_table(file).to_pylist()
    except Exception as error:  # pyarrow has a dozen kinds, some of which are Python's own
        raise ConfigError(
            f"{path}: it cannot be read as Parquet ({shortened(str(error))})"
        ) from None
    for number, row in enumerate(rows, 1):
        yield row, f"{path}: row {number}"


def read(path: AnyPath) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects of a file, each with its place; raises as `values`, or a `ConfigError` if one is
    no object."""
    for value, place in values(path):
        if not isinstance(value, dict):
            raise ConfigError(f"{place}: it is no JSON object, in braces")
        yield value, place


def name_of(number: int, names: Sequence[str], place: str) -> str | None:
    """The name of the class that a file gives as a number.

    Args:
      names: of the classes, from 0, where -1 stands for none; without any, the number is the name.

    Raises:
      ConfigError: if there is no such class.
    """
    if not names:
        return str(number)
    if not -1 <= number < len(names):
        raise ConfigError(f"{place}: there is no class {number}: task.names has {len(names)}")
    return names[number] if number >= 0 else None


def read_words(
    path: AnyPath, language: str, columns: Sequence[str], names: Sequence[str], chunk_tags: bool
) -> list[Words]:
    """The sentences of a file of tagging, a record each; one without words is passed over.

    Args:
      language: as of `conll.read`.
      columns: the keys of words and tags; empty: those of usual names, if there is one each.
      names: of the tags that the file gives as numbers, from 0.
      chunk_tags: whether tags must be those of chunks, so `ner_tags` are preferred.

    Raises:
      ConfigError: if the file cannot be read, or a record does not fit; with its place.
    """
    found: list[tuple[list[str], list[str | None] | None, str]] = []
    keys: tuple[str, str] | None = None
    for record, place in read(path):
        keys = keys or _keys(record, place, columns, chunk_tags)
        words = _list(record, keys[0], place)
        for word in words:
            if not isinstance(word, str) or not word or not json_file.is_text(word):
                raise ConfigError(f"{place}: {keys[0]} holds {quoted(word)}, which is no word")
        tags = _list(record, keys[1], place) if record.get(keys[1]) is not None else None
        if tags is not None and len(tags) != len(words):
            raise ConfigError(f"{place}: {len(words)} {keys[0]} but {len(tags)} {keys[1]}")
        if words:
            named = tags and [_tag(tag, keys[1], names, chunk_tags, place) for tag in tags]
            found.append((words, named, place))
    prefix = prefix_of(language, (word for words, _, _ in found for word in words))
    return [
        Words(
            tuple(word.removeprefix(prefix) for word in words),
            None if tags is None or None in tags else tuple(tag or "" for tag in tags),
            place,
        )
        for words, tags, place in found
    ]


def _keys(
    record: Mapping[str, Any], place: str, columns: Sequence[str], chunk_tags: bool
) -> tuple[str, str]:
    """The keys of words and of tags."""
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
        raise ConfigError(f"{place}: it is not clear which keys have words and tags; {choose}")
    if not tag_keys and len(lists) > 1:
        raise ConfigError(f"{place}: it is not clear which key has the tags; {choose}")
    return word_keys[0], (tag_keys or ["tags"])[0]


def _list(record: Mapping[str, Any], key: str, place: str) -> list[Any]:
    found = record.get(key)
    if not isinstance(found, list):
        raise ConfigError(f"{place}: {key} is {quoted(found)}, which is no list")
    return found


def _tag(tag: Any, key: str, names: Sequence[str], chunk_tags: bool, place: str) -> str | None:
    if isinstance(tag, str) and tag:
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise ConfigError(f"{place}: {key} holds {quoted(tag)}, neither a tag nor a class")
    if chunk_tags and not names:
        raise ConfigError(
            f"{place}: {key} are numbers of classes; name the classes in their order from 0, "
            "task.names=O,B-PER,I-PER,..., as the data set's card lists them"
        )
    return name_of(tag, names, place)
