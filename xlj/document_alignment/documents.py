"""Reads documents: sentences line by line, or paragraphs that are split into sentences."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.text.splitting import split
from xlj.io.columns import RANGE, open_lines
from xlj.io.malformed import Skipping
from xlj.retrieval.sentence_files import add_id, split_ids


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
    with_paragraphs: bool = False,
    skipping: Skipping | None = None,
) -> Document:
    """Reads a document.

    A blank line is a break: no block has sentences from both sides of it. A line `<range>` has no
    sentence, and is no break.

    Args:
      columns: see `columns.open_lines`, with ids.
      with_paragraphs: whether a line is a paragraph, to be split into sentences.

    Raises:
      ConfigError: if the file cannot be read, has no sentence or has another format, lines have
        different columns, or an id occurs twice.
    """
    layout, lines = open_lines(path, columns, skipping, with_ids=True)
    texts, numbers, ids, starts = list[str](), list[int](), list[str](), list[int]()
    places: dict[str, str] = {}
    start = 0
    for number, line in enumerate(lines, int(layout.has_header)):
        if not line.strip():
            start = len(texts)
            continue
        *names, text = split_ids(layout, line, f"{path}:{number + 1}")
        if text == RANGE:
            continue
        if names:
            add_id(places, names[0], path, number + 1)
        for sentence in split(text) if with_paragraphs else [text]:
            numbers.append(len(texts) if with_paragraphs else number)
            texts.append(sentence)
            ids += names
            starts.append(start)
    if not texts:
        raise ConfigError(f"{path} has no sentence; expected one sentence or paragraph per line")
    return Document(texts, numbers, ids, np.array(starts, np.int64))
