"""Sentence pairs of a file, aligned: their links written, and scored against gold ones."""

from collections.abc import Iterator
from typing import BinaryIO

from tqdm import tqdm

from xlj.alignment.error_rate import Scores
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.gold_alignments import Gold
from xlj.word_alignment.sentence_pairs import Pair


def align(
    aligner: Aligner, size: int, pairs: Iterator[Pair], file: BinaryIO | None, scored: bool
) -> list[Scores]:
    """Writes the links of the first layer, a line `i-j i-j ...` a pair; scores those of all.

    Args:
      size: the number of pairs.

    Returns:
      The scores of each layer; none if there is no pair, or it is not asked for.
    """
    golds: list[Gold] = []

    def passing() -> Iterator[Pair]:
        for pair in tqdm(pairs, "aligning", size, unit=" pairs", disable=None):
            if pair.gold:
                golds.append(pair.gold)
            yield pair

    kept = []
    for links in aligner.align(passing()):
        if file:
            file.write(b" ".join(b"%d-%d" % (i, j) for i, j in links[0].tolist()) + b"\n")
        if scored:
            kept.append(links)
    return [gold_alignments.score(of_layer, golds) for of_layer in zip(*kept, strict=True)]
