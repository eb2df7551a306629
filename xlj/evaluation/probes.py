"""Makes probes that evaluate retrieval, similarity, search and word alignment during training
(config keys `evaluation.*`).

A probe does not change the state of training, and uses no random numbers. `xlj.retrieve`,
`xlj.score --gold`, `xlj.search` and `xlj.align` compute the same results for the checkpoint of the
same step, on the same sample of sentences.

Each kind of evaluation has a section of the config, files that `read_files` reads, and a probe that
`make` makes from them.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from xlj.checkpoints.metrics import LAYER_METRIC
from xlj.config import HELD_OUT, Config, ConfigError, Model, row_kinds
from xlj.config.choices import AlignmentOptions
from xlj.config.languages import is_english
from xlj.data.rows.store import RowStore
from xlj.data.text.templates import fill, split_pair
from xlj.data.tokenizer.layout import Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation import bitext, metrics, sts
from xlj.evaluation.sts import RatedPairs
from xlj.inference.pretrained import Pretrained
from xlj.io import storage
from xlj.io.hashing import sample
from xlj.models.encoder import layer_or_middle
from xlj.retrieval import beir, changed_sentences, sentence_files
from xlj.retrieval.beir import SearchSet
from xlj.retrieval.changed_sentences import Changed
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.pair_scores import Vectors, pair_cosines
from xlj.sharding.trees import Params
from xlj.training.evaluation import Check, Probe, by_phase
from xlj.training.state import State
from xlj.word_alignment import defaults, gold_alignments, sentence_pairs
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair


class Files(NamedTuple):
    """Samples of the files that the config section `evaluation` names, by language pair.

    Attributes:
      parallel: (source sentences, target sentences); sentence i of both lists is a pair.
      gold: sentence pairs with gold links.
      changed: changed forms of the English sentences of `parallel`.
      rated: sentence pairs with gold scores, by language.
      judged: queries with judged documents, by language.
    """

    parallel: dict[str, tuple[list[str], list[str]]]
    gold: dict[str, list[Pair]]
    changed: dict[str, list[Changed]]
    rated: dict[str, RatedPairs]
    judged: dict[str, SearchSet]


def read_files(config: Config) -> Files:
    """Reads and samples the files that the config section `evaluation` names.

    Callers read the files before they build rows, so that errors are reported early.

    Raises:
      ConfigError: if a language or pair has no file or the file of another one, a file cannot be
        read, two files are not parallel, a file has fewer than two sentence pairs or no sure gold
        link, or changed sentences are not of the sample.
    """
    retrieval, similarity = config.evaluation.retrieval, config.evaluation.sts
    search, alignment = config.evaluation.search, config.evaluation.alignment
    result = Files({}, {}, {}, {}, {})
    if retrieval.source and HELD_OUT not in retrieval.source:
        for pair, paths in _find_files(config, "retrieval").items():
            first, second = (_sample(side, retrieval.sentences) for side in _read_sentences(paths))
            result.parallel[pair] = first, second
    if retrieval.changed:
        result.changed.update(_change_english(config, result.parallel))
    if similarity.source:
        for language, (path, *_) in _find_files(config, "sts").items():
            rated = sts.read(path)
            rows = _sample([*zip(rated.pairs, rated.scores, strict=True)], similarity.sentences)
            result.rated[language] = RatedPairs(
                [row[0] for row in rows], [row[1] for row in rows], {}
            )
    if search.source:
        for language, (folder, *_) in _find_files(config, "search").items():
            judged = beir.read(folder, search.split)
            queries = dict(_sample([*judged.queries.items()], search.queries))
            result.judged[language] = judged._replace(queries=queries)
    if alignment.source:
        for name, paths in _find_files(config, "alignment").items():
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


def _change_english(
    config: Config, parallel: Mapping[str, tuple[list[str], list[str]]]
) -> dict[str, list[Changed]]:
    """Returns the changed sentences of each pair with English.

    Raises:
      ConfigError: if no pair has English, or a source has no changed sentence of a sample.
    """
    names, changed = config.evaluation.retrieval.changed, {}
    for pair, sides in parallel.items():
        if (side := _english_side(config, pair)) is not None:
            changed[pair] = changed_sentences.of_sources(names, sides[side])
    if not changed:
        raise ConfigError(
            f"evaluation.retrieval.changed={','.join(names)}: no pair of evaluation.retrieval has "
            "English; add one, or remove evaluation.retrieval.changed"
        )
    return changed


def _english_side(config: Config, pair: str) -> int | None:
    """Returns which side of a pair is English, 0 or 1; None if none is."""
    languages = split_pair(pair, config.data.languages, "evaluation.retrieval.pairs")
    return next((side for side in (0, 1) if is_english(languages[side])), None)


_BY_LANGUAGE = ("sts", "search")
"""The sections of `evaluation` whose files are of one language; other files are of a pair."""


def _placeholders(config: Config, section: str) -> dict[str, dict[str, str]]:
    """Returns the values of the placeholders in `evaluation.SECTION.source`, by language or
    pair."""
    if section in _BY_LANGUAGE:
        languages = getattr(config.evaluation, section).languages or config.data.languages
        return {language: {"language": language} for language in languages}
    pairs = getattr(config.evaluation, section).pairs or config.data.pairs
    by_pair = {}
    for pair in pairs:
        source, target = split_pair(pair, config.data.languages, f"evaluation.{section}.pairs")
        by_pair[pair] = {"pair": pair, "source": source, "target": target}
    return by_pair


def _find_files(config: Config, name: str) -> dict[str, list[Path]]:
    """Returns for each language or pair the files of the first template whose files all exist.

    Args:
      name: the name of a section of `evaluation`. The files of "search" are folders.

    Raises:
      ConfigError: if a language or pair has no file, too many files, or the file of another one.
    """
    section, templates = f"evaluation.{name}", getattr(config.evaluation, name).source
    names = "languages" if name in _BY_LANGUAGE else "pairs"
    exists = Path.is_dir if name == "search" else Path.is_file
    by_name: dict[str, list[Path]] = {}
    owners: dict[tuple[Path, ...], str] = {}
    for owner, values in _placeholders(config, name).items():
        filled = [fill(template, values, f"{section}.source") for template in templates]
        candidates = [[Path(part).expanduser() for part in text.split("|")] for text in filled]
        paths = next((paths for paths in candidates if all(map(exists, paths))), None)
        if paths is None:
            missing = next(path for path in candidates[0] if not exists(path))
            raise ConfigError(
                f"{section}.source has no file for {owner}; tried {', '.join(filled)}"
                f"{storage.what_is_there(missing)}. Fix the path, or list only the {names} with "
                f"files in {section}.{names}"
            )
        if len(paths) > (1 if name in _BY_LANGUAGE else 2):
            most, form = "two files", " or SOURCE|TARGET"
            if name in _BY_LANGUAGE:
                most, form = "one file", ""
            raise ConfigError(
                f"{section}.source: {filled[0]} names more than {most}; expected FILE{form}"
            )
        other = owners.setdefault(tuple(paths), owner)
        if other != owner:
            raise ConfigError(
                f"{section}.source: {other} and {owner} have the same file {paths[0]}; use "
                f"{{{next(iter(values))}}} in the path"
            )
        by_name[owner] = paths
    return by_name


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


def make(
    config: Config,
    files: Files,
    store: RowStore,
    vocabulary: Vocabulary,
    trained_on_pairs: bool = False,
) -> list[Probe]:
    """Makes the probes for the section `evaluation` of a config.

    Args:
      trained_on_pairs: whether the model is trained on pairs that are encoded together, which
        selects the default options of word alignment.
      files: the samples of the files that this section names (`read_files`).
      store: the rows of the run, which contain the held-out pairs.
      vocabulary: the vocabulary of the rows.
    """
    evaluation = config.evaluation
    sides = {
        pair: (vocabulary.encode(first), vocabulary.encode(second))
        for pair, (first, second) in files.parallel.items()
    } or _read_held_out(config, store)
    hard = {
        pair: HardSide(side, files.parallel[pair][side], changed)
        for pair, changed in files.changed.items()
        if (side := _english_side(config, pair)) is not None
    }
    probes: list[Probe] = []
    if sides:
        layer = evaluation.retrieval.layer
        probes.append(
            by_phase(config, lambda model: retrieval(model, vocabulary, layer, sides, hard))
        )
    if files.rated:
        of_pairs = evaluation.sts.layer
        probes.append(
            by_phase(config, lambda model: similarity(model, vocabulary, of_pairs, files.rated))
        )
    if files.judged:
        of_texts = evaluation.search.layer
        probes.append(
            by_phase(config, lambda model: search(model, vocabulary, of_texts, files.judged))
        )
    held_out = _read_agreement_pairs(config, store)
    if files.gold or held_out:
        options, gold = evaluation.alignment, files.gold

        def of_phase(model: Model) -> Probe:
            return alignment(model, vocabulary, options, gold, held_out, trained_on_pairs)

        probes.append(by_phase(config, of_phase))
    return probes


class HardSide(NamedTuple):
    """The English side of a language pair, with its changed sentences.

    Attributes:
      side: 0 for the source, 1 for the target.
    """

    side: int
    sentences: list[str]
    changed: list[Changed]


def retrieval(
    model: Model,
    vocabulary: Vocabulary,
    layer: int,
    sides: Mapping[str, Sides],
    hard: Mapping[str, HardSide] = MappingProxyType({}),
) -> Probe:
    """Returns a probe that measures sentence retrieval.

    The metrics are eval/sentence_retrieval/PAIR/accuracy, .../f1 and .../xsim (`bitext.Scores`,
    averaged over both directions), .../xsimpp (xsim++ into English) for the pairs in `hard`, and
    the means over pairs, such as eval/sentence_retrieval/accuracy.

    Args:
      layer: the layer whose vectors are compared; -1 for the layer at two thirds of the depth.
      sides: the tokenized (source, target) sentences of each language pair.
      hard: the changed sentences of language pairs with English.
    """
    texts = {pair: tuple(map(_texts, both)) for pair, both in sides.items()}
    changed = [vocabulary.encode([x.text for x in english.changed]) for english in hard.values()]
    embed = _embedding(model, vocabulary, layer, [*itertools.chain(*sides.values()), *changed])

    def measure(params: Params, check: Check) -> dict[str, dict[str, float]]:
        vectors = iter(embed(params, check))
        by_pair = {pair: (next(vectors), next(vectors)) for pair in sides}
        by_name = {}
        for pair, both in by_pair.items():
            check()
            first, second = texts[pair]
            scores = bitext.score(bitext.search(*both), (first, second))
            means = np.mean(scores, axis=0).tolist()
            by_name[pair] = bitext.Scores(*means)._asdict()
        for (pair, english), changed_vectors in zip(hard.items(), vectors, strict=True):
            check()
            target = by_pair[pair][english.side]
            plus_plus = bitext.score_plus_plus(
                by_pair[pair][1 - english.side], target, english.sentences, english.changed,
                changed_vectors,
            )  # fmt: skip
            by_name[pair]["xsimpp"] = plus_plus.error
        return by_name

    return _probe("sentence_retrieval", measure)


def similarity(
    model: Model, vocabulary: Vocabulary, layer: int, rated: Mapping[str, RatedPairs]
) -> Probe:
    """Returns a probe that measures semantic textual similarity.

    The metrics are eval/sts/LANGUAGE/spearman and eval/sts/LANGUAGE/pearson, the correlations of
    cosines with gold scores, and the means over languages.

    Args:
      layer: the layer whose vectors are compared; -1 for the layer at two thirds of the depth.
    """
    texts = [[pair[side] for pair in each.pairs] for each in rated.values() for side in (0, 1)]
    embed = _embedding(model, vocabulary, layer, list(map(vocabulary.encode, texts)))

    def measure(params: Params, check: Check) -> dict[str, dict[str, float]]:
        vectors = iter(embed(params, check))
        return {
            language: sts.correlate(
                pair_cosines(Vectors([next(vectors)]), Vectors([next(vectors)])).tolist(),
                each.scores,
            )._asdict()
            for language, each in rated.items()
        }

    return _probe("sts", measure)


def search(
    model: Model, vocabulary: Vocabulary, layer: int, judged: Mapping[str, SearchSet]
) -> Probe:
    """Returns a probe that measures search with judged queries.

    The metrics are eval/search/LANGUAGE/ndcg@10, .../mrr@10 and .../recall@10
    (`metrics.ranking_scores`), and the means over languages.

    Args:
      layer: the layer whose vectors are compared; -1 for the layer at two thirds of the depth.
    """
    chosen = layer_or_middle(layer, model.layers)

    def measure(params: Params, check: Check) -> dict[str, dict[str, float]]:
        embedder = Embedder(Pretrained(params, model, vocabulary), [chosen], "mean")
        scores = {}
        for language, each in judged.items():
            check()
            run = beir.run_of(each, beir.rank(each, embedder, embedder, _FOUND, with_bar=False))
            of_queries = metrics.ranking_scores(run, each.judgements, (_FOUND,))
            scores[language] = metrics.mean_scores(of_queries)
        return scores

    return _probe("search", measure)


_FOUND = 10  # the number of documents that are found for a query


def _embedding(
    model: Model, vocabulary: Vocabulary, layer: int, texts: Sequence[Ragged]
) -> Callable[[Params, Check], list[np.ndarray]]:
    """Returns a function (parameters, check) -> the mean vectors of each text, float32 [sentences,
    hidden]. All texts share batches, so that few shapes are compiled."""
    sentences = Ragged(
        np.concatenate([text.ids for text in texts]),
        np.concatenate([text.lengths for text in texts]),
    )
    bounds = np.cumsum([len(text.lengths) for text in texts])[:-1]
    chosen = layer_or_middle(layer, model.layers)

    def embed(params: Params, check: Check) -> list[np.ndarray]:
        embedder = Embedder(Pretrained(params, model, vocabulary), [chosen], "mean")
        return np.split(embedder.embed_ids(sentences, check)[0], bounds)

    return embed


def alignment(
    model: Model,
    vocabulary: Vocabulary,
    options: AlignmentOptions,
    gold: Mapping[str, Sequence[Pair]],
    held_out: Mapping[str, Sides] = MappingProxyType({}),
    trained_on_pairs: bool = False,
) -> Probe:
    """Returns a probe that measures word alignment.

    The metrics of pairs with gold links are eval/word_alignment/PAIR/aer (the alignment error
    rate), .../precision and .../links_a_word (twice the number of links, divided by the number of
    words of both sides). For held-out pairs, .../agreement is the share of pieces that have a link
    on which both directions agree, by the method argmax. Measures without PAIR are the means over
    pairs. If there are held-out pairs, and the options name no layer, the layer is the one with the
    highest mean agreement, and eval/word_alignment/layer is its number.
    """
    all_pairs = [pair for pairs in gold.values() for pair in pairs]
    pieces = {name: _split(sides) for name, sides in held_out.items()}

    def probe(state: State, check: Check = bool) -> dict[str, float]:
        pretrained = Pretrained(state.params, model, vocabulary, trained_on_pairs=trained_on_pairs)
        chosen = defaults.resolve(options, pretrained)
        scores: dict[str, dict[str, float]] = {name: {} for name in (*pieces, *gold)}
        of_run: dict[str, float] = {}
        if pieces:
            shares = agreement(pretrained, chosen, pieces, check)
            if options.layer < 0:
                layer = int(np.mean([*shares.values()], axis=0).argmax())
                chosen = dataclasses.replace(chosen, layer=layer)
                of_run = {LAYER_METRIC: layer}
            for name, of_layers in shares.items():
                scores[name]["agreement"] = float(of_layers[chosen.layer])
        links = Aligner(pretrained, chosen).align(all_pairs, check)
        for name, pairs in gold.items():
            found = [next(links)[0] for _ in pairs]
            of_pair = gold_alignments.score(found, [pair.gold for pair in pairs if pair.gold])
            words = sum(len(pair.source) + len(pair.target) for pair in pairs)
            scores[name] |= {
                "aer": of_pair.aer,
                "precision": of_pair.precision,
                "links_a_word": 2 * sum(map(len, found)) / max(words, 1),
            }
        return _with_means("word_alignment", scores) | of_run

    return probe


def agreement(
    pretrained: Pretrained,
    options: AlignmentOptions,
    pieces: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]],
    check: Check = bool,
) -> dict[str, np.ndarray]:
    """Computes the agreement of both directions at each layer by language pair.

    It is the share of the pieces of both sides that have a link, if each piece is linked with the
    most similar piece of the other side, and links on which both directions agree are kept.

    Args:
      options: the encoding of pairs; the method is not read.
      pieces: the ids of both sentences of each pair, int [pieces].

    Returns:
      float [layers + 1] for each language pair.
    """
    options = dataclasses.replace(options, method="argmax")
    aligner = Aligner(pretrained, options, range(pretrained.model.layers + 1))
    return {
        name: 2 * aligner.count_links(pairs, check) / max(sum(len(x) for p in pairs for x in p), 1)
        for name, pairs in pieces.items()
    }


Measure = Callable[[Params, Check], Mapping[str, Mapping[str, float]]]
"""A function (parameters, check) -> values by language or pair, then by measure."""


def _probe(name: str, measure: Measure) -> Probe:
    """Returns a probe with the values of `measure` and, for each measure, their mean."""

    def probe(state: State, check: Check = bool) -> dict[str, float]:
        return _with_means(name, measure(state.params, check))

    return probe


def _with_means(name: str, by_owner: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the metrics of values by language or pair and by measure, and the mean of each
    measure."""
    metrics: dict[str, float] = {}
    by_measure: dict[str, list[float]] = {}
    for owner, values in by_owner.items():
        for key, value in values.items():
            metrics[f"eval/{name}/{owner}/{key}"] = value
            by_measure.setdefault(key, []).append(value)
    means = {f"eval/{name}/{key}": float(np.mean(x)) for key, x in by_measure.items()}
    return metrics | means


