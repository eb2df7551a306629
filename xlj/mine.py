r"""Finds sentences of two texts that translate each other.

    python -m xlj.mine --checkpoint=DIR --source=de.txt --target=en.txt --output=pairs.tsv \
        --threshold=1.06

The texts have one sentence per line; they may differ in order and number of lines. Each output line
is `source TAB target`. --gold=FILE names known translations, on which the command prints precision,
recall and F1. Without --threshold, it also chooses the threshold with the best F1 on them (the task
of BUCC). More: docs/retrieve.md

    python -m xlj.mine --negatives --checkpoint=DIR --examples='pairs/{language}.jsonl' \
        --languages=en,de --ranks=10-100 --output='mined/{language}.jsonl'

With --negatives, finds negatives for examples of sentence encoders: passages that are similar to a
query, but less than its positive. More: docs/data.md
"""

import itertools
import json
import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import command, compute_flags, outputs, sentence_vectors
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    import numpy as np

    from xlj.retrieval.mining import PairIndices
    from xlj.retrieval.negatives import Examples
    from xlj.retrieval.search import Neighbours
    from xlj.retrieval.sentence_files import Sentences


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_pair_flags(
        parser,
        "one sentence per line, or `id TAB sentence`",
        "; or the columns of the ids and the sentences",
        required=False,
    )
    add(
        "--threshold",
        metavar="T",
        type=float,
        help="minimum margin of a pair. The margin is the cosine of the pair divided by the mean "
        "cosine of both sentences with their nearest neighbours [the threshold with the best F1 on "
        "--gold]",
    )
    parser.add_file(
        "--gold",
        "file of true pairs, one `source id TAB target id` per line; the command then prints "
        "precision, recall and F1",
    )
    parser.add_file(
        "--output", "file for the pairs, best pair first; with --shard, a folder of parts"
    )
    outputs.add_shard_flag(parser)
    sentence_vectors.add_search_flags(
        parser,
        "compute margins only for candidates from a FAISS index, and print the recall compared "
        "with the exact search",
    )
    outputs.add_scores(parser, "margin of each pair")
    sentence_vectors.add_drop_copies(parser)
    _add_negatives(parser)


_RULE = {"ranks": "1-100", "count": 7, "margin": 0.0, "relative_margin": 0.95}
"""The flags that select negatives, with their defaults."""


def _add_negatives(parser: Parser) -> None:
    add = parser.add_argument
    add("--negatives", action="store_true", help="mine negatives for --examples")
    add(
        "--examples",
        metavar="FILES",
        help="with --negatives: examples, in the formats of data.examples; with {language}, a file "
        "for each of --languages, which are searched separately",
    )
    add(
        "--corpus",
        metavar="FILE",
        help="with --negatives: more passages to search, one per line; may contain {language} "
        "[only the positives of the examples]",
    )
    add("--languages", metavar="L", help="with --negatives: languages, such as en,de")
    add(
        "--ranks",
        metavar="A-B",
        help="with --negatives: ranks among the passages, without the positives [1-100]",
    )
    add(
        "--count",
        metavar="N",
        type=at_least(1),
        help="with --negatives: maximum number of negatives of a query [7]",
    )
    add(
        "--margin",
        metavar="M",
        type=float,
        help="with --negatives: the cosine of a negative is at most the cosine of the positive "
        "minus M [0]",
    )
    add(
        "--relative_margin",
        metavar="R",
        type=float,
        help="with --negatives: the cosine of a negative is at most R times the cosine of the "
        "positive [0.95]",
    )


