"""Trains a SentencePiece vocabulary on several languages, with a balance between them."""

import io
import re
import sys
import time
from collections.abc import Iterator, Mapping

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError, Data
from xlj.data.text.templates import paired_languages
from xlj.io.clock import run_with_clock

THREADS = 8
"""Number of threads of SentencePiece. The vocabulary depends on it, so it is fixed, and is one of
the `settings`."""

_SCORES = 256
"""Scores of pieces are rounded to multiples of 1/256 nat. The sum of scores of a line is then exact
in float32, up to 65,536 nats. So all programs that add scores in float32 or float64, in any order,
split a line into the same pieces."""

_LINE_BYTES = 4000
"""Maximum length of a line for training, in bytes. Longer lines are split, because SentencePiece
drops lines above its max_sentence_length."""


def settings(data: Data) -> dict[str, object]:
    """Returns the settings that determine a vocabulary trained on a given text, as JSON values.

    Row stores record them (`store.Manifest.recipe`), so xlj rebuilds rows if they change.
    """
    return {
        "size": requested_size(data),
        "alpha": data.vocabulary_alpha,
        "lines": data.vocabulary_lines,
        "coverage": data.vocabulary_coverage,
        "threads": THREADS,
        "type": f"{data.vocabulary_type}, {_normalization(data.vocabulary_lowercase)}, "
        f"scores in 1/{_SCORES}",
    }


def requested_size(data: Data) -> int:
    """Returns the requested number of ids of a vocabulary: `data.vocabulary_size`.

    If this key is 0, the number is 6,000 plus 1,000 for each language (ours).
    """
    return data.vocabulary_size or 6_000 + 1_000 * len({*data.languages, *paired_languages(data)})


def _normalization(lowercase: bool) -> str:
    """Returns the name of normalization rules in SentencePiece."""
    return "nmt_nfkc_cf" if lowercase else "nmt_nfkc"


def balance(
    sentences: Mapping[str, int],
    characters: Mapping[str, int],
    alpha: float,
    lines: int,
    sampled_shares: Mapping[str, float] | None = None,
) -> tuple[dict[str, int], dict[str, int]]:
    """Chooses how many lines of each language to train on, and the weight of each line.

    Each language should contribute a share of the training characters that is proportional to
    c^alpha, where c is the number of characters of its whole text. No line is used twice. If a
    language has too few lines for its share, its lines have a higher weight instead (ours).

    Args:
      sentences: number of lines of each language, above 0.
      characters: number of characters of these lines, above 0.
      alpha: the exponent.
      lines: maximum number of lines to train on, in total.
      sampled_shares: for each language, the share of its text that `sentences` and `characters`
        count, above 0 and at most 1; None if they count the whole text.

    Returns:
      The number of lines of each language, and the weight of a line of each language, at least 1.
    """
    mean = {name: characters[name] / sentences[name] for name in sentences}
    whole = {name: characters[name] / (sampled_shares or {}).get(name, 1.0) for name in sentences}
    goal = {name: whole[name] ** alpha / mean[name] for name in sentences}  # proportional to lines
    line_counts: dict[str, int] = {}
    remaining = lines
    # Water-filling: a language with fewer lines than its share uses all of its lines, and the
    # remaining languages share the rest.
    for name in sorted(goal, key=lambda name: (sentences[name] / goal[name], name)):
        share = remaining * goal[name] / sum(goal[n] for n in goal if n not in line_counts)
        line_counts[name] = min(sentences[name], max(1, int(share)))
        remaining = max(0, remaining - line_counts[name])
    ratios = {name: goal[name] / line_counts[name] for name in line_counts}
    lowest = min(ratios.values())
    return line_counts, {name: max(1, round(ratios[name] / lowest)) for name in ratios}


