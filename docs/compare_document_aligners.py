"""Scores sentence alignments of constructed documents, for docs/experiments/documents.md.

    python docs/compare_document_aligners.py DATA runs/documents --checkpoint=exported \\
        --languages=de,fr --plans=trial,hard --joins=sum,encode --seeds=0,1,2

DATA is a folder with parallel/ntrex and parallel/mafand. The documents are NTREX, changed by
docs/construct_documents.py. Sentence vectors are stored in the folder, so the same command resumes.
Aligners:

- xlj, with sums of vectors, or with the vectors of joined texts (--joins=encode).
- plain: a programme whose score of a pair is cosine - penalty, on the same vectors (not centred) in
  the same band. The penalty is the best of PENALTIES on the gold.
- lengths: Gale and Church (1993), with their parameters, but the ratio of lengths of the documents.

A line of the output has the number of texts that were encoded for it, and their CPU seconds; texts
whose vectors are stored do not count. --joins=sum,encode thus tells what the joins cost.

F1 is computed over pairs. Strict: both sides must equal the gold. Lax: a pair shares a sentence of
each side with a pair of the gold. Sentences without a counterpart are no pairs.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from construct_documents import PLANS, Documents, construct, read_pairs

from xlj.api.loading import load
from xlj.document_alignment import aligner, blocks, programme
from xlj.document_alignment.blocks import SIZES, Blocks

CODES = {"zh": "zh-CN"}
PENALTIES = (0.76, 0.79, 0.82, 0.85)
AT_ONCE = 20_000
"""The number of texts that are encoded before their vectors are stored."""
Ends = list[tuple[tuple[int, ...], tuple[int, ...]]]


class Vectors:
    """Vectors of texts of a language, stored in a folder.

    Attributes:
      encoded: the number of texts that were encoded.
      cpu_s: the CPU seconds of encoding.

    Args:
      embed: computes the vectors of texts, float32 [texts, width].
    """

    def __init__(self, folder: Path, language: str, embed: Callable[[Sequence[str]], np.ndarray]):
        self._texts, self._file = folder / f"{language}.txt", folder / f"{language}.npy"
        self._embed, self._places = embed, dict[str, int]()
        self._vectors = np.zeros((0, 0), np.float16)
        self.encoded, self.cpu_s = 0, 0.0
        if self._texts.exists():
            self._vectors = np.load(self._file)
            texts = self._texts.read_text("utf-8").split("\n")[:-1]
            self._places = {text: place for place, text in enumerate(texts)}

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors of texts; computes and stores the missing vectors."""
        missing = {text for text in texts if text not in self._places}
        missing = sorted(missing, key=lambda text: (len(text), text))
        for k in range(0, len(missing), AT_ONCE):
            new, start = missing[k : k + AT_ONCE], time.process_time()
            more = self._embed(new).astype(np.float16)
            self.encoded += len(new)
            self.cpu_s += time.process_time() - start
            self._vectors = np.concatenate([self._vectors, more]) if self._places else more
            self._places |= {text: len(self._places) + k for k, text in enumerate(new)}
            np.save(self._file, self._vectors)
            self._texts.write_text("".join(f"{text}\n" for text in self._places), "utf-8")
        return self._vectors[[self._places[text] for text in texts]].astype(np.float32)


def side(vectors: Vectors, texts: list[str], joins: str) -> Blocks:
    starts = np.zeros(len(texts), np.int64)
    joined = None
    if joins == "encode":
        sizes = range(2, SIZES + 1)
        joined = np.stack([vectors.of(blocks.joined_texts(texts, starts, n)) for n in sizes])
    return blocks.of_sentences(vectors.of(texts), texts, starts, joined)


def of_xlj(source: Blocks, target: Blocks) -> Ends:
    steps = (step for step in aligner.align(source, target) if not step.is_gap)
    return [(tuple(step.source), tuple(step.target)) for step in steps]


def ends_of(path: programme.Path) -> Ends:
    cells = path.cells.tolist()
    steps = zip(cells[:-1], cells[1:], strict=True)
    return [(tuple(range(a, i)), tuple(range(b, j))) for (a, b), (i, j) in steps if i > a and j > b]


def of_plain(sides: Sequence[np.ndarray], band: programme.Band, penalty: float) -> Ends:
    """Aligns with a plain programme.

    Args:
      sides: sums of vectors of both sides, float32 [SIZES, sentences, width].
    """

    def scores(i: int, k: int, lo: int, hi: int) -> np.ndarray:
        rows, columns = sides[0][:, i - 1 : k - 1], sides[1][:, lo - 1 : hi - 1]
        cosines = np.einsum("nid,mjd->inmj", rows, columns, optimize=True)
        result = cosines - np.float32(penalty)
        for n in range(SIZES):  # blocks that begin before the document
            result[: max(0, n + 1 - i), n] = -np.inf
            result[:, :, n, : max(0, n + 1 - lo)] = -np.inf
        return result

    return ends_of(programme.best_path(scores, band, SIZES, open_gap=0, skip=0))


def plain_sums(vectors: np.ndarray) -> np.ndarray:
    """Returns the unit sums of vectors, float32 [SIZES, sentences, width]."""
    sums = np.zeros((SIZES, *vectors.shape), np.float32)
    for n in range(SIZES):
        sums[n:, n:] += vectors[: len(vectors) - n]
    return sums / np.linalg.norm(sums, axis=2, keepdims=True)


