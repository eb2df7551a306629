"""Constructs pairs of documents with known alignments, for docs/experiments/documents.md.

    python docs/construct_documents.py DATA/parallel/ntrex/test/en-de.tsv.gz built --plan=trial

There is no human gold here: the command reads lines `source TAB target` in the order of a text,
changes both sides, and records which lines belong together. It writes source.txt, target.txt, and
gold.txt, whose lines `[3, 4] TAB [5]` are zero-based line numbers. The changes are drawn with
--seed. The order of the changes:

- A refrain (a pair) is repeated in both texts, and a header in one text.
- Sentences are dropped from one side: single sentences, gaps of 5 to 200, and a chapter.
- Neighbours of one side are swapped. Their gold is one alignment of two lines with two lines.
- Sentences of one side are split at a comma.
- Neighbours of one side are joined to one line, if no sentence between them was dropped.
- Front matter of another document precedes one side.
"""

import argparse
import dataclasses
import gzip
import itertools
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.data.text.splitting import join

Pairs = Sequence[tuple[str, str]]
Alignment = tuple[list[int], list[int]]
"""Zero-based line numbers of the source and of the target."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is changed.

    Attributes:
      joined: the share of boundaries between neighbours that are removed, on one side each.
      dropped: the share of sentences that are dropped, from one side each.
      split: the share of sentences that are split at a comma, on one side each.
      swapped: the share of sentences that are swapped with the next sentence, on one side each.
      gaps: the number of gaps of 5 to 200 sentences; the sides alternate.
      chapter: the share of the text that is dropped from the target as one gap.
      front: the number of lines of front matter; the source gets the lines.
      refrain: the number of sentences between two refrains, and between two headers; 0 for none.
    """

    joined: float = 0.15
    dropped: float = 0.05
    split: float = 0.0
    swapped: float = 0.0
    gaps: int = 0
    chapter: float = 0.0
    front: int = 0
    refrain: int = 0


PLANS = {
    "trial": Plan(),
    "split": Plan(split=0.1),
    "swapped": Plan(swapped=0.03),
    "gaps": Plan(gaps=4),
    "chapter": Plan(chapter=0.15),
    "front": Plan(front=60),
    "refrain": Plan(refrain=25),
    "hard": Plan(split=0.1, swapped=0.03, gaps=4, chapter=0.1, front=60, refrain=40),
}
LONGEST_GAP, SHORTEST_GAP = 200, 5
_COMMA = re.compile("(?<=[,،、，;；])")


class Line(NamedTuple):
    """A line, and the sentences of the text that it has; none if the line has no translation."""

    text: str
    origins: tuple[int, ...]


class Documents(NamedTuple):
    """Two documents, and the lines that belong together. All other lines have no translation."""

    source: list[str]
    target: list[str]
    gold: list[Alignment]


def construct(pairs: Pairs, plan: Plan, seed: int, front: Sequence[str] = ()) -> Documents:
    """Constructs two documents.

    Args:
      pairs: the translations, in the order of the text.
      seed: of the draws. The draws do not depend on the text, except for splits.
      front: lines of another document in the language of the source.
    """
    draw = random.Random(seed).random  # the only method whose numbers no version of Python changes
    pairs, headers = _with_refrains(pairs, plan)
    sides = [[Line(pair[side], (k,)) for k, pair in enumerate(pairs)] for side in range(2)]
    for number in headers:
        sides[1][number] = sides[1][number]._replace(origins=())
    dropped = _dropped(len(pairs), plan, draw)
    for number in headers:
        dropped[number] = 0
    swaps = [(draw() < plan.swapped, int(2 * draw())) for _ in pairs]
    splits = [(draw() < plan.split, int(2 * draw())) for _ in pairs]
    joins = [(draw() < plan.joined, int(2 * draw())) for _ in pairs]
    lines, together = [], list[tuple[int, ...]]()
    for side, all_lines in enumerate(sides):
        kept = [k for k in range(len(pairs)) if dropped[k] != side]
        swapped = _swap(kept, swaps, side, dropped)
        together += [tuple(sorted(kept_pair)) for kept_pair in swapped]
        for first, second in swapped:
            place = kept.index(first)
            kept[place : place + 2] = second, first
        in_swap = set(itertools.chain.from_iterable(swapped))
        lines.append(_joined(kept, all_lines, splits, joins, side, in_swap))
    matter = [Line(text, ()) for text in front[: plan.front]]
    return _documents(matter + lines[0], lines[1], together)