def check(flags: Namespace) -> None:
    """Raises a `ConfigError` if flags contradict each other, or the output cannot be written."""
    for name in ("examples", "corpus", "languages", *_RULE):
        if getattr(flags, name) is not None:
            raise ConfigError(f"--{name} needs --negatives")
    for name in ("source", "target"):
        if getattr(flags, name) is None:
            raise ConfigError(f"name a text file with --{name}=FILE")
    if flags.threshold is None and flags.gold is None:
        raise ConfigError(
            "set the minimum margin of a pair with --threshold=T (for example 1.06; 0 keeps all "
            "pairs), or determine it with --gold=FILE"
        )
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is not a number")
    if flags.gold is None and flags.output is None:
        raise ConfigError(
            "nothing to do: name a file for the pairs with --output=FILE, or score them with --gold"
        )
    sentence_vectors.check_search(flags)
    if flags.scores and flags.output is None:
        raise ConfigError("--scores writes a column of --output; set --output=FILE")
    if flags.shard and flags.output is None:
        raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
    if flags.shard:
        outputs.check_folder("output", flags.output)
        return
    names = ("checkpoint", "source", "target", "gold")
    outputs.check_output("output", flags.output, [(name, getattr(flags, name)) for name in names])


@command.entry("mine", __doc__, add)
def main(flags: Namespace) -> None:
    """Mines pairs or, with --negatives, negatives."""
    if flags.negatives:
        _mine_negatives(flags, *check_negatives(flags))
    else:
        check(flags)
        _mine_pairs(flags)


def _mine_pairs(flags: Namespace) -> None:
    """Embeds both texts, mines pairs, writes them and prints scores."""
    import numpy as np

    from xlj.evaluation.metrics import best_threshold, pair_scores
    from xlj.io import file_ranges
    from xlj.retrieval import mining, sentence_files
    from xlj.retrieval.search import centre

    files = [file_ranges.files_of_flag(name, getattr(flags, name)) for name in ("source", "target")]
    source, target = (
        sentence_files.read_with_ids(*paths, columns=flags.columns) for paths in files
    )
    for path, read in ((flags.source, source), (flags.target, target)):
        sentence_vectors.check_centred(flags, path, read.texts)
    gold = _gold(flags, source, target) if flags.gold else None
    all_vectors = None
    if flags.shard:
        all_vectors = _embed_shard(flags, files)
        if all_vectors is None:
            return
    first_indices = [mining.first_occurrences(side.texts) for side in (source, target)]
    texts, names = (
        [
            [values[i] for i in first]
            for values, first in zip(both_sides, first_indices, strict=True)
        ]
        for both_sides in ((source.texts, target.texts), (_names(source), _names(target)))
    )
    embedder = sentence_vectors.load_embedder(flags)
    if all_vectors is None:
        vectors = [layers[0] for layers in sentence_vectors.embed(flags, embedder, *texts)]
        sentence_vectors.report_truncated(embedder)
    else:
        vectors = [side[first] for side, first in zip(all_vectors, first_indices, strict=True)]
        for side in vectors if flags.centred else ():
            centre(side)
    mined, recall = _mine(flags, *vectors)
    mined = _handle_copies(flags, mined, texts)
    ends = zip(mined.sources.tolist(), mined.targets.tolist(), strict=True)
    pairs = [(names[0][i], names[1][j]) for i, j in ends]
    threshold = flags.threshold
    if gold and threshold is None:
        is_correct = np.array([pair in gold for pair in pairs])
        threshold = best_threshold(mined.scores, is_correct, len(gold))
    pairs = pairs[: int((mined.scores >= threshold).sum())]
    if flags.output:
        output = flags.output / "pairs.tsv" if flags.shard else flags.output
        mining.write(output, pairs, mined.scores.tolist() if flags.scores else None)
    report = {
        "layer": embedder.layers[0],
        # The threshold is infinite if no mined pair is in --gold.
        "threshold": threshold if math.isfinite(threshold) else None,
        "pairs": len(pairs),
        **recall,
    }
    if gold:
        report |= {"gold": len(gold), **pair_scores(pairs, gold)._asdict()}
    print(json.dumps(report), flush=True)


