"""Measures what another way to compute sentence vectors changes: by language, and at worst."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlj.data.rows.report import align_columns
from xlj.io.quoting import shortened
from xlj.retrieval.sentence_embedder import SentenceEmbedder

MAX_LINES = 1000
"""The maximum number of lines of each language that are measured."""

_HEAD = ("text", "lines", "mean cosine", "least cosine")


class OfLanguage(NamedTuple):
    """The cosines of the two vectors of each line of a language.

    Attributes:
      name: of the file.
      cosines: float32 [lines].
      worst: the line with the least cosine.
    """

    name: str
    cosines: np.ndarray
    worst: str


class VectorLoss(NamedTuple):
    """The changes of all languages."""

    languages: tuple[OfLanguage, ...]

    def as_rows(self) -> list[list[str]]:
        """Returns the cells of a table, with a head, in the order of the texts."""
        rows = [[*_HEAD]]
        for name, cosines, _ in self.languages:
            numbers = f"{len(cosines):,}", f"{cosines.mean():.4f}", f"{cosines.min():.4f}"
            rows.append([name, *numbers])
        return rows

    def worst(self) -> str:
        """Returns two sentences that name the worst language and the worst line."""
        language = min(self.languages, key=lambda one: one.cosines.mean())
        line = min(self.languages, key=lambda one: one.cosines.min())
        return (
            f"Worst text: {language.name}, {language.cosines.mean():.4f}. Worst line: "
            f"{line.cosines.min():.4f}, in {line.name}: {shortened(line.worst)}"
        )

    def as_text(self) -> str:
        """Returns the table and the worst cases for a terminal."""
        return "\n".join([*align_columns(self.as_rows()), self.worst()])

    def as_markdown(self) -> str:
        """Returns the table and the worst cases as Markdown."""
        head, *rows = self.as_rows()
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"{table}\n\n{self.worst()}"


def measure(
    exact: SentenceEmbedder, other: SentenceEmbedder, texts: Mapping[str, Sequence[str]]
) -> VectorLoss:
    """Compares the vectors of two embedders, in each language.

    Args:
      texts: the lines of each language, by the name of the file. At most `MAX_LINES` are used.
    """
    languages = []
    for name, lines in texts.items():
        some = lines[:MAX_LINES]
        first, second = (embedder.embed(some)[0] for embedder in (exact, other))
        cosines = cosines_of(first, second)
        languages.append(OfLanguage(name, cosines, some[int(cosines.argmin())]))
    return VectorLoss(tuple(languages))


def cosines_of(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the cosine of each row of one array and the same row of another, float32 [rows]."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    result: np.ndarray = (first * second).sum(1) / np.maximum(norms, 1e-12)
    return result
