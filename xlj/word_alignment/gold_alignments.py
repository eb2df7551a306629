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


class Gold(NamedTuple):
    """Links of one sentence pair, words from 0. A sure link is possible too, listed or not."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse(text: str, where: str) -> Gold:
    """The links of one line, `i-j` (sure) or `ipj` (possible), words from 0; a ConfigError that
    begins with `where` if one is written otherwise.

    A link outside the sentences is kept: no prediction can meet it, and it counts as missed.
    """
    links: dict[str, set[Link]] = {"-": set(), "p": set()}
    for item in text.split():
        found = re.fullmatch(r"(-?\d{1,9})([-p])(-?\d{1,9})", item)
        if not found:
            raise ConfigError(
                f"{where}: {quoted(item)} is no link; write i-j (sure) or ipj (possible)"
            )
        links[found[2]].add((int(found[1]), int(found[3])))
    return Gold(*map(frozenset, links.values()))


def read(path: Path) -> list[Gold]:
    """The gold alignments of a file, in the order of the sentence pairs.

    Either a line a sentence pair, as `parse` reads it, or the format of the WPT shared tasks
    (`alignv2.txt`): a line a link, `id source target [S|P]`, words from 1, S if the flag is
    missing. There, the ids are names, not line numbers: the first id that appears belongs to the
    first sentence pair, and so on.

    Raises:
      ConfigError: if the file cannot be read or a line is malformed.
    """
    lines = list(files.lines(path))
    first = next((line for line in lines if line.strip()), "")
    if not first or re.match(r"\s*-?\d+[-p]", first):
        return [parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return _alignv2(path, lines)


def score(links: Sequence[np.ndarray], golds: Sequence[Gold]) -> Scores:
    """Alignment error rate and the rest of the links of all pairs, each int [links, 2]."""
    return error_rate.score(
        [[(i, j) for i, j in found.tolist()] for found in links],
        [gold.sure for gold in golds],
        [gold.possible for gold in golds],
    )


def _alignv2(path: Path, lines: list[str]) -> list[Gold]:
    found: dict[str, tuple[set[Link], set[Link]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = re.fullmatch(r"\s*(\S+)\s+(-?\d{1,9})\s+(-?\d{1,9})(?:\s+([SP]))?\s*", line)
        if not fields:
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is neither `id source target [S|P]`, words from "
                "1, nor a line of links i-j and ipj, words from 0"
            )
        sure, possible = found.setdefault(fields[1], (set(), set()))
        (possible if fields[4] == "P" else sure).add((int(fields[2]) - 1, int(fields[3]) - 1))
    return [Gold(frozenset(sure), frozenset(possible)) for sure, possible in found.values()]
