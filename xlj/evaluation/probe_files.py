"""The files that a run's evaluation names: parallel sentences, and gold word alignments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xlj.config import Config, ConfigError
from xlj.config.sections import AlignmentEvaluation, RetrievalEvaluation
from xlj.data.text.templates import fill, split_pair
from xlj.retrieval import sentence_files
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.sentence_pairs import Pair


def parallel(config: Config) -> dict[str, tuple[list[str], list[str]]]:
    """The sentences of each pair of `evaluation.retrieval`, both sides, line by line.

    Raises:
      ConfigError: if a pair has no file, or it cannot be read or is not parallel.
    """
    found = _files(config, config.evaluation.retrieval, "evaluation.retrieval")
    return {pair: _sentences(paths) for pair, paths in found.items()}


def gold(config: Config) -> dict[str, list[Pair]]:
    """The sentence pairs of each pair of `evaluation.alignment`, with their gold links.

    Raises:
      ConfigError: if a pair has no file, or it cannot be read.
    """
    found = _files(config, config.evaluation.alignment, "evaluation.alignment")
    return {pair: _with_links(paths) for pair, paths in found.items()}


def _files(
    config: Config, options: RetrievalEvaluation | AlignmentEvaluation, section: str
) -> dict[str, list[Path]]:
    """The files of each pair, by the first template whose files are there."""
    found: dict[str, list[Path]] = {}
    owners: dict[tuple[Path, ...], str] = {}
    for pair in options.pairs or config.data.pairs:
        source, target = split_pair(pair, config.data.languages, f"{section}.pairs")
        values = {"pair": pair, "source": source, "target": target}
        filled = [fill(template, values, f"{section}.source") for template in options.source]
        choices = [[Path(part).expanduser() for part in text.split("|")] for text in filled]
        there = next((paths for paths in choices if all(map(Path.is_file, paths))), None)
        if there is None:
            raise ConfigError(
                f"{section}.source has no file for {pair}; tried {', '.join(filled)}. Mend it, or "
                f"name the pairs that have one in {section}.pairs"
            )
        if len(there) > 2:
            raise ConfigError(f"{section}.source: {filled[0]} names more than two files")
        other = owners.setdefault(tuple(there), pair)
        if other != pair:
            raise ConfigError(
                f"{section}.source gives {other} and {pair} the same file {there[0]}; use {{pair}}"
            )
        found[pair] = there
    return found


def _sentences(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    if len(paths) == 2:
        first, second = map(sentence_files.read, paths)
        if len(first) != len(second):
            raise ConfigError(
                f"{paths[0]} has {len(first)} lines but {paths[1]} has {len(second)}; line i of "
                "one must be the translation of line i of the other"
            )
    else:
        rows = [line.split("\t") for line in sentence_files.read(paths[0])]
        wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 2), 0)
        if wrong:
            raise ConfigError(
                f"{paths[0]}:{wrong}: {len(rows[wrong - 1])} columns; expected two sentences and a "
                "tab between"
            )
        first, second = (list(side) for side in zip(*rows, strict=True))
    if len(first) < 2:
        raise ConfigError(f"{paths[0]}: a sentence alone cannot be told from others")
    return first, second


def _with_links(paths: Sequence[Path]) -> list[Pair]:
    pairs = list(sentence_pairs.read(paths[0], with_gold=len(paths) == 1))
    if len(paths) == 2:
        golds = gold_alignments.read(paths[1])
        if len(golds) != len(pairs):
            raise ConfigError(
                f"{paths[1]} has links of {len(golds)} sentence pairs, but {paths[0]} has "
                f"{len(pairs)} pairs"
            )
        pairs = [pair._replace(gold=links) for pair, links in zip(pairs, golds, strict=True)]
    if not any(pair.gold and pair.gold.sure for pair in pairs):
        raise ConfigError(f"{paths[-1]} has no sure link to score against")
    return pairs
