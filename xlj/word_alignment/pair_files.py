"""A file of sentence pairs as a whole: its links, and their scores against gold ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tqdm import tqdm

from xlj.alignment.error_rate import Scores
from xlj.config import ConfigError
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.gold_alignments import Gold
from xlj.word_alignment.sentence_pairs import Pair


class PairFile(NamedTuple):
    """Sentence pairs, to be read once."""

    size: int
    pairs: Iterator[Pair]
    golds: list[Gold] | None
    """Of each pair, where they are in a file of their own."""


def read(path: Path, gold: str | None) -> PairFile:
    """The pairs of a file, which is read once before any work, so that no error in it comes late.

    Args:
      gold: a file of gold links; empty where the third column has them, None where nothing has.

    Raises:
      ConfigError: if a file cannot be read, is malformed, or has gold of other pairs.
    """
    count, pairs = sentence_pairs.counted(path, with_gold=gold == "")
    golds = gold_alignments.read(Path(gold)) if gold else None
    if golds is not None and len(golds) != count:
        raise ConfigError(
            f"--gold={gold} has links of {len(golds)} sentence pairs, but {path} has {count} pairs"
        )
    return PairFile(count, pairs, golds)


def align(
    aligner: Aligner, found: PairFile, file: BinaryIO | None, scored: bool = False
) -> list[Scores]:
    """Writes the links of the first layer, a line `i-j i-j ...` a pair; scores those of all.

    Returns:
      The scores of each layer; none if there is no gold, or it is not asked for.
    """
    golds: list[Gold] = []

    def passing() -> Iterator[Pair]:
        for pair in tqdm(found.pairs, "aligning", found.size, unit=" pairs", disable=None):
            if pair.gold:
                golds.append(pair.gold)
            yield pair

    kept = []
    for links in aligner.align(passing()):
        if file:
            file.write(b" ".join(b"%d-%d" % (i, j) for i, j in links[0].tolist()) + b"\n")
        if scored:
            kept.append(links)
    golds = golds if found.golds is None else found.golds
    if not golds or not kept:
        return []
    return [
        gold_alignments.score([links[layer] for links in kept], golds)
        for layer in range(len(kept[0]))
    ]
