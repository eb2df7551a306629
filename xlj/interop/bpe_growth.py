"""BPE that goes on: more merges for new text, behind those that a vocabulary has (ours)."""

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
_COVERAGE = 0.9995  # of the text's characters, which become pieces
_LETTERS = 0x10000  # the first code point that stands for a piece while merges are learned
_LEAST = 2  # times that two pieces follow each other in the text

_Word = tuple[str, ...]  # the pieces of a word
_Merge = tuple[str, str]


def grow(vocabulary: Vocabulary, lines: Sequence[str], new_pieces: int) -> bytes:
    """The file of a BPE vocabulary with `new_pieces` more.

    Characters without a piece get one first (of byte-level BPE there are none), as far as they are
    among the most frequent ones that make up 99.95 % of the text. Then the two pieces that follow
    each other most often inside of words are joined, and so on. A merge whose piece is there
    already is added too, and not counted.

    Raises:
      ConfigError: if the model is not BPE, or the text yields fewer pieces.
    """
    is_json = is_tokenizer_json(vocabulary.model)
    make: type[_Json] | type[_SentencePiece] = _Json if is_json else _SentencePiece
    file = make(vocabulary)
    texts = itertools.chain.from_iterable(file.texts(lines))
    characters = _characters(Counter(texts), file.pieces)
    if len(characters) > new_pieces:
        raise ConfigError(
            f"{new_pieces:,} new pieces cannot be had of this text: it has {len(characters):,} new "
            "characters; ask for at least as many"
        )
    file.add(characters, [])
    words = Counter(file.words(lines))
    known, wanted = set(file.pieces), new_pieces - len(characters)
    merges, asked = [], wanted
    while True:
        learned = _learned(words, asked)
        merges = _without(learned, known - file.plain)
        fresh = dict.fromkeys(a + b for a, b in merges if a + b not in known)
        if len(fresh) >= wanted:
            break
        if len(learned) < asked:
            raise ConfigError(
                f"{new_pieces:,} new pieces cannot be had of this text: at most "
                f"{len(fresh) + len(characters):,} can; bring more of it, or ask for fewer"
            )
        asked += wanted - len(fresh)
    last = list(fresh)[wanted - 1] if wanted else ""
    end = next((i + 1 for i, (a, b) in enumerate(merges) if a + b == last), 0)
    file.add(list(fresh)[:wanted], merges[:end])
    return file.content()


def cut(vocabulary: Vocabulary, pieces: Sequence[str]) -> list[np.ndarray]:
    """The ids, int32, of the pieces of a tokenizer.json's vocabulary that each of other pieces is
    made of, by its model alone; `<unk>` where it knows a part of one not."""
    from tokenizers import Tokenizer

    model = Tokenizer.from_str(vocabulary.model.decode()).model
    ours = of_native(vocabulary.native_ids)
    found = ([token.id for token in model.tokenize(piece)] for piece in pieces)
    return [ours[ids] if ids else np.array([UNK], np.int32) for ids in found]


