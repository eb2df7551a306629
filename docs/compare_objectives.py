"""Scores the runs of a sweep on the phrasebook: word alignment and sentence retrieval.

    python -m xlj.sweep --config=configs/sweeps/comparison.py
    python docs/compare_objectives.py [--folder=runs/comparison]

It prints the numbers of docs/experiments/objectives.md as one table, with means and standard
deviations over seeds. The measures are the alignment error rate and two retrieval accuracies. The
second accuracy ("centred") is measured after the mean vector of each language is subtracted. The
test pairs of the phrasebook occur in no training text. The results of each run are saved in the
run's file phrasebook.jsonl, which xlj.report plots.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from pathlib import Path

import numpy as np

from xlj import phrasebook
from xlj.config.choices import AlignmentOptions
from xlj.inference import pretrained
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.search import accuracy, centre, nearest
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair

PAIRS = ("en-de", "en-fr", "en-sw")
ALIGNED, RETRIEVED = 200, 500
"""The numbers of sentence pairs per language pair, for alignment and for retrieval."""
SEED = 20_261_121  # seed of the test sentences' meanings; training text uses other seeds

MEASURES = {
    "aer": "AER",
    "retrieval": "retrieval",
    "centred": "centred",  # retrieval after subtracting each language's mean vector
}
TITLES = {
    "start": "a start: MMLM, 1,500 steps",
    "mmlm": "+ MMLM",
    "tlm": "+ MMLM, TLM",
    "dwa": "+ MMLM, TLM + DWA",
    "ernie_m": "+ MMLM, CAMLM, then BTMLM too",
    "aligned": "another start: MMLM, CAMLM, retrieval, 1,500 steps",
    "mrtd": "+ MRTD in place of all",
    "mrtd_trtd": "+ MRTD, TRTD in place of all",
}
"""The row of each run in the table. A run with "+" continues from the start above it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/comparison"))
    folder = parser.parse_args().folder
    tests = {pair: test_pairs(pair) for pair in PAIRS}
    scores: dict[str, list[list[dict[str, float]]]] = {}
    for name in TITLES:
        for workdir in sorted(folder.glob(f"{name}-[0-9]")):
            file = workdir / "phrasebook.jsonl"
            if not file.is_file() or not is_complete(file):
                lines = [json.dumps(line) + "\n" for line in score_run(workdir, tests)]
                file.write_text("".join(lines))
            measures = [json.loads(line) for line in file.read_text().splitlines()]
            scores.setdefault(name, []).append(measures)
            print(workdir, measures, flush=True)
    print(table(scores))


def is_complete(file: Path) -> bool:
    """Returns whether a file contains all measures of this script."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return all(MEASURES.keys() <= line.keys() for line in lines)


def test_pairs(pair: str) -> list[phrasebook.Pair]:
    """Returns sentence pairs whose sentences occur in no training text."""
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


def score_run(workdir: Path, tests: dict[str, list[phrasebook.Pair]]) -> list[dict[str, float]]:
    """Returns the measures of a run at each layer, as means over language pairs."""
    loaded = pretrained.load(workdir)
    layers = range(1, loaded.model.layers + 1)
    errors, accuracies, without_means = [], [], []
    for pair, sentences in tests.items():
        words, gold = zip(*(split_at_blanks(pair, p) for p in sentences[:ALIGNED]), strict=True)
        alignments = list(Aligner(loaded, AlignmentOptions(), layers).align(words))
        errors.append(
            [
                gold_alignments.error_rates(
                    [map(tuple, links[i].tolist()) for links in alignments], gold, gold
                ).aer
                for i in range(len(layers))
            ]
        )
        embedder = Embedder(loaded, layers, "text")
        source = embedder.embed([p.source.text for p in sentences])
        target = embedder.embed([p.target.text for p in sentences])
        accuracies.append(retrieval_accuracy(source, target))
        centre(source), centre(target)
        without_means.append(retrieval_accuracy(source, target))
    measured = {"aer": errors, "retrieval": accuracies, "centred": without_means}
    means = {name: np.mean(values, 0).tolist() for name, values in measured.items()}
    return [{"layer": layer, **{n: means[n][i] for n in means}} for i, layer in enumerate(layers)]


def retrieval_accuracy(source: np.ndarray, target: np.ndarray) -> list[float]:
    """Returns accuracy@1 for each layer, averaged over both directions.

    Args:
      source, target: vectors, float [layers, sentences, hidden].
    """
    return [float(np.mean(accuracy(nearest(*sides)))) for sides in zip(source, target, strict=True)]


def split_at_blanks(where: str, pair: phrasebook.Pair) -> tuple[Pair, set[tuple[int, int]]]:
    """Splits a phrasebook pair into words at blanks, as in training text.

    Args:
      where: the place of the pair, for error messages.

    Returns:
      The pair, and the gold links between these words.
    """

    def places(sentence: phrasebook.Sentence) -> list[int]:
        # For each word of the phrasebook, the index of the word at blanks that contains it.
        return [sentence.text.count(" ", 0, start) for start, _ in sentence.spans]

    source, target = places(pair.source), places(pair.target)
    links = {(source[i], target[j]) for i, j in pair.alignment}
    return Pair(where, pair.source.text.split(" "), pair.target.text.split(" ")), links


def table(scores: dict[str, list[list[dict[str, float]]]]) -> str:
    """Returns a Markdown table with means and standard deviations over seeds, in percent."""
    layers = [line["layer"] for line in next(iter(scores.values()))[0]]
    columns = [(measure, i) for measure in MEASURES for i in range(len(layers))]
    head = [f"{MEASURES[measure]}, layer {layers[i]}" for measure, i in columns]
    lines = [f"| | {' | '.join(head)} |", "|---" * (len(columns) + 1) + "|"]
    for name, of_seeds in scores.items():
        cells = []
        for measure, i in columns:
            values = [100 * score[i][measure] for score in of_seeds]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
