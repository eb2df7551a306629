"""A vocabulary of one's own: a balanced sample of all text, and SentencePiece's training."""

import io
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError, Data
from xlj.data.text import held_out
from xlj.data.text.cleaning import BLANK, HASHES, line_hashes
from xlj.data.text.held_out import Rule

THREADS = 8
"""Fixed, because SentencePiece's result depends on it; part of the recipe."""

_SCORES = 256
"""Pieces' scores are multiples of 1/256 nat, so that a line's sum is exact in float32 up to 65,536
nats: whoever adds them up, in whatever order and precision, splits the line in the same way."""

_LINE_BYTES = 4000  # below SentencePiece's max_sentence_length, beyond which it drops lines


def settings(data: Data) -> dict[str, object]:
    """All that a trained vocabulary depends on besides its text; part of the recipe."""
    return {
        "size": data.vocabulary_size,
        "alpha": data.vocabulary_alpha,
        "lines": data.vocabulary_lines,
        "coverage": data.vocabulary_coverage,
        "threads": THREADS,
        "type": f"{data.vocabulary_type}, nmt_nfkc, scores in 1/{_SCORES}",
    }


def balance(
    sentences: Mapping[str, int], characters: Mapping[str, int], alpha: float, lines: int
) -> tuple[dict[str, int], dict[str, int]]:
    """How many lines of each language to sample, and how often each counts in training.

    The goal is shares of characters proportional to characters^alpha. No line is taken twice, so
    small languages run out; their lines then count several times instead (ours).

    Args:
      sentences, characters: of each language, both above 0.
      lines: the most lines to sample in all.
    """
    mean = {name: characters[name] / sentences[name] for name in sentences}
    goal = {name: characters[name] ** alpha / mean[name] for name in sentences}  # lines, to scale
    taken: dict[str, int] = {}
    left = lines
    # Water-filling: languages that have fewer lines than their share give all, the others share on.
    for name in sorted(goal, key=lambda name: (sentences[name] / goal[name], name)):
        share = left * goal[name] / sum(goal[other] for other in goal if other not in taken)
        taken[name] = min(sentences[name], max(1, int(share)))
        left = max(0, left - taken[name])
    need = {name: goal[name] / taken[name] for name in taken}
    least = min(need.values())
    return taken, {name: max(1, round(need[name] / least)) for name in need}


def sample(
    blocks: Iterable[tuple[tuple[str, ...], tuple[list[str], ...]]],
    rules: Mapping[str, Rule],
    wanted: Mapping[str, int],
    sentences: Mapping[str, int],
) -> dict[str, list[str]]:
    """A uniform sample of each language's lines by their hash, whatever the order of the input.

    Args:
      blocks: (language of each column, columns of clean text); both sides of pairs count.
      rules: of each language; what they hold out or drop is left out.
      wanted: lines to take of each language.
      sentences: lines that each language has.
    """
    # A little more than wanted is kept while reading, then the lowest hashes are taken. Blank lines
    # are below no cut; a language without any sentence has none.
    cuts = {
        name: min(BLANK, HASHES * int(wanted[name] * 1.05 + 1000) // sentences[name])
        for name in wanted
    }
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in wanted}
    for languages, columns in blocks:
        hashes = [line_hashes(column) for column in columns]
        out, sharing = held_out.split(hashes, [rules[name] for name in languages])
        for name, column, hashed in zip(languages, columns, hashes, strict=True):
            numbers = hashed[:, 1]
            for index in np.flatnonzero(~out & ~sharing & (numbers < cuts.get(name, 0))):
                found[name].append((int(numbers[index]), column[index]))
    return {name: [line for _, line in sorted(found[name])[: wanted[name]]] for name in wanted}


def train(
    sampled: Mapping[str, list[str]],
    weights: Mapping[str, int],
    size: int,
    coverage: float,
    kind: str = "unigram",
) -> bytes:
    """A SentencePiece model (nmt_nfkc) of `size - 2` pieces, with rounded scores.

    Lines longer than 4,000 bytes, which SentencePiece would drop, are cut.

    Args:
      sampled, weights: lines of each language, and how often each counts.
      size: ids, with those of xlj's layout that the model does not have.
      coverage: share of the text's characters that become pieces.

    Raises:
      ConfigError: if the text is too little, or its alphabet too large, for this size.
    """
    lines = sum(map(len, sampled.values()))
    characters = sum(len(line) for part in sampled.values() for line in part)
    print(
        f"training a vocabulary of {size:,} ids on {lines:,} lines ({characters:,} characters) of "
        f"{len(sampled)} languages; SentencePiece may take minutes ...",
        file=sys.stderr,
        flush=True,
    )
    weighted = (
        f"{part}\t{weights[language]}"
        for language in sorted(sampled)
        for line in sampled[language]
        for part in cut(line)
    )
    began = time.monotonic()
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=weighted,
            model_writer=model,
            input_format="tsv",  # line <tab> how often it counts
            model_type=kind,
            normalization_rule_name="nmt_nfkc",
            vocab_size=size - 2,
            character_coverage=coverage,
            num_threads=THREADS,
            max_sentence_length=2 * _LINE_BYTES,
            train_extremely_large_corpus=characters > 1 << 30,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(_explain(str(error), size, lines)) from None
    print(f"vocabulary trained in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    proto = ModelProto.FromString(model.getvalue())
    for piece in proto.pieces:
        piece.score = rounded(piece.score)
    return proto.SerializeToString(deterministic=True)


def rounded(score: float) -> float:
    """The score of a piece, a log probability, as a model of ours has it (`_SCORES`)."""
    return round(score * _SCORES) / _SCORES


def cut(line: str) -> Iterator[str]:
    """The line in parts of at most 4,000 bytes, cut at a space where there is one."""
    while len(line.encode()) > _LINE_BYTES:
        head = line.encode()[:_LINE_BYTES].decode(errors="ignore")
        space = head.rfind(" ")
        head = head[:space] if space > 0 else head
        yield head
        line = line[len(head) :].lstrip(" ")
    if line:
        yield line


def _explain(error: str, size: int, lines: int) -> str:
    if largest := re.search(r"value <= (\d+)", error):
        return (
            f"data.vocabulary_size={size} is too large for this text ({lines:,} lines sampled): at "
            f"most {int(largest[1]) + 2} is possible; set it, or bring more text"
        )
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"data.vocabulary_size={size} does not hold the text's characters: at least "
            f"{int(smallest[1]) + 2} is needed; set it, or lower data.vocabulary_coverage"
        )
    return f"SentencePiece cannot train a vocabulary of data.vocabulary_size={size}: {error}"
