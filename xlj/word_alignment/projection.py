"""Projection of labels across sentence pairs, through links of words (ours; docs/align.md).

Labels are tags, one a word (parts of speech), or chunks of words (`B-PER I-PER O`), if every tag of
the file is one of chunks.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import conll
from xlj.data.labelled.chunks import CHUNK_TAG, chunks
from xlj.data.labelled.examples import Words
from xlj.io.quoting import quoted
from xlj.word_alignment.aligner import Aligned
from xlj.word_alignment.sentence_pairs import Pair

NO_TAG = "_"
"""The tag of a word that no tagged word is linked to, as in CoNLL-U."""


class Labels(NamedTuple):
    """The labels of one side of sentence pairs."""

    tags: list[tuple[str, ...]]  # of each pair's words; none where that side is empty
    of_source: bool  # whether the source is labelled, so that labels go to the target
    are_chunks: bool


def read(path: Path, pairs: Sequence[Pair]) -> Labels:
    """The labels of a file of words and tags (`conll.read`): a sentence for each pair, in order,
    but for pairs whose labelled side is empty. That side is told by the words; if both sides of all
    pairs are the same, it is the source.

    Raises:
      ConfigError: if the file cannot be read, has no tags, or its words are of neither side.
    """
    sentences = conll.read(path, "", ())
    bare = next((sentence for sentence in sentences if sentence.tags is None), None)
    if bare or not sentences:
        raise ConfigError(
            f"{bare.place if bare else path}: no tags; bring lines `word TAB tag`, with a blank "
            "line after each sentence"
        )
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    wrong = [_misfit(path, side, sentences) for side in sides]
    if all(wrong):
        # The side that fits longer is the one that was meant.
        place, message = max((found for found in wrong if found), key=lambda found: found[0])
        where = f" (at {pairs[place].where})" if place < len(pairs) else ""
        raise ConfigError(f"{message}{where}; the file must have the words of one side")
    of_source = wrong[0] is None
    left = iter(sentences)
    labelled = sides[0 if of_source else 1]
    tags = [next(left).tags or () if words else () for words in labelled]
    return Labels(tags, of_source, _are_chunks(path, {tag for some in tags for tag in some}))


def _are_chunks(path: Path, tags: set[str]) -> bool:
    """Whether tags are of chunks; a `ConfigError` if some are and some are not."""
    of_chunks = {tag for tag in tags if re.fullmatch(CHUNK_TAG, tag)}
    if of_chunks - {"O"} and tags - of_chunks:
        other, one = min(tags - of_chunks), min(of_chunks - {"O"})
        raise ConfigError(
            f"{path}: the tag {quoted(other)} is neither O nor one such as B-PER, though there is "
            f"{quoted(one)}"
        )
    return tags == of_chunks


def _misfit(
    path: Path, sides: Sequence[Sequence[str]], sentences: Sequence[Words]
) -> tuple[int, str] | None:
    """The index of the first pair whose words are not those of its sentence, and what is wrong."""
    left = iter(sentences)
    for index, words in enumerate(sides):
        if not words:
            continue
        sentence = next(left, None)
        if sentence is None:
            count = len(sentences)
            return index, f"{path}: {count} sentences, fewer than there are pairs"
        if list(sentence.words) != list(words):
            text = quoted(" ".join(sentence.words))
            return index, f"{sentence.place}: {text} are not the words {quoted(' '.join(words))}"
    more = next(left, None)
    if more:
        return len(sides), f"{more.place}: a sentence more than there are pairs"
    return None


class Projection:
    """Projects labels, pair by pair.

    Attributes:
      counts: so far, by name, as `report` tells them.
    """

    def __init__(self, labels: Labels):
        self._labels = labels
        self.counts: Counter[str] = Counter()

    def tags(self, index: int, pair: Pair, aligned: Aligned) -> tuple[Sequence[str], list[str]]:
        """The words of the other side of the pair with this index, and their tags."""
        links, words = aligned.links, pair.target
        if not self._labels.of_source:
            links, words = links[:, ::-1], pair.source
        project = project_chunks if self._labels.are_chunks else project_tags
        scored = [(i, j, c) for (i, j), c in zip(links.tolist(), aligned.confidences, strict=True)]
        return words, project(self._labels.tags[index], scored, len(words), self.counts)

    def report(self) -> str:
        """What was projected, and what was not, in a line."""
        found, counts = self.counts, "chunks" if self._labels.are_chunks else "words"
        if self._labels.are_chunks:
            return (
                f"projected {found['projected']} of {found['labelled']} {counts}: "
                f"{found['unlinked']} had no link, {found['lost']} lost all their words to others; "
                f"{found['contested']} words were linked to several chunks, {found['filled']} "
                f"chunks had gaps that were filled, {found['cut']} were cut at another chunk"
            )
        return (
            f"tagged {found['projected']} of {found['labelled']} {counts}: {found['unlinked']} had "
            f"no link, {found['contested']} were linked to words of different tags"
        )


_Links = Sequence[tuple[int, int, float]]  # (labelled word, other word, confidence)


def project_tags(tags: Sequence[str], links: _Links, size: int, counts: Counter[str]) -> list[str]:
    """The tags of the `size` words of the other side: each takes that of the word of its most
    confident link, the first among equals; a word without a link has `NO_TAG`.

    Args:
      counts: labelled, projected, unlinked and contested words of the other side are added.
    """
    best: dict[int, tuple[float, str]] = {}
    seen: dict[int, set[str]] = {}
    for i, j, confidence in links:
        seen.setdefault(j, set()).add(tags[i])
        if j not in best or confidence > best[j][0]:
            best[j] = confidence, tags[i]
    counts["labelled"] += size
    counts["projected"] += len(best)
    counts["unlinked"] += size - len(best)
    counts["contested"] += sum(len(kinds) > 1 for kinds in seen.values())
    return [best[j][1] if j in best else NO_TAG for j in range(size)]


def project_chunks(
    tags: Sequence[str], links: _Links, size: int, counts: Counter[str]
) -> list[str]:
    """The tags (B, I, O) of the `size` words of the other side. A word belongs to the chunk of its
    most confident link to a chunk, the first among equals. A chunk reaches from the first to the
    last of its words; where words of another chunk lie between, it is cut there, and the part is
    kept whose links are most confident in sum, the first among equals.

    Args:
      counts: labelled, projected, unlinked, lost, filled and cut chunks are added, and contested
        words, which have links to several chunks.
    """
    found = chunks(tags)
    chunk_at = {i: k for k, chunk in enumerate(found) for i in range(chunk.start, chunk.end)}
    best: dict[int, tuple[float, int]] = {}
    seen: dict[int, set[int]] = {}
    for i, j, confidence in links:
        if i not in chunk_at:
            continue
        seen.setdefault(j, set()).add(chunk_at[i])
        if j not in best or confidence > best[j][0]:
            best[j] = confidence, chunk_at[i]
    linked = set().union(*seen.values())
    projected = ["O"] * size
    owned = {j: k for j, (_, k) in best.items()}
    for k in sorted(set(owned.values())):
        runs = _runs(k, owned)
        run = max(runs, key=lambda words: sum(best[j][0] for j in words))
        counts["cut"] += len(runs) > 1
        counts["filled"] += run[-1] - run[0] >= len(run)
        kind = found[k].kind
        projected[run[0] : run[-1] + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (run[-1] - run[0])
    counts["labelled"] += len(found)
    counts["projected"] += len(set(owned.values()))
    counts["unlinked"] += len(found) - len(linked)
    counts["lost"] += len(linked) - len(set(owned.values()))
    counts["contested"] += sum(len(kinds) > 1 for kinds in seen.values())
    return projected


def _runs(chunk: int, owned: dict[int, int]) -> list[list[int]]:
    """The words of a chunk, in order, divided where words of other chunks lie between."""
    runs = itertools.groupby(sorted(owned), lambda j: owned[j] == chunk)
    return [list(run) for is_of_chunk, run in runs if is_of_chunk]
