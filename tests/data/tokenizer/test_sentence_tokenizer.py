"""The tokenizer of sentences encodes as the vocabulary of the same file does."""

import json

import modern_tokenizers
import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import SPECIALS
from xlj.data.tokenizer.sentence_tokenizer import SentenceTokenizer, describe
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import tokenizer_files


@pytest.mark.parametrize("kind", ["modernbert", "mmbert", "eurobert", "sentencepiece"])
def test_ids_are_those_of_the_vocabulary(kind, tmp_path, vocabulary, corpus):
    lines = (corpus / "mono/de.txt").read_text("utf-8").split("\n")[:300]
    file = tmp_path / "tokenizer.json"
    if kind == "sentencepiece":
        tokenizer_files.write(vocabulary, tmp_path, 64)
    else:
        file.write_text(getattr(modern_tokenizers, kind)(lines, 400).to_str(), "utf-8")
        vocabulary = Vocabulary.load(file)
    description = json.loads(json.dumps(describe(vocabulary)))
    tokenizer = SentenceTokenizer(file, description)
    names = " ".join(name for name in vocabulary.native_specials if name)
    texts = [*lines[:50], "", f"a {names} b", "½ 漢字 😀", f"{vocabulary.separator}x"]
    actual, expected = tokenizer.encode(texts), vocabulary.encode(texts)
    np.testing.assert_array_equal(actual.lengths, expected.lengths)
    native = vocabulary.native_ids[expected.ids]
    np.testing.assert_array_equal(tokenizer.native_ids[actual.ids], native)
    # Special tokens have the same ids in both.
    is_special = expected.ids < len(SPECIALS)
    np.testing.assert_array_equal(actual.ids[is_special], expected.ids[is_special])
    assert (actual.ids[~is_special] >= len(SPECIALS)).all()


def test_a_damaged_file_is_an_error(tmp_path):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(ConfigError, match="tokenizer.json cannot be read: No such file"):
        SentenceTokenizer(file, {})
    file.write_text("{}")
    with pytest.raises(ConfigError, match="tokenizer.json cannot be read as tokenizer.json"):
        SentenceTokenizer(file, {})
