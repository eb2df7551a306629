"""Makes probes that evaluate retrieval and word alignment during training (config keys
`evaluation.*`).

A probe does not change the state of training, and uses no random numbers. `xlj.retrieve` and
`xlj.align` compute the same results for the checkpoint of the same step, on the same sample of
sentences.

Also reads the sentence pairs of held-out rows.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from xlj.config import HELD_OUT, Config, Model, row_kinds
from xlj.config.choices import AlignmentOptions
from xlj.data.ragged import Ragged
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.probe_files import Files
from xlj.inference.pretrained import Pretrained
from xlj.io.hashing import sample
from xlj.models.encoder import layer_or_middle
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.search import accuracy, nearest
from xlj.sharding.trees import Params
from xlj.training.evaluation import Check, Probe, by_phase
from xlj.training.state import State
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair

Sides = tuple[Ragged, Ragged]


def make(config: Config, files: Files, store: RowStore, vocabulary: Vocabulary) -> list[Probe]:
    """Makes the probes for the section `evaluation` of a config.

    Args:
      files: the samples of the files that this section names (`probe_files.read`).
      store: the rows of the run, which contain the held-out pairs.
      vocabulary: the vocabulary of the rows.
    """
    sides = {
        pair: (vocabulary.encode(first), vocabulary.encode(second))
        for pair, (first, second) in files.parallel.items()
    } or _read_held_out(config, store)
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
    """Returns a probe that measures sentence retrieval.

    The metrics are eval/sentence_retrieval/PAIR/accuracy (accuracy@1, averaged over both
    directions) and eval/sentence_retrieval/accuracy (the mean over pairs).

    Args:
      layer: the layer whose vectors are compared; -1 for the layer at two thirds of the depth.
      sides: the tokenized (source, target) sentences of each language pair.
    """
    all_sides = [side for both in sides.values() for side in both]
    ids, lengths = [side.ids for side in all_sides], [side.lengths for side in all_sides]
    sentences = Ragged(np.concatenate(ids), np.concatenate(lengths))
    bounds = np.cumsum([len(side.lengths) for side in all_sides])[:-1]
    chosen = layer_or_middle(layer, model.layers)

    def measure(params: Params, check: Check) -> dict[str, float]:
        embedder = Embedder(Pretrained(params, model, vocabulary), [chosen], "mean")
        vectors = iter(np.split(embedder.embed_ids(sentences, check)[0], bounds))
        accuracies = {}
        for pair in sides:
            check()
            accuracies[pair] = float(np.mean(accuracy(nearest(next(vectors), next(vectors)))))
        return accuracies

    return _probe("sentence_retrieval", "accuracy", measure)


def alignment(
    model: Model,
    vocabulary: Vocabulary,
    options: AlignmentOptions,
    gold: Mapping[str, Sequence[Pair]],
) -> Probe:
    """Returns a probe that measures word alignment.

    The metrics are eval/word_alignment/PAIR/aer (the alignment error rate) and
    eval/word_alignment/aer (the mean over pairs).
    """
    all_pairs = [pair for pairs in gold.values() for pair in pairs]

    def measure(params: Params, check: Check) -> dict[str, float]:
        links = Aligner(Pretrained(params, model, vocabulary), options).align(all_pairs, check)
        return {
            name: gold_alignments.score(
                [next(links)[0] for _ in pairs], [pair.gold for pair in pairs if pair.gold]
            ).aer
            for name, pairs in gold.items()
        }

    return _probe("word_alignment", "aer", measure)


def _probe(name: str, key: str, measure: Callable[[Params, Check], dict[str, float]]) -> Probe:
    def probe(state: State, check: Check = bool) -> dict[str, float]:
        by_pair = measure(state.params, check)
        metrics = {f"eval/{name}/{pair}/{key}": value for pair, value in by_pair.items()}
        return metrics | {f"eval/{name}/{key}": float(np.mean(list(by_pair.values())))}

    return probe


def _read_held_out(config: Config, store: RowStore) -> dict[str, Sides]:
    """Returns the held-out sentence pairs of each language pair with at least two of them; empty if
    the config does not evaluate on them."""
    options = config.evaluation.retrieval
    if HELD_OUT not in options.source or not {"pairs", "bitext"} & set(config.row_kinds()):
        return {}
    pairs = options.pairs or config.data.pairs
    read = {pair: read_held_out_pairs(store, pair, options.sentences) for pair in pairs}
    return {pair: sides for pair, sides in read.items() if len(sides[0].lengths) > 1}


def read_held_out_pairs(store: RowStore, pair: str, count: int) -> tuple[Ragged, Ragged]:
    """Samples held-out sentence pairs of a language pair; the sample is always the same.

    Pairs with a sentence that occurs more than once on its side are omitted, because retrieval
    would have several correct answers.

    Args:
      store: the row store.
      pair: the language pair, such as `en-de`. The store must have rows of it.
      count: maximum number of pairs.

    Returns:
      The first and the second sentences of 0 to `count` pairs, as token ids without special tokens.
    """
    names = {task.name for task in store.manifest.tasks}
    name = next(name for name in (f"pairs.{pair}", f"bitext.{pair}") if name in names)
    rows = store.task(name).held_out.rows
    kind = name.partition(".")[0]
    first, second = row_kinds.load(kind).unpack(store.read(name, "held_out", np.arange(rows)))
    distinct = np.flatnonzero(_occurs_once(first) & _occurs_once(second))
    keep = np.zeros(len(first.lengths), bool)
    keep[distinct[sample(count, len(distinct))]] = True
    return first.select(keep), second.select(keep)


def _occurs_once(sentences: Ragged) -> np.ndarray:
    """Marks the sentences that occur exactly once: bool [sentences]."""
    ends = sentences.starts + sentences.lengths
    spans = zip(sentences.starts.tolist(), ends.tolist(), strict=True)
    texts = [sentences.ids[start:end].tobytes() for start, end in spans]
    counts = Counter(texts)
    return np.array([counts[text] == 1 for text in texts], bool)
