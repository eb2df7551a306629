"""Tokenizers in the formats of ModernBERT, mmBERT and EuroBERT give the library's token ids.

The texts are 10,000 real lines of 30 languages, and hard strings.
"""

import json

import pytest
from modern_tokenizers import MODERN, write_folder
from real_text import HARD, SPECIALS, sentences
from tokenizers import Tokenizer

from xlj.interop import tokenizer_files

transformers = pytest.importorskip(
    "transformers", reason="needs transformers (pip install '.[parity]')"
)
pytestmark = [pytest.mark.parity, pytest.mark.slow]

MODEL_TYPES = {"modernbert": "modernbert", "mmbert": "modernbert", "eurobert": "eurobert"}
MORE = (
    "a  b   c    d",
    " lead",
    "trail ",
    "a [MASK] b",
    "a<mask>b",
    "x <|mask|>y",
    "\U0001f600\U0001f3fd",
    "",
)


@pytest.fixture(scope="module")
def lines():
    return [*sentences(334, skip=200)[:10_000], *HARD, *SPECIALS, *MORE]


@pytest.fixture(scope="module", params=MODERN)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    tokenizer = MODERN[kind](sentences(200), 8000)
    folder = write_folder(tmp_path_factory.mktemp("folder"), kind, tokenizer)
    (folder / "config.json").write_text(json.dumps({"model_type": MODEL_TYPES[kind]}))
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder):
    return tokenizer_files.read(folder)


@pytest.fixture(scope="module")
def written(folder, vocabulary, tmp_path_factory):
    out = tmp_path_factory.mktemp("written")
    tokenizer_files.write(vocabulary, out, 512)
    (out / "config.json").write_bytes((folder / "config.json").read_bytes())
    return out


def native(vocabulary, ids):
    return [vocabulary.native_ids[line].tolist() for line in ids]


def test_ids_and_spans_equal_those_of_the_library(folder, vocabulary, lines):
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.encode_special_tokens = True
    encodings = library.encode_batch(lines, add_special_tokens=False)
    assert native(vocabulary, vocabulary.encode_batch(lines)) == [
        encoding.ids for encoding in encodings
    ]
    ids, spans = vocabulary.encode_with_spans(lines)
    ids_with_spans = iter(zip(ids.ids, spans.tolist(), strict=True))
    for line, encoding in zip(lines, encodings, strict=True):
        for begin, end in encoding.offsets:
            number, (first, last) = next(ids_with_spans)
            if begin < end and number not in vocabulary.marks:
                assert line[first:last] == line[begin:end].strip("".join(_BLANKS)), line


def test_written_folders_give_the_same_ids_in_transformers(folder, written, vocabulary, lines):
    """Compares the original folder with xlj's. The texts include special tokens."""
    before, after = map(transformers.AutoTokenizer.from_pretrained, (folder, written))
    assert before.is_fast and after.is_fast
    assert before(lines)["input_ids"] == after(lines)["input_ids"]
    half = len(lines) // 2
    pairs = lines[:half], lines[half : 2 * half]
    assert before(*pairs)["input_ids"] == after(*pairs)["input_ids"]
    assert (before.unk_token_id, before.pad_token_id) == (after.unk_token_id, after.pad_token_id)
    assert {*before.all_special_ids} == {*after.all_special_ids} and len(before) == len(after)
    bare = [line for line in lines if "<" not in line and "[" not in line and "|" not in line]
    framed = before(bare)["input_ids"]
    first, last = (vocabulary.native_ids[i] for i in (0, 2))
    expected = [[first, *ids, last] for ids in native(vocabulary, vocabulary.encode_batch(bare))]
    assert framed == expected and len(bare) > 9_000
    for text in ("a <mask> b", "a<mask>b", " <mask>  x", "\u4e2d<mask>\u6587"):
        encoded = before(text.replace("<mask>", before.mask_token), add_special_tokens=False)
        assert (
            vocabulary.native_ids[vocabulary.encode_masked(text)].tolist() == encoded["input_ids"]
        )


def test_separate_words_are_encoded_as_within_a_sentence(folder, vocabulary, lines):
    """Words have the ids that they have after another word, here after "a"."""
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.encode_special_tokens = True
    words = list(dict.fromkeys(word for line in lines[:10_000] for word in line.split(" ") if word))
    xlj_ids = native(vocabulary, vocabulary.encode_words(words))
    encodings = library.encode_batch([f"a {word}" for word in words], add_special_tokens=False)
    differ = []
    for word, ids, encoding in zip(words, xlj_ids, encodings, strict=True):
        first = next((i for i, (_, end) in enumerate(encoding.offsets) if end > 1), 1)
        if ids != encoding.ids[first:]:
            differ.append(word)
    assert len(words) > 50_000 and not differ, differ[:20]


_BLANKS = [chr(c) for c in range(0x3001) if chr(c).isspace()] + ["\u200b", "\ufeff"]
