"""Makes probes that evaluate retrieval and word alignment during training (config keys
`evaluation.*`).

A probe does not change the state of training, and uses no random numbers. `xlj.retrieve` and
`xlj.align` compute the same results for the checkpoint of the same step, on the same sample of
sentences.

`read` reads what the probes use: the sentence pairs of held-out rows, and files of parallel
sentences and gold word alignments.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import HELD_OUT, Config, ConfigError, Model, row_kinds
from xlj.config.choices import AlignmentOptions
from xlj.config.sections import AlignmentEvaluation, RetrievalEvaluation
from xlj.data.rows.store import RowStore
from xlj.data.text.templates import fill, split_pair
from xlj.data.tokenizer.layout import Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.inference.pretrained import Pretrained
from xlj.io import storage
from xlj.io.hashing import sample
from xlj.models.encoder import layer_or_middle
from xlj.retrieval import sentence_files
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.search import accuracy, nearest
from xlj.sharding.trees import Params
from xlj.training.evaluation import Check, Probe, by_phase
from xlj.training.state import State
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair


class Files(NamedTuple):
    """Samples of the files that the config section `evaluation` names, by language pair.

    Attributes:
      parallel: (source sentences, target sentences); sentence i of both lists is a pair.
      gold: sentence pairs with gold links.
    """

    parallel: dict[str, tuple[list[str], list[str]]]
    gold: dict[str, list[Pair]]


def read_files(config: Config) -> Files:
    """Reads and samples the files that the config section `evaluation` names.

    Callers read the files before they build rows, so that errors are reported early.

    Raises:
      ConfigError: if a language pair has no file or the file of another pair, a file cannot be
        read, two files are not parallel, or a file has fewer than two sentence pairs or no sure
        gold link.
    """
    retrieval, alignment = config.evaluation.retrieval, config.evaluation.alignment
    result = Files({}, {})
    if retrieval.source and HELD_OUT not in retrieval.source:
        for pair, paths in _find_files(config, retrieval, "evaluation.retrieval").items():
            first, second = (_sample(side, retrieval.sentences) for side in _read_sentences(paths))
            result.parallel[pair] = first, second
    if alignment.source:
        for name, paths in _find_files(config, alignment, "evaluation.alignment").items():
            _, lines = sentence_pairs.read_checked(
                paths[0], "" if len(paths) == 1 else str(paths[1])
            )
            pairs = list(lines)
            if not any(pair.gold and pair.gold.sure for pair in pairs):
                raise ConfigError(f"{paths[-1]} has no sure gold link, but AER needs at least one")
            result.gold[name] = _sample(pairs, alignment.sentences)
    return result


def _sample(items: list, count: int) -> list:
    """Returns at most `count` items in their original order, the same items in every call."""
    return [items[place] for place in sorted(sample(count, len(items)))]


def _find_files(
    config: Config, options: RetrievalEvaluation | AlignmentEvaluation, section: str
) -> dict[str, list[Path]]:
    """Returns for each language pair the files of the first template whose files all exist.

    Raises:
      ConfigError: if a pair has no file, more than two files, or the file of another pair.
    """
    by_pair: dict[str, list[Path]] = {}
    pair_of_paths: dict[tuple[Path, ...], str] = {}
    for pair in options.pairs or config.data.pairs:
        source, target = split_pair(pair, config.data.languages, f"{section}.pairs")
        values = {"pair": pair, "source": source, "target": target}
        filled = [fill(template, values, f"{section}.source") for template in options.source]
        candidates = [[Path(part).expanduser() for part in text.split("|")] for text in filled]
        paths = next((paths for paths in candidates if all(map(Path.is_file, paths))), None)
        if paths is None:
            missing = next(path for path in candidates[0] if not path.is_file())
            raise ConfigError(
                f"{section}.source has no file for {pair}; tried {', '.join(filled)}"
                f"{storage.what_is_there(missing)}. Fix the path, or list only the pairs with "
                f"files in {section}.pairs"
            )
        if len(paths) > 2:
            raise ConfigError(
                f"{section}.source: {filled[0]} names more than two files; expected "
                "FILE or SOURCE|TARGET"
            )
        other = pair_of_paths.setdefault(tuple(paths), pair)
        if other != pair:
            raise ConfigError(
                f"{section}.source: {other} and {pair} have the same file {paths[0]}; use {{pair}} "
                "in the path"
            )
        by_pair[pair] = paths
    return by_pair


def _read_sentences(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    if len(paths) == 2:
        first, second = sentence_files.read_parallel(*paths)
    else:
        pairs = [pair for pair in sentence_pairs.read_texts(paths[0]) if any(pair.texts)]
        first, second = ([pair.texts[side].strip() for pair in pairs] for side in range(2))
    if len(first) < 2:
        raise ConfigError(
            f"{paths[0]} has fewer than two sentence pairs; retrieval needs at least two"
        )
    return first, second


Sides = tuple[Ragged, Ragged]


def make(config: Config, files: Files, store: RowStore, vocabulary: Vocabulary) -> list[Probe]:
    """Makes the probes for the section `evaluation` of a config.

    Args:
      files: the samples of the files that this section names (`read_files`).
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
    read_files = {pair: read_held_out_pairs(store, pair, options.sentences) for pair in pairs}
    return {pair: sides for pair, sides in read_files.items() if len(sides[0].lengths) > 1}


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
