"""Finds chunks of tagged words, by the lenient definition of CoNLL that seqeval uses."""

from collections.abc import Sequence
from typing import NamedTuple

CHUNK_TAG = r"O|[BIES]-\S+"
"""Regular expression that matches a whole chunk tag, such as `B-PER`."""


class Chunk(NamedTuple):
    """A chunk of a kind, such as PER: the words [start, end), with zero-based indices."""

    kind: str
    start: int
    end: int


def find_chunks(tags: Sequence[str], raw: bool = False) -> list[Chunk]:
    """Finds the chunks of a sentence, in order.

    A tag is `O` (outside of chunks), or a prefix and a kind, such as `B-PER`. The prefix is B, I, E
    or S. A chunk begins at a word with the prefix B or S, at a word after E, S or O, and at a word
    whose kind differs from the previous kind. A chunk may thus begin with I. A chunk ends before
    the next chunk and before O.

    Args:
      tags: the tag of each word; no tag is empty.
      raw: whether the tags have no prefix, such as parts of speech. The whole tag is then the kind
        (only the part after the last hyphen, if the tag has hyphens), and neighbours with equal
        kinds form one chunk. The first letter still acts as a prefix, as in XTREME's seqeval
        0.0.12, so each SCONJ and SYM is a separate chunk. (Later versions of seqeval remove this
        letter from the kind, and so confuse CCONJ with SCONJ.)
    """
    chunks: list[Chunk] = []
    previous_prefix, previous_kind = "O", ""
    for index, tag in enumerate(tags):
        kind = tag.rpartition("-")[2] if raw else tag[1:].split("-", 1)[-1]
        prefix = tag[0]
        begins = prefix in "BS" or previous_prefix in "ESO" or kind != previous_kind
        if prefix != "O" and begins:
            chunks.append(Chunk(kind, index, index + 1))
        elif prefix != "O":
            chunks[-1] = chunks[-1]._replace(end=index + 1)
        previous_prefix, previous_kind = prefix, kind
    return chunks
