"""The files that a run's evaluation names: parallel sentences, and gold word alignments."""

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
    """The data on disk that a config's evaluation names, sampled, by language pair."""

    parallel: dict[str, tuple[list[str], list[str]]]  # sentences, line by line
    gold: dict[str, list[Pair]]  # sentence pairs with gold links


def read(config: Config) -> Files:
    """Reads all files, before there are rows, so that no error in them comes late.

    Raises:
      ConfigError: if a pair has no file, or one cannot be read or is not parallel.
    """
    retrieval, alignment = config.evaluation.retrieval, config.evaluation.alignment
    found = Files({}, {})
    if retrieval.source and HELD_OUT not in retrieval.source:
        for pair, paths in _files(config, retrieval, "evaluation.retrieval").items():
            first, second = (_sampled(side, retrieval.sentences) for side in _sentences(paths))
            found.parallel[pair] = first, second
    if alignment.source:
        for name, paths in _files(config, alignment, "evaluation.alignment").items():
            _, lines = sentence_pairs.checked(paths[0], "" if len(paths) == 1 else str(paths[1]))
            pairs = list(lines)
            if not any(pair.gold and pair.gold.sure for pair in pairs):
                raise ConfigError(f"{paths[-1]} has no sure link to score against")
            found.gold[name] = _sampled(pairs, alignment.sentences)
    return found


def _sampled(items: list, count: int) -> list:
    """The same of them each time, in order."""
    return [items[place] for place in sorted(sample(count, len(items)))]


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
        first, second = sentence_files.read_parallel(*paths)
    else:
        rows = [line.split("\t") for line in sentence_files.read(paths[0])]
        for number, row in enumerate(rows, 1):
            if len(row) != 2:
                raise ConfigError(
                    f"{paths[0]}:{number}: {len(row)} columns; expected two sentences and a tab "
                    "between"
                )
        first, second = (list(side) for side in zip(*rows, strict=True))
    if len(first) < 2:
        raise ConfigError(f"{paths[0]}: a sentence alone cannot be told from others")
    return first, second
