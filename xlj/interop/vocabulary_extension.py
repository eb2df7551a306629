"""New pieces for new languages, added to a SentencePiece model or to a tokenizer.json of unigram or
BPE (ours)."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError
from xlj.data.ragged import Ragged
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import SPECIALS, UNK
from xlj.data.tokenizer.tokenizer_json import is_tokenizer_json
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import bpe_growth
from xlj.interop.matched_rows import RULES, Matches
from xlj.interop.words import specials

_COVERAGE = 0.9995  # of the text's characters, which become pieces
_SHARE = 0.01


def extend(
    vocabulary: Vocabulary, lines: Sequence[str], new_pieces: int, share: float | None = None
) -> Vocabulary:
    """The vocabulary with `new_pieces` more, behind its own and before `<mask>`.

    Unigram: a small model is trained on the lines, normalised as the vocabulary does. Of its pieces
    that the vocabulary lacks, all single characters are taken, then the most probable. Scores are
    log probabilities in a text. A new piece's is that in a mixture of which the lines are `share`:
    log(share) is added. In a new script, where nothing competes, it hardly matters; elsewhere a
    larger share cuts the new text into fewer pieces, and the old text at other places.

    BPE: training goes on where it ended, on the lines (`bpe_growth`). Each new piece comes with its
    merge, which ranks behind the old ones, so that text is cut as before and then joined further.

    Args:
      lines: of all new languages, balanced, without what is held out.
      share: above 0, at most 1; None for 0.01. Of unigram models only.

    Raises:
      ConfigError: if the vocabulary is of another kind, or the text yields fewer new pieces, or
        more new characters.
    """
    is_json = is_tokenizer_json(vocabulary.model)
    is_bpe = not _is_unigram_json(vocabulary) if is_json else _is_bpe(_parse(vocabulary))
    if is_bpe:
        if share is not None:
            raise ConfigError(
                f"--share={share:g}: pieces of a BPE vocabulary have no probabilities, so it has "
                "no meaning; leave it out"
            )
        return Vocabulary(bpe_growth.grown(vocabulary, lines, new_pieces))
    texts = _normalised_by_json(vocabulary, lines) if is_json else _normalised(vocabulary, lines)
    found = _lacking(vocabulary, texts, new_pieces)
    ranked = sorted(found, key=lambda piece: (len(piece.piece) > 1, -piece.score))
    added = math.log(_SHARE if share is None else share)
    scores = {
        piece.piece: vocabulary_training.rounded(piece.score + added)
        for piece in ranked[:new_pieces]
    }
    if is_json:
        return Vocabulary(_added_to_json(vocabulary, scores))
    model = _parse(vocabulary)
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.vocab_size = len(model.pieces)
    return Vocabulary(model.SerializeToString())


def initial_rows(old: Vocabulary, new: Vocabulary) -> Matches:
    """The rows that those of an extended vocabulary start from.

    `special` and `exact`: the piece's own row; that of `<mask>`, the last, has moved. `pieces`: the
    mean of the old pieces that a new piece is cut into. `none`: a new piece of which a part would
    be `<unk>`.
    """
    roles = dict(zip(specials(new.size), specials(old.size), strict=True))
    # Without the specials, whose names here another piece may have (`<s>` in mmBERT's vocabulary).
    known = {old.pieces[i]: i for i in range(len(SPECIALS), old.mask)}
    added = [piece for i, piece in enumerate(new.pieces) if i not in roles and piece not in known]
    is_json = is_tokenizer_json(old.model)
    cut = iter(bpe_growth.cut(old, added) if is_json else _literal(old).encode_batch(added))
    sources: list[list[int]] = []
    rules = np.full(new.size, RULES.index("exact"), np.int8)
    for new_id, piece in enumerate(new.pieces):
        if new_id in roles:
            sources.append([roles[new_id]])
            rules[new_id] = RULES.index("special")
        elif piece in known:
            sources.append([known[piece]])
        else:
            ids = next(cut).tolist()
            sources.append([] if UNK in ids else ids)
            rules[new_id] = RULES.index("none" if UNK in ids else "pieces")
    return Matches(Ragged.of(sources), rules)


def _normalised(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Lines as the pieces of a SentencePiece model have them, with spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    return [processor.normalize(line).replace("\u2581", " ").strip() for line in lines]


def _normalised_by_json(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Lines as the pieces of a tokenizer.json have them, with spaces."""
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
    kind = json.loads(vocabulary.model)["model"]["type"]
    return kind == "Unigram" and vocabulary.markers == "sentencepiece"


def _added_to_json(vocabulary: Vocabulary, scores: Mapping[str, float]) -> bytes:
    """The tokenizer.json with more pieces behind all others, so that no id of it changes."""
    description = json.loads(vocabulary.model)
    pieces = description["model"]["vocab"]
    known = {piece for piece, _ in pieces}
    # The library gives added tokens their ids anew, behind the model's own, unless the model knows
    # them: with new pieces behind both, it must. Released files have `<mask>` there with 0, too.
    for token in sorted(description["added_tokens"], key=lambda token: token["id"]):
        if token["content"] not in known:
            pieces.append([token["content"], 0.0])
    pieces += [[piece, score] for piece, score in scores.items()]
    return json.dumps(description, ensure_ascii=False, indent=2).encode()


def _lacking(vocabulary: Vocabulary, text: Sequence[str], wanted: int) -> list:
    """The pieces of a model of normalised lines that the vocabulary lacks, at least as many as
    wanted."""
    known = set(vocabulary.pieces)
    # Besides the wanted pieces the model has 3 specials, two ids of ours, and every character.
    size = wanted + 5 + len(known.intersection("\u2581".join(text)))
    while True:
        try:
            trained = vocabulary_training.train({"new": list(text)}, {"new": 1}, size, _COVERAGE)
        except ConfigError as error:
            raise ConfigError(
                f"{wanted:,} new pieces cannot be had of this text: bring more of it, or ask for "
                f"fewer, or, if it has more characters, for more ({error})"
            ) from None
        pieces = ModelProto.FromString(trained).pieces
        found = [p for p in pieces if p.type == p.NORMAL and p.piece not in known]
        if len(found) >= wanted:
            return found
        size += 3 * (wanted - len(found)) // 2 + 1  # some of what is added is known, too


def _literal(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary without normalisation, so that it cuts a piece as it is."""
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
            "only a SentencePiece model or a tokenizer.json of unigram or BPE can be extended"
        )
    return model
