"""A SentencePiece model as a Hugging Face tokenizer.json that gives the same ids."""

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
    """The tokenizer.json of a SentencePiece model file.

    Examples are framed as XLM-R's: `<s> A </s>`, `<s> A </s></s> B </s>`. Specials are found in
    text, as Hugging Face's tokenizers do unless `split_special_tokens` is set.

    Args:
      pieces: of every id.
      specials: which of them stand for `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`.

    Raises:
      ConfigError: if the pieces are not those of the model, or it does what `tokenizers` cannot:
        anything but a unigram or BPE model with SentencePiece's defaults (any of its own
        normalisations).
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
            f"as {quoted(min(wrong, default=None))}: they are not of one tokenizer"
        )
    first, pad, last, unknown, mask = specials
    is_bpe = proto.trainer_spec.model_type == _BPE
    tokenizer = tokenizers.Tokenizer(
        _bpe(pieces, scores, unknown) if is_bpe else _unigram(pieces, scores, unknown)
    )
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        with convert_errors("the normalisation of this SentencePiece model cannot be read"):
            tokenizer.normalizer = nfkc.normalizer(charsmap)
    # Not WhitespaceSplit, as in XLM-R's: it drops U+0085, which to SentencePiece is no space.
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
    for name in specials:  # like XLM-R's, <mask> takes the space before it: pieces bring theirs
        token = tokenizers.AddedToken(name, lstrip=name == mask, normalized=False, special=True)
        tokenizer.add_special_tokens([token])
    return tokenizer.to_str().encode()


def _unigram(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "Unigram":
    from tokenizers import models

    # An unknown character costs 10 more than the lowest score of all; specials must not lower it.
    lowest = min(scores.values())
    return models.Unigram(
        [(piece, scores.get(piece, lowest)) for piece in pieces],
        unk_id=list(pieces).index(unknown),
        byte_fallback=False,
    )


def _bpe(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "BPE":
    """SentencePiece joins the two neighbours whose joined piece scores highest, whatever the two
    are; so each way to join a piece is a merge, and those of higher scores come first."""
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
    """A regular expression of the empty place before the last character of each special."""
    places = (f"(?<={re.escape(name[:-1])})(?={re.escape(name[-1])})" for name in specials)
    return "|".join(places)


def _check(proto: Any) -> None:
    """Refuses what a tokenizer.json could not do alike."""
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    kinds = {piece.type for piece in proto.pieces[3:]}
    inside = [piece.piece for piece in proto.pieces if _SPACE in piece.piece[1:]]
    is_bpe, normal = trainer.model_type == _BPE, [p for p in proto.pieces if p.type == _NORMAL]
    joined = [piece.score for piece in normal if len(piece.piece) > 1]
    letters = {letter for piece in normal for letter in piece.piece}
    lacking = sorted(letters - {piece.piece for piece in normal})
    refused = {
        "it is neither a unigram nor a BPE model": trainer.model_type not in (_UNIGRAM, _BPE),
        "its normalisation has rules of its own": spec.name == "user_defined",
        "it does not put a space first, keeps repeated spaces, or does not write them as "
        "U+2581": not (
            spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
        ),
        "it marks the ends of words, not their starts": trainer.treat_whitespace_as_suffix,
        "it has user-defined, unused or byte pieces": kinds - {_NORMAL},
        f"it has pieces across words, such as {inside[:1]}": inside,
        "it is BPE with pieces of equal scores": is_bpe and len(set(joined)) < len(joined),
        f"it is BPE without a piece for {lacking[:1]}, which its pieces hold": is_bpe and lacking,
    }
    for reason, applies in refused.items():
        if applies:
            raise ConfigError(f"this SentencePiece model has no equal tokenizer.json: {reason}")
