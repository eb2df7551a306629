"""A SentencePiece model file, in XLM-R's layout."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece

from xlj.config import ConfigError
from xlj.data.rows.packing import Ragged
from xlj.data.tokenizer import spans
from xlj.data.tokenizer.codec import Codec
from xlj.data.tokenizer.layout import MASK, SPECIALS, UNK


def read(model: bytes) -> Codec:
    """The model's piece i >= 3 has id i + 1, as in XLM-R and in its tokenizer classes.

    Raises:
      ConfigError: if it is no SentencePiece model, or its first pieces are not `<unk>`, `<s>`,
        `</s>`, or another is not UTF-8; the message goes on from the name of the file.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ConfigError(f"is not a SentencePiece model, nor a tokenizer.json ({error})") from None
    found = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
    if found != [0, 1, 2]:
        raise ConfigError(
            f"has <unk>, <s>, </s> at {found}; XLM-R's layout needs "
            "[0, 1, 2] (SentencePiece's defaults: --unk_id=0 --bos_id=1 --eos_id=2 --pad_id=-1)"
        )
    pieces = (*SPECIALS, *_learned(processor), MASK)

    def ragged(ids: Sequence[list[int]]) -> Ragged:
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(lengths.sum()))
        return Ragged(np.where(flat == 0, UNK, flat + 1).astype(np.int32), lengths)

    def encode(lines: Sequence[str]) -> Ragged:
        return ragged(processor.encode(list(lines), num_threads=1))

    def encode_with_spans(lines: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        if not lines:  # 0.2.2 fails on an empty list
            return encode(lines), spans.array([])
        found = processor.encode(list(lines), num_threads=1, return_type="offset_mapping")
        return ragged([one["ids"] for one in found]), spans.array([one["offsets"] for one in found])

    def decode(ids: list[int]) -> str:
        return processor.decode([0 if i == UNK else i - 1 for i in ids])

    return Codec(
        pieces=pieces,
        native_ids=np.arange(len(pieces), dtype=np.int32),
        native_specials=(*SPECIALS, MASK),
        markers="sentencepiece",
        encode=encode,
        encode_with_spans=encode_with_spans,
        decode=decode,
    )


def _learned(processor: sentencepiece.SentencePieceProcessor) -> Iterator[str]:
    for i in range(3, processor.get_piece_size()):
        try:
            yield processor.id_to_piece(i)
        except UnicodeDecodeError:
            raise ConfigError(f"is damaged: its piece {i} is not UTF-8") from None
