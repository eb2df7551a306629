"""Reads gold word alignments in their two common formats, and scores links against them.

The scores are alignment error rate, precision, recall and F1. Also splits tokenised text into
words.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import files
from xlj.io.quoting import quoted

Link = tuple[int, int]
"""A link: (index of the source word, index of the target word), zero-based."""


class AlignmentScores(NamedTuple):
    """Scores between 0 and 1. A score that would be 0 divided by 0 is 0."""

    aer: float
    precision: float
    recall: float
    f1: float


def link_counts(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> np.ndarray:
    """Counts the links of each sentence pair.

    Let A be the predicted links, S the sure gold links, and P the possible gold links, which
    include S. As in XLM-Align's released scorer, |S| includes gold links that no prediction can
    match, such as links outside a sentence. Repeated links of a pair count once.

    Args:
      predicted, sure, possible: the links of each sentence pair. `possible` need not repeat the
        sure links.

    Returns:
      |A|, |S|, |A & P| and |A & S| of each pair, int64 [pairs, 4].

    Raises:
      ValueError: if the arguments have different lengths.
    """
    counts = []
    for of_pair, sure_links, possible_links in zip(predicted, sure, possible, strict=True):
        links, all_sure = set(of_pair), set(sure_links)
        in_possible = links & (all_sure | set(possible_links))
        counts.append([len(links), len(all_sure), len(in_possible), len(links & all_sure)])
    return np.array(counts, np.int64).reshape(-1, 4)


def from_counts(
    links: float, all_sure: float, in_possible: float, in_sure: float
) -> AlignmentScores:
    """Computes scores from the sums of the columns of `link_counts` (Och and Ney, 2003).

    - AER = 1 - (|A & P| + |A & S|) / (|A| + |S|)
    - precision = |A & P| / |A|
    - recall = |A & S| / |S|
    - F1 is the harmonic mean of precision and recall.
    """
    precision, recall = _ratio(in_possible, links), _ratio(in_sure, all_sure)
    return AlignmentScores(
        aer=_ratio(links + all_sure - in_possible - in_sure, links + all_sure),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * precision * recall, precision + recall),
    )


def error_rates(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> AlignmentScores:
    """Scores the links of a set of sentence pairs; the arguments and errors of `link_counts`."""
    return from_counts(*link_counts(predicted, sure, possible).sum(0).tolist())


def _ratio(part: float, whole: float) -> float:
    """Returns part / whole, or 0 if `whole` is 0."""
    return part / whole if whole else 0.0


class Gold(NamedTuple):
    """The gold links of one sentence pair, as zero-based indices of words.

    Attributes:
      sure: the sure links.
      possible: links that are possible but not sure. (Sure links count as possible too.)
      nulls: the number of links to NULL, which are left out.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]
    nulls: int = 0


def parse(text: str, where: str, first: int = 0) -> Gold:
    """Parses the links of one line: `i-j` (sure) or `ipj` (possible).

    Links outside the sentences are not removed. No prediction can match such links, so they count
    as missed.

    Args:
      where: the place of the line, for errors.
      first: the index that the file gives to the first word, 0 or 1. With 1, index 0 is NULL, and
        links to NULL are left out.

    Raises:
      ConfigError: if a link is malformed.
    """
    links: list[tuple[Link, bool]] = []
    for item in SPLITS["spaces"](text):
        match = re.fullmatch(r"(-?\d{1,9})([-p])(-?\d{1,9})", item)
        if not match:
            raise ConfigError(
                f"{where}: {quoted(item)} is not a link; expected i-j (sure) or ipj (possible)"
            )
        links.append(((int(match[1]), int(match[3])), match[2] == "-"))
    return _make_gold(links, first)


def _make_gold(links: Sequence[tuple[Link, bool]], first: int) -> Gold:
    """Makes gold links.

    If words count from 1, links to NULL (word 0) are left out. The WPT shared tasks also report
    scores without such links.

    Args:
      links: (link, whether it is sure).
      first: the index of the first word in `links`, 0 or 1.
    """
    without_null = [(link, is_sure) for link, is_sure in links if not first or all(link)]
    sure, possible = (
        frozenset((i - first, j - first) for (i, j), is_sure in without_null if is_sure == selected)
        for selected in (True, False)
    )
    return Gold(sure, possible, len(links) - len(without_null))


def read(path: Path, first: int | None = None) -> list[Gold]:
    """Reads the gold alignments of a file, in the order of the sentence pairs.

    The file has one of two formats:

    - one line per sentence pair (see `parse`);
    - the format of the WPT shared tasks (NAACL, `alignv2.txt`): one line per link,
      `id source target [S|P] [confidence]`. Links without a flag are sure. The confidence is
      ignored. Ids are names, not line numbers: the first id in the file belongs to the first
      sentence pair, the second id to the second pair, and so on.

    Args:
      first: the index of the first word, 0 or 1 (see `parse`). None means 0 for one line per
        sentence pair, and 1 for one line per link.

    Raises:
      ConfigError: if the file cannot be read or a line is malformed.
    """
    lines = list(files.lines(path))
    start = next((line for line in lines if line.strip()), "")
    if not start or re.match(r"\s*-?\d+[-p]", start):
        return [parse(line, f"{path}:{n}", first or 0) for n, line in enumerate(lines, 1)]
    return _parse_alignv2(path, lines, 1 if first is None else first)


def count(links: Sequence[np.ndarray], golds: Sequence[Gold]) -> np.ndarray:
    """Counts the links of each pair, int64 [pairs, 4] (`link_counts`).

    Args:
      links: the predicted links of each pair, int [links, 2], zero-based.
      golds: the gold links of each pair.
    """
    return link_counts(
        [[(i, j) for i, j in of_pair.tolist()] for of_pair in links],
        [gold.sure for gold in golds],
        [gold.possible for gold in golds],
    )


def score(links: Sequence[np.ndarray], golds: Sequence[Gold]) -> AlignmentScores:
    """Computes alignment error rate, precision, recall and F1 over the links of all pairs.

    The arguments are those of `count`.
    """
    return from_counts(*count(links, golds).sum(0).tolist())


def _parse_alignv2(path: Path, lines: list[str], first: int) -> list[Gold]:
    by_id: dict[str, list[tuple[Link, bool]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = re.fullmatch(
            r"\s*(\S+)\s+(-?\d{1,9})\s+(-?\d{1,9})(?:\s+([SP]))?(?:\s+[\d.]{1,20}(?:[eE]-?\d+)?)?\s*",
            line,
        )
        if not fields:
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is not a link; expected `id source target [S|P] "
                "[confidence]` with words counted from 1, or links i-j and ipj with words counted "
                "from 0"
            )
        link = int(fields[2]), int(fields[3])
        by_id.setdefault(fields[1], []).append((link, fields[4] != "P"))
    return [_make_gold(links, first) for links in by_id.values()]


SPLITS: dict[str, Callable[[str], list[str]]] = {
    "spaces": lambda text: re.findall(r"[^ \t\r\n]+", text),
    "whitespace": str.split,
}
"""Functions that split a sentence into words, by name.

`spaces` splits at ASCII spaces, tabs and line ends, as fast_align and eflomal do, so a word may
contain a NO-BREAK SPACE. `whitespace` splits at all Unicode whitespace, as Python's `str.split`,
SimAlign and awesome-align do."""
