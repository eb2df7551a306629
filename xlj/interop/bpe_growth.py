"""Continues BPE training on new text: adds new merges after a vocabulary's merges (ours)."""

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import UNK, invert_native_ids
from xlj.data.tokenizer.tokenizer_json import convert_errors, is_tokenizer_json
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.vocabulary_matching import BYTE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "\u2581"
_COVERAGE = 0.9995  # the share of the text's characters that pieces must cover
_FIRST_LETTER = 0x10000  # the first code point that represents a piece while merges are learned
_MIN_COUNT = 2  # a merge joins pieces that follow each other at least this often in the text

_Word = tuple[str, ...]  # the pieces of a word
_Merge = tuple[str, str]


def grow(vocabulary: Vocabulary, lines: Sequence[str], new_pieces: int) -> bytes:
    """Returns the model file of a BPE vocabulary with `new_pieces` more pieces.

    The most frequent characters, which together make up 99.95 % of the text, get a piece first if
    they have none. (In byte-level BPE, every character has pieces.) The remaining pieces come from
    merges. As in BPE training, each merge joins the two pieces that follow each other most often
    within words. A merge whose result is already a piece is added too, but does not count as a new
    piece.

    Args:
      vocabulary: a SentencePiece model, which must be BPE, or a tokenizer.json.
      lines: the new text, one sentence per line.
      new_pieces: the number of pieces to add.

    Raises:
      ConfigError: if a tokenizer.json is not BPE, or if the text yields too few pieces or has more
        than `new_pieces` characters without a piece.
    """
    file = _model_of(vocabulary)
    characters = _missing_in(file, lines)
    if len(characters) > new_pieces:
        raise ConfigError(
            f"--pieces={new_pieces} is too small: this text has {len(characters):,} characters "
            f"without a piece; set --pieces to {len(characters)} or more"
        )
    file.add(characters, [])
    words = Counter(file.words(lines))
    known, merged_pieces = set(file.pieces), new_pieces - len(characters)
    merges, max_merges = [], merged_pieces
    while True:
        learned = _learn_merges(words, max_merges)
        merges = _remove_merges(learned, known - file.joinable)
        new = dict.fromkeys(a + b for a, b in merges if a + b not in known)
        if len(new) >= merged_pieces:
            break
        if len(learned) < max_merges:
            raise ConfigError(
                f"--pieces={new_pieces}: this text yields at most {len(new) + len(characters):,} "
                "new pieces; give more text or a smaller --pieces"
            )
        max_merges += merged_pieces - len(new)
    last = list(new)[merged_pieces - 1] if merged_pieces else ""
    end = next((i + 1 for i, (a, b) in enumerate(merges) if a + b == last), 0)
    file.add(list(new)[:merged_pieces], merges[:end])
    return file.content()


def missing_characters(vocabulary: Vocabulary, lines: Sequence[str]) -> list[str]:
    """Returns the characters of lines that `grow` gives a piece, most frequent first."""
    return _missing_in(_model_of(vocabulary), lines)


def _model_of(vocabulary: Vocabulary) -> "_JsonModel | _SentencePieceModel":
    is_json = is_tokenizer_json(vocabulary.model)
    return _JsonModel(vocabulary) if is_json else _SentencePieceModel(vocabulary)


def _missing_in(file: "_JsonModel | _SentencePieceModel", lines: Sequence[str]) -> list[str]:
    texts = itertools.chain.from_iterable(file.texts(lines))
    return find_new_characters(Counter(texts), file.pieces)


def cut(vocabulary: Vocabulary, pieces: Sequence[str]) -> list[np.ndarray]:
    """Splits each new piece into old pieces, as the model of a tokenizer.json splits a word.

    The normaliser and the pre-tokenizer of the tokenizer.json are not applied.

    Returns:
      For each new piece, xlj's ids of its old pieces, int32. A part that no old piece covers is
      `<unk>`.
    """
    from tokenizers import Tokenizer

    model = Tokenizer.from_str(vocabulary.model.decode()).model
    xlj_ids = invert_native_ids(vocabulary.native_ids)
    native = ([token.id for token in model.tokenize(piece)] for piece in pieces)
    return [xlj_ids[ids] if ids else np.array([UNK], np.int32) for ids in native]


