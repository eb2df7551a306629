"""Trains and scores word aligners on links by folds, for a page of experiments.

    python docs/compare_link_training.py split DATA runs/links/text [--sets=open|all]
    python docs/compare_link_training.py train runs/links/text runs/links/e5 --init_from=DIR
    python docs/compare_link_training.py scores runs/links/text runs/links/e5 [--encoder=DIR]
    python docs/compare_link_training.py layers DIR PAIRS.tsv

`split` reads the gold sets DATA/alignment/PAIR.NAME.*.tsv.gz. The hash of the English sentence
assigns each pair to a fold, the same for all sets, because sets share English sentences. In
FOLDER/fold-K, it writes for each language pair train.PAIR.tsv and dev.PAIR.tsv, which have the
pairs of the other folds, and for each set test.SET.tsv. With --sets=open, the training pairs are of
the sets whose sources state no restriction of use; all sets are tested. So the other sets show how
well language pairs are aligned that have no links in training. FOLDER/first-300 has the first 300
pairs of en-fr.wpt03 and de-en.rwth for training, and the rest for testing. Training pairs that are
near-duplicates of a test pair are left out, and counted in duplicates.json, which also has the
numbers of pairs. `--duplicates=keep` keeps them. `--joined=5,10,20` also writes tests in which so
many consecutive pairs are one pair. `--augment=3` adds training pairs that are 3 pairs joined, for
models that align longer pairs. `--pairs=100` uses at most 100 pairs of a language pair for training
and dev.

`train` trains one model for each fold, on all its language pairs, from each of `--seeds` seeds.
Other arguments, such as --config.model.dtype=bfloat16, change the recipe. The same command resumes.

`scores` prints a table: for each set, the alignment error rate over the folds, with the 95 %
interval of the bootstrap over pairs. Several seeds get a row together: their links are counted as
one sample for each pair. With --encoder, it also aligns with the encoder as it is: by the methods
of XLM-Align, SimAlign and awesome-align, at --layer (default: the layer that the model chooses).
An encoder that pairs have adapted is scored in the same way.

`layers` prints for each layer the share of words that both directions link with each other, which
needs no gold links, and the alignment error rate if PAIRS has gold links.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import xlj
from xlj.alignment_math.extraction import dot_products
from xlj.alignment_math.sinkhorn import same_example
from xlj.evaluation.bootstrap import paired_bootstrap
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.methods import Alignment, Method, register
from xlj.word_alignment.sentence_pairs import Pair

RECIPE = Path(__file__).parents[1] / "configs/finetune/word_links.py"
FOLDS = 5
OPEN = ("en-fr.wpt03", "en-fr.golden", "en-es.golden", "en-sv.ges", "en-hi.wpt05")
"""Sets whose sources state no restriction of use."""
OTHERS = ("de-en.rwth", "zh-en.tsinghua", "ja-en.kftt", "en-cs.czenali")
"""Sets of other licences: research only, not stated, CC BY-SA."""
SETS = {"open": OPEN, "all": OPEN + OTHERS}
MOST = {"en-cs.czenali": 500}
"""The number of pairs that are used of a set; others are used whole."""
FIRST = {"en-fr.wpt03": 300, "de-en.rwth": 300}
"""The training pairs of sets that papers split into a first and a last part."""
DEV_SHARE = 0.1
"""The share of the training pairs that selects checkpoints and the threshold."""
NGRAM, OVERLAP = 5, 0.5
"""A training pair is a near-duplicate of a test pair of the same languages if on both sides, at
least this share of its n-grams of words is in the test pair. A shorter sentence is one n-gram."""
AWESOME_THRESHOLD = 1e-3
AS_IT_IS = {
    "together, optimal transport": ("optimal_transport", True),
    "apart, argmax": ("argmax", False),
    "apart, itermax": ("itermax", False),
    "apart, match": ("match", False),
    "apart, awesome-align": ("awesome", False),
}
"""Method and encoding of the aligners without training."""


def main() -> None:
    register(Method("awesome", _align_awesome))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("split")
    command.add_argument("data", type=Path)
    command.add_argument("folder", type=Path)
    command.add_argument("--sets", choices=SETS, default="all")
    command.add_argument("--duplicates", choices=("remove", "keep"), default="remove")
    command.add_argument("--joined", default="", help="such as 5,10,20")
    command.add_argument(
        "--pairs", type=int, default=0, help="most training pairs of a language pair"
    )
    command.add_argument("--augment", type=int, default=0, help="training pairs to join")
    command = commands.add_parser("train")
    command.add_argument("folder", type=Path)
    command.add_argument("runs", type=Path)
    command.add_argument("--init_from", required=True)
    command.add_argument("--seeds", type=int, default=1)
    command.add_argument("--parts", default="", help="names of folders, such as fold-0; empty: all")
    command = commands.add_parser("scores")
    command.add_argument("folder", type=Path)
    command.add_argument("runs", type=Path)
    command.add_argument("--encoder", type=Path)
    command.add_argument("--layer", type=int)
    command = commands.add_parser("layers")
    command.add_argument("encoder", type=Path)
    command.add_argument("pairs", type=Path)
    flags, changes = parser.parse_known_args()
    if changes and flags.command != "train":
        parser.error(f"unknown arguments: {' '.join(changes)}")
    if flags.command == "split":
        joined = [int(size) for size in flags.joined.split(",") if size]
        options = Options(flags.duplicates, tuple(joined), flags.pairs, flags.augment)
        trained = SETS[flags.sets]
        others = [name for name in SETS["all"] if name not in trained]
        split(flags.data, flags.folder, trained, options, others)
    elif flags.command == "train":
        train(flags.folder, flags.runs, flags.init_from, flags.seeds, flags.parts, changes)
    elif flags.command == "scores":
        print(table(flags.folder, flags.runs, flags.encoder, flags.layer))
    else:
        print(layers(flags.encoder, flags.pairs))


class Options(NamedTuple):
    """The flags of `split`, except the sets."""

    duplicates: str = "remove"
    joined: tuple[int, ...] = ()
    pairs: int = 0
    augment: int = 0


def split(
    data: Path, folder: Path, sets: Sequence[str], options: Options, tested: Sequence[str] = ()
) -> None:
    """Writes the folds, and first-300 (see the top of the file).

    Args:
      sets: the sets whose pairs are trained on and tested.
      tested: sets that are only tested.
    """
    pairs_of = {name: read_set(data, name) for name in (*sets, *tested)}
    counts = {}
    for fold in range(FOLDS):
        parts = {name: partition(pairs, name, fold) for name, pairs in pairs_of.items()}
        parts |= {name: (parts[name][0], []) for name in tested}
        counts[f"fold-{fold}"] = write_part(folder / f"fold-{fold}", parts, options)
    parts = {}
    for name, first in FIRST.items():
        pairs = pairs_of[name] if name in sets else []
        if len(pairs) > first:
            parts[name] = pairs[first:], pairs[:first]
    if parts:
        counts["first-300"] = write_part(folder / "first-300", parts, options)
    (folder / "duplicates.json").write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))


def read_set(data: Path, name: str) -> list[Pair]:
    (file,) = sorted((data / "alignment").glob(f"{name}.*.tsv.gz"))
    return list(sentence_pairs.read(file, with_gold=True))[: MOST.get(name)]


def english(pair: Pair, name: str) -> list[str]:
    return pair.source if name.startswith("en-") else pair.target


def fold_of(words: Iterable[str]) -> int:
    """Returns the fold of an English sentence, from its letters and digits in lower case."""
    text = "".join(re.findall(r"\w", " ".join(words).lower()))
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % FOLDS


def partition(pairs: Sequence[Pair], name: str, fold: int) -> tuple[list[Pair], list[Pair]]:
    """Returns the pairs of a set in a fold, and the other pairs."""
    folds = [fold_of(english(pair, name)) for pair in pairs]
    both = zip(pairs, folds, strict=True)
    inside, outside = list[Pair](), list[Pair]()
    for pair, of_pair in both:
        (inside if of_pair == fold else outside).append(pair)
    return inside, outside


def write_part(
    folder: Path, parts: dict[str, tuple[list[Pair], list[Pair]]], options: Options
) -> dict[str, dict[str, int]]:
    """Writes the training, dev and test files of a part; returns the numbers of test pairs,
    near-duplicates, training and dev pairs by language pair."""
    folder.mkdir(parents=True, exist_ok=True)
    tests: dict[str, list[Pair]] = collections.defaultdict(list)
    training: dict[str, list[Pair]] = collections.defaultdict(list)
    for name, (test, rest) in parts.items():
        write(folder / f"test.{name}.tsv", test)
        for size in options.joined:
            write(folder / f"test.{name}.x{size}.tsv", join(test, size))
        tests[name.partition(".")[0]] += test
        training[name.partition(".")[0]] += rest
    counts = {name: {"test": len(pairs)} for name, pairs in tests.items()}
    for languages, pairs in training.items():
        if not pairs:
            continue
        near = near_duplicates(pairs, tests[languages])
        if options.duplicates == "remove":
            pairs = [pair for pair, is_near in zip(pairs, near, strict=True) if not is_near]
        pairs = in_hashed_order(pairs)
        pairs = pairs[: options.pairs or None]
        size = max(1, round(DEV_SHARE * len(pairs)))
        write(folder / f"dev.{languages}.tsv", pairs[:size])
        numbers = {"near-duplicates": int(near.sum()), "train": len(pairs) - size, "dev": size}
        counts[languages] |= numbers
        more = join(pairs[size:], options.augment) if options.augment else []
        write(folder / f"train.{languages}.tsv", [*pairs[size:], *more])
    return counts


def in_hashed_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns pairs in an order that depends on their texts only."""
    return sorted(pairs, key=lambda pair: hashlib.sha256(repr(pair[1:3]).encode()).digest())


