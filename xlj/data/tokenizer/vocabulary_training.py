"""Trains a SentencePiece vocabulary, with a balance of languages."""

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
"""Fixed, because SentencePiece's result depends on it; it is part of the recipe."""

_SCORES = 256
"""Scores of pieces are multiples of 1/256 nat, so that the sum of a line is exact in float32 up to
65,536 nats. Programs that add them in another order or precision then split lines equally."""

_LINE_BYTES = 4000  # below SentencePiece's max_sentence_length; it drops longer lines


def settings(data: Data) -> dict[str, object]:
    """Returns all that a trained vocabulary depends on, except its text; part of the recipe."""
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
    """Returns the requested number of ids: `data.vocabulary_size`.

    If that is 0: 6,000, plus 1,000 for each language (ours).
    """
    return data.vocabulary_size or 6_000 + 1_000 * len({*data.languages, *paired_languages(data)})


def _rules(lowercase: bool) -> str:
    """Returns SentencePiece's name of the normalization rules."""
    return "nmt_nfkc_cf" if lowercase else "nmt_nfkc"


def balance(
    sentences: Mapping[str, int],
    characters: Mapping[str, int],
    alpha: float,
    lines: int,
    parts: Mapping[str, float] | None = None,
) -> tuple[dict[str, int], dict[str, int]]:
    """Chooses how many lines of each language to train on, and the weight of each line.

    The goal is shares of characters proportional to characters^alpha. No line is used twice. If a
    language has too few lines, each of them gets a higher weight instead (ours).

    Args:
      sentences, characters: their numbers in each language, all above 0.
      lines: the most lines to use in total.
      parts: the share of each language's text that these numbers count, up to 1; None for all text.

    Returns:
      Number of lines of each language, and weight of a line of each language.
    """
    mean = {name: characters[name] / sentences[name] for name in sentences}
    whole = {name: characters[name] / (parts or {}).get(name, 1.0) for name in sentences}
    goal = {name: whole[name] ** alpha / mean[name] for name in sentences}  # lines, to scale
    chosen: dict[str, int] = {}
    left = lines
    # Water-filling: languages with fewer lines than their share use all; the others share the rest.
    for name in sorted(goal, key=lambda name: (sentences[name] / goal[name], name)):
        share = left * goal[name] / sum(goal[other] for other in goal if other not in chosen)
        chosen[name] = min(sentences[name], max(1, int(share)))
        left = max(0, left - chosen[name])
    need = {name: goal[name] / chosen[name] for name in chosen}
    least = min(need.values())
    return chosen, {name: max(1, round(need[name] / least)) for name in need}


def train(
    sampled: Mapping[str, list[str]],
    weights: Mapping[str, int],
    size: int,
    coverage: float,
    kind: str = "unigram",
    lowercase: bool = False,
    or_fewer: bool = False,
) -> bytes:
    """Trains a SentencePiece model of `size - 2` pieces, with rounded scores.

    Lines longer than 4,000 bytes, which SentencePiece would drop, are split.

    Args:
      sampled, weights: lines of each language, and the weight of each line.
      size: number of ids, including those of xlj's layout that the model does not contain.
      coverage: share of the text's characters that become pieces.
      or_fewer: whether to use the largest possible size if the text is too small for `size`.
      lowercase: whether the model folds case (nmt_nfkc_cf instead of nmt_nfkc).

    Raises:
      ConfigError: if the text is too small, or its alphabet too large, for this size.
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
        for part in split(line)
    )
    began = time.monotonic()
    try:
        model = _train_model(weighted, size, coverage, kind, lowercase, characters > 1 << 30)
    except RuntimeError as error:
        if or_fewer and (largest := _largest(str(error))):
            print(
                f"this text allows only {largest:,} ids; training that many",
                file=sys.stderr,
                flush=True,
            )
            return train(sampled, weights, largest, coverage, kind, lowercase)
        raise ConfigError(_explain(str(error), size, lines)) from None
    print(f"vocabulary trained in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    proto = ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.score = round_score(piece.score)
    return proto.SerializeToString(deterministic=True)


def _train_model(
    lines: Iterator[str], size: int, coverage: float, kind: str, lowercase: bool, is_large: bool
) -> bytes:
    """Trains on lines `text TAB weight`; returns the model file.

    Raises:
      RuntimeError: if SentencePiece cannot train it.
    """
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


def round_score(score: float) -> float:
    """Rounds the score of a piece, a log probability, to a multiple of 1/`_SCORES`."""
    return round(score * _SCORES) / _SCORES


def split(line: str) -> Iterator[str]:
    """Splits a line into parts of at most 4,000 bytes, at spaces if possible."""
    while len(line.encode()) > _LINE_BYTES:
        head = line.encode()[:_LINE_BYTES].decode(errors="ignore")
        space = head.rfind(" ")
        head = head[:space] if space > 0 else head
        yield head
        line = line[len(head) :].lstrip(" ")
    if line:
        yield line


def _largest(error: str) -> int | None:
    """Returns the largest possible vocabulary size, if SentencePiece's error contains it."""
    match = re.search(r"value <= (\d+)", error)
    return int(match[1]) + 2 if match else None


def _explain(error: str, size: int, lines: int) -> str:
    if largest := _largest(error):
        return (
            f"data.vocabulary_size={size} is too large for this text ({lines:,} lines sampled): at "
            f"most {largest} is possible; set it to that, or add text"
        )
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"data.vocabulary_size={size} is too small for the text's characters: at least "
            f"{int(smallest[1]) + 2} is needed; set it to that, or lower data.vocabulary_coverage"
        )
    return f"SentencePiece cannot train a vocabulary of data.vocabulary_size={size}: {error}"
