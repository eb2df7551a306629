"""Reads new text for prediction, and formats the labelled text."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import conll, records
from xlj.data.labelled.examples import Example, Words
from xlj.data.labelled.kind import TaskKind
from xlj.io import columns, files, formats
from xlj.io.json_file import Record
from xlj.io.malformed import Malformed, Skipping
from xlj.io.quoting import quoted

_ENDINGS = {
    "jsonl": (".jsonl", ".ndjson"),
    "conll": (".conll", ".conllu", ".conllup", ".iob", ".iob2", ".bio"),
}
"""Endings of the names of files, without the ending of a compressed file, by input format."""
_HEADER = Malformed(
    "header of a table",
    " is the header of a table, not text; remove it, for example with tail -n +2 (text that looks "
    "like a header can be read with --input_format=jsonl)",
)


class Item(NamedTuple):
    """A line of text, or a sentence of CoNLL.

    Attributes:
      example: the example; None for a blank line.
      before: the lines before a sentence of CoNLL (`conll.Block`).
      is_ended: whether a blank line follows the sentence in CoNLL.
      identity: the `id` of a JSON object; None if the object has none.
    """

    example: Example | None
    before: tuple[str, ...] = ()
    is_ended: bool = True
    identity: Any = None


def find_format(paths: Sequence[Path]) -> str:
    """Returns the format that the names of files show, one of `choices.TEXT_FORMATS`.

    Raises:
      ConfigError: if the names show several formats.
    """
    names = {path: formats.strip_compression(path.name.lower()) for path in paths}
    found = {
        next((form for form, ends in _ENDINGS.items() if name.endswith(ends)), "text"): path
        for path, name in names.items()
    }
    if len(found) > 1:
        listed = ", ".join(f"{path} ({form})" for form, path in found.items())
        raise ConfigError(f"--input has several formats: {listed}; set --input_format")
    return next(iter(found), "text")


def read(
    form: str,
    lines: Iterable[str],
    place: str,
    kind: TaskKind,
    skipping: Skipping,
    column: str = "",
) -> Iterator[Item]:
    """Reads items from lines. All lines of CoNLL are read before the first item.

    Args:
      form: the format of the lines, one of `choices.TEXT_FORMATS`.
      place: the text before the line number in errors, such as `FILE:`.
      kind: the kind of task for which examples are made.
      skipping: the policy for the header of a table.
      column: the column of words in CoNLL (`conll.read_words`).

    Raises:
      ConfigError: if a line is malformed, does not fit the kind of task, or has another number of
        texts than earlier lines. The message names the line.
    """
    first: Example | None = None
    if form == "conll":
        for block in conll.read_words(lines, place, column):
            yield Item(block.example, block.before, block.is_ended)
        return
    for number, line in enumerate(lines, 1):
        line_place = f"{place}{number}"
        line = line.removesuffix("\r")
        if form == "text" and number == 1 and records.is_header(line.split("\t")):
            skipping.skip(_HEADER, f"{line_place}: the line")
            line = ""
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
    """Refuses a file whose name or beginning shows that it does not have the format `form`, and
    text with a first column of ids.

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
    if form == "text":
        columns.refuse_ids(columns.first_lines(path), path)


def _parse_record(line: str, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: {quoted(line)}; expected a JSON object in braces")
    return record


def _to_tsv(kind: TaskKind, item: Item, description: Record | None) -> str:
    return "\t".join(kind.to_fields(description) if description else [""]) + "\n"


def _to_jsonl(kind: TaskKind, item: Item, description: Record | None) -> str:
    id_entry = {} if item.identity is None or description is None else {"id": item.identity}
    return json.dumps(id_entry | description if description else None, ensure_ascii=False) + "\n"


def _to_conll(kind: TaskKind, item: Item, description: Record | None) -> str:
    """Returns lines that `conll.read` reads: a comment without a tab cannot be a word."""
    lines = [line.replace("\t", " ") for line in item.before]
    if item.example and description:
        for word, tag in zip(description["words"], description["tags"], strict=True):
            if not {*"\t\n"}.isdisjoint(word):
                raise ConfigError(
                    f"{item.example.where}: {quoted(word)} contains a tab or a line feed, which a "
                    "word of CoNLL cannot contain; set --output_format=jsonl"
                )
            lines.append(f"{word}\t{tag}")
    return "".join(f"{line}\n" for line in [*lines, *[""] * item.is_ended])


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