def near_duplicates(pairs: Sequence[Pair], tests: Sequence[Pair]) -> np.ndarray:
    """Returns which pairs are near-duplicates of a test pair, bool [pairs] (`OVERLAP`)."""
    owners: list[dict[tuple[str, ...], set[int]]] = [{}, {}]
    for number, test in enumerate(tests):
        for side in (0, 1):
            for gram in ngrams(test[1 + side]):
                owners[side].setdefault(gram, set()).add(number)
    near = np.zeros(len(pairs), bool)
    for k, pair in enumerate(pairs):
        matches = []
        for side in (0, 1):
            grams = ngrams(pair[1 + side])
            found = collections.Counter(n for gram in grams for n in owners[side].get(gram, ()))
            matches.append({n for n, count in found.items() if count >= OVERLAP * len(grams)})
        near[k] = bool(matches[0] & matches[1])
    return near


def ngrams(words: Sequence[str]) -> set[tuple[str, ...]]:
    lower = [word.lower() for word in words]
    return {tuple(lower[k : k + NGRAM]) for k in range(max(1, len(lower) - NGRAM + 1))}


def join(pairs: Sequence[Pair], size: int) -> list[Pair]:
    """Joins consecutive pairs to one pair; a last group of fewer pairs is kept."""
    result = []
    for start in range(0, len(pairs), size):
        source, target, sure, possible = list[str](), list[str](), set(), set()
        for pair in pairs[start : start + size]:
            assert pair.gold is not None
            shift = len(source), len(target)
            sure |= {(i + shift[0], j + shift[1]) for i, j in pair.gold.sure}
            possible |= {(i + shift[0], j + shift[1]) for i, j in pair.gold.possible}
            source, target = source + pair.source, target + pair.target
        gold = gold_alignments.Gold(frozenset(sure), frozenset(possible))
        result.append(Pair(pairs[start].where, source, target, gold))
    return result