def _read_held_out(config: Config, store: RowStore) -> dict[str, Sides]:
    """Returns the held-out sentence pairs of each language pair with at least two of them; empty if
    the config does not evaluate on them."""
    options = config.evaluation.retrieval
    if HELD_OUT not in options.source or not {*_PAIRS} & {*_kinds_of(config)}:
        return {}
    pairs = options.pairs or config.data.pairs
    read_files = {pair: read_held_out_pairs(store, pair, options.sentences) for pair in pairs}
    return {pair: sides for pair, sides in read_files.items() if len(sides[0].lengths) > 1}


def _read_agreement_pairs(config: Config, store: RowStore) -> dict[str, Sides]:
    """Returns the held-out sentence pairs of each language pair that has some; empty if the config
    does not measure agreement.

    Raises:
      ConfigError: if the config measures agreement, but no pair is held out.
    """
    options = config.evaluation.alignment
    if not options.agreement or not {*_PAIRS} & {*_kinds_of(config)}:
        return {}
    read = {pair: read_held_out_pairs(store, pair, options.sentences) for pair in config.data.pairs}
    filled = {pair: sides for pair, sides in read.items() if len(sides[0].lengths)}
    if not filled:
        raise ConfigError(
            "evaluation.alignment.agreement is on, but no sentence pair is held out; raise "
            "data.held_out_share"
        )
    return filled


