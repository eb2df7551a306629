"""Compares word aligners on every gold set, for docs/experiments/aligner.md.

    python docs/compare_aligners.py text DATA runs/aligners/text
    python -m xlj.sweep --config=configs/sweeps/aligner.py --folder=runs/aligners
    pip install eflomal sil-thot
    python docs/compare_aligners.py scores runs/aligners/text runs/aligners/all
    python docs/compare_aligners.py scores runs/aligners/text/hansards runs/aligners/hansards-*

`text` writes training text and gold links:

- PAIR.tsv has all sentence pairs of DATA/parallel/*/*/PAIR.tsv.gz, and the sentences (without gold
  links) of DATA/alignment/PAIR.NAME.tsv.gz, in the order of languages of the parallel text.
- gold/PAIR.NAME.tsv has the gold links for scoring.
- The folder hansards has the same files, from DATA/parallel/hansards only.

`scores` trains fast_align (Thot's implementation) and eflomal on lowercased text of a folder, and
aligns with xlj's checkpoints. The links of a tool's two directions are combined in three ways
(`combine_directions`). The table shows the way that is best on en-fr.golden. Scores are saved in
scores.jsonl, so the same command resumes.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.sentence_pairs import Pair

REGIONS = {"en-es-419": "en-es", "en-pt-BR": "en-pt", "en-pt-br": "en-pt", "en-zh-CN": "en-zh"}
"""Language pairs with a region, by which text files are named, and the pairs without a region."""
CHOSEN_ON = "en-fr.golden.test"
"""The gold set on which the way to combine both directions is chosen. An aligner without scores on
it uses its first gold set."""
ROUNDS = 5  # iterations of fast_align, its default

Links = np.ndarray
"""The links of a sentence pair, int [links, 2]."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("text", help="write text and gold links by language pair")
    command.add_argument("data", type=Path, help="folder with parallel/ and alignment/")
    command.add_argument("folder", type=Path, help="the output folder, for PAIR.tsv and gold/")
    command = commands.add_parser("scores", help="score the tools and checkpoints")
    command.add_argument("folder", type=Path, help="a folder that `text` wrote")
    command.add_argument("runs", type=Path, nargs="*", help="checkpoints of xlj's aligner")
    flags = parser.parse_args()
    if flags.command == "text":
        gather(flags.data, "*", flags.folder)
        gather(flags.data, "hansards", flags.folder / "hansards")
    else:
        print(table(score_all(flags.folder, flags.runs), list(map(str, flags.runs))))


def gather(data: Path, corpus: str, folder: Path) -> None:
    """Writes the text and gold links of all language pairs of a corpus.

    Args:
      corpus: the name of a folder in DATA/parallel; "*" for all folders.
      folder: the output folder.
    """
    text: dict[str, list[tuple[str, ...]]] = collections.defaultdict(list)
    for file in sorted(data.glob(f"parallel/{corpus}/*/*-*.tsv.gz")):
        pair = file.name.removesuffix(".tsv.gz")
        text[REGIONS.get(pair, pair)] += [tuple(line[:2]) for line in columns(file)]
    (folder / "gold").mkdir(parents=True, exist_ok=True)
    for file in sorted(data.glob("alignment/*.tsv.gz")):
        pair, name = file.name.removesuffix(".tsv.gz").split(".", 1)
        lines = [line[:3] for line in columns(file)][1:]  # without the header
        if pair not in text:
            pair = "-".join(reversed(pair.split("-")))
            lines = [[t, s, " ".join(map(swap_link, gold.split()))] for s, t, gold in lines]
        if pair not in text:
            continue
        text[pair] += [tuple(line[:2]) for line in lines]
        write(folder / "gold" / f"{pair}.{name}.tsv", lines)
    for pair, lines in text.items():
        complete = [line for line in lines if all(side.strip() for side in line)]
        write(folder / f"{pair}.tsv", complete)
        empty = len(lines) - len(complete)
        print(f"{pair}: {len(complete)} pairs, {empty} with an empty side left out")


def columns(file: Path) -> Iterator[list[str]]:
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        yield from (line.rstrip("\r\n").split("\t") for line in lines)


def swap_link(link: str) -> str:
    """Swaps the two sides of a link: `3p4` becomes `4p3`, `3-4` becomes `4-3`."""
    kind = "p" if "p" in link else "-"
    return kind.join(reversed(link.split(kind)))


