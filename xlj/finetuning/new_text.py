"""Reads new text for prediction, and formats the labelled text."""

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
    """A line of text, or a sentence of CoNLL with the following blank line.

    Attributes:
      example: the example; None for a blank line.
      lines: the original lines of a sentence of CoNLL; empty for other formats.
      words: for each word of the sentence, the index of its line in `lines`; empty for other
        formats.
      identity: the `id` of a JSON object; None if the object has none.
    """

    example: Example | None
    lines: tuple[str, ...] = ()
    words: tuple[int, ...] = ()
    identity: Any = None


def read(form: str, lines: Iterable[str], place: str, kind: TaskKind) -> Iterator[Item]:
    """Reads items from lines.

    Args:
      form: the format of the lines, one of `choices.TEXT_FORMATS`.
      place: the text before the line number in errors, such as `FILE:`.
      kind: the kind of task for which examples are made.

    Raises:
      ConfigError: if a line is malformed, does not fit the kind of task, or has another number of
        texts than earlier lines. The message names the line.
    """
    first: Example | None = None
    if form == "conll":
        yield from _read_conll(lines, place)
        return
    for number, line in enumerate(lines, 1):
        line_place = f"{place}{number}"
        line = line.removesuffix("\r")
        if not line.strip():
            yield Item(None)
            continue
        if form == "jsonl":
            record = _parse_record(line, line_place)
            item = Item(kind.from_record(record, line_place), identity=record.get("id"))
        else:
            item = Item(kind.from_fields(line.split("\t"), line_place))
        first = first or item.example
        if first and item.example and first.text_count != item.example.text_count:
            raise ConfigError(
                f"{line_place}: the line has another number of texts ({item.example.text_count}) "
                f"than {first.where} ({first.text_count}); expected the same number on all lines"
            )
        yield item


def refuse(path: Path, form: str) -> None:
    """Refuses a file whose name or beginning shows that it does not have the format `form`.

    Args:
      form: one of `choices.TEXT_FORMATS`.

    Raises:
      ConfigError: if the file has another format.
    """
    head = files.head(path)
    detected = formats.detect(path, head)
    if detected and detected.name == "JSON" and form != "jsonl":
        raise ConfigError(f"{path}: this is JSON; to read one object per line, use "
                          "--input_format=jsonl")  # fmt: skip
    formats.refuse(path, head, ("JSON", "|||"))


def _parse_record(line: str, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: {quoted(line)}; expected a JSON object in braces")
    return record


def _read_conll(lines: Iterable[str], place: str) -> Iterator[Item]:
    block: list[str] = []
    first = 1
    for number, line in enumerate(lines, 1):
        block.append(line.removesuffix("\r"))
        if not line.strip():
            yield _make_conll_item(block, f"{place}{first}")
            block, first = [], number + 1
    if block:
        yield _make_conll_item(block, f"{place}{first}")


def _make_conll_item(lines: list[str], place: str) -> Item:
    """Makes an item from the lines of a sentence in CoNLL format.

    Words are in the first column. In CoNLL-U, which has ten columns, words are in the second
    column, and multiword tokens and empty nodes are skipped.
    """
    words: list[str] = []
    word_lines: list[int] = []
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
            raise ConfigError(
                f"{place}: line {index + 1} of the sentence has no word; expected a "
                f"word in column {1 + has_ids}"
            )
        words.append(word)
        word_lines.append(index)
    example = Words(tuple(words), None, place) if words else None
    return Item(example, tuple(lines), tuple(word_lines))


def _to_tsv(kind: TaskKind, item: Item, description: Record | None) -> str:
    return "\t".join(kind.to_fields(description) if description else [""]) + "\n"


def _to_jsonl(kind: TaskKind, item: Item, description: Record | None) -> str:
    id_entry = {} if item.identity is None or description is None else {"id": item.identity}
    return json.dumps(id_entry | description if description else None, ensure_ascii=False) + "\n"


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
"""Functions that format an item with its prediction, by output format (`choices.LABEL_FORMATS`).

They take the kind of task, the item, and the prediction (`TaskKind.describe`; None for a blank
line)."""


def check_formats(kind: TaskKind, input_format: str, output_format: str) -> None:
    """Checks that the input format and the output format fit each other and the kind of task.

    Raises:
      ConfigError: if a format is CoNLL but the task does not label words, or if the input is CoNLL
        and the output is TSV, which has one line per sentence.
    """
    if "conll" in (input_format, output_format) and kind.example is not Words:
        raise ConfigError(
            f"CoNLL has one word per line, but {kind.name} does not label words; set "
            "--input_format and --output_format to tsv or jsonl"
        )
    if input_format == "conll" and output_format == "tsv":
        raise ConfigError(
            "--output_format=tsv has one line per sentence, but CoNLL input has one word per line; "
            "set --output_format to conll or jsonl"
        )
