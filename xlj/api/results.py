"""Results of API calls, with drawings for notebooks and tables for pandas."""

import dataclasses
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xlj.config import ConfigError
from xlj.data.text.splitting import join
from xlj.document_alignment import page as document_page
from xlj.document_alignment import pair_formats, report
from xlj.document_alignment.pair_formats import Aligned
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.retrieval.mining import PairIndices
from xlj.retrieval.search import Nearest
from xlj.word_alignment.page import Page
from xlj.word_alignment.sentence_pairs import Pair

if TYPE_CHECKING:  # types only: results of the ONNX backend need no JAX
    import pandas

    from xlj.word_alignment.aligner import Aligner


@dataclasses.dataclass(frozen=True)
class Drawing:
    """An HTML page that notebooks display. `save` writes the page to a file.

    Attributes:
      page: the HTML of the whole page, which needs no other file.
      height: height of the page's frame in a notebook, in pixels.
    """

    page: str = dataclasses.field(repr=False)
    height: int = 600

    def save(self, file: str | Path) -> None:
        """Writes the page."""
        atomic.write(Path(file), self.page.encode())

    def _repr_html_(self) -> str:
        content = html.escape(self.page, quote=True)
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe srcdoc="{content}" style="{style}"></iframe>'


class Alignments(list[list[tuple[int, int]]]):
    """The sorted links of each pair.

    A link (i, j) links word i of the first sentence to word j of the second sentence; words are
    zero-based. Notebooks display the links as a drawing.

    Args:
      pairs: the sentence pairs to align.
      aligner: the aligner, for exactly one layer.
    """

    def __init__(self, pairs: Sequence[Pair], aligner: "Aligner"):
        self._pairs, self._aligner = pairs, aligner
        super().__init__(
            [(i, j) for i, j in links[0].tolist()] for links in aligner.align(iter(pairs))
        )

    def plot(self) -> Drawing:
        """Draws the words of each pair and the links between the words.

        Thicker links have a higher confidence. This method aligns the pairs again to compute the
        confidences.
        """
        file = io.BytesIO()
        with Page(file, f"{len(self._pairs):,} pairs", {}, False) as page:
            scored = self._aligner.scored(iter(self._pairs))
            for pair, (aligned,) in zip(self._pairs, scored, strict=True):
                page.add(pair, aligned)
        return Drawing(file.getvalue().decode(), min(600, 200 + 120 * len(self._pairs)))

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per link.

        The columns `pair`, `i` and `j` are zero-based indices of the pair, the first and the second
        word. The columns `source` and `target` are the two words.
        """
        rows = [
            (number, i, j, pair.source[i], pair.target[j])
            for number, (pair, links) in enumerate(zip(self._pairs, self, strict=True))
            for i, j in links
        ]
        return frame(rows, "pair", "i", "j", "source", "target")

    def _repr_html_(self) -> str:
        return self.plot()._repr_html_()


class Labels(list[Record | None]):
    """The predictions of a fine-tuned model, one object per text; None for a blank text."""

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per text, and one column per key of the first object."""
        return frame([one or {} for one in self], *next(filter(None, self), ()))


class MinedPairs(PairIndices):
    """Mined pairs, and the sentences of both sides."""

    sentences: tuple[Sequence[str], Sequence[str]]

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per pair, best first: source, target and score."""
        first, second = self.sentences
        retrieved = zip(
            self.sources.tolist(), self.targets.tolist(), self.scores.tolist(), strict=True
        )
        rows = [(first[i], second[j], score) for i, j, score in retrieved]
        return frame(rows, "source", "target", "score")


class SentencePair(NamedTuple):
    """A pair of an alignment of documents.

    Attributes:
      source, target: zero-based numbers of one to four texts of each side; with paragraphs, of the
        sentences.
      confidence: from 0 to 1. 0.99 for a pair as good as the median of the document, 0.5 for a pair
        that is as likely random as a translation.
    """

    source: list[int]
    target: list[int]
    confidence: float


class AlignedDocuments(list[SentencePair]):
    """The pairs of two aligned documents in order. Notebooks display both documents side by side.

    Attributes:
      texts: (source, target) of each pair. Several sentences of a side are joined.
      report: the confidence of the alignment, the shares of the kinds of pairs, gaps, the number of
        pairs below the threshold, and the pairs with the lowest confidence.

    Args:
      aligned: the documents, and all steps of their alignment.
      threshold: minimum confidence of a pair.
    """

    def __init__(self, aligned: Aligned, threshold: float):
        self._aligned = aligned
        self.report: Record = report.summarise([aligned], threshold)
        selected = pair_formats.select(aligned, threshold)
        sides = (selected.sides(pair) for pair in selected.pairs)
        self.texts = [(join(source), join(target)) for source, target in sides]
        super().__init__(
            SentencePair(*selected.numbers(pair), pair.confidence) for pair in selected.pairs
        )

    def plot(self) -> Drawing:
        """Draws the page of `xlj.align_documents --html`, which also has the sentences without a
        counterpart and the pairs below the threshold."""
        file = io.BytesIO()
        document_page.write(file, "Two documents", [self._aligned], self.report)
        return Drawing(file.getvalue().decode())

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per pair: source, target, confidence, source_lines and
        target_lines."""
        rows = [(*texts, pair[2], *pair[:2]) for texts, pair in zip(self.texts, self, strict=True)]
        return frame(rows, "source", "target", "confidence", "source_lines", "target_lines")

    def _repr_html_(self) -> str:
        return self.plot()._repr_html_()


class Retrieved(Nearest):
    """The indices and similarities of the nearest sentences, and the sentences of both sides."""

    sentences: tuple[Sequence[str], Sequence[str]]

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per source sentence: source, nearest target and score."""
        first, second = self.sentences
        nearest = zip(self.targets.indices[:, 0].tolist(), self.targets.scores[:, 0], strict=True)
        rows = [(first[i], second[j], float(score)) for i, (j, score) in enumerate(nearest)]
        return frame(rows, "source", "target", "score")


def frame(rows: Sequence[tuple | Mapping], *columns: str) -> "pandas.DataFrame":
    """Returns a table of these rows.

    Raises:
      ConfigError: if pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ConfigError("to_pandas needs pandas: pip install pandas") from None
    return pandas.DataFrame(rows, columns=list(columns) or None)