class _JsonModel:
    """Adds pieces and merges to the BPE model of a tokenizer.json."""

    def __init__(self, vocabulary: Vocabulary):
        self._description = json.loads(vocabulary.model)
        model = self._description["model"]
        if model["type"] != "BPE":
            raise ConfigError(
                f"the tokenizer.json has a {model['type']} model, which xlj cannot extend; "
                "expected BPE, or unigram with U+2581 at the start of words"
            )
        self._is_byte_level = vocabulary.markers == "byte_bpe"
        # The tokenizers library gives an added token that is no piece of the model an id after all
        # pieces. A new piece would change this id, so the added tokens become pieces first.
        for token in self._description["added_tokens"]:
            model["vocab"].setdefault(token["content"], token["id"])

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, including special and added tokens."""
        return self._description["model"]["vocab"].keys()

    @property
    def joinable(self) -> set[str]:
        """Pieces that merges may join: all but special tokens, added tokens and byte pieces."""
        specials = {token["content"] for token in self._description["added_tokens"]}
        specials.add(self._description["model"].get("unk_token"))
        return {piece for piece in self.pieces if not BYTE.fullmatch(piece)} - specials

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """Yields the normalised lines, from which new characters are taken.

        Yields nothing for byte-level BPE, which needs no pieces for characters.
        """
        normalizer = self._tokenizer().normalizer
        if not self._is_byte_level:
            yield from (normalizer.normalize_str(line) if normalizer else line for line in lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """Yields the pieces of each word. An added token ends a word."""
        tokenizer = self._tokenizer()
        tokenizer.encode_special_tokens = True
        joinable = self.joinable
        for start in range(0, len(lines), 10_000):
            for encoding in tokenizer.encode_batch(
                list(lines[start : start + 10_000]), add_special_tokens=False
            ):
                pieces = zip(encoding.word_ids, encoding.tokens, strict=True)
                for _, word in itertools.groupby(pieces, key=lambda item: item[0]):
                    yield from _split_into_runs([piece for _, piece in word], joinable)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Appends pieces and merges to the model."""
        vocab, known = self._description["model"]["vocab"], self._description["model"]["merges"]
        for piece in pieces:
            vocab[piece] = len(vocab)
        # Older releases of the tokenizers library write a merge as "a b", newer ones as ["a", "b"].
        as_text = bool(known) and isinstance(known[0], str)
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


class _SentencePieceModel:
    """Adds pieces to a SentencePiece BPE model, in which pieces with higher scores merge first."""

    def __init__(self, vocabulary: Vocabulary):
        self._proto: Any = ModelProto.FromString(vocabulary.model)

    @property
    def pieces(self) -> Collection[str]:
        """All pieces, including special ones."""
        return {piece.piece for piece in self._proto.pieces}

    @property
    def joinable(self) -> set[str]:
        """Pieces that merges may join: all but special ones."""
        return {piece.piece for piece in self._proto.pieces if piece.type == piece.NORMAL}

    def texts(self, lines: Sequence[str]) -> Iterator[str]:
        """Yields the normalised lines, with U+2581 for spaces."""
        yield from map(self._processor().normalize, lines)

    def words(self, lines: Sequence[str]) -> Iterator[_Word]:
        """Yields the pieces of each word."""
        joinable = self.joinable
        for pieces in self._processor().encode(list(lines), out_type=str):
            yield from _split_into_runs(pieces, joinable)

    def add(self, pieces: Sequence[str], merges: Sequence[_Merge]) -> None:
        """Appends pieces with falling scores, below the scores of all old pieces.

        The scores make the new merges come after the old merges, so `merges` is not used.
        """
        lowest = min(piece.score for piece in self._proto.pieces)
        for rank, piece in enumerate(pieces, 1):
            self._proto.pieces.add(piece=piece, score=lowest - rank)
        self._proto.trainer_spec.vocab_size = len(self._proto.pieces)

    def content(self) -> bytes:
        """Returns the content of the file."""
        return self._proto.SerializeToString(deterministic=True)

    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.content())


def _split_into_runs(pieces: Sequence[str], joinable: set[str]) -> Iterator[_Word]:
    """Splits the pieces of a word, or of a whole line, into runs of pieces that merges may join.

    Each word starts a new run, so no merge crosses words.
    """
    run: list[str] = []
    for piece in pieces:
        starts_word = piece.startswith(_SPACE) and run and run[-1].strip(_SPACE)
        if run and (starts_word or piece not in joinable):
            yield tuple(run)
            run = []
        if piece in joinable:
            run.append(piece)
    if run:
        yield tuple(run)


def _remove_merges(merges: Sequence[_Merge], barred: set[str]) -> list[_Merge]:
    """Removes merges that result in a barred piece, and all merges that depend on them.

    Otherwise text that contains "[MASK]" would become the special token.
    """
    barred, allowed = set(barred), []
    for first, second in merges:
        if not barred.isdisjoint((first, second, first + second)):
            barred.add(first + second)
        else:
            allowed.append((first, second))
    return allowed


def find_new_characters(counts: Counter[str], known: Collection[str]) -> list[str]:
    """Returns the characters to add as pieces, most frequent first: those of the most frequent
    characters, which together make up 99.95 % of the text, that are no pieces.

    Args:
      counts: how often each character occurs in the text.
      known: the old pieces.
    """
    total, seen, characters = counts.total(), 0, []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if seen > _COVERAGE * total:
            break
        seen += count
        if character not in known and not character.isspace():
            characters.append(character)
    return characters


def _learn_merges(words: Counter[_Word], max_merges: int) -> list[_Merge]:
    """Learns at most `max_merges` merges by BPE training on words; returns them in order.

    The trainer of the tokenizers library starts from characters. To make it start from pieces, each
    piece is replaced by one character.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = Counter({word: count for word, count in words.items() if len(word) > 1})
    pieces = sorted({piece for word in words for piece in word})
    letter_of = {piece: chr(_FIRST_LETTER + i) for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    spelled = (
        " ".join(["".join(letter_of[piece] for piece in word)] * count)
        for word, count in words.items()
    )
    trainer = trainers.BpeTrainer(
        vocab_size=len(pieces) + max_merges, min_frequency=_MIN_COUNT, show_progress=False
    )
    tokenizer.train_from_iterator(spelled, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    piece_of = {letter: piece for piece, letter in letter_of.items()}
    return [
        ("".join(piece_of[x] for x in first), "".join(piece_of[x] for x in second))
        for first, second in merges
    ]
