"""Continues BPE training on new text: adds merges after those of a vocabulary (ours)."""

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import UNK, of_native
from xlj.data.tokenizer.tokenizer_json import convert_errors, is_tokenizer_json
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.words import BYTE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "\u2581"
_COVERAGE = 0.9995  # the share of the text's characters that must be covered by pieces
_LETTERS = 0x10000  # the first code point that represents a piece while merges are learned
_LEAST = 2  # the minimum number of times that two pieces follow each other in the text

_Word = tuple[str, ...]  # the pieces of a word
_Merge = tuple[str, str]


def grow(vocabulary: Vocabulary, lines: Sequence[str], new_pieces: int) -> bytes:
    """Returns the file of a BPE vocabulary with `new_pieces` more pieces.

    Characters without a piece are added first (byte-level BPE has none), if they are among the most
    frequent characters that make up 99.95 % of the text. Then the two pieces that most often follow
    each other within words are joined, and so on. A merge that results in a known piece is added
    too, but not counted.

    Raises:
      ConfigError: if the model is not BPE, or the text yields too few pieces.
    """
    is_json = is_tokenizer_json(vocabulary.model)
    make: type[_Json] | type[_SentencePiece] = _Json if is_json else _SentencePiece
    file = make(vocabulary)
    texts = itertools.chain.from_iterable(file.texts(lines))
    characters = _characters(Counter(texts), file.pieces)
    if len(characters) > new_pieces:
        raise ConfigError(
            f"{new_pieces:,} new pieces are too few: this text has {len(characters):,} new "
            f"characters; set --pieces to {len(characters)} or more"
        )
    file.add(characters, [])
    words = Counter(file.words(lines))
    known, joined = set(file.pieces), new_pieces - len(characters)
    merges, count = [], joined
    while True:
        learned = _learn_merges(words, count)
        merges = _remove_merges(learned, known - file.plain)
        new = dict.fromkeys(a + b for a, b in merges if a + b not in known)
        if len(new) >= joined:
            break
        if len(learned) < count:
            raise ConfigError(
                f"this text does not yield {new_pieces:,} new pieces, but at most "
                f"{len(new) + len(characters):,} (give more text or a smaller --pieces)"
            )
        count += joined - len(new)
    last = list(new)[joined - 1] if joined else ""
    end = next((i + 1 for i, (a, b) in enumerate(merges) if a + b == last), 0)
    file.add(list(new)[:joined], merges[:end])
    return file.content()


def cut(vocabulary: Vocabulary, pieces: Sequence[str]) -> list[np.ndarray]:
    """Splits new pieces into the pieces of a tokenizer.json's vocabulary, by its model alone.

    Returns:
      The ids of each piece, int32; `<unk>` where the model does not know a part of it.
    """
    from tokenizers import Tokenizer

    model = Tokenizer.from_str(vocabulary.model.decode()).model
    xlj_ids = of_native(vocabulary.native_ids)
    native = ([token.id for token in model.tokenize(piece)] for piece in pieces)
    return [xlj_ids[ids] if ids else np.array([UNK], np.int32) for ids in native]


