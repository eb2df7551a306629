"""A SentencePiece model in XLM-R's layout: text to ids and back."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from xlj.config import ConfigError
from xlj.data.layout import BOS, EOS, MASK, PAD, SPECIALS, UNK
from xlj.data.packing import Ragged


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Pieces and their ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, SentencePiece's i >= 3 at
    i + 1, `<mask>` last (the layout of XLM-R and of its tokenizer classes).

    Attributes:
      model: the bytes of the SentencePiece model.
    """

    model: bytes = dataclasses.field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """The vocabulary of a SentencePiece `.model` file; a leading `~` is the home folder.

        Raises:
          ConfigError: if there is no such file, it is no SentencePiece model, or its first pieces
            are not `<unk>`, `<s>`, `</s>`.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise ConfigError(f"vocabulary {path}: there is no such file")
        vocabulary = cls(path.read_bytes())
        try:
            processor = vocabulary._processor
        except RuntimeError as error:
            raise ConfigError(f"vocabulary {path} is not a SentencePiece model ({error})") from None
        found = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
        if found != [0, 1, 2]:
            raise ConfigError(
                f"vocabulary {path} has <unk>, <s>, </s> at {found}; XLM-R's layout needs "
                "[0, 1, 2] (SentencePiece's defaults: --unk_id=0 --bos_id=1 --eos_id=2 --pad_id=-1)"
            )
        return vocabulary

    @cached_property
    def size(self) -> int:
        """Number of ids, specials and `<mask>` included."""
        return self._processor.get_piece_size() + 2

    @property
    def mask(self) -> int:
        """The id of `<mask>`, the last; text never yields it."""
        return self.size - 1

    @cached_property
    def digest(self) -> str:
        """sha256 of the model file, in hex."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def dtype(self) -> np.dtype:
        """The type of rows on disk: little-endian uint16 where all ids fit, else uint32."""
        return np.dtype("<u2" if self.size <= 1 << 16 else "<u4")

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The piece of every id, in order."""
        processor = self._processor
        learned = (processor.id_to_piece(i) for i in range(3, processor.get_piece_size()))
        return (*SPECIALS, *learned, MASK)

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Ids of many lines at once, without `<s>` and `</s>`; the fastest way."""
        ids = self._processor.encode(list(lines), num_threads=1)
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(lengths.sum()))
        return Ragged(np.where(flat == 0, UNK, flat + 1).astype(np.int32), lengths)

    def encode_batch(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Ids of each line, int32, without `<s>` and `</s>`."""
        ragged = self.encode(lines)
        return np.split(ragged.ids, ragged.starts[1:]) if len(lines) else []

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids; `<s>`, `<pad>`, `</s>` and `<mask>` are left out."""
        silent = {BOS, PAD, EOS, self.mask}
        return self._processor.decode(
            [0 if i == UNK else int(i) - 1 for i in ids if int(i) not in silent]
        )

    @cached_property
    def _processor(self) -> Any:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    def __reduce__(self) -> tuple:
        return Vocabulary, (self.model,)
