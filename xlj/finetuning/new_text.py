"""New text to be labelled, line by line, and the lines that labels are written as."""

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
    """A line of text, or, of CoNLL, a sentence and the blank line behind it.

    Attributes:
      example: None of a blank line.
      lines: as they came in, of CoNLL only.
      words: which of the lines are words.
      identity: the `id` of a JSON object, if it has one.
    """

    example: Example | None
    lines: tuple[str, ...] = ()
    words: tuple[int, ...] = ()
    identity: Any = None


def read(form: str, lines: Iterable[str], place: str, kind: TaskKind) -> Iterator[Item]:
    """The items of lines.

    Args:
      form: one of `choices.TEXT_FORMATS`.
      place: what names a line, before its number.

    Raises:
      ConfigError: if a line does not fit the kind of task, or has another number of texts than
        those before; with its place.
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
                f"{where}: texts in this line: {item.example.parts}, but in {first.where}: "
                f"{first.parts}; each line must have as many"
            )
        yield item


def refuse(path: Path, form: str) -> None:
    """Refuses a file whose name or beginning is of another format than `form`, one of
    `choices.TEXT_FORMATS`; raises as `formats.refuse`."""
    head = files.head(path)
    found = formats.of(path, head)
    if found and found.name == "JSON" and form != "jsonl":
        raise ConfigError(f"{path}: this is JSON; read objects, one a line, with "
                          "--input_format=jsonl")  # fmt: skip
    formats.refuse(path, head, ("JSON", "|||"))


def _record(line: str, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: it is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: {quoted(line)} is no JSON object, in braces")
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
    """A sentence of CoNLL: the word is the first column, or the second of CoNLL-U's ten, of which
    multiword tokens and empty nodes are no words."""
    words: list[str] = []
    where: list[int] = []
    for index, line in enumerate(lines):
        fields = line.split("\t") if "\t" in line else line.split()
        is_comment = not words and COMMENT.match(line) is not None
        if not line.strip() or is_comment or line.startswith("-DOCSTART-"):
            continue
        of_ids = len(fields) == 10 and re.fullmatch(r"\d+([-.]\d+)?", fields[0]) is not None
        if of_ids and not fields[0].isdecimal():
            continue
        word = fields[int(of_ids)].strip()
        if not word:
            raise ConfigError(f"{place}: line {index + 1} of the sentence has no word")
        words.append(word)
        where.append(index)
    example = Words(tuple(words), None, place) if words else None
    return Item(example, tuple(lines), tuple(where))


def _to_tsv(kind: TaskKind, item: Item, described: Record | None) -> str:
    return "\t".join(kind.to_fields(described) if described else [""]) + "\n"


def _to_jsonl(kind: TaskKind, item: Item, described: Record | None) -> str:
    named = {} if item.identity is None or described is None else {"id": item.identity}
    return json.dumps(named | described if described else None, ensure_ascii=False) + "\n"


def _to_conll(kind: TaskKind, item: Item, described: Record | None) -> str:
    tags = described["tags"] if described else []
    if item.lines:
        tag_of = dict(zip(item.words, tags, strict=True))
        lines = list(item.lines)
        for index, word in zip(item.words, described["words"] if described else [], strict=True):
            lines[index] = f"{word}\t{tag_of[index]}"
        return "".join(f"{line}\n" for line in lines)
    words = described["words"] if described else []
    return "".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True)) + "\n"


WRITERS: dict[str, Callable[[TaskKind, Item, Record | None], str]] = {
    "tsv": _to_tsv,
    "jsonl": _to_jsonl,
    "conll": _to_conll,
}
"""What writes an item with what the model says of it, by format: one of `choices.LABEL_FORMATS`."""


def check_formats(kind: TaskKind, read_as: str, written_as: str) -> None:
    """Refuses CoNLL where no words are labelled, and a line a sentence of lines that are words."""
    if "conll" in (read_as, written_as) and kind.example is not Words:
        raise ConfigError(f"CoNLL has a word a line, and {kind.name} does not label words")
    if read_as == "conll" and written_as == "tsv":
        raise ConfigError(
            "--output_format=tsv has a line a sentence; of CoNLL choose conll or jsonl"
        )