class _Json:
    """The BPE model of a tokenizer.json."""

    def __init__(self, vocabulary: Vocabulary):
        self._description = json.loads(vocabulary.model)
        model = self._description["model"]
        if model["type"] != "BPE":
            raise ConfigError(
                f"the tokenizer.json has a {model['type']} model, which cannot be extended; "
                "expected BPE, or unigram with U+2581 at the start of words"
            )
        self._is_of_bytes = vocabulary.markers == "byte_bpe"
        # The tokenizers library renumbers added tokens after the model's pieces, unless the model
        # has them. New pieces must come after both, so the added tokens become pieces of the model.
        for token in self._description["added_tokens"]:
            model["vocab"].setdefault(token["content"], token["id"])

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, including special and added tokens."""
        return self._description["model"]["vocab"].keys()

    @property
    def plain(self) -> set[str]:
        """Pieces that may be joined: no special or added tokens, no byte fallback pieces."""
        others = {token["content"] for token in self._description["added_tokens"]}
        others.add(self._description["model"].get("unk_token"))
        return {piece for piece in self.pieces if not BYTE.fullmatch(piece)} - others

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """Yields the normalised lines, whose new characters become pieces; none for byte-level
        BPE."""
        normalizer = self._tokenizer().normalizer
        if not self._is_of_bytes:
            yield from (normalizer.normalize_str(line) if normalizer else line for line in lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """Yields the pieces of each word. Added tokens are separate words."""
        tokenizer = self._tokenizer()
        tokenizer.encode_special_tokens = True
        plain = self.plain
        for start in range(0, len(lines), 10_000):
            for one in tokenizer.encode_batch(
                list(lines[start : start + 10_000]), add_special_tokens=False
            ):
                whose = zip(one.word_ids, one.tokens, strict=True)
                for _, word in itertools.groupby(whose, key=lambda item: item[0]):
                    yield from _split([piece for _, piece in word], plain)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Appends pieces and merges to those of the model."""
        vocab, known = self._description["model"]["vocab"], self._description["model"]["merges"]
        for piece in pieces:
            vocab[piece] = len(vocab)
        as_text = bool(known) and isinstance(known[0], str)  # the format of older releases
        known += [f"{a} {b}" if as_text else [a, b] for a, b in merges]

    def content(self) -> bytes:
        """Returns the content of the file."""
        return json.dumps(self._description, ensure_ascii=False, indent=2).encode()

    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        with convert_errors("the extended tokenizer cannot be read"):
            tokenizer = Tokenizer.from_str(self.content().decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


class _SentencePiece:
    """A BPE model of SentencePiece: each merge is a piece, and higher scores come first."""

    def __init__(self, vocabulary: Vocabulary):
        self._proto: Any = ModelProto.FromString(vocabulary.model)

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, including special ones."""
        return {piece.piece for piece in self._proto.pieces}

    @property
    def plain(self) -> set[str]:
        """Pieces that may be joined: all but special ones."""
        return {piece.piece for piece in self._proto.pieces if piece.type == piece.NORMAL}

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """Yields the normalised lines, with U+2581 for spaces."""
        yield from map(self._processor().normalize, lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """Yields the pieces of each word."""
        plain = self.plain
        for pieces in self._processor().encode(list(lines), out_type=str):
            yield from _split(pieces, plain)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Appends pieces with falling scores below all others, which rank their merges last."""
        lowest = min(piece.score for piece in self._proto.pieces)
        for rank, piece in enumerate(pieces, 1):
            self._proto.pieces.add(piece=piece, score=lowest - rank)
        self._proto.trainer_spec.vocab_size = len(self._proto.pieces)

    def content(self) -> bytes:
        """Returns the content of the file."""
        return self._proto.SerializeToString(deterministic=True)

    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.content())


def _split(pieces: Sequence[str], plain: set[str]) -> Iterator[_Word]:
    """Splits the pieces of a word, or of a whole line, into runs of pieces that may be joined.

    The marker of a word's start can only be at the start of a run or after other markers, so no new
    piece crosses words.
    """
    run: list[str] = []
    for piece in pieces:
        starts_word = piece.startswith(_SPACE) and run and run[-1].strip(_SPACE)
        if run and (starts_word or piece not in plain):
            yield tuple(run)
            run = []
        if piece in plain:
            run.append(piece)
    if run:
        yield tuple(run)


def _remove_merges(merges: Sequence[_Merge], barred: set[str]) -> list[_Merge]:
    """Removes merges that result in a barred piece, and merges of pieces that depend on them.

    Text that spells a special token ("[MASK]") must not become that token.
    """
    barred, allowed = set(barred), []
    for first, second in merges:
        if not barred.isdisjoint((first, second, first + second)):
            barred.add(first + second)
        else:
            allowed.append((first, second))
    return allowed


def _characters(counts: Counter[str], known: Collection[str]) -> list[str]:
    """Returns the characters to add, most frequent first."""
    total, seen, characters = counts.total(), 0, []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if seen > _COVERAGE * total:
            break
        seen += count
        if character not in known and not character.isspace():
            characters.append(character)
    return characters


def _learn_merges(words: Counter[_Word], most: int) -> list[_Merge]:
    """Learns at most `most` merges by BPE training on words, in order.

    The library's trainer starts from letters. To start from pieces, each piece is represented by a
    letter.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = Counter({word: count for word, count in words.items() if len(word) > 1})
    pieces = sorted({piece for word in words for piece in word})
    letter = {piece: chr(_LETTERS + i) for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    spelled = (
        " ".join(["".join(letter[piece] for piece in word)] * count)
        for word, count in words.items()
    )
    trainer = trainers.BpeTrainer(
        vocab_size=len(pieces) + most, min_frequency=_LEAST, show_progress=False
    )
    tokenizer.train_from_iterator(spelled, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    spell = {letter: piece for piece, letter in letter.items()}
    return [
        ("".join(spell[x] for x in first), "".join(spell[x] for x in second))
        for first, second in merges
    ]