def _split(sides: Sides) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the ids of both sentences of each pair."""
    parts = (np.split(side.ids.astype(np.int32), side.starts[1:]) for side in sides)
    return list(zip(*parts, strict=True))


_PAIRS = ("pairs", "bitext", "taught_pairs")
"""The kinds of rows of sentence pairs."""


def _kinds_of(config: Config) -> list[str]:
    return [options.rows_name for options in config.objectives_on().values()]


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
    name = next(name for kind in _PAIRS if (name := f"{kind}.{pair}") in names)
    rows = store.task(name).held_out.rows
    kind = name.partition(".")[0]
    first, second = row_kinds.load(kind).unpack(store.read(name, "held_out", np.arange(rows)))
    distinct = np.flatnonzero(_occurs_once(first) & _occurs_once(second))
    keep = np.zeros(len(first.lengths), bool)
    keep[distinct[sample(count, len(distinct))]] = True
    return first.select(keep), second.select(keep)


def _occurs_once(sentences: Ragged) -> np.ndarray:
    """Marks the sentences that occur exactly once: bool [sentences]."""
    texts = _texts(sentences)
    counts = Counter(texts)
    return np.array([counts[text] == 1 for text in texts], bool)


def _texts(sentences: Ragged) -> list[bytes]:
    """Returns the ids of each sentence as bytes; equal sentences have equal bytes."""
    ends = sentences.starts + sentences.lengths
    spans = zip(sentences.starts.tolist(), ends.tolist(), strict=True)
    return [sentences.ids[start:end].tobytes() for start, end in spans]