def of_lengths(source: list[str], target: list[str], band: programme.Band) -> Ends:
    """Aligns by lengths: Gale and Church (1993)."""
    ends = [
        np.concatenate([[0], np.cumsum([len(text) for text in side])]) for side in (source, target)
    ]
    ratio, variance = ends[1][-1] / ends[0][-1], 6.8
    kinds = {(1, 1): 0.89, (1, 2): 0.0445, (2, 1): 0.0445, (2, 2): 0.011}
    skip = math.log(0.00495)

    def scores(i: int, k: int, lo: int, hi: int) -> np.ndarray:
        result = np.full((k - i, 2, 2, hi - lo), -np.inf, np.float32)
        for (n, m), share in kinds.items():
            rows = np.arange(max(i, n), k)
            columns = np.arange(max(lo, m), hi)
            a = (ends[0][rows] - ends[0][rows - n])[:, None]
            b = (ends[1][columns] - ends[1][columns - m])[None]
            delta = (b - a * ratio) / np.sqrt(np.maximum(a, 1) * variance)
            tail = np.vectorize(math.erfc)(np.abs(delta) / math.sqrt(2))
            values = np.log(np.maximum(tail, 1e-30)) + math.log(share)
            result[rows[0] - i :, n - 1, m - 1, columns[0] - lo :] = values
        return result

    return ends_of(programme.best_path(scores, band, 2, open_gap=0, skip=skip))


def f1(predicted: Ends, gold: Ends) -> tuple[float, float]:
    """Returns the strict and the lax F1."""

    def touching(pairs: Ends, others: Ends) -> float:
        links = {(i, j) for a, b in others for i in a for j in b}
        hits = [any((i, j) in links for i in a for j in b) for a, b in pairs]
        return sum(hits) / max(1, len(pairs))

    correct = len(set(predicted) & set(gold))
    lax = touching(predicted, gold), touching(gold, predicted)
    return 2 * correct / (len(predicted) + len(gold)), 2 * lax[0] * lax[1] / max(1e-9, sum(lax))


def by_kind(predicted: Ends, gold: Ends) -> dict[str, list[float]]:
    """Returns the number of gold pairs and the strict F1 of each kind."""
    kinds: dict[str, list[Ends]] = {}
    for number, pairs in enumerate((predicted, gold)):
        for a, b in pairs:
            kinds.setdefault(f"{len(a)}-{len(b)}", [[], []])[number].append((a, b))
    return {
        kind: [len(sides[1]), round(f1(*sides)[0], 4)]
        for kind, sides in sorted(kinds.items())
        if sides[1]
    }


def compare(built: Documents, english: Vectors, other: Vectors, joins: str, others: bool) -> dict:
    """Returns the scores of all aligners on two documents."""
    gold: Ends = [(tuple(a), tuple(b)) for a, b in built.gold]
    sides = side(english, built.source, joins), side(other, built.target, joins)
    start = time.process_time()
    predicted = of_xlj(*sides)
    scores: dict = {"xlj": f1(predicted, gold), "kinds": by_kind(predicted, gold)}
    scores["cpu_s"] = round(time.process_time() - start, 2)
    if others:
        band = aligner.band(*sides)
        sums = [plain_sums(side) for side in (english.of(built.source), other.of(built.target))]
        scores["plain"] = max(f1(of_plain(sums, band, p), gold) for p in PENALTIES)
        full = programme.full(len(built.source), len(built.target))
        scores["lengths"] = f1(of_lengths(built.source, built.target, full), gold)
    return scores


def embed_with(checkpoint: str) -> Callable[[Sequence[str]], np.ndarray]:
    """Returns a function that computes the vectors of texts; it loads the encoder when needed."""
    embedders: list = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        if not embedders:
            embedders.append(load(checkpoint, backend="onnx-int8").embedder())
        return embedders[0].embed(texts)[0]

    return embed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="folder of the stored vectors")
    parser.add_argument("--checkpoint", required=True, help="exported folder with int8 weights")
    parser.add_argument("--languages", default="de,fr,es,sv,zh,yo,ta")
    parser.add_argument("--plans", default="trial")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--joins", default="sum", help="sum, encode, or both")
    parser.add_argument("--others", action="store_true", help="score the other aligners too")
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    embed = embed_with(flags.checkpoint)
    front = [a for a, _ in read_pairs(flags.data / "parallel/mafand/test/en-sw.tsv.gz")]
    english = Vectors(flags.folder, "en", embed)
    for language in flags.languages.split(","):
        other = Vectors(flags.folder, language, embed)
        name = f"parallel/ntrex/test/en-{CODES.get(language, language)}.tsv.gz"
        pairs = read_pairs(flags.data / name)
        for plan in flags.plans.split(","):
            for seed in map(int, flags.seeds.split(",")):
                built = construct(pairs, PLANS[plan], seed, front)
                for joins in flags.joins.split(","):
                    row = {"language": language, "plan": plan, "seed": seed, "joins": joins}
                    before = [(side.encoded, side.cpu_s) for side in (english, other)]
                    row |= compare(built, english, other, joins, flags.others)
                    after = [(side.encoded, side.cpu_s) for side in (english, other)]
                    encoded, seconds = np.sum(after, 0) - np.sum(before, 0)
                    row |= {"encoded": int(encoded), "encode_cpu_s": round(float(seconds), 1)}
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
