"""Reads documents: sentences line by line, or paragraphs that are split into sentences."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.io.columns import RANGE, open_lines
from xlj.io.malformed import Skipping
from xlj.io.quoting import quoted
from xlj.retrieval.sentence_files import add_id, split_ids

Splitter = Callable[[str], Iterable[str]]
"""A function that splits a paragraph into sentences."""


@dataclasses.dataclass(frozen=True)
class Document:
    """The sentences of a document.

    Attributes:
      texts: the sentences.
      numbers: the zero-based number of each sentence: of its line in the file or, for paragraphs,
        among the sentences.
      ids: the id of each sentence; empty if the file has no ids.
      starts: int64 [sentences], the first sentence since the last blank line.
    """

    texts: list[str]
    numbers: list[int]
    ids: list[str]
    starts: np.ndarray

    def numbers_of(self, sentences: range) -> list[int]:
        """Returns the numbers of sentences."""
        return [self.numbers[k] for k in sentences]

    def ids_of(self, sentences: range) -> list[str]:
        """Returns the ids of sentences; an empty list if there are no ids."""
        return [self.ids[k] for k in sentences] if self.ids else []


def read(
    path: Path,
    columns: Sequence[str] = (),
    splitter: Splitter | None = None,
    skipping: Skipping | None = None,
) -> Document:
    """Reads a document.

    A blank line is a break: no block has sentences from both sides of it. A line `<range>` has no
    sentence, and is no break.

    Args:
      columns: see `columns.open_lines`, with ids.
      splitter: splits a line, which is a paragraph. None: a line is a sentence.

    Raises:
      ConfigError: if the file cannot be read, has no sentence or has another format, lines have
        different columns, an id occurs twice, or the splitter fails.
    """
    layout, lines = open_lines(path, columns, skipping, with_ids=True)

    def rows() -> Iterator[tuple[int, list[str], str]]:
        places: dict[str, str] = {}
        for number, line in enumerate(lines, int(layout.has_header)):
            if not line.strip():
                yield number, [], ""
                continue
            *names, text = split_ids(layout, line, f"{path}:{number + 1}")
            if text != RANGE:
                if names:
                    add_id(places, names[0], path, number + 1)
                yield number, names, text

    return _document(rows(), splitter, str(path))


def of_texts(texts: Iterable[str], splitter: Splitter | None, place: str) -> Document:
    """Returns the document of a list of sentences or paragraphs. A blank text is a break.

    Args:
      splitter: splits each text, which is a paragraph. None: a text is a sentence.
      place: the name of the list, for errors.

    Raises:
      ConfigError: if there is no sentence, or the splitter fails.
    """
    return _document(((k, [], text.strip()) for k, text in enumerate(texts)), splitter, place)


def _document(
    rows: Iterable[tuple[int, list[str], str]], splitter: Splitter | None, place: str
) -> Document:
    """Returns the document of rows (number, ids, text); a blank text is a break."""
    texts, numbers, ids, starts = list[str](), list[int](), list[str](), list[int]()
    start = 0
    for number, names, text in rows:
        if not text:
            start = len(texts)
            continue
        for sentence in _split(splitter, text, f"{place}:{number + 1}") if splitter else [text]:
            numbers.append(len(texts) if splitter else number)
            texts.append(sentence)
            ids += names
            starts.append(start)
    if not texts:
        raise ConfigError(f"{place} has no sentence; expected one sentence or paragraph per line")
    return Document(texts, numbers, ids, np.array(starts, np.int64))


def _split(splitter: Splitter, text: str, place: str) -> list[str]:
    """Returns the sentences of a paragraph without blank sentences and spaces at their ends."""
    name = f"{splitter.__module__}:{getattr(splitter, '__qualname__', splitter)}"
    try:
        result = splitter(text)
        sentences = [result] if isinstance(result, str) else list(result)
    except Exception as error:  # any error of the user's function
        raise ConfigError(
            f"{place}: the splitter {name} failed: {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        ) from error
    for sentence in sentences:
        if not isinstance(sentence, str):
            raise ConfigError(
                f"{place}: the splitter {name} returned {quoted(sentence)}; expected a list of "
                "strings"
            )
    return [sentence.strip() for sentence in sentences if sentence.strip()]