def write(file: Path, pairs: Iterable[Pair]) -> None:
    lines = []
    for pair in pairs:
        assert pair.gold is not None
        links = [f"{i}-{j}" for i, j in sorted(pair.gold.sure)]
        links += [f"{i}p{j}" for i, j in sorted(pair.gold.possible - pair.gold.sure)]
        lines.append("\t".join([" ".join(pair.source), " ".join(pair.target), " ".join(links)]))
    file.write_text("src\ttgt\tgold\n" + "".join(f"{line}\n" for line in lines), "utf-8")


def train(
    folder: Path, runs: Path, init_from: str, seeds: int, parts: str, changes: Sequence[str]
) -> None:
    """Trains the models of the parts, one after another."""
    names = [name for name in parts.split(",") if name] or [p.name for p in parts_of(folder)]
    for name in names:
        part, keys = folder / name, {"init_from": init_from, "task.seeds": seeds}
        for split_name in ("train", "dev", "test"):
            keys[f"task.{split_name}"] = f"{part}/{split_name}.{{language}}.tsv"
        keys["task.languages"] = ",".join(sorted(names_in(part, "train")))
        keys["task.dev_languages"] = keys["task.languages"]
        keys["task.test_languages"] = ",".join(sorted(names_in(part, "test")))
        command = [sys.executable, "-m", "xlj.finetune", f"--config={RECIPE}"]
        command += [f"--workdir={runs / name}"]
        command += [f"--config.{key}={value}" for key, value in keys.items()]
        subprocess.run([*command, *changes], check=True)


