"""Reads a SentencePiece model file into XLM-R's layout of ids."""

from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece

from xlj.config import ConfigError
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import MASK, SPECIALS, UNK, Codec, word_prefix


def read(model: bytes) -> Codec:
    """Reads a model; piece i >= 3 gets id i + 1, as in XLM-R's tokenizer.

    Args:
      model: the bytes of the file.

    Raises:
      ConfigError: if the bytes are not a SentencePiece model, if its first pieces are not `<unk>`,
        `<s>`, `</s>`, or if a piece is not UTF-8. The caller puts the file name before the message.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ConfigError(
            f"is neither a SentencePiece model nor a tokenizer.json ({error})"
        ) from None
    special_ids = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
    if special_ids != [0, 1, 2]:
        raise ConfigError(
            f"has <unk>, <s>, </s> with the ids {special_ids}, but XLM-R's layout needs [0, 1, 2]; "
            "train the model with SentencePiece's defaults (--unk_id=0 --bos_id=1 --eos_id=2 "
            "--pad_id=-1)"
        )
    pieces = (*SPECIALS, *_learned_pieces(processor), MASK)

    our_ids = np.arange(1, processor.get_piece_size() + 1, dtype=np.int32)
    our_ids[0] = UNK

    def encode(lines: Sequence[str]) -> Ragged:
        # The public method with return_type="numpy" takes five times as long as this one.
        buffers = processor._processor._EncodeAsBufferBatch(  # type: ignore[attr-defined]
            list(lines), 1, None, False, -1, 0.1, False, False, False
        )
        copies = list(map(bytes, buffers))
        ids = np.frombuffer(b"".join(copies), np.int32)
        sizes = np.fromiter(map(len, copies), np.int64, len(copies))
        return Ragged(ids, sizes // ids.itemsize)

    def encode_with_spans(lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        if not lines:  # SentencePiece 0.2.2 fails on an empty list
            return []
        encoded = processor.encode(list(lines), num_threads=1, return_type="offset_mapping")
        return [(line["ids"], line["offsets"]) for line in encoded]

    def encode_masked(text: str) -> np.ndarray:
        parts = encode(text.split(MASK))
        mask_positions = parts.starts[1:]  # a mask comes before each part except the first
        return np.insert(our_ids.take(parts.ids), mask_positions, len(pieces) - 1)

    return Codec(
        pieces=pieces,
        native_ids=np.arange(len(pieces), dtype=np.int32),
        native_specials=(*SPECIALS, MASK),
        native_special_ids=(*range(len(SPECIALS)), len(pieces) - 1),
        separator="",
        markers="sentencepiece",
        our_ids=our_ids,
        word_prefix=word_prefix(processor.encode("a", out_type=str), "\u2581"),
        encode=encode,
        encode_masked=encode_masked,
        encode_with_spans=encode_with_spans,
    )


def _learned_pieces(processor: sentencepiece.SentencePieceProcessor) -> Iterator[str]:
    for i in range(3, processor.get_piece_size()):
        try:
            yield processor.id_to_piece(i)
        except UnicodeDecodeError:
            raise ConfigError(f"is damaged: its piece {i} is not UTF-8") from None
