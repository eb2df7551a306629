"""Converts a SentencePiece model to a Hugging Face tokenizer.json that gives the same ids."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xlj.config import ConfigError
from xlj.data.tokenizer.tokenizer_json import convert_errors
from xlj.interop import nfkc
from xlj.io.quoting import quoted

if TYPE_CHECKING:
    from tokenizers.models import BPE, Unigram

_SPACE = "\u2581"
_NORMAL = 1  # sentencepiece_model.proto: SentencePiece.Type
_UNIGRAM, _BPE = 1, 2  # its TrainerSpec.ModelType


def from_sentencepiece(
    model: bytes, pieces: Sequence[str], specials: tuple[str, str, str, str, str]
) -> bytes:
    """Returns the tokenizer.json of a SentencePiece model.

    Special tokens are added as in XLM-R: `<s> A </s>`, `<s> A </s></s> B </s>`. Specials that occur
    in text are recognised, as Hugging Face's tokenizers do unless `split_special_tokens` is set.

    Args:
      model: the content of the model's file.
      pieces: the piece of every id.
      specials: the names of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` among the pieces.

    Raises:
      ConfigError: if the pieces differ from the model's, or `tokenizers` cannot represent the
        model. It supports unigram and BPE models with SentencePiece's default options and built-in
        normalisations.
    """
    import tokenizers
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import decoders, pre_tokenizers, processors

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
    _check(proto)
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == _NORMAL}
    wrong = scores.keys() ^ (set(pieces) - set(specials))
    if wrong or len(scores) + len(specials) != len(pieces):
        raise ConfigError(
            f"the SentencePiece model and the list of pieces differ in {len(wrong)} pieces, such "
            f"as {quoted(min(wrong, default=None))}: they belong to different tokenizers"
        )
    first, pad, last, unknown, mask = specials
    is_bpe = proto.trainer_spec.model_type == _BPE
    tokenizer = tokenizers.Tokenizer(
        _bpe(pieces, scores, unknown) if is_bpe else _unigram(pieces, scores, unknown)
    )
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        with convert_errors("the normalisation of this SentencePiece model cannot be read"):
            tokenizer.normalizer = nfkc.normalizer(charsmap)
    # XLM-R has WhitespaceSplit, but that drops U+0085, which is not a space for SentencePiece.
    words = [
        pre_tokenizers.Split(" ", "removed"),
        pre_tokenizers.Metaspace(_SPACE, prepend_scheme="always"),
    ]
    if not is_bpe:  # a unigram model has the specials as pieces, which text must not match
        words.append(pre_tokenizers.Split(tokenizers.Regex(_within(specials)), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last],
        pair=[first, "$A", last, last, "$B", last],
        special_tokens=[(name, list(pieces).index(name)) for name in (first, last)],
    )
    # As in XLM-R, <mask> includes the space before it, because pieces start with their space.
    for name in specials:
        token = tokenizers.AddedToken(name, lstrip=name == mask, normalized=False, special=True)
        tokenizer.add_special_tokens([token])
    return tokenizer.to_str().encode()


def _unigram(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "Unigram":
    from tokenizers import models

    # The score of an unknown character is the lowest score minus 10; specials must not lower it.
    lowest = min(scores.values())
    return models.Unigram(
        [(piece, scores.get(piece, lowest)) for piece in pieces],
        unk_id=list(pieces).index(unknown),
        byte_fallback=False,
    )


def _bpe(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "BPE":
    """Returns a BPE model with a merge for each way to split a piece in two, by falling score.

    SentencePiece joins the two neighbours whose joined piece has the highest score, regardless of
    how it is split.
    """
    from tokenizers import models

    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ids = {piece: index for index, piece in enumerate(pieces)}
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True)


def _within(specials: Sequence[str]) -> str:
    """Returns a regular expression for the (empty) place before each special's last character."""
    places = (f"(?<={re.escape(name[:-1])})(?={re.escape(name[-1])})" for name in specials)
    return "|".join(places)


def _check(proto: Any) -> None:
    """Raises a ConfigError if a tokenizer.json cannot represent the model."""
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    kinds = {piece.type for piece in proto.pieces[3:]}
    inside = [piece.piece for piece in proto.pieces if _SPACE in piece.piece[1:]]
    is_bpe, normal = trainer.model_type == _BPE, [p for p in proto.pieces if p.type == _NORMAL]
    joined = [piece.score for piece in normal if len(piece.piece) > 1]
    letters = {letter for piece in normal for letter in piece.piece}
    missing = sorted(letters - {piece.piece for piece in normal})
    refused = {
        "it is neither a unigram nor a BPE model": trainer.model_type not in (_UNIGRAM, _BPE),
        "its normalisation has user-defined rules": spec.name == "user_defined",
        "it does not add a space at the start, does not remove repeated spaces, or does not write "
        "spaces as U+2581": not (
            spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
        ),
        "it marks the ends of words, not their starts": trainer.treat_whitespace_as_suffix,
        "it has user-defined, unused or byte pieces": kinds - {_NORMAL},
        f"it has pieces across words, such as {inside[:1]}": inside,
        "it is BPE, and some pieces have equal scores": is_bpe and len(set(joined)) < len(joined),
        f"it is BPE, and {missing[:1]} occurs in its pieces but is not a piece": is_bpe and missing,
    }
    for reason, applies in refused.items():
        if applies:
            raise ConfigError(
                f"this SentencePiece model has no equivalent tokenizer.json: {reason}"
            )
