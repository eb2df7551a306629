"""Scores sentence pairs: cosine and likelihood of each pair alone, and margins among all pairs.

Vectors are in memory or on disk. The ratio margin is the cosine of a pair, divided by the mean
cosine of both sentences with their four nearest neighbours on the other side. The neighbours may
include the sentence's partner. Source: Artetxe and Schwenk (2019), "Margin-based parallel corpus
mining", in the form in which LASER scores pairs.

Pairs are read in units of work, from files with a pair per line or from parallel files.
"""

import dataclasses
import hashlib
import itertools
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from xlj.config import ConfigError
from xlj.config.choices import PAIR_SCORES
from xlj.config.fields import check_choice
from xlj.inference.pretrained import Pretrained
from xlj.io import file_ranges, files, formats, storage
from xlj.io.columns import Layout
from xlj.io.file_ranges import FileRange
from xlj.io.malformed import Skipping
from xlj.io.progress import Advance
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.search import NEIGHBOURS, neighbours, ratio_margin
from xlj.word_alignment import sentence_pairs
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.gold_alignments import SPLITS
from xlj.word_alignment.sentence_pairs import Pair, Texts

CHUNK = 65536
"""The number of vectors that are compared at a time."""


class Vectors:
    """Vectors in one or more arrays, read in blocks.

    Args:
      arrays: the arrays, float [n, width] each, such as memory-mapped files.
      columns: the columns of the arrays that contain the vectors.
    """

    def __init__(self, arrays: Sequence[np.ndarray], columns: slice = slice(None)):
        self._arrays, self._columns = arrays, columns

    def blocks(self, indices: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Yields the vectors in order, at most `CHUNK` at a time.

        Args:
          indices: the indices of the vectors to read, int64, ascending; None for all vectors.
        """
        start = 0
        for part in self._arrays:
            if indices is None:
                in_part: np.ndarray | range = range(len(part))
            else:
                first, last = np.searchsorted(indices, (start, start + len(part)))
                in_part = indices[first:last] - start
            for begin in range(0, len(in_part), CHUNK):
                chunk = in_part[begin : begin + CHUNK]
                at = slice(chunk.start, chunk.stop) if isinstance(chunk, range) else chunk
                yield np.asarray(part[at][:, self._columns])
            start += len(part)


def pair_cosines(source: Vectors, target: Vectors) -> np.ndarray:
    """Computes the cosine of each pair, float32 [pairs]; NaN if a vector is zero.

    Source and target must have arrays of the same lengths.
    """
    blocks = [np.zeros(0, np.float32)]
    for source_block, target_block in zip(source.blocks(), target.blocks(), strict=True):
        lengths = np.linalg.norm(source_block, axis=1) * np.linalg.norm(target_block, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            blocks.append(
                (np.einsum("nd,nd->n", source_block, target_block) / lengths).astype(np.float32)
            )
    return np.concatenate(blocks)


def densities(queries: Vectors, keys: Vectors, indices: np.ndarray) -> np.ndarray:
    """Computes the mean cosine of each query with the four nearest keys, float32 [queries].

    The search is exact: it computes all cosines, block by block.

    Args:
      indices: the indices of the keys to search, int64, ascending. They should contain each
        distinct sentence once.
    """
    means = [np.zeros(0, np.float32)]
    for block in queries.blocks():
        best = np.zeros((len(block), 0), np.float32)
        for key_block in keys.blocks(indices):
            scores = neighbours(block, key_block, NEIGHBOURS).scores
            best = -np.sort(-np.concatenate([best, scores], 1), axis=1)[:, :NEIGHBOURS]
        means.append(best.mean(1) if best.size else np.zeros(len(block), np.float32))
    return np.concatenate(means)


def ratio(source: Vectors, target: Vectors, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Computes the ratio margin of each pair, float32 [pairs]; NaN if a vector is zero.

    Args:
      sources, targets: the index of the first occurrence of each distinct sentence, int64,
        ascending. Only these sentences are neighbours. Otherwise the nearest neighbours of a
        sentence could be copies of one sentence.
    """
    source_densities = densities(source, target, targets)
    target_densities = densities(target, source, sources)
    return ratio_margin(pair_cosines(source, target), source_densities, target_densities)


_CHUNK = 4096  # how many pairs are scored at a time


class TextPair(NamedTuple):
    """The sentences of a pair, stripped of surrounding whitespace, and the original line."""

    source: str
    target: str
    line: str

    @property
    def is_whole(self) -> bool:
        """Whether both sentences are non-empty. Other pairs have the score NaN."""
        return bool(self.source and self.target)

    @property
    def is_copy(self) -> bool:
        """Whether the sentences are the same (`is_copy`), so the pair is no translation."""
        return self.is_whole and is_copy(self.source, self.target)


def is_copy(source: str, target: str) -> bool:
    """Whether two sentences are equal; case and spaces do not matter."""
    return source.casefold().split() == target.casefold().split()


def vectors(
    pairs: Iterable[TextPair], embedder: Embedder, progress: Advance = bool
) -> Iterator[np.ndarray]:
    """Yields the vectors of pairs in order. Memory does not grow with the number of pairs.

    Args:
      progress: called with the number of newly embedded pairs.

    Yields:
      float32 [n, 2 width] for the next n pairs: the vector of the source, then the vector of the
      target. Both are zero if a sentence of the pair is empty.
    """
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        whole = [place for place, pair in enumerate(chunk) if pair.is_whole]
        both = np.zeros((len(chunk), 2 * embedder.width), np.float32)
        for side in range(2):
            texts = [chunk[place][side] for place in whole]
            done = 0
            columns = slice(side * embedder.width, (side + 1) * embedder.width)
            for block in embedder.stream(texts):
                both[whole[done : done + block.shape[1]], columns] = block[0]
                done += block.shape[1]
        progress(len(chunk))
        yield both


class PairScorer:
    """Scores sentence pairs.

    Args:
      pretrained: the encoder, on any mesh.
      by: the kind of score, one of `choices.PAIR_SCORES`.
      layer: the layer to use. None for the default: the layer of sentence vectors, or the layer of
        the model's word alignment for likelihoods.
      pooling, prompt: the arguments of `Embedder`; None for likelihoods.

    Attributes:
      embedder: computes the sentence vectors; None for likelihoods.

    Raises:
      ConfigError: if the score, layer, pooling or prompt does not exist, pooling or prompt are set
        for likelihoods, or the model lacks the head for likelihoods.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        by: str,
        layer: int | None = None,
        pooling: str | None = None,
        prompt: str | None = None,
    ):
        check_choice("by", by, PAIR_SCORES)
        depth = pretrained.model.layers
        layers = () if layer is None else (layer,)
        self.embedder: Embedder | None = None
        if by == "likelihood":
            for name, value in (("pooling", pooling), ("prompt", prompt)):
                if value is not None:
                    raise ConfigError(
                        f"{name}={value} has no effect with by=likelihood, which uses vectors of "
                        f"tokens; remove {name}"
                    )
            options = dataclasses.replace(pretrained.alignment, method="hmm", encode="apart")
            if layer is not None and not 0 <= layer <= depth:
                raise ConfigError(
                    f"layer {layer} does not exist; the model has layers 0 to {depth}"
                )
            self._aligner = Aligner(pretrained, options, layers)
        else:
            self.embedder = Embedder(pretrained, layers, pooling, prompt=prompt)

    def columns(self, pairs: Iterable[TextPair], progress: Advance = bool) -> Iterator[np.ndarray]:
        """Yields the cosines or likelihoods of pairs in order.

        Memory does not grow with the number of pairs.

        Args:
          progress: called with the number of newly scored pairs.

        Yields:
          float32 [n, 1] for the next n pairs; `NO_SCORE` if a sentence is empty, or has the zero
          vector.
        """
        if self.embedder:
            for both in vectors(pairs, self.embedder, progress):
                cosines = pair_cosines(*sides_of([both], self.embedder.width))
                yield np.where(np.isnan(cosines), NO_SCORE, cosines)[:, None]
            return
        words = SPLITS["spaces"]
        split = (Pair(p.line[:80], words(p.source), words(p.target)) for p in pairs)
        scores = self._aligner.likelihoods(split, progress)
        while chunk := list(itertools.islice(scores, _CHUNK)):
            yield np.nan_to_num(np.array(chunk, np.float32), nan=float(NO_SCORE))[:, None]

    def scores(self, pairs: Sequence[TextPair], by: str, progress: Advance = bool) -> np.ndarray:
        """Returns the scores of all pairs, float32 [pairs]; NaN if a sentence is empty.

        Args:
          by: the kind of score. It must equal the argument of the constructor.
          progress: called with the number of newly scored pairs.
        """
        if by == "margin" and self.embedder:
            arrays = list(vectors(pairs, self.embedder, progress))
            return margins_of(pairs, arrays, self.embedder.width)
        return join([column[:, 0] for column in self.columns(pairs, progress)])

    def report(self) -> None:
        """Prints the number of truncated sentences to standard error, if there are any."""
        if self.embedder and self.embedder.truncated:
            print(
                "sentences too long for the model, which were truncated: "
                f"{self.embedder.truncated}",
                file=sys.stderr,
            )


NO_SCORE = np.float32(-1e30)
"""The value in files for a missing score."""


def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates the scores of all arrays to float32 [pairs], with NaN instead of `NO_SCORE`."""
    scores = np.concatenate([np.zeros(0, np.float32), *arrays])
    return np.where(scores <= NO_SCORE, np.float32(np.nan), scores)


def sides_of(arrays: Sequence[np.ndarray], width: int) -> tuple[Vectors, Vectors]:
    """Returns (vectors of the sources, vectors of the targets) from arrays that `vectors` yields.

    Args:
      width: the size of a sentence vector.
    """
    return Vectors(arrays, slice(width)), Vectors(arrays, slice(width, 2 * width))


class FirstOccurrences:
    """Collects the indices of the first occurrence of each distinct sentence of one side.

    Sentences are compared by a 64-bit hash, which needs 8 bytes for each pair.
    """

    def __init__(self) -> None:
        self._hashes: list[np.ndarray] = []
        self._whole: list[np.ndarray] = []

    def add(self, texts: Sequence[str], whole: Sequence[bool]) -> None:
        """Adds sentences.

        Args:
          whole: whether the pair of each sentence is whole (`TextPair.is_whole`). Sentences of
            other pairs are ignored.
        """
        digests = b"".join(hashlib.blake2b(t.encode(), digest_size=8).digest() for t in texts)
        self._hashes.append(np.frombuffer(digests, "<u8"))
        self._whole.append(np.asarray(whole, bool))

    def indices(self) -> np.ndarray:
        """Returns the indices of the first occurrences among all sentences, int64, in order."""
        if not self._hashes:
            return np.zeros(0, np.int64)
        hashes, indices = np.concatenate(self._hashes), np.flatnonzero(np.concatenate(self._whole))
        first = np.unique(hashes[indices], return_index=True)[1]
        result: np.ndarray = np.sort(indices[first])
        return result


def margins_of(pairs: Iterable[TextPair], arrays: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Computes the ratio margin of each pair, float32 [pairs], with neighbours among all pairs.

    Args:
      arrays: the vectors of the pairs, from `vectors`.
      width: the size of a sentence vector.
    """
    distinct, rest = (FirstOccurrences(), FirstOccurrences()), iter(pairs)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        whole = [pair.is_whole for pair in chunk]
        for side, occurrences in enumerate(distinct):
            occurrences.add([pair[side] for pair in chunk], whole)
    source, target = sides_of(arrays, width)
    return ratio(source, target, *(occurrences.indices() for occurrences in distinct))


def select_best(scores: np.ndarray, share: float | None, threshold: float | None) -> np.ndarray:
    """Selects the best pairs.

    Pairs without a score are not selected. Ties go to the first pairs.

    Args:
      scores: float32 [pairs]; NaN for no score.
      share: the maximum share of all pairs to select; None for no limit.
      threshold: the minimum score; None for no limit.

    Returns:
      bool [pairs], whether each pair is selected.
    """
    has_score = ~np.isnan(scores)
    selected = has_score if threshold is None else has_score & (np.nan_to_num(scores) >= threshold)
    if share is not None:
        order = np.argsort(np.where(selected, -scores, np.inf), kind="stable")
        first = order[: round(share * len(scores))]
        is_first = np.zeros_like(selected)
        is_first[first] = True
        selected = selected & is_first
    return selected


class Unit(Protocol):
    """A unit of work: pairs that one process scores at a time."""

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs in order. A malformed pair that is skipped becomes two empty
        sentences."""

    def as_json(self) -> dict[str, str | int]:
        """Returns a JSON object that identifies the pairs: files, and the range of lines."""


class LinesUnit:
    """A unit of work: a range of a file with one pair per line.

    Args:
      layout: the columns of the file (`sentence_pairs.find_layout`).
    """

    def __init__(self, file_range: FileRange, layout: Layout):
        self._range, self._layout = file_range, layout

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs (`sentence_pairs.of_lines`). A blank line has two empty sentences."""
        lines, is_start = self._range.lines(skipping), not self._range.start
        return map(
            _text_pair,
            sentence_pairs.of_lines(lines, self._range.place, self._layout, skipping, is_start),
        )

    def as_json(self) -> dict[str, str | int]:
        """Returns the range of the file as a JSON object."""
        return self._range.as_json()


class FilesUnit:
    """A unit of work: all pairs of two parallel files, or of a file of records.

    Args:
      paths: the files.
      columns: see `sentence_pairs.Form`.
    """

    def __init__(self, paths: tuple[Path, ...], columns: Sequence[str] = ()):
        self._paths, self._columns = paths, columns

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs.

        Raises:
          ConfigError: if a file cannot be read, or two files have different numbers of lines.
        """
        if len(self._paths) == 2:
            texts = sentence_pairs.of_two_files(*self._paths, skipping)
        else:
            texts = sentence_pairs.read_texts(self._paths[0], 2, skipping, self._columns)
        return map(_text_pair, texts)

    def as_json(self) -> dict[str, str | int]:
        """Returns the paths of the files as a JSON object."""
        return dict(zip(("source", "target"), map(str, self._paths), strict=False))


def _text_pair(pair: Texts) -> TextPair:
    return TextPair(pair.texts[0].strip(), pair.texts[1].strip(), pair.line)


def find_files(
    pairs: Path | None, source: Path | None, target: Path | None, folder: Path | None
) -> list[tuple[Path, ...]]:
    """Returns the input files: tuples (file,) for --input, or (source file, target file).

    Args:
      pairs: the value of --input; `-` or None for standard input.
      source, target: the values of --source and --target.
      folder: the folder into which standard input or a pipe is copied, because input is read more
        than once. With None, such input is an error.

    Raises:
      ConfigError: if a file does not exist, or --source and --target have different numbers of
        files.
    """
    if pairs and sentence_pairs.is_two_files(pairs):
        source, target = (Path(side) for side in str(pairs).split("|", 1))
    if source and target:
        sides = [
            file_ranges.files_of_flag("source", source),
            file_ranges.files_of_flag("target", target),
        ]
        if len(sides[0]) != len(sides[1]):
            raise ConfigError(
                f"--source={source} has {len(sides[0])} files, but --target={target} has "
                f"{len(sides[1])}; expected equal numbers"
            )
        result: list[tuple[Path, ...]] = list(zip(*sides, strict=True))
    elif pairs is None or files.is_stream(pairs):
        if folder is None:
            raise ConfigError("--shard cannot split standard input or a pipe; set --input to files")
        copy = folder / "input"
        with copy.open("wb") as file:
            if pairs is None or str(pairs) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with pairs.open("rb") as stream:
                    shutil.copyfileobj(stream, file)
        result = [(copy,)]
    else:
        result = [(path,) for path in file_ranges.files_of_flag("input", pairs)]
    for path in itertools.chain(*result):
        if not path.is_file():
            hint = storage.what_is_there(path)
            raise ConfigError(f"{path} does not exist; expected a file with sentence pairs{hint}")
        formats.refuse(
            path, files.head(path), ("|||", *sentence_pairs.RECORDS) if not source else ()
        )
    return result


def split_units(
    files_of_pairs: Sequence[tuple[Path, ...]], columns: Sequence[str] = ()
) -> list[Unit]:
    """Returns the units of work for the files from `find_files`, in order.

    Args:
      columns: see `sentence_pairs.Form`.
    """
    result: list[Unit] = []
    for paths in files_of_pairs:
        if len(paths) == 2 or sentence_pairs.format_of(paths[0]) in sentence_pairs.RECORDS:
            result.append(FilesUnit(paths, columns))
        else:
            layout = sentence_pairs.find_layout(paths[0], columns=columns)
            ranges = file_ranges.split_files([paths[0]], file_ranges.RANGE_BYTES)
            result += [LinesUnit(part, layout) for part in ranges]
    return result
