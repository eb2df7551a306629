"""Adds pieces for new languages to a SentencePiece model, or to a unigram or BPE tokenizer.json.

The method is ours.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import SPECIALS, UNK, Ragged
from xlj.data.tokenizer.tokenizer_json import is_tokenizer_json
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import bpe_growth
from xlj.interop.vocabulary_matching import RULES, Matches, specials

_COVERAGE = 0.9995  # the share of the text's characters that must be covered by pieces
_DEFAULT_SHARE = 0.01


def extend(
    vocabulary: Vocabulary, lines: Sequence[str], new_pieces: int, share: float | None = None
) -> Vocabulary:
    """Returns the vocabulary with `new_pieces` more pieces, after the old ones and before `<mask>`.

    Unigram: a small model is trained on the lines, after the vocabulary's rules have normalised
    them. The pieces of the small model that the vocabulary lacks are candidates. The single
    characters among them are added first, then the most probable pieces, until `new_pieces` are
    added. The score of a piece is its log probability. The score of a new piece is its log
    probability in the small model plus log(share), because new text is assumed to make up `share`
    of all text. With a larger share, new text is split into fewer pieces, but more of
    the old text is split differently. In a new script the share hardly matters.

    BPE: the old merges are applied to the lines, and training adds new merges (`bpe_growth`). The
    new merges come after the old merges, also when text is encoded.

    Args:
      lines: text of all new languages in balanced amounts, without held-out lines.
      share: the assumed share of new text, above 0 and at most 1; None means 0.01. Only for unigram
        models.

    Raises:
      ConfigError: if the vocabulary is neither unigram nor BPE, the text yields too few new pieces
        or too many new characters, or `share` is set for a BPE vocabulary.
    """
    if not _is_unigram(vocabulary):
        if share is not None:
            raise ConfigError(
                f"--share={share:g} has no effect on a BPE vocabulary, whose pieces have no "
                "probabilities; remove the flag"
            )
        return Vocabulary(bpe_growth.grow(vocabulary, lines, new_pieces))
    candidates = _train_new_pieces(vocabulary, _normalised(vocabulary, lines), new_pieces)
    ranked = sorted(candidates, key=lambda piece: (len(piece.piece) > 1, -piece.score))
    log_share = math.log(_DEFAULT_SHARE if share is None else share)
    scores = {piece.piece: piece.score + log_share for piece in ranked[:new_pieces]}
    return _with_pieces(vocabulary, scores)


def add_characters(vocabulary: Vocabulary, lines: Sequence[str]) -> tuple[Vocabulary, int]:
    """Adds the characters of lines that have no piece. Unlike `extend`, it needs little text.

    The rarest characters, which together make up 0.05 % of the text, are left out. In a unigram
    vocabulary, the score of a new piece is the log of the character's share of the lines, plus
    log(0.01) as in `extend`.

    Returns:
      The vocabulary with the new pieces after the old ones, and their number.

    Raises:
      ConfigError: if the vocabulary is neither unigram nor BPE.
    """
    if not _is_unigram(vocabulary):
        count = len(bpe_growth.missing_characters(vocabulary, lines))
        return Vocabulary(bpe_growth.grow(vocabulary, lines, count)), count
    counts = Counter("".join(_normalised(vocabulary, lines)))
    characters = bpe_growth.find_new_characters(counts, set(vocabulary.pieces))
    total = counts.total()
    scores = {each: math.log(_DEFAULT_SHARE * counts[each] / total) for each in characters}
    return _with_pieces(vocabulary, scores), len(characters)


def _with_pieces(vocabulary: Vocabulary, scores: Mapping[str, float]) -> Vocabulary:
    """Returns a unigram vocabulary with new pieces, by their log probabilities."""
    scores = {piece: vocabulary_training.round_score(score) for piece, score in scores.items()}
    if is_tokenizer_json(vocabulary.model):
        return Vocabulary(_add_to_json(vocabulary, scores))
    model = _parse(vocabulary)
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.vocab_size = len(model.pieces)
    return Vocabulary(model.SerializeToString())


def check_extendable(vocabulary: Vocabulary) -> None:
    """Raises a `ConfigError` if `extend` cannot add pieces to this kind of vocabulary."""
    if not is_tokenizer_json(vocabulary.model):
        _parse(vocabulary)
    elif not (_is_unigram_json(vocabulary) or _json_type(vocabulary) == "BPE"):
        raise ConfigError(
            f"the tokenizer.json has a {_json_type(vocabulary)} model, to which xlj cannot add "
            "pieces; expected Unigram or BPE"
        )


def initial_rows(old: Vocabulary, new: Vocabulary) -> Matches:
    """Returns the old rows from which each row of an extended vocabulary is initialised.

    The rules are (`vocabulary_matching.RULES`):

    - `special` and `exact`: the row of the same piece. Only `<mask>` has a new id.
    - `pieces`: the mean of the old pieces into which the old vocabulary splits a new piece.
    - `none`: no old row, because one of these old pieces would be `<unk>`.
    """
    new_to_old_special = dict(zip(specials(new.size), specials(old.size), strict=True))
    # Specials are excluded, because a piece may have the same name (`<s>` in mmBERT's vocabulary).
    known = {old.pieces[i]: i for i in range(len(SPECIALS), old.mask)}
    added = [
        piece
        for i, piece in enumerate(new.pieces)
        if i not in new_to_old_special and piece not in known
    ]
    is_json = is_tokenizer_json(old.model)
    old_pieces = iter(
        bpe_growth.cut(old, added) if is_json else _without_normalisation(old).encode_batch(added)
    )
    sources: list[list[int]] = []
    rules = np.full(new.size, RULES.index("exact"), np.int8)
    for new_id, piece in enumerate(new.pieces):
        if new_id in new_to_old_special:
            sources.append([new_to_old_special[new_id]])
            rules[new_id] = RULES.index("special")
        elif piece in known:
            sources.append([known[piece]])
        else:
            ids = next(old_pieces).tolist()
            sources.append([] if UNK in ids else ids)
            rules[new_id] = RULES.index("none" if UNK in ids else "pieces")
    return Matches(Ragged.of(sources), rules)


def _is_unigram(vocabulary: Vocabulary) -> bool:
    if is_tokenizer_json(vocabulary.model):
        return _is_unigram_json(vocabulary)
    return not _is_bpe(_parse(vocabulary))


def _normalised(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Normalises lines with the rules of a unigram vocabulary; U+2581 becomes a space."""
    is_json = is_tokenizer_json(vocabulary.model)
    return _normalise_by_json(vocabulary, lines) if is_json else _normalise(vocabulary, lines)