class _Json:
    """The BPE of a tokenizer.json."""

    def __init__(self, vocabulary: Vocabulary):
        self._description = json.loads(vocabulary.model)
        model = self._description["model"]
        if model["type"] != "BPE":
            raise ConfigError(
                f"the tokenizer.json has a {model['type']} model; only BPE can be extended, or "
                "unigram whose words begin with U+2581"
            )
        self._is_of_bytes = vocabulary.markers == "byte_bpe"
        # The library gives added tokens their ids anew, in order behind the model's own, unless the
        # model knows them: with new pieces behind both, it must.
        for token in self._description["added_tokens"]:
            model["vocab"].setdefault(token["content"], token["id"])

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, special and added ones too."""
        return self._description["model"]["vocab"].keys()

    @property
    def plain(self) -> set[str]:
        """Pieces that may be joined: not special, not added, not bytes that are fallen back on."""
        others = {token["content"] for token in self._description["added_tokens"]}
        others.add(self._description["model"].get("unk_token"))
        return {piece for piece in self.pieces if not BYTE.fullmatch(piece)} - others

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """What the model reads of lines, of which new characters become pieces."""
        normalizer = self._tokenizer().normalizer
        if not self._is_of_bytes:
            yield from (normalizer.normalize_str(line) if normalizer else line for line in lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """The pieces of each word. Added tokens are words by themselves."""
        tokenizer = self._tokenizer()
        tokenizer.encode_special_tokens = True
        plain = self.plain
        for start in range(0, len(lines), 10_000):
            for one in tokenizer.encode_batch(
                list(lines[start : start + 10_000]), add_special_tokens=False
            ):
                whose = zip(one.word_ids, one.tokens, strict=True)
                for _, word in itertools.groupby(whose, key=lambda item: item[0]):
                    yield from _parted([piece for _, piece in word], plain)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Adds pieces behind all that there are, and merges behind the model's."""
        vocab, known = self._description["model"]["vocab"], self._description["model"]["merges"]
        for piece in pieces:
            vocab[piece] = len(vocab)
        as_text = bool(known) and isinstance(known[0], str)  # as older releases wrote them
        known += [f"{a} {b}" if as_text else [a, b] for a, b in merges]

    def content(self) -> bytes:
        """The file."""
        return json.dumps(self._description, ensure_ascii=False, indent=2).encode()

    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        with convert_errors("the extended tokenizer cannot be read"):
            tokenizer = Tokenizer.from_str(self.content().decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


class _SentencePiece:
    """A SentencePiece model of BPE: a merge is a piece, and those of higher scores come first."""

    def __init__(self, vocabulary: Vocabulary):
        self._proto: Any = ModelProto.FromString(vocabulary.model)

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, special ones too."""
        return {piece.piece for piece in self._proto.pieces}

    @property
    def plain(self) -> set[str]:
        """Pieces that may be joined: not special ones."""
        return {piece.piece for piece in self._proto.pieces if piece.type == piece.NORMAL}

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """The lines, normalised, with U+2581 for spaces."""
        yield from map(self._processor().normalize, lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """The pieces of each word."""
        plain = self.plain
        for pieces in self._processor().encode(list(lines), out_type=str):
            yield from _parted(pieces, plain)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Adds pieces with scores below all that there are, which are their merges' ranks."""
        lowest = min(piece.score for piece in self._proto.pieces)
        for rank, piece in enumerate(pieces, 1):
            self._proto.pieces.add(piece=piece, score=lowest - rank)
        self._proto.trainer_spec.vocab_size = len(self._proto.pieces)

    def content(self) -> bytes:
        """The file."""
        return self._proto.SerializeToString(deterministic=True)

    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.content())


def _parted(pieces: Sequence[str], plain: set[str]) -> Iterator[_Word]:
    """Pieces of a word, or of a line where nothing parts words, in runs of plain ones. A mark of a
    word's start is at the start of a run, or behind other marks: no new piece goes across words."""
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


def _without(merges: Sequence[_Merge], barred: set[str]) -> list[_Merge]:
    """Merges but those whose piece is barred, and those of pieces that only such ones would make.
    Text that spells a special token ("[MASK]") must not become it."""
    barred, left = set(barred), []
    for first, second in merges:
        if not barred.isdisjoint((first, second, first + second)):
            barred.add(first + second)
        else:
            left.append((first, second))
    return left


def _characters(counts: Counter[str], known: Collection[str]) -> list[str]:
    """The characters to add, the most frequent first."""
    total, seen, found = counts.total(), 0, []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if seen > _COVERAGE * total:
            break
        seen += count
        if character not in known and not character.isspace():
            found.append(character)
    return found


def _learned(words: Counter[_Word], most: int) -> list[_Merge]:
    """The merges that BPE's training makes of words, at most so many, in order.

    A letter stands for each piece, so that the library's trainer, which starts from letters, starts
    from pieces."""
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
