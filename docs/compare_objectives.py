r"""Compares objectives on the embedded corpus: word alignment and sentence retrieval, three seeds.

    python docs/compare_objectives.py [--seeds=3] [--folder=runs/comparison]

Trains every variant of configs/comparison.py with every seed (finished runs are kept), and prints
the table of docs/results.md: alignment error rate and retrieval accuracy on phrasebook pairs that
are in no training text. About 45 minutes on 2 CPU cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from xlj.alignment import error_rate
from xlj.data import phrasebook
from xlj.downstream import pretrained
from xlj.downstream.retrieval import accuracy, nearest
from xlj.downstream.sentence_pairs import Pair
from xlj.downstream.sentence_vectors import Embedder
from xlj.downstream.word_alignment import Aligner

ROOT = Path(__file__).parents[1]
PAIRS = ("en-de", "en-fr", "en-sw")
ALIGNED, RETRIEVED = 200, 500
SEED = 20_261_121  # of the test sentences' meanings; no training text draws from it

VARIANTS = {
    "start": "",
    "mmlm": "start",
    "tlm": "start",
    "dwa": "start",
    "ernie_m": "start",
    "mrtd": "start",
    "mrtd_trtd": "start",
}
"""Each variant, and the variant whose checkpoint it goes on from."""

TITLES = {
    "start": "the common start: MMLM, 1,500 steps",
    "mmlm": "+ MMLM",
    "tlm": "+ MMLM, TLM",
    "dwa": "+ MMLM, TLM + DWA",
    "ernie_m": "+ MMLM, CAMLM, then BTMLM too",
    "mrtd": "+ MRTD in place of MMLM",
    "mrtd_trtd": "+ MRTD, TRTD in place of MMLM",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/comparison"))
    arguments = parser.parse_args()
    tests = {pair: test_pairs(pair) for pair in PAIRS}
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for seed, name in itertools.product(range(arguments.seeds), VARIANTS):
        workdir = train(arguments.folder.absolute(), name, seed)
        file = workdir / "scores.json"
        if not file.is_file():
            file.write_text(json.dumps(scored(workdir, tests)) + "\n")
        scores[name].append(json.loads(file.read_text()))
        print(name, seed, scores[name][-1], flush=True)
    print(table(scores))


def test_pairs(pair: str) -> list[phrasebook.Pair]:
    """Pairs of which neither sentence stands in any training text."""
    languages = pair.split("-")
    seen = [set(phrasebook.text_lines(language)) for language in languages]
    for other in PAIRS:
        for line in phrasebook.pair_lines(other):
            for language, text in zip(other.split("-"), line, strict=True):
                if language in languages:
                    seen[languages.index(language)].add(text)
    drawn = (
        phrasebook.pair(phrasebook.draw(SEED, index), *languages) for index in itertools.count()
    )
    new = (p for p in drawn if p.source.text not in seen[0] and p.target.text not in seen[1])
    return list(itertools.islice(new, RETRIEVED))


def train(folder: Path, name: str, seed: int) -> Path:
    """Trains a variant, or goes on with it; returns its workdir."""
    workdir = folder / f"{name}-{seed}"
    variant = "" if name == "mmlm" else f":{name}"
    command = [sys.executable, "-m", "xlj.train", f"--config=configs/comparison.py{variant}"]
    command += [f"--workdir={workdir}", f"--config.train.seed={seed}"]
    command += [f"--config.data.cache={folder / 'rows'}"]
    if VARIANTS[name]:
        command += [f"--config.init_from={folder / f'{VARIANTS[name]}-{seed}'}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return workdir


def scored(workdir: Path, tests: dict[str, list[phrasebook.Pair]]) -> dict[str, float]:
    """Means over the language pairs, at two thirds of the layers and at the best layer."""
    loaded = pretrained.load(workdir)
    layers = range(1, loaded.model.layers + 1)
    errors, accuracies = [], []
    for pair, sentences in tests.items():
        words, gold = zip(*(by_blanks(pair, p) for p in sentences[:ALIGNED]), strict=True)
        found = list(Aligner(loaded, layers, "optimal_transport").align(words))
        errors.append(
            [
                error_rate.score([map(tuple, links[i].tolist()) for links in found], gold, gold).aer
                for i in range(len(layers))
            ]
        )
        embedder = Embedder(loaded, layers, "text")
        source = embedder.embed([p.source.text for p in sentences])
        target = embedder.embed([p.target.text for p in sentences])
        accuracies.append(
            [np.mean(accuracy(nearest(source[i], target[i]))) for i in range(len(layers))]
        )
    aer, acc = np.mean(errors, 0), np.mean(accuracies, 0)
    return {
        **{f"aer, layer {i}": float(value) for i, value in zip(layers, aer, strict=True)},
        **{f"retrieval, layer {i}": float(value) for i, value in zip(layers, acc, strict=True)},
    }


def by_blanks(where: str, pair: phrasebook.Pair) -> tuple[Pair, set[tuple[int, int]]]:
    """A pair as the words between blanks, as in training text, and its gold links between them."""

    def places(sentence: phrasebook.Sentence) -> list[int]:
        return [sentence.text.count(" ", 0, start) for start, _ in sentence.spans]

    source, target = places(pair.source), places(pair.target)
    links = {(source[i], target[j]) for i, j in pair.alignment}
    return Pair(where, pair.source.text.split(" "), pair.target.text.split(" ")), links


def table(scores: dict[str, list[dict[str, float]]]) -> str:
    """Mean and standard deviation over seeds, in percent."""
    columns = list(scores["start"][0])
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, of_seeds in scores.items():
        cells = []
        for column in columns:
            values = [100 * score[column] for score in of_seeds]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
