"""Encodes sentences with a tokenizer.json that xlj exported, without reading its vocabulary.

`Vocabulary` reads all pieces of a tokenizer.json and checks them, which takes seconds for XLM-R's.
A program that only embeds sentences needs the ids of the special tokens only.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import SEPARATOR, SPECIALS, UNK, Ragged
from xlj.data.tokenizer.tokenizer_json import load_tokenizer
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.json_file import Record


def describe(vocabulary: Vocabulary) -> Record:
    """Returns what `SentenceTokenizer` needs to know of a vocabulary, as a JSON object."""
    ids = [max(i, 0) for i in vocabulary.native_ids[: len(SPECIALS)].tolist()]
    fixed = [*range(len(SPECIALS)), *[SEPARATOR] * bool(vocabulary.separator), vocabulary.mask]
    native = vocabulary.native_ids[fixed].tolist()
    size = int(vocabulary.native_ids.max()) + 1
    return {"specials": ids, "not_text": [i for i in native if i >= 0], "size": size}


class SentenceTokenizer:
    """A tokenizer.json. Its ids are the native ids plus 4, after the special tokens of xlj's layout
    (`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3).

    Args:
      file: the tokenizer.json.
      description: the result of `describe` for the vocabulary of the file.

    Raises:
      ConfigError: if the file cannot be read.

    Attributes:
      native_ids: the native id of each id, int64.
      size: number of native ids.
    """

    def __init__(self, file: Path, description: Record):
        try:
            self._tokenizer = load_tokenizer(file.read_bytes())
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
        except ConfigError as error:
            raise ConfigError(f"{file} {error}") from None
        self.size = description["size"]
        native = np.arange(self.size)
        self.native_ids = np.concatenate([description["specials"], native])
        self._our_ids = (native + len(SPECIALS)).astype(np.int32)
        # The name of a special token in a text is not the special token.
        self._our_ids[description["not_text"]] = UNK

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Encodes lines without `<s>` and `</s>`, as `Vocabulary.encode` does."""
        encodings = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        native = Ragged.of([encoding.ids for encoding in encodings])
        return Ragged(self._our_ids.take(native.ids), native.lengths)
