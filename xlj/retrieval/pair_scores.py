"""Scores of sentence pairs: what is computed of pairs as they come, and of all of them."""

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.choices import PAIR_SCORES, check_choice
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance
from xlj.retrieval import margins
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.margins import Vectors
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair
from xlj.word_alignment.words import SPLITS

_CHUNK = 4096  # pairs at a time


class TextPair(NamedTuple):
    """The sentences of a pair, without white space around, and its line as it came in."""

    source: str
    target: str
    line: str

    @property
    def is_whole(self) -> bool:
        """Whether neither sentence is empty: of others the score is NaN."""
        return bool(self.source and self.target)


def vectors(
    pairs: Iterable[TextPair], embedder: Embedder, progress: Advance = bool
) -> Iterator[np.ndarray]:
    """The vectors of both sentences of pairs, side by side: float32 [some pairs, 2 width], zero of
    pairs that are not whole. In order and bounded memory."""
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        whole = [place for place, pair in enumerate(chunk) if pair.is_whole]
        found = np.zeros((len(chunk), 2 * embedder.width), np.float32)
        for side in range(2):
            texts = [chunk[place][side] for place in whole]
            done = 0
            columns = slice(side * embedder.width, (side + 1) * embedder.width)
            for made in embedder.stream(texts):
                found[whole[done : done + made.shape[1]], columns] = made[0]
                done += made.shape[1]
        progress(len(chunk))
        yield found


class PairScorer:
    """Scores pairs as they come, by cosine or by likelihood; of margins, makes their vectors.

    Args:
      pretrained: the encoder, on any mesh.
      by: one of `choices.PAIR_SCORES`.
      layer: whose vectors are compared; None for that of sentence vectors, or for likelihoods that
        of the model's own alignment.
      pooling, prompt: of sentence vectors, as of `Embedder`.

    Raises:
      ConfigError: if there is no such score, layer, pooling or prompt, likelihoods are to have one
        of the last two, or the model lacks what it needs.
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
                        f"{name}={value} is of sentence vectors, and by=likelihood reads those of "
                        f"tokens; leave {name} out"
                    )
            options = dataclasses.replace(pretrained.alignment, method="hmm", encode="apart")
            if layer is not None and not 0 <= layer <= depth:
                raise ConfigError(f"there is no layer {layer}; the model has layers 0 to {depth}")
            self._aligner = Aligner(pretrained, options, layers)
        else:
            self.embedder = Embedder(pretrained, layers, pooling, prompt=prompt)

    def columns(self, pairs: Iterable[TextPair], progress: Advance = bool) -> Iterator[np.ndarray]:
        """The scores of pairs, in order and bounded memory: float32 [some pairs, 1], `NONE` where a
        pair is not whole."""
        if self.embedder:
            for both in vectors(pairs, self.embedder, progress):
                found = margins.cosines(*sides_of([both], self.embedder.width))
                yield np.where(np.isnan(found), NONE, found)[:, None]
            return
        words = SPLITS["spaces"]
        given = (Pair(p.line[:80], words(p.source), words(p.target)) for p in pairs)
        scores = self._aligner.likelihoods(given, progress)
        while chunk := list(itertools.islice(scores, _CHUNK)):
            yield np.nan_to_num(np.array(chunk, np.float32), nan=float(NONE))[:, None]

    def scores(self, pairs: Sequence[TextPair], by: str, progress: Advance = bool) -> np.ndarray:
        """The scores of all of some pairs, float32 [pairs]; NaN where a pair is not whole."""
        if by == "margin" and self.embedder:
            made = list(vectors(pairs, self.embedder, progress))
            return margins_of(pairs, made, self.embedder.width)
        return known([some[:, 0] for some in self.columns(pairs, progress)])

    def report(self) -> None:
        """Says how many sentences lost their end."""
        if self.embedder and self.embedder.cut:
            print(
                f"{self.embedder.cut} sentences lost their end: too long for the model",
                file=sys.stderr,
            )


NONE = np.float32(-1e30)
"""Stands in files for the score of a pair that has none."""


def known(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The scores of parts, float32 [pairs], NaN for `NONE`."""
    scores = np.concatenate([np.zeros(0, np.float32), *parts])
    return np.where(scores <= NONE, np.float32(np.nan), scores)


def sides_of(parts: Sequence[np.ndarray], width: int) -> tuple[Vectors, Vectors]:
    """Both sides of what `vectors` made, in any number of arrays."""
    return Vectors(parts, slice(width)), Vectors(parts, slice(width, 2 * width))


class Distinct:
    """Where each distinct sentence of a side stands first, by a hash of 64 bits each: in memory, 8
    bytes a pair."""

    def __init__(self) -> None:
        self._hashes: list[np.ndarray] = []
        self._whole: list[np.ndarray] = []

    def add(self, texts: Sequence[str], whole: Sequence[bool]) -> None:
        """Adds sentences; those of pairs that are not whole do not count."""
        digests = b"".join(hashlib.blake2b(t.encode(), digest_size=8).digest() for t in texts)
        self._hashes.append(np.frombuffer(digests, "<u8"))
        self._whole.append(np.asarray(whole, bool))

    def places(self) -> np.ndarray:
        """int64, rising."""
        if not self._hashes:
            return np.zeros(0, np.int64)
        hashes, places = np.concatenate(self._hashes), np.flatnonzero(np.concatenate(self._whole))
        first = np.unique(hashes[places], return_index=True)[1]
        found: np.ndarray = np.sort(places[first])
        return found


def margins_of(pairs: Iterable[TextPair], parts: Sequence[np.ndarray], width: int) -> np.ndarray:
    """The ratio margin of each pair, float32 [pairs], with neighbours among all of them.

    Args:
      parts: their vectors, as `vectors` makes them.
    """
    distinct, rest = (Distinct(), Distinct()), iter(pairs)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        whole = [pair.is_whole for pair in chunk]
        for side, of_side in enumerate(distinct):
            of_side.add([pair[side] for pair in chunk], whole)
    source, target = sides_of(parts, width)
    return margins.ratio(source, target, *(of_side.places() for of_side in distinct))


def best(scores: np.ndarray, share: float | None, threshold: float | None) -> np.ndarray:
    """Which pairs are kept, bool [pairs]: those of a score of at least `threshold`; of these the
    best, so many that they are `share` of all. Of equals the first; none without a score."""
    known = ~np.isnan(scores)
    kept = known if threshold is None else known & (np.nan_to_num(scores) >= threshold)
    if share is not None:
        order = np.argsort(np.where(kept, -scores, np.inf), kind="stable")
        first = order[: round(share * len(scores))]
        within = np.zeros_like(kept)
        within[first] = True
        kept = kept & within
    return kept
