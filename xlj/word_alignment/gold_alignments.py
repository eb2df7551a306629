"""Gold word alignments in the two formats that they come in."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.alignment_math import error_rate
from xlj.alignment_math.error_rate import Link, Scores
from xlj.config import ConfigError
from xlj.io import files
from xlj.io.quoting import quoted
from xlj.word_alignment.words import SPLITS


class Gold(NamedTuple):
    """Links of one sentence pair, words from 0. A sure link is possible too, listed or not."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    nulls: int = 0  # links to NULL, which are left out


def parse(text: str, where: str, first: int = 0) -> Gold:
    """The links of one line, `i-j` (sure) or `ipj` (possible); a ConfigError that begins with
    `where` if one is written otherwise.

    A link outside the sentences is kept: no prediction can meet it, and it counts as missed.

    Args:
      first: the number of the first word, 0 or 1; then 0 is NULL, whose links are left out.
    """
    links: list[tuple[Link, bool]] = []
    for item in SPLITS["spaces"](text):
        found = re.fullmatch(r"(-?\d{1,9})([-p])(-?\d{1,9})", item)
        if not found:
            raise ConfigError(
                f"{where}: {quoted(item)} is no link; write i-j (sure) or ipj (possible)"
            )
        links.append(((int(found[1]), int(found[3])), found[2] == "-"))
    return _gold(links, first)


def _gold(links: Sequence[tuple[Link, bool]], first: int) -> Gold:
    """Of links and whether each is sure. Links to NULL, the position before the first of 1, are
    left out, as in the scores without NULL of the WPT shared tasks."""
    kept = [(link, is_sure) for link, is_sure in links if not first or all(link)]
    sure, possible = (
        frozenset((i - first, j - first) for (i, j), is_sure in kept if is_sure == wanted)
        for wanted in (True, False)
    )
    return Gold(sure, possible, len(links) - len(kept))


def read(path: Path, first: int | None = None) -> list[Gold]:
    """The gold alignments of a file, in the order of the sentence pairs.

    Either a line a sentence pair, as `parse` reads it, or the format of the WPT shared tasks
    (NAACL, `alignv2.txt`): a line a link, `id source target [S|P] [confidence]`, S if the flag is
    missing; the confidence is not read. There, the ids are names, not line numbers: the first id
    that appears belongs to the first sentence pair, and so on.

    Args:
      first: as of `parse`; None: 0 of a line a sentence pair, 1 of a line a link.

    Raises:
      ConfigError: if the file cannot be read or a line is malformed.
    """
    lines = list(files.lines(path))
    start = next((line for line in lines if line.strip()), "")
    if not start or re.match(r"\s*-?\d+[-p]", start):
        return [parse(line, f"{path}:{n}", first or 0) for n, line in enumerate(lines, 1)]
    return _alignv2(path, lines, 1 if first is None else first)


def score(links: Sequence[np.ndarray], golds: Sequence[Gold]) -> Scores:
    """Alignment error rate and the rest of the links of all pairs, each int [links, 2]."""
    return error_rate.score(
        [[(i, j) for i, j in found.tolist()] for found in links],
        [gold.sure for gold in golds],
        [gold.possible for gold in golds],
    )


def _alignv2(path: Path, lines: list[str], first: int) -> list[Gold]:
    found: dict[str, list[tuple[Link, bool]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = re.fullmatch(
            r"\s*(\S+)\s+(-?\d{1,9})\s+(-?\d{1,9})(?:\s+([SP]))?(?:\s+[\d.]{1,20}(?:[eE]-?\d+)?)?\s*",
            line,
        )
        if not fields:
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is neither `id source target [S|P] "
                "[confidence]`, words from 1, nor a line of links i-j and ipj, words from 0"
            )
        link = int(fields[2]), int(fields[3])
        found.setdefault(fields[1], []).append((link, fields[4] != "P"))
    return [_gold(links, first) for links in found.values()]
