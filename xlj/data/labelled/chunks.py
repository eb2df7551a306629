"""Chunks of tagged words: CoNLL's definition, leniently, as seqeval has it."""

from collections.abc import Sequence
from typing import NamedTuple

CHUNK_TAG = r"O|[BIES]-\S+"
"""A tag of chunks, as a regular expression."""


class Chunk(NamedTuple):
    """The words from `start` to before `end`, from 0, and what they are."""

    kind: str
    start: int
    end: int


def chunks(tags: Sequence[str], raw: bool = False) -> list[Chunk]:
    """The chunks of a sentence, in order.

    A tag is `O`, or one of the letters B, I, E, S and a kind: `B-PER`. A chunk begins at B and S,
    after E, S and O, and where the kind changes; so `I-PER` may begin one. It ends before the next
    one and before O.

    Args:
      tags: of each word; none is empty.
      raw: tags have no prefix, as parts of speech: the tag is the kind, and equal neighbours are
        one chunk. XTREME's seqeval 0.0.12 still reads the first letter as a prefix: so each SCONJ
        and SYM is a chunk of its own. (Later versions cut that letter off the kind, and take CCONJ
        for SCONJ.)
    """
    found: list[Chunk] = []
    before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        kind = tag.rpartition("-")[2] if raw else tag[1:].split("-", 1)[-1]
        prefix = tag[0]
        begins = prefix in "BS" or before in "ESO" or kind != kind_before
        if prefix != "O" and begins:
            found.append(Chunk(kind, place, place + 1))
        elif prefix != "O":
            found[-1] = found[-1]._replace(end=place + 1)
        before, kind_before = prefix, kind
    return found