def _with_refrains(pairs: Pairs, plan: Plan) -> tuple[Pairs, list[int]]:
    """Returns the pairs with refrains and headers, and the indices of the headers."""
    if not plan.refrain:
        return pairs, []
    result, headers = [], []
    for number, pair in enumerate(pairs):
        result.append(pair)
        if number % plan.refrain == plan.refrain - 1:
            result.append(pairs[0])
        if number % plan.refrain == plan.refrain // 2:
            headers.append(len(result))
            result.append(pairs[1])
    return result, headers


def _dropped(count: int, plan: Plan, draw) -> list[int | None]:
    """Returns the side from which each sentence is dropped; None for neither side."""
    dropped: list[int | None] = [
        int(2 * draw()) if is_dropped else None
        for is_dropped in [draw() < plan.dropped for _ in range(count)]
    ]
    part = count // max(1, plan.gaps)
    for gap in range(plan.gaps):
        # The lengths are uniform on a logarithmic scale.
        length = min(part, int(SHORTEST_GAP * (LONGEST_GAP / SHORTEST_GAP) ** draw()))
        start = gap * part + int(draw() * (part - length))
        dropped[start : start + length] = [gap % 2] * length
    chapter = int(plan.chapter * count)
    start = int(draw() * (count - chapter))
    dropped[start : start + chapter] = [1] * chapter
    return dropped


def _swap(kept, swaps, side, dropped) -> list[tuple[int, int]]:
    """Returns the neighbours to swap on this side, which both sides must have."""
    swapped, last = list[tuple[int, int]](), -1
    for a, b in itertools.pairwise(kept):
        is_swap, of_side = swaps[a]
        if is_swap and of_side == side and a > last and dropped[a] is dropped[b] is None:
            swapped.append((a, b))
            last = b
    return swapped


def _joined(kept, lines, splits, joins, side, in_swap) -> list[Line]:
    """Returns the lines of a side after splits and joins."""
    result: list[Line] = []
    for place, k in enumerate(kept):
        line = lines[k]
        is_join, of_side = joins[kept[place - 1]] if place else (False, 0)
        alone = k in in_swap or not line.origins
        if is_join and of_side == side and not alone and kept[place - 1] not in in_swap:
            if result[-1].origins[-1:] == (k - 1,):
                before = result.pop()
                result.append(Line(join([before.text, line.text]), before.origins + line.origins))
                continue
        is_split, of_side = splits[k]
        parts = _split(line.text) if is_split and of_side == side and not alone else [line.text]
        result += [Line(part, line.origins) for part in parts]
    return result


def _split(text: str) -> list[str]:
    """Splits a text at the comma nearest to its middle, if both parts are long enough."""
    places = [match.start() for match in _COMMA.finditer(text)]
    places = [place for place in places if 0.25 * len(text) < place < 0.75 * len(text)]
    if not places:
        return [text]
    place = min(places, key=lambda place: abs(place - len(text) / 2))
    return [text[:place].strip(), text[place:].strip()]


def _documents(source: list[Line], target: list[Line], together) -> Documents:
    """Returns documents whose gold are the connected components of lines that share sentences."""
    parents: dict = {}

    def find(name):
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for a, b in together:
        parents[find(a)] = find(b)
    for side in (source, target):
        for line in side:
            for a, b in itertools.pairwise(line.origins):
                parents[find(a)] = find(b)
    components: dict = defaultdict(lambda: ([], []))
    for side, lines in enumerate((source, target)):
        for number, line in enumerate(lines):
            if line.origins:
                components[find(line.origins[0])][side].append(number)
    gold = sorted(ends for ends in components.values() if all(ends))
    return Documents([line.text for line in source], [line.text for line in target], gold)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Reads lines `source TAB target` of a compressed file; blank sides are left out."""
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")
    rows = [line.split("\t")[:2] for line in lines]
    return [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2 and all(row)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, help="a file of pairs, compressed with gzip")
    parser.add_argument("folder", type=Path, help="the output folder")
    parser.add_argument("--plan", choices=PLANS, default="trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--front", type=Path, help="a file of pairs; its sources are front matter")
    flags = parser.parse_args()
    front = [source for source, _ in read_pairs(flags.front)] if flags.front else []
    built = construct(read_pairs(flags.pairs), PLANS[flags.plan], flags.seed, front)
    flags.folder.mkdir(parents=True, exist_ok=True)
    for name, side in (("source", built.source), ("target", built.target)):
        (flags.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in side), "utf-8")
    gold = "".join(f"{source}\t{target}\n" for source, target in built.gold)
    (flags.folder / "gold.txt").write_text(gold, "utf-8")


if __name__ == "__main__":
    main()