def parts_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def names_in(part: Path, kind: str) -> list[str]:
    return [
        p.name.removeprefix(f"{kind}.").removesuffix(".tsv") for p in part.glob(f"{kind}.*.tsv")
    ]


def table(folder: Path, runs: Path, encoder: Path | None, layer: int | None = None) -> str:
    """Returns a Markdown table of alignment error rates in percent."""
    rows: dict[tuple[str, str], dict[str, list[np.ndarray]]] = {}
    model = xlj.load(encoder) if encoder else None
    for part in parts_of(folder):
        group = part.name if part.name.startswith("first") else "folds"
        for name in sorted(names_in(part, "test")):
            pairs = list(sentence_pairs.read(part / f"test.{name}.tsv", with_gold=True))
            golds = [pair.gold for pair in pairs if pair.gold]
            systems = rows.setdefault((group, name), {})
            for run in sorted((runs / part.name).glob("seed-*")):
                file = run / "predictions" / f"test-{name}.links"
                if file.is_file():
                    links = [g.sure for g in gold_alignments.read(file)]
                    found = [np.array(sorted(each), int).reshape(-1, 2) for each in links]
                    systems.setdefault(run.name, []).append(gold_alignments.count(found, golds))
            for system, (method, together) in AS_IT_IS.items() if model else ():
                chosen = () if layer is None else (layer,)
                links = [x[0] for x in model.aligner(chosen, method, together).align(pairs)]
                systems.setdefault(system, []).append(gold_alignments.count(links, golds))
    lines = ["| part | set | pairs | system | AER | 95 % interval |", "|---|---|---|---|---|---|"]
    for (group, name), systems in rows.items():
        by_system = {system: np.concatenate(counts) for system, counts in systems.items()}
        for system, counted in with_seeds_together(by_system).items():
            low, high = interval(counted)
            shown = f"{100 * rate(counted):.1f} | {100 * low:.1f} to {100 * high:.1f}"
            lines.append(f"| {group} | {name} | {len(counted)} | {system} | {shown} |")
    return "\n".join(lines)


def with_seeds_together(systems: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Adds the sums of the counts of all seeds, if several seeds have counts of the same pairs."""
    seeds = [counts for system, counts in systems.items() if system.startswith("seed-")]
    if len(seeds) < 2 or len({len(counts) for counts in seeds}) > 1:
        return systems
    return {f"{len(seeds)} seeds": np.sum(seeds, axis=0)} | systems


def rate(counts: Any) -> float:
    return gold_alignments.from_counts(*np.asarray(counts).sum(0)).aer


def interval(counts: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the rate: that of the difference to a system without errors."""
    perfect = np.stack([counts[:, 1], counts[:, 1], counts[:, 1], counts[:, 1]], 1)
    result = paired_bootstrap(perfect, counts, rate, samples=2000)
    return result.low, result.high


def layers(encoder: Path, file: Path) -> str:
    """Returns a table of agreement and, with gold links, alignment error rate by layer."""
    model = xlj.load(encoder)
    has_gold = len(Path(file).read_text("utf-8").split("\n", 1)[0].split("\t")) > 2
    pairs = list(sentence_pairs.read(file, with_gold=has_gold))
    words = sum(len(pair.source) + len(pair.target) for pair in pairs)
    all_layers = range(model.layers + 1)
    links = list(model.aligner(all_layers, "argmax", together=False).align(pairs))
    lines = ["| layer | links a word | agreement | AER |", "|---|---|---|---|"]
    for layer in all_layers:
        found = [of_layers[layer] for of_layers in links]
        linked = sum(len(set(x[:, side].tolist())) for x in found for side in (0, 1))
        error = ""
        if has_gold:
            error = (
                f"{100 * gold_alignments.score(found, [p.gold for p in pairs if p.gold]).aer:.1f}"
            )
        count = 2 * sum(map(len, found)) / words
        lines.append(f"| {layer} | {count:.3f} | {100 * linked / words:.1f} | {error} |")
    return "\n".join(lines)


def _align_awesome(params: Any, model: Any, source: Any, target: Any, prior: float) -> Alignment:
    """Aligns as awesome-align: a link has a probability above a threshold in both directions."""
    allowed = same_example(source.ids, target.ids)
    scores = jnp.where(allowed, dot_products(source.vectors, target.vectors), -1e30)
    both = jax.nn.softmax(scores, -1), jax.nn.softmax(scores, -2)
    soft = jnp.where(allowed, jnp.minimum(*both), 0)
    return Alignment(soft, soft > AWESOME_THRESHOLD)


if __name__ == "__main__":
    main()
