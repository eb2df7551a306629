"""Reads new text to label, and formats the labelled lines."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled.conll import COMMENT
from xlj.data.labelled.examples import Example, Words
from xlj.data.labelled.kind import TaskKind
from xlj.io import files, formats
from xlj.io.json_file import Record
from xlj.io.quoting import quoted


class Item(NamedTuple):
    """A line of text, or a sentence of CoNLL with the blank line after it.

    Attributes:
      example: None for a blank line.
      lines: the original lines, for CoNLL only.
      words: indices of the lines that are words.
      identity: the `id` of a JSON object, if it has one.
    """

    example: Example | None
    lines: tuple[str, ...] = ()
    words: tuple[int, ...] = ()
    identity: Any = None


def read(form: str, lines: Iterable[str], place: str, kind: TaskKind) -> Iterator[Item]:
    """Reads items from lines.

    Args:
      form: one of `choices.TEXT_FORMATS`.
      place: the text before a line number in errors.

    Raises:
      ConfigError: with the place of a line that does not fit the kind of task, or whose number of
        texts differs from earlier lines.
    """
    first: Example | None = None
    if form == "conll":
        yield from _sentences(lines, place)
        return
    for number, line in enumerate(lines, 1):
        where = f"{place}{number}"
        line = line.removesuffix("\r")
        if not line.strip():
            yield Item(None)
            continue
        if form == "jsonl":
            record = _record(line, where)
            item = Item(kind.from_record(record, where), identity=record.get("id"))
        else:
            item = Item(kind.from_fields(line.split("\t"), where))
        first = first or item.example
        if first and item.example and first.parts != item.example.parts:
            raise ConfigError(
                f"{where}: this line has {item.example.parts} texts, but {first.where} has "
                f"{first.parts}; all lines must have the same number of texts"
            )
        yield item


def refuse(path: Path, form: str) -> None:
    """Refuses a file whose name or beginning shows another format than `form`.

    Args:
      form: one of `choices.TEXT_FORMATS`.

    Raises:
      ConfigError: as `formats.refuse`.
    """
    head = files.head(path)
    detected = formats.detect(path, head)
    if detected and detected.name == "JSON" and form != "jsonl":
        raise ConfigError(f"{path}: this is JSON; to read one object per line, use "
                          "--input_format=jsonl")  # fmt: skip
    formats.refuse(path, head, ("JSON", "|||"))


def _record(line: str, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: {quoted(line)} is not a JSON object (in braces)")
    return record


def _sentences(lines: Iterable[str], place: str) -> Iterator[Item]:
    block: list[str] = []
    first = 1
    for number, line in enumerate(lines, 1):
        block.append(line.removesuffix("\r"))
        if not line.strip():
            yield _sentence(block, f"{place}{first}")
            block, first = [], number + 1
    if block:
        yield _sentence(block, f"{place}{first}")


def _sentence(lines: list[str], place: str) -> Item:
    """Reads a sentence of CoNLL, with words in the first column.

    In CoNLL-U's ten columns they are in the second; multiword tokens and empty nodes are skipped.
    """
    words: list[str] = []
    where: list[int] = []
    for index, line in enumerate(lines):
        fields = line.split("\t") if "\t" in line else line.split()
        is_comment = not words and COMMENT.match(line) is not None
        if not line.strip() or is_comment or line.startswith("-DOCSTART-"):
            continue
        has_ids = len(fields) == 10 and re.fullmatch(r"\d+([-.]\d+)?", fields[0]) is not None
        if has_ids and not fields[0].isdecimal():
            continue
        word = fields[int(has_ids)].strip()
        if not word:
            raise ConfigError(f"{place}: line {index + 1} of the sentence has no word")
        words.append(word)
        where.append(index)
    example = Words(tuple(words), None, place) if words else None
    return Item(example, tuple(lines), tuple(where))


def _to_tsv(kind: TaskKind, item: Item, description: Record | None) -> str:
    return "\t".join(kind.to_fields(description) if description else [""]) + "\n"


def _to_jsonl(kind: TaskKind, item: Item, description: Record | None) -> str:
    named = {} if item.identity is None or description is None else {"id": item.identity}
    return json.dumps(named | description if description else None, ensure_ascii=False) + "\n"


def _to_conll(kind: TaskKind, item: Item, description: Record | None) -> str:
    tags = description["tags"] if description else []
    if item.lines:
        tag_of = dict(zip(item.words, tags, strict=True))
        lines = list(item.lines)
        words = description["words"] if description else []
        for index, word in zip(item.words, words, strict=True):
            lines[index] = f"{word}\t{tag_of[index]}"
        return "".join(f"{line}\n" for line in lines)
    words = description["words"] if description else []
    return "".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True)) + "\n"


WRITERS: dict[str, Callable[[TaskKind, Item, Record | None], str]] = {
    "tsv": _to_tsv,
    "jsonl": _to_jsonl,
    "conll": _to_conll,
}
"""Functions that format an item and its description, by format (`choices.LABEL_FORMATS`)."""


def check_formats(kind: TaskKind, read_as: str, written_as: str) -> None:
    """Refuses CoNLL for tasks without words, and one line per sentence for input in CoNLL."""
    if "conll" in (read_as, written_as) and kind.example is not Words:
        raise ConfigError(f"CoNLL has one word per line, but {kind.name} does not label words")
    if read_as == "conll" and written_as == "tsv":
        raise ConfigError(
            "--output_format=tsv has one line per sentence; for CoNLL input use conll or jsonl"
        )
