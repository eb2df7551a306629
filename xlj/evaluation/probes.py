"""Retrieval and word alignment while an encoder is trained: `evaluation.*`, as probes of the loop.

A probe reads the parameters where they are, uses no random numbers, and gives what `xlj.retrieve`
and `xlj.align` print for the checkpoint of the same step, on the sample that the config asks for.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from xlj.config import HELD_OUT, Config, Model
from xlj.config.choices import AlignmentOptions
from xlj.data.ragged import Ragged
from xlj.data.rows import held_out_pairs
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.probe_files import Files
from xlj.inference.pretrained import Pretrained
from xlj.models.encoder import Params, layer_or_middle
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.nearest import accuracy, nearest
from xlj.training.lines import Check, Probe, by_phase
from xlj.training.state import State
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair

Sides = tuple[Ragged, Ragged]


def make(config: Config, files: Files, store: RowStore, vocabulary: Vocabulary) -> list[Probe]:
    """The probes that a config asks for, of its files, and of the held-out pairs of its store.

    Args:
      vocabulary: of the rows.
    """
    sides = {
        pair: (vocabulary.encode(first), vocabulary.encode(second))
        for pair, (first, second) in files.parallel.items()
    } or _held_out(config, store)
    probes: list[Probe] = []
    if sides:
        layer = config.evaluation.retrieval.layer
        probes.append(by_phase(config, lambda model: retrieval(model, vocabulary, layer, sides)))
    if files.gold:
        options, gold = config.evaluation.alignment, files.gold
        probes.append(by_phase(config, lambda model: alignment(model, vocabulary, options, gold)))
    return probes


def retrieval(
    model: Model, vocabulary: Vocabulary, layer: int, sides: Mapping[str, Sides]
) -> Probe:
    """Measures eval/sentence_retrieval/PAIR/accuracy, accuracy@1 averaged over both directions;
    without a pair, the mean over pairs. Layer -1 means two thirds of the layers."""
    every = [side for both in sides.values() for side in both]
    ids, lengths = [side.ids for side in every], [side.lengths for side in every]
    sentences = Ragged(np.concatenate(ids), np.concatenate(lengths))
    bounds = np.cumsum([len(side.lengths) for side in every])[:-1]
    chosen = layer_or_middle(layer, model.layers)

    def measure(params: Params, check: Check) -> dict[str, float]:
        embedder = Embedder(Pretrained(params, model, vocabulary), [chosen], "mean")
        vectors = iter(np.split(embedder.embed_ids(sentences, check)[0], bounds))
        found = {}
        for pair in sides:
            check()
            found[pair] = float(np.mean(accuracy(nearest(next(vectors), next(vectors)))))
        return found

    return _probe("sentence_retrieval", "accuracy", measure)


def alignment(
    model: Model,
    vocabulary: Vocabulary,
    options: AlignmentOptions,
    gold: Mapping[str, Sequence[Pair]],
) -> Probe:
    """Measures eval/word_alignment/PAIR/aer, the alignment error rate; without a pair, the mean
    over pairs."""
    every = [pair for pairs in gold.values() for pair in pairs]

    def measure(params: Params, check: Check) -> dict[str, float]:
        links = Aligner(Pretrained(params, model, vocabulary), options).align(every, check)
        return {
            name: gold_alignments.score(
                [next(links)[0] for _ in pairs], [pair.gold for pair in pairs if pair.gold]
            ).aer
            for name, pairs in gold.items()
        }

    return _probe("word_alignment", "aer", measure)


def _probe(name: str, key: str, measure: Callable[[Params, Check], dict[str, float]]) -> Probe:
    def probe(state: State, check: Check = bool) -> dict[str, float]:
        found = measure(state.params, check)
        metrics = {f"eval/{name}/{pair}/{key}": value for pair, value in found.items()}
        return metrics | {f"eval/{name}/{key}": float(np.mean(list(found.values())))}

    return probe


def _held_out(config: Config, store: RowStore) -> dict[str, Sides]:
    """The run's held-out sentence pairs; language pairs that have fewer than two are left out."""
    options = config.evaluation.retrieval
    if HELD_OUT not in options.source or not {"pairs", "bitext"} & set(config.row_kinds()):
        return {}
    pairs = options.pairs or config.data.pairs
    read = {pair: held_out_pairs.read(store, pair, options.sentences) for pair in pairs}
    return {pair: sides for pair, sides in read.items() if len(sides[0].lengths) > 1}
