"""Finds chunks of tagged words, by CoNLL's lenient definition, as in seqeval."""

from collections.abc import Sequence
from typing import NamedTuple

CHUNK_TAG = r"O|[BIES]-\S+"
"""Regular expression of a chunk tag."""


class Chunk(NamedTuple):
    """A chunk of a kind: the words from `start` up to, not including, `end`, from 0."""

    kind: str
    start: int
    end: int


def chunks(tags: Sequence[str], raw: bool = False) -> list[Chunk]:
    """Finds the chunks of a sentence, in order.

    A tag is `O`, or one of the letters B, I, E, S, a hyphen and a kind: `B-PER`. A chunk begins at
    B and S, after E, S and O, and if the kind changes; so `I-PER` may begin one. It ends before the
    next chunk and before O.

    Args:
      tags: the tag of each word; none is empty.
      raw: tags have no prefix, such as parts of speech. The tag is the kind, and equal neighbours
        form one chunk. XTREME's seqeval 0.0.12 still reads the first letter as a prefix, so each
        SCONJ and SYM is a separate chunk. (Later versions remove that letter from the kind, and
        confuse CCONJ and SCONJ.)
    """
    result: list[Chunk] = []
    before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        kind = tag.rpartition("-")[2] if raw else tag[1:].split("-", 1)[-1]
        prefix = tag[0]
        begins = prefix in "BS" or before in "ESO" or kind != kind_before
        if prefix != "O" and begins:
            result.append(Chunk(kind, place, place + 1))
        elif prefix != "O":
            result[-1] = result[-1]._replace(end=place + 1)
        before, kind_before = prefix, kind
    return result
