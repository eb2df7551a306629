"""Reads the files for evaluation during training: parallel sentences and gold word alignments."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import HELD_OUT, Config, ConfigError
from xlj.config.sections import AlignmentEvaluation, RetrievalEvaluation
from xlj.data.text.templates import fill, split_pair
from xlj.io.hashing import sample
from xlj.retrieval import sentence_files
from xlj.word_alignment import sentence_pairs
from xlj.word_alignment.sentence_pairs import Pair


class Files(NamedTuple):
    """Samples of the files that the config section `evaluation` names, by language pair.

    Attributes:
      parallel: (source sentences, target sentences); sentence i of both lists is a pair.
      gold: sentence pairs with gold links.
    """

    parallel: dict[str, tuple[list[str], list[str]]]
    gold: dict[str, list[Pair]]


def read(config: Config) -> Files:
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
            raise ConfigError(
                f"{section}.source has no file for {pair}; tried {', '.join(filled)}. Fix the "
                f"path, or list only the pairs with files in {section}.pairs"
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
        rows = [line.split("\t") for line in sentence_files.read(paths[0])]
        for number, row in enumerate(rows, 1):
            if len(row) != 2:
                raise ConfigError(
                    f"{paths[0]}:{number}: {len(row)} columns; expected two sentences separated by "
                    "a tab"
                )
        first, second = (list(side) for side in zip(*rows, strict=True))
    if len(first) < 2:
        raise ConfigError(
            f"{paths[0]} has fewer than two sentence pairs; retrieval needs at least two"
        )
    return first, second
