"""A vocabulary of one's own: how languages are balanced, and SentencePiece's training."""

import io
import re
import sys
import time
from collections.abc import Iterator, Mapping

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError, Data
from xlj.data.text.templates import paired_languages

THREADS = 8
"""Fixed, because SentencePiece's result depends on it; part of the recipe."""

_SCORES = 256
"""Pieces' scores are multiples of 1/256 nat, so that a line's sum is exact in float32 up to 65,536
nats: whoever adds them up, in whatever order and precision, splits the line in the same way."""

_LINE_BYTES = 4000  # below SentencePiece's max_sentence_length, beyond which it drops lines


def settings(data: Data) -> dict[str, object]:
    """All that a trained vocabulary depends on besides its text; part of the recipe."""
    return {
        "size": ids(data),
        "alpha": data.vocabulary_alpha,
        "lines": data.vocabulary_lines,
        "coverage": data.vocabulary_coverage,
        "threads": THREADS,
        "type": f"{data.vocabulary_type}, {_rules(data.vocabulary_lowercase)}, "
        f"scores in 1/{_SCORES}",
    }


def ids(data: Data) -> int:
    """How many ids are asked for: `data.vocabulary_size`; where that is 0, 6,000 and 1,000 for each
    language (ours)."""
    return data.vocabulary_size or 6_000 + 1_000 * len({*data.languages, *paired_languages(data)})


def _rules(lowercase: bool) -> str:
    """SentencePiece's name of how text is normalised."""
    return "nmt_nfkc_cf" if lowercase else "nmt_nfkc"


def balance(
    sentences: Mapping[str, int],
    characters: Mapping[str, int],
    alpha: float,
    lines: int,
    parts: Mapping[str, float] | None = None,
) -> tuple[dict[str, int], dict[str, int]]:
    """How many lines of each language to take, and how often each counts in training.

    The goal is shares of characters proportional to characters^alpha. No line is taken twice, so
    small languages run out; their lines then count several times instead (ours).

    Args:
      sentences, characters: there are of each language, both above 0.
      lines: the most lines to take in all.
      parts: of each language's text that these are, up to 1; None for all of it.
    """
    mean = {name: characters[name] / sentences[name] for name in sentences}
    whole = {name: characters[name] / (parts or {}).get(name, 1.0) for name in sentences}
    goal = {name: whole[name] ** alpha / mean[name] for name in sentences}  # lines, to scale
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


def train(
    sampled: Mapping[str, list[str]],
    weights: Mapping[str, int],
    size: int,
    coverage: float,
    kind: str = "unigram",
    lowercase: bool = False,
    or_fewer: bool = False,
) -> bytes:
    """A SentencePiece model of `size - 2` pieces, with rounded scores.

    Lines longer than 4,000 bytes, which SentencePiece would drop, are cut.

    Args:
      sampled, weights: lines of each language, and how often each counts.
      size: ids, with those of xlj's layout that the model does not have.
      coverage: share of the text's characters that become pieces.
      or_fewer: whether to take as many as there can be where the text is too little for `size`.
      lowercase: whether the model folds case (nmt_nfkc_cf in place of nmt_nfkc).

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
    try:
        model = _trained(weighted, size, coverage, kind, lowercase, characters > 1 << 30)
    except RuntimeError as error:
        if or_fewer and (largest := _largest(str(error))):
            print(f"this text has at most {largest:,} ids", file=sys.stderr, flush=True)
            return train(sampled, weights, largest, coverage, kind, lowercase)
        raise ConfigError(_explain(str(error), size, lines)) from None
    print(f"vocabulary trained in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    proto = ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.score = rounded(piece.score)
    return proto.SerializeToString(deterministic=True)


def _trained(
    lines: Iterator[str], size: int, coverage: float, kind: str, lowercase: bool, is_large: bool
) -> bytes:
    """What SentencePiece trains on lines `text TAB how often it counts`; a RuntimeError of its own
    where it cannot."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        input_format="tsv",
        model_type=kind,
        normalization_rule_name=_rules(lowercase),
        vocab_size=size - 2,
        character_coverage=coverage,
        num_threads=THREADS,
        max_sentence_length=2 * _LINE_BYTES,
        train_extremely_large_corpus=is_large,
        minloglevel=2,
    )
    return model.getvalue()


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


def _largest(error: str) -> int | None:
    """The largest vocabulary of a text, where an error of SentencePiece tells it."""
    found = re.search(r"value <= (\d+)", error)
    return int(found[1]) + 2 if found else None


def _explain(error: str, size: int, lines: int) -> str:
    if largest := _largest(error):
        return (
            f"data.vocabulary_size={size} is too large for this text ({lines:,} lines sampled): at "
            f"most {largest} is possible; set it, or bring more text"
        )
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"data.vocabulary_size={size} does not hold the text's characters: at least "
            f"{int(smallest[1]) + 2} is needed; set it, or lower data.vocabulary_coverage"
        )
    return f"SentencePiece cannot train a vocabulary of data.vocabulary_size={size}: {error}"