def check_negatives(flags: Namespace) -> tuple[list[str], tuple[int, int]]:
    """Sets the defaults of `_RULE`.

    Raises:
      ConfigError: if flags contradict --negatives, or the outputs cannot be written.

    Returns:
      The languages, or one empty text; and the range of ranks.
    """
    unused = ("source", "target", "gold", "threshold", "scores", "centred", "drop_copies", "shard")
    for name in (*unused, "prompt", "columns"):
        if getattr(flags, name):
            raise ConfigError(f"--{name} has no effect with --negatives; remove it")
    if not flags.examples or not flags.output:
        raise ConfigError("--negatives needs --examples=FILES and --output=FILE")
    sentence_vectors.check_search(flags)
    for name, default in _RULE.items():
        if getattr(flags, name) is None:
            setattr(flags, name, default)
    first, _, last = flags.ranks.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
        raise ConfigError(f"--ranks={flags.ranks}: use two ranks from 1, such as 10-100")
    for name in ("margin", "relative_margin"):
        if not math.isfinite(getattr(flags, name)):
            raise ConfigError(f"--{name}={getattr(flags, name)} is not a finite number")
    languages = [name for name in (flags.languages or "").split(",") if name] or [""]
    named = (("examples", flags.examples), ("output", str(flags.output)))
    has_placeholder = ["{language}" in text for _, text in named]
    if has_placeholder != [bool(flags.languages)] * 2:
        raise ConfigError(
            "--languages, and {language} in --examples and --output, belong together: use all "
            "three or none"
        )
    from xlj.retrieval import negatives

    inputs: list[tuple[str, str]] = []
    for language in languages:
        inputs += [("corpus", _fill(flags.corpus, language))] if flags.corpus else []
        files = negatives.files_of(_fill(flags.examples, language))
        inputs += [("", str(file)) for file in files]
    for language in languages:
        outputs.check_output("output", _fill(str(flags.output), language), inputs)
    return languages, (int(first), int(last))


def _fill(template: str, language: str) -> str:
    return template.replace("{language}", language)


def _mine_negatives(flags: Namespace, languages: Sequence[str], ranks: tuple[int, int]) -> None:
    """Mines the negatives of the examples of each language, and prints a line of JSON for each."""
    from xlj.retrieval import mining, negatives, search

    rule = negatives.Rule(*ranks, flags.count, flags.margin, flags.relative_margin)
    texts_of = _read_examples(flags, languages)
    layers = () if flags.layer is None else (flags.layer,)
    encoder = compute_flags.load_sentence_encoder(flags, layers, flags.pooling)
    embedders = [
        encoder.role_embedder(role, None, layers, flags.pooling, None)
        for role in ("query", "document")
    ]
    for language, examples in texts_of.items():
        queries, passages = (
            embedder.embed(texts)[0]
            for embedder, texts in zip(
                embedders, (examples.queries, examples.passages), strict=True
            )
        )
        count = negatives.searched(examples, rule)
        recall = {}
        if flags.search == "faiss":
            index = mining.build_search(passages, flags.index or "", flags.probes, count)
            recall = {"recall_at_4": round(mining.recall(index, queries, passages), 4)}
            find = partial(mining.search_chunks, index)
        else:
            find = partial(_neighbours, search.neighbours, passages, count)
        found, cosines, dropped = negatives.mine(examples, queries, passages, find, rule)
        negatives.write(Path(_fill(str(flags.output), language)), examples, found, cosines)
        report = {
            **({"language": language} if language else {}),
            "queries": len(examples.queries),
            "passages": len(examples.passages),
            "negatives": sum(map(len, found)),
            "queries_without_negatives": sum(not each for each in found),
            "dropped": dict(dropped),
            **recall,
        }
        print(json.dumps(report), flush=True)
    for embedder in embedders:
        sentence_vectors.report_truncated(embedder)


def _read_examples(flags: Namespace, languages: Sequence[str]) -> "dict[str, Examples]":
    """Reads the examples of all languages, so that errors come before any work."""
    from xlj.retrieval import negatives, sentence_files

    corpora: dict[str, Sequence[str]] = {"": ()}
    examples = {}
    for language in languages:
        corpus = _fill(flags.corpus or "", language)
        if corpus not in corpora:
            corpora = {"": (), corpus: sentence_files.read(Path(corpus))}
        examples[language] = negatives.read(_fill(flags.examples, language), corpora[corpus])
    return examples


