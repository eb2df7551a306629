"""Projects labels from one side of sentence pairs to the other side along word links (ours; see
docs/align.md).

Labels are chunks of words if all tags of the file have the form of chunk tags (`B-PER I-PER O`).
Otherwise each word has a separate tag, such as a part of speech.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import conll
from xlj.data.labelled.conll import CHUNK_TAG, find_chunks
from xlj.data.labelled.examples import Words
from xlj.io.quoting import quoted
from xlj.word_alignment.aligner import PairLinks
from xlj.word_alignment.sentence_pairs import Pair

NO_TAG = "_"
"""The tag of a word without a link to a tagged word, as in CoNLL-U."""


class Labels(NamedTuple):
    """The labels of one side of sentence pairs.

    Attributes:
      tags: the tags of each pair's words; empty for an empty sentence.
      of_source: whether the source is labelled. Labels are then projected to the target, otherwise
        from the target to the source.
      are_chunks: whether the tags are chunk tags.
    """

    tags: list[tuple[str, ...]]
    of_source: bool
    are_chunks: bool


def read(path: Path, pairs: Sequence[Pair]) -> Labels:
    """Reads labels from a file with words and tags (`conll.read`).

    The file has one sentence per pair, in the order of the pairs, and no sentence for a pair whose
    labelled side is empty. The words in the file determine the labelled side. If both sides of all
    pairs are equal, the source is the labelled side.

    Raises:
      ConfigError: if the file cannot be read, has no tags, mixes chunk tags and other tags, or has
        the words of neither side.
    """
    sentences = conll.read(path, "", ())
    untagged = next((sentence for sentence in sentences if sentence.tags is None), None)
    if untagged or not sentences:
        raise ConfigError(
            f"{untagged.place if untagged else path}: no tags; expected lines `word TAB tag` and a "
            "blank line after each sentence"
        )
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    mismatches = [_first_mismatch(path, side, sentences) for side in sides]
    if all(mismatches):
        # The user probably meant the side whose first mismatch comes later.
        place, message = max(filter(None, mismatches), key=lambda mismatch: mismatch[0])
        where = f" (at {pairs[place].where})" if place < len(pairs) else ""
        raise ConfigError(f"{message}{where}; the file must have the words of one side")
    of_source = mismatches[0] is None
    remaining = iter(sentences)
    labelled = sides[0 if of_source else 1]
    tags = [next(remaining).tags or () if words else () for words in labelled]
    return Labels(tags, of_source, _are_chunks(path, {tag for of_pair in tags for tag in of_pair}))


def _are_chunks(path: Path, tags: set[str]) -> bool:
    """Returns whether all tags are chunk tags.

    Raises:
      ConfigError: if some tags are chunk tags and others are not.
    """
    of_chunks = {tag for tag in tags if re.fullmatch(CHUNK_TAG, tag)}
    if of_chunks - {"O"} and tags - of_chunks:
        other_tag, chunk_tag = min(tags - of_chunks), min(of_chunks - {"O"})
        raise ConfigError(
            f"{path}: {quoted(chunk_tag)} is a chunk tag, but {quoted(other_tag)} is not; expected "
            "chunk tags only (O, B-PER, ...), or no chunk tags"
        )
    return tags == of_chunks


def _first_mismatch(
    path: Path, sides: Sequence[Sequence[str]], sentences: Sequence[Words]
) -> tuple[int, str] | None:
    """Finds the first pair whose words differ from the file's sentence.

    Args:
      sides: the words of all sources, or of all targets.
      sentences: the sentences of the file.

    Returns:
      The index of the pair and a message, or None if all pairs match.
    """
    remaining = iter(sentences)
    for index, words in enumerate(sides):
        if not words:
            continue
        sentence = next(remaining, None)
        if sentence is None:
            return index, f"{path} has only {len(sentences)} sentences, fewer than there are pairs"
        if list(sentence.words) != list(words):
            text = quoted(" ".join(sentence.words))
            expected = quoted(" ".join(words))
            return index, f"{sentence.place}: the words are {text}, expected {expected}"
    extra = next(remaining, None)
    if extra:
        return len(sides), f"{extra.place}: the file has more sentences than there are pairs"
    return None


class Projection:
    """Projects labels, one pair at a time.

    Attributes:
      counts: the counts so far, which `report` prints.
    """

    def __init__(self, labels: Labels):
        self._labels = labels
        self.counts: Counter[str] = Counter()

    def tags(
        self, index: int, pair: Pair, pair_links: PairLinks
    ) -> tuple[Sequence[str], list[str]]:
        """Projects the labels of a pair.

        Args:
          index: the index of the pair in the argument `pairs` of `read`.

        Returns:
          The words of the unlabelled sentence, and the projected tags.
        """
        links, words = pair_links.links, pair.target
        if not self._labels.of_source:
            links, words = links[:, ::-1], pair.source
        project = project_chunks if self._labels.are_chunks else project_tags
        scored = [
            (i, j, c) for (i, j), c in zip(links.tolist(), pair_links.confidences, strict=True)
        ]
        return words, project(self._labels.tags[index], scored, len(words), self.counts)

    def report(self) -> str:
        """Returns a printable line about the projected labels."""
        counts = self.counts
        if self._labels.are_chunks:
            return (
                f"projected {counts['projected']} of {counts['labelled']} chunks: "
                f"{counts['unlinked']} had no link, {counts['lost']} lost all their words to other "
                f"chunks; {counts['contested']} words were linked to several chunks, gaps were "
                f"filled in {counts['filled']} chunks, {counts['cut']} chunks were cut at another "
                "chunk"
            )
        return (
            f"tagged {counts['projected']} of {counts['labelled']} words: {counts['unlinked']} had "
            f"no link, {counts['contested']} were linked to words with different tags"
        )


_Links = Sequence[tuple[int, int, float]]  # (labelled word, other word, confidence)


def project_tags(tags: Sequence[str], links: _Links, size: int, counts: Counter[str]) -> list[str]:
    """Projects tags to the `size` words of the other side.

    A word gets the tag of its most confident link; among equal confidences, of the first link. A
    word without a link gets `NO_TAG`.

    Args:
      tags: the tags of the labelled words.
      counts: is updated with the numbers of words of the other side (`labelled`), of words that get
        a tag (`projected`), of words without a link (`unlinked`), and of words with links to
        different tags (`contested`).
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
    """Projects chunks (tags B, I, O) to the `size` words of the other side.

    A word belongs to the chunk of its most confident link to a chunk; among equal confidences, of
    the first link. The projected chunk reaches from its first to its last word, so gaps are filled.
    If words of another chunk are in between, the chunk is cut there. Then only the part with the
    largest sum of confidences is projected; among equal sums, the first part.

    Args:
      tags: the tags of the labelled words.
      counts: is updated with the numbers of chunks (`labelled`), of projected, unlinked, lost,
        filled and cut chunks (`report` describes them), and of words with links to several chunks
        (`contested`).
    """
    source_chunks = find_chunks(tags)
    chunk_at = {
        i: k for k, chunk in enumerate(source_chunks) for i in range(chunk.start, chunk.end)
    }
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
        runs = _find_runs(k, owned)
        run = max(runs, key=lambda words: sum(best[j][0] for j in words))
        counts["cut"] += len(runs) > 1
        counts["filled"] += run[-1] - run[0] >= len(run)
        kind = source_chunks[k].kind
        projected[run[0] : run[-1] + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (run[-1] - run[0])
    counts["labelled"] += len(source_chunks)
    counts["projected"] += len(set(owned.values()))
    counts["unlinked"] += len(source_chunks) - len(linked)
    counts["lost"] += len(linked) - len(set(owned.values()))
    counts["contested"] += sum(len(kinds) > 1 for kinds in seen.values())
    return projected


def _find_runs(chunk: int, owned: dict[int, int]) -> list[list[int]]:
    """Returns the words of a chunk in order, as runs without words of other chunks in between."""
    runs = itertools.groupby(sorted(owned), lambda j: owned[j] == chunk)
    return [list(run) for is_of_chunk, run in runs if is_of_chunk]
