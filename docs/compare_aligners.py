"""Word aligners beside each other on every gold set: docs/experiments/aligner.md.

    python docs/compare_aligners.py text DATA runs/aligners/text
    python -m xlj.sweep --config=configs/sweeps/aligner.py --folder=runs/aligners
    pip install eflomal sil-thot
    python docs/compare_aligners.py scores runs/aligners/text runs/aligners/all
    python docs/compare_aligners.py scores runs/aligners/text/hansards runs/aligners/hansards-*

`text` gathers the pairs of DATA/parallel/*/*/PAIR.tsv.gz by pair of languages, with the sentences
of DATA/alignment/PAIR.NAME.tsv.gz but not their gold, in the order of languages that the parallel
text has: PAIR.tsv, and gold/PAIR.NAME.tsv for scoring. The folder hansards has the same of
DATA/parallel/hansards alone. `scores` trains fast_align (Thot's) and eflomal on a folder, in lower
case, and aligns with the checkpoints; of a tool's ways to join both directions it takes the one
that is best on en-fr.golden. Scores are saved in scores.jsonl, so the same command resumes after a
stop.
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
CHOSEN_ON = "en-fr.golden.test"
ROUNDS = 5  # of fast_align, as it has them

Links = np.ndarray
"""Of a pair, int [links, 2]."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("text", help="gather text and gold links by pair")
    command.add_argument("data", type=Path, help="folder with parallel/ and alignment/")
    command.add_argument("folder", type=Path, help="where PAIR.tsv and gold/ go")
    command = commands.add_parser("scores", help="score the tools and checkpoints")
    command.add_argument("folder", type=Path, help="what `text` wrote")
    command.add_argument("runs", type=Path, nargs="*", help="checkpoints of the aligner")
    flags = parser.parse_args()
    if flags.command == "text":
        gather(flags.data, "*", flags.folder)
        gather(flags.data, "hansards", flags.folder / "hansards")
    else:
        print(table(scored(flags.folder, flags.runs), list(map(str, flags.runs))))


def gather(data: Path, corpus: str, folder: Path) -> None:
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
            lines = [[t, s, " ".join(map(turn, gold.split()))] for s, t, gold in lines]
        if pair not in text:
            continue
        text[pair] += [tuple(line[:2]) for line in lines]
        write(folder / "gold" / f"{pair}.{name}.tsv", lines)
    for pair, lines in text.items():
        kept = [line for line in lines if all(side.strip() for side in line)]
        write(folder / f"{pair}.tsv", kept)
        print(f"{pair}: {len(kept)} pairs, {len(lines) - len(kept)} with an empty side left out")


def columns(file: Path) -> Iterator[list[str]]:
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        yield from (line.rstrip("\r\n").split("\t") for line in lines)


def turn(link: str) -> str:
    """`3p4` -> `4p3`, `3-4` -> `4-3`."""
    kind = "p" if "p" in link else "-"
    return kind.join(reversed(link.split(kind)))


def write(file: Path, lines: Iterable[Iterable[str]]) -> None:
    file.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def scored(folder: Path, runs: list[Path]) -> dict[str, dict[str, dict[str, float]]]:
    """Alignment error rate by aligner, gold set and way to join both directions."""
    kept = folder / "scores.jsonl"
    found: dict[str, dict[str, dict[str, float]]] = collections.defaultdict(dict)
    for line in kept.read_text("utf-8").splitlines() if kept.is_file() else ():
        aligner, name, rates = json.loads(line)
        found[aligner][name] = rates
    for file in sorted((folder / "gold").glob("*.tsv")):
        pairs = list(sentence_pairs.read(file, with_gold=True))
        text = folder / f"{file.name.split('.')[0]}.tsv"
        for aligner in ("fast_align", "eflomal", *map(str, runs)):
            if file.stem in found[aligner]:
                continue
            if aligner in TOOLS:
                links = joined(*TOOLS[aligner](lowered(sentence_pairs.read(text)), lowered(pairs)))
            else:
                links = {"": of_run(Path(aligner), pairs)}
            golds = [pair.gold for pair in pairs]
            rates = {way: gold_alignments.score(each, golds).aer for way, each in links.items()}
            found[aligner][file.stem] = rates
            with kept.open("a", encoding="utf-8") as log:
                print(json.dumps([aligner, file.stem, rates]), file=log)
            print(aligner, file.stem, rates, flush=True)
    return found


def lowered(pairs: Iterable[Pair]) -> list[tuple[list[str], list[str]]]:
    return [tuple([word.lower() for word in side] for side in (p.source, p.target)) for p in pairs]


def of_run(run: Path, pairs: list[Pair]) -> list[Links]:
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
        found = [model.get_best_alignment(*pair[::way])[1].to_numpy() for pair in pairs]
        directions.append([np.argwhere(matrix)[:, ::way] for matrix in found])
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
    forth, back = (
        [np.array(sorted(found.sure), int).reshape(-1, 2) for found in each[len(text) :]]
        for each in both
    )
    return forth, back


TOOLS = {"fast_align": fast_align, "eflomal": eflomal}


def joined(forth: list[Links], back: list[Links]) -> dict[str, list[Links]]:
    """Both directions' links, by their intersection, by what grow-diag adds to it (Koehn, Och and
    Marcu, 2003), and by their union."""
    ways: dict[str, list[Links]] = {"intersection": [], "grow-diag": [], "union": []}
    for one, other in zip(forth, back, strict=True):
        first, second = ({(int(i), int(j)) for i, j in links} for links in (one, other))
        for way, links in zip(
            ways, (first & second, grown(first, second), first | second), strict=True
        ):
            ways[way].append(np.array(sorted(links), int).reshape(-1, 2))
    return ways


def grown(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> set[tuple[int, int]]:
    links, union = first & second, first | second
    around = [step for step in itertools.product((-1, 0, 1), repeat=2) if any(step)]
    while True:
        sources, targets = ({link[side] for link in links} for side in (0, 1))
        near = {(i + di, j + dj) for i, j in links for di, dj in around} & union - links
        added = {(i, j) for i, j in near if i not in sources or j not in targets}
        if not added:
            return links
        links |= added


def table(found: dict[str, dict[str, dict[str, float]]], runs: list[str]) -> str:
    names = sorted({name for rates in found.values() for name in rates})
    aligners = [aligner for aligner in ("fast_align", "eflomal", *runs) if aligner in found]
    ways = {}
    for aligner in aligners:
        rates = found[aligner].get(CHOSEN_ON) or next(iter(found[aligner].values()))
        ways[aligner] = min(rates, key=lambda way: rates[way])
    titles = [f"{aligner} {ways[aligner]}".strip() for aligner in aligners]
    lines = ["| gold | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for name in names:
        rates = [found[aligner].get(name, {}).get(ways[aligner]) for aligner in aligners]
        cells = ["" if rate is None else f"{rate:.1%}"[:-1] for rate in rates]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