def _neighbours(
    neighbours: "Callable[..., Neighbours]",
    passages: "np.ndarray",
    count: int,
    queries: "np.ndarray",
) -> "Neighbours":
    return neighbours(queries, passages, count)


def _handle_copies(
    flags: Namespace, mined: "PairIndices", texts: Sequence[Sequence[str]]
) -> "PairIndices":
    """Counts the pairs above the threshold whose sides are the same; removes such pairs if
    --drop_copies is set.

    Args:
      texts: the sentences of each side.
    """
    import numpy as np

    from xlj.retrieval.mining import PairIndices
    from xlj.retrieval.pair_scores import is_copy

    ends = zip(mined.sources.tolist(), mined.targets.tolist(), strict=True)
    copies = np.array([is_copy(texts[0][i], texts[1][j]) for i, j in ends], bool)
    threshold = -math.inf if flags.threshold is None else flags.threshold
    sentence_vectors.report_copies(flags, int((copies & (mined.scores >= threshold)).sum()))
    return PairIndices(*(values[~copies] for values in mined)) if flags.drop_copies else mined


def _mine(
    flags: Namespace, source: "np.ndarray", target: "np.ndarray"
) -> tuple["PairIndices", dict[str, float]]:
    """Returns the mined pairs, and entries of the report: with --search=faiss, the recall compared
    with the exact search."""
    from xlj.retrieval import mining, search

    if flags.search == "exact":
        return mining.mine(source, target), {}
    of_target = mining.build_search(target, flags.index or "", flags.probes)
    recall = mining.recall(of_target, source, target)
    targets = mining.search_chunks(of_target, source)
    del of_target  # keeps only one index in memory
    of_source = mining.build_search(source, flags.index or "", flags.probes)
    sources = mining.search_chunks(of_source, target)
    pairs = mining.select_pairs(search.rank_by_margin(targets, sources))
    return pairs, {"recall_at_4": round(recall, 4)}


def _embed_shard(
    flags: Namespace, files: Sequence[Sequence[Path]]
) -> "tuple[np.ndarray, np.ndarray] | None":
    """Embeds the missing parts of this shard.

    Returns:
      The vectors of both sides if all shards are complete, else None.
    """
    import numpy as np

    from xlj.io import file_ranges
    from xlj.io.columns import open_lines
    from xlj.io.part_files import PartFiles

    sides = [file_ranges.split_files(paths) for paths in files]
    layouts = {
        path: open_lines(path, flags.columns, with_ids=True)[0] for path in itertools.chain(*files)
    }
    units = [*sides[0], *sides[1]]
    names = ("layer", "pooling", "prompt", "columns")
    job = outputs.shard_job(flags, [*files[0], *files[1]], names)
    part_files = PartFiles(flags.output, job, len(units), ".npy", flags.shard)
    sentence_vectors.embed_parts(flags, part_files, units, layouts, "float32", skips_blank=True)
    if not outputs.finish_shard(part_files):
        return None
    loaded = [np.load(part_files.file(part)) for part in range(len(units))]
    first = len(sides[0])
    return np.concatenate(loaded[:first]), np.concatenate(loaded[first:])


def _names(side: "Sentences") -> list[str]:
    """Returns the names of sentences in the output: ids or, if the file has no ids, texts."""
    return side.ids or side.texts


def _gold(flags: Namespace, source: "Sentences", target: "Sentences") -> set[tuple[str, str]]:
    from xlj.retrieval import sentence_files

    ids = []
    for path, side in ((flags.source, source), (flags.target, target)):
        if side.ids is None:
            raise ConfigError(
                f"--gold has ids, but {path} has none; its lines must be `id TAB sentence`"
            )
        ids.append(side.ids)
    pairs = sentence_files.read_pairs(flags.gold, *ids)
    if not pairs:
        raise ConfigError(f"--gold={flags.gold} has no pairs; its lines must be `id TAB id`")
    return pairs


if __name__ == "__main__":
    raise SystemExit(main())