def write(file: Path, lines: Iterable[Iterable[str]]) -> None:
    file.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def score_all(folder: Path, runs: list[Path]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns alignment error rates by aligner, gold set and way to combine both directions."""
    results_file = folder / "scores.jsonl"
    rates_by_aligner: dict[str, dict[str, dict[str, float]]] = collections.defaultdict(dict)
    for line in results_file.read_text("utf-8").splitlines() if results_file.is_file() else ():
        aligner, name, rates = json.loads(line)
        rates_by_aligner[aligner][name] = rates
    for file in sorted((folder / "gold").glob("*.tsv")):
        pairs = list(sentence_pairs.read(file, with_gold=True))
        text = folder / f"{file.name.split('.')[0]}.tsv"
        for aligner in ("fast_align", "eflomal", *map(str, runs)):
            if file.stem in rates_by_aligner[aligner]:
                continue
            if aligner in TOOLS:
                links = combine_directions(
                    *TOOLS[aligner](lowercase(sentence_pairs.read(text)), lowercase(pairs))
                )
            else:
                links = {"": align_with_checkpoint(Path(aligner), pairs)}
            golds = [pair.gold for pair in pairs]
            rates = {way: gold_alignments.score(each, golds).aer for way, each in links.items()}
            rates_by_aligner[aligner][file.stem] = rates
            with results_file.open("a", encoding="utf-8") as log:
                print(json.dumps([aligner, file.stem, rates]), file=log)
            print(aligner, file.stem, rates, flush=True)
    return rates_by_aligner


def lowercase(pairs: Iterable[Pair]) -> list[tuple[list[str], list[str]]]:
    return [tuple([word.lower() for word in side] for side in (p.source, p.target)) for p in pairs]


def align_with_checkpoint(run: Path, pairs: list[Pair]) -> list[Links]:
    import xlj

    return [layers[0] for layers in xlj.load(run).aligner().align(pairs)]


def fast_align(text: list, pairs: list) -> tuple[list[Links], list[Links]]:
    from thot.alignment import FastAlignModel

    directions = []
    for way in (1, -1):
        model = FastAlignModel()
        for pair in text:
            model.add_sentence_pair(*pair[::way])
        model.start_training()
        for _ in range(ROUNDS):
            model.train()
        model.end_training()
        matrices = [model.get_best_alignment(*pair[::way])[1].to_numpy() for pair in pairs]
        directions.append([np.argwhere(matrix)[:, ::way] for matrix in matrices])
    return directions[0], directions[1]


def eflomal(text: list, pairs: list) -> tuple[list[Links], list[Links]]:
    from eflomal import Aligner

    sides = [[" ".join(pair[side]) + "\n" for pair in [*text, *pairs]] for side in (0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, way) for way in ("forth", "back")]
        Aligner().align(*sides, links_filename_fwd=str(files[0]), links_filename_rev=str(files[1]))
        both = [
            [gold_alignments.parse(line, "eflomal") for line in file.read_text().splitlines()]
            for file in files
        ]
    forward, backward = (
        [np.array(sorted(gold.sure), int).reshape(-1, 2) for gold in each[len(text) :]]
        for each in both
    )
    return forward, backward


TOOLS = {"fast_align": fast_align, "eflomal": eflomal}


def combine_directions(forward: list[Links], backward: list[Links]) -> dict[str, list[Links]]:
    """Combines the links of both directions in three ways: intersection, grow-diag (Koehn, Och and
    Marcu, 2003), and union.

    Returns:
      The links of each sentence pair, by way.
    """
    ways: dict[str, list[Links]] = {"intersection": [], "grow-diag": [], "union": []}
    for one, other in zip(forward, backward, strict=True):
        first, second = ({(int(i), int(j)) for i, j in links} for links in (one, other))
        for way, links in zip(
            ways, (first & second, grow_diagonally(first, second), first | second), strict=True
        ):
            ways[way].append(np.array(sorted(links), int).reshape(-1, 2))
    return ways


def grow_diagonally(
    first: set[tuple[int, int]], second: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    links, union = first & second, first | second
    around = [step for step in itertools.product((-1, 0, 1), repeat=2) if any(step)]
    while True:
        sources, targets = ({link[side] for link in links} for side in (0, 1))
        near = {(i + di, j + dj) for i, j in links for di, dj in around} & union - links
        added = {(i, j) for i, j in near if i not in sources or j not in targets}
        if not added:
            return links
        links |= added


def table(rates_by_aligner: dict[str, dict[str, dict[str, float]]], runs: list[str]) -> str:
    names = sorted({name for rates in rates_by_aligner.values() for name in rates})
    aligners = [
        aligner for aligner in ("fast_align", "eflomal", *runs) if aligner in rates_by_aligner
    ]
    ways = {}
    for aligner in aligners:
        rates = rates_by_aligner[aligner].get(CHOSEN_ON) or next(
            iter(rates_by_aligner[aligner].values())
        )
        ways[aligner] = min(rates, key=lambda way: rates[way])
    titles = [f"{aligner} {ways[aligner]}".strip() for aligner in aligners]
    lines = ["| gold | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for name in names:
        rates = [rates_by_aligner[aligner].get(name, {}).get(ways[aligner]) for aligner in aligners]
        cells = ["" if rate is None else f"{rate:.1%}"[:-1] for rate in rates]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