def train(
    sampled: Mapping[str, list[str]],
    weights: Mapping[str, int],
    size: int,
    coverage: float,
    kind: str = "unigram",
    lowercase: bool = False,
    or_fewer: bool = False,
) -> bytes:
    """Trains a SentencePiece model of `size - 2` pieces, with rounded scores (`round_score`).

    Lines longer than 4,000 bytes are split, because SentencePiece drops very long lines.

    Args:
      sampled: lines of each language.
      weights: the weight of a line of each language.
      size: number of ids of the vocabulary; `<pad>` and `<mask>` are not pieces of the model.
      coverage: share of the characters of the text that the pieces cover; rarer characters become
        `<unk>`.
      kind: type of the model in SentencePiece, such as `unigram` or `bpe`.
      lowercase: whether the model folds case (nmt_nfkc_cf instead of nmt_nfkc).
      or_fewer: whether to use the largest possible size if the text is too small for `size`.

    Returns:
      The bytes of the model file.

    Raises:
      ConfigError: if the text is too small for this size, or has too many different characters.
    """
    lines = sum(map(len, sampled.values()))
    characters = sum(len(line) for part in sampled.values() for line in part)
    languages = f"{len(sampled)} language{'s' * (len(sampled) > 1)}"
    what = f"a vocabulary of {size:,} ids on {lines:,} lines of {languages}"
    if not sys.stderr.isatty():  # a terminal shows a clock
        print(f"training {what}", file=sys.stderr, flush=True)
    weighted = (
        f"{part}\t{weights[language]}"
        for language in sorted(sampled)
        for line in sampled[language]
        for part in split(line)
    )
    start = time.monotonic()
    try:
        is_large = characters > 1 << 30
        options = size, coverage, kind, lowercase, is_large
        model = run_with_clock(f"training {what}", _train_model, weighted, *options)
    except RuntimeError as error:
        if or_fewer and (largest := _largest_size(str(error))):
            print(
                f"this text is enough for {largest:,} ids only; training a vocabulary of this size",
                file=sys.stderr,
                flush=True,
            )
            return train(sampled, weights, largest, coverage, kind, lowercase)
        raise ConfigError(_explain(str(error), size, lines)) from None
    seconds = time.monotonic() - start
    print(f"trained {what} in {seconds:.0f} s", file=sys.stderr, flush=True)
    proto = ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.score = round_score(piece.score)
    return proto.SerializeToString(deterministic=True)


def _train_model(
    lines: Iterator[str], size: int, coverage: float, kind: str, lowercase: bool, is_large: bool
) -> bytes:
    """Trains a model on lines `text TAB weight`, and returns the bytes of the model file.

    Raises:
      RuntimeError: if SentencePiece cannot train the model.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        input_format="tsv",
        model_type=kind,
        normalization_rule_name=_normalization(lowercase),
        vocab_size=size - 2,
        character_coverage=coverage,
        num_threads=THREADS,
        max_sentence_length=2 * _LINE_BYTES,
        train_extremely_large_corpus=is_large,
        minloglevel=2,
    )
    return model.getvalue()


def round_score(score: float) -> float:
    """Rounds the score of a piece to a multiple of 1/256; unigram scores are log probabilities."""
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


def _largest_size(error: str) -> int | None:
    """Returns the largest possible vocabulary size, if SentencePiece's error contains it."""
    match = re.search(r"value <= (\d+)", error)
    return int(match[1]) + 2 if match else None


def _explain(error: str, size: int, lines: int) -> str:
    """Describes an error of SentencePiece, with a remedy."""
    if largest := _largest_size(error):
        return (
            f"data.vocabulary_size={size} is too large for this text ({lines:,} lines sampled): at "
            f"most {largest} is possible; set data.vocabulary_size={largest}, or add text"
        )
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", error):
        needed = int(smallest[1]) + 2
        return (
            f"data.vocabulary_size={size} is too small for the characters of the text: at least "
            f"{needed} is needed; set data.vocabulary_size={needed}, or lower "
            "data.vocabulary_coverage"
        )
    return f"SentencePiece cannot train a vocabulary of data.vocabulary_size={size}: {error}"