def _normalise(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Normalises lines with a SentencePiece model; U+2581 becomes a space."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    return [processor.normalize(line).replace("\u2581", " ").strip() for line in lines]


def _normalise_by_json(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Normalises lines with a tokenizer.json; U+2581 becomes a space."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(vocabulary.model.decode())
    texts = []
    for line in lines:
        text = tokenizer.normalizer.normalize_str(line) if tokenizer.normalizer else line
        if tokenizer.pre_tokenizer:
            text = "".join(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
        texts.append(text.replace("\u2581", " ").strip())
    return texts


def _is_unigram_json(vocabulary: Vocabulary) -> bool:
    return _json_type(vocabulary) == "Unigram" and vocabulary.markers == "sentencepiece"


def _json_type(vocabulary: Vocabulary) -> str:
    kind: str = json.loads(vocabulary.model)["model"]["type"]
    return kind


def _add_to_json(vocabulary: Vocabulary, scores: Mapping[str, float]) -> bytes:
    """Returns the tokenizer.json with new pieces after all old pieces, so that old ids do not
    change."""
    description = json.loads(vocabulary.model)
    pieces = description["model"]["vocab"]
    known = {piece for piece, _ in pieces}
    # The tokenizers library gives an added token that is no piece of the model an id after all
    # pieces. A new piece would change this id, so the added tokens become pieces first. They get
    # score 0, which `<mask>` has in released files.
    for token in sorted(description["added_tokens"], key=lambda token: token["id"]):
        if token["content"] not in known:
            pieces.append([token["content"], 0.0])
    pieces += [[piece, score] for piece, score in scores.items()]
    return json.dumps(description, ensure_ascii=False, indent=2).encode()


def _train_new_pieces(vocabulary: Vocabulary, text: Sequence[str], count: int) -> list:
    """Trains a unigram model on normalised lines.

    Returns:
      The pieces of this model that the vocabulary lacks: `count` or more.
    """
    known = set(vocabulary.pieces)
    # The size includes 3 special tokens, two ids that only xlj has, and all known characters.
    size = count + 5 + len(known.intersection("\u2581".join(text)))
    while True:
        try:
            trained = vocabulary_training.train({"new": list(text)}, {"new": 1}, size, _COVERAGE)
        except ConfigError as error:
            raise ConfigError(
                f"--pieces={count}: this text does not yield {count:,} new pieces ({error}). Give "
                f"more text or a smaller --pieces; if it has more than {count:,} new characters, "
                "give a larger --pieces"
            ) from None
        pieces = ModelProto.FromString(trained).pieces
        new_pieces = [p for p in pieces if p.type == p.NORMAL and p.piece not in known]
        if len(new_pieces) >= count:
            return new_pieces
        size += 3 * (count - len(new_pieces)) // 2 + 1  # some of the added pieces are known too


def _without_normalisation(vocabulary: Vocabulary) -> Vocabulary:
    """Returns the vocabulary without normalisation, so that it splits the exact text of a piece."""
    model = _parse(vocabulary)
    model.normalizer_spec.Clear()
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    return Vocabulary(model.SerializeToString())


def _is_bpe(model: Any) -> bool:
    return model.trainer_spec.model_type == model.trainer_spec.BPE


def _parse(vocabulary: Vocabulary) -> Any:
    try:
        model = ModelProto.FromString(vocabulary.model)
    except DecodeError:
        model = ModelProto()
    if not model.pieces or not (
        _is_bpe(model) or model.trainer_spec.model_type == model.trainer_spec.UNIGRAM
    ):
        raise ConfigError(
            "xlj cannot add pieces to this vocabulary; expected a SentencePiece model or a "
            "tokenizer.json with a unigram or BPE model"
        )
    return model
