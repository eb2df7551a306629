"""Token ids equal those of transformers, on real sentences and on difficult strings."""

import json

import pytest
from real_text import HARD, SPECIALS, sentences
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import tokenizer_files

transformers = pytest.importorskip(
    "transformers", reason="needs transformers (pip install '.[parity]')"
)
pytestmark = [pytest.mark.parity, pytest.mark.slow]

SIZE = 8000


@pytest.fixture(scope="module")
def training_text():
    return sentences(200)


@pytest.fixture(scope="module")
def real_sentences():
    """10,000 sentences on which these tests train no tokenizer."""
    return sentences(334, skip=200)[:10_000]


def hf_ids(folder, lines, **options):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    assert tokenizer.is_fast
    return tokenizer(list(lines), add_special_tokens=False)["input_ids"]


def find_differences(folder, vocabulary, lines, **options):
    xlj_ids = [vocabulary.native_ids[ids].tolist() for ids in vocabulary.encode_batch(lines)]
    pairs = zip(lines, hf_ids(folder, lines, **options), xlj_ids, strict=True)
    return [(line, hf, xlj) for line, hf, xlj in pairs if hf != xlj]


# Vocabularies that xlj trained, exported and loaded by AutoTokenizer.


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def trained(training_text, request):
    model = vocabulary_training.train({"": training_text}, {"": 1}, SIZE, 0.9995, request.param)
    return Vocabulary(model)


@pytest.fixture(
    scope="module", params=["{}", '{"model_type": "xlm-roberta"}'], ids=["bare", "xlmr"]
)
def exported(trained, tmp_path_factory, request):
    """An exported tokenizer, alone or with a config of a model that has another tokenizer class."""
    folder = tmp_path_factory.mktemp("exported")
    tokenizer_files.write(trained, folder, 512)
    (folder / "config.json").write_text(request.param)
    return folder


def test_exported_tokenizers_give_the_same_ids_for_real_sentences(
    trained, exported, real_sentences
):
    assert not find_differences(exported, trained, real_sentences)


def test_exported_tokenizers_give_the_same_ids_for_hard_strings(trained, exported):
    assert not find_differences(exported, trained, HARD)
    assert not find_differences(exported, trained, SPECIALS, split_special_tokens=True)


def test_exported_tokenizers_add_specials_truncate_and_mask_like_xlm_r(exported):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    assert tokenizer.model_max_length == 512 and len(tokenizer) == SIZE
    names = ("bos", "cls", "pad", "eos", "sep", "unk", "mask")
    ids = [getattr(tokenizer, f"{name}_token_id") for name in names]
    assert ids == [0, 0, 1, 2, 2, 3, SIZE - 1]
    plain = tokenizer("a b", add_special_tokens=False)["input_ids"]
    batch = tokenizer(["a b", "a b " * 400], padding=True, truncation=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    assert batch["input_ids"][0][: len(plain) + 3] == [0, *plain, 2, 1]
    assert len(batch["input_ids"][1]) == 512 and batch["input_ids"][1][-1] == 2
    assert tokenizer("a b", "a b")["input_ids"] == [0, *plain, 2, 2, *plain, 2]
    parts = tokenizer(["a <mask> b", "a", "b"], add_special_tokens=False)["input_ids"]
    assert parts[0] == [*parts[1], SIZE - 1, *parts[2]]
    assert tokenizer.decode(plain) == "a b"


# Tokenizers that the tokenizers library trained, imported by xlj.


def wordpiece(lines, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##")
    # As in BERT, [PAD] has id 0, and no special token is at the end of the vocabulary.
    specials = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, special_tokens=specials, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    frame = "[CLS]:0 $A:0 [SEP]:0"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=frame, pair=f"{frame} $B:1 [SEP]:1", special_tokens=[("[CLS]", 3), ("[SEP]", 4)]
    )
    return tokenizer


def byte_bpe(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


KINDS = {
    "cased": ("wordpiece", "bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
    "uncased": ("wordpiece", "bert", {"tokenizer_class": "BertTokenizer"}),
    "roberta": ("byte_bpe", "roberta", {"tokenizer_class": "RobertaTokenizer"}),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind, training_text):
    if kind == "roberta":
        return byte_bpe(training_text)
    return wordpiece(training_text, lowercase=kind == "uncased")


@pytest.fixture(scope="module", params=["json", "parts"])
def folder(kind, tokenizer, tmp_path_factory, request):
    """A folder as on the Hub: with tokenizer.json, or with the files of earlier releases."""
    folder = tmp_path_factory.mktemp("folder")
    _, architecture, config = KINDS[kind]
    (folder / "config.json").write_text(json.dumps({"model_type": architecture}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if request.param == "json":
        tokenizer.enable_truncation(16)  # as in many files on the Hub; xlj ignores it
        tokenizer.enable_padding()
        tokenizer.save(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    else:
        tokenizer.model.save(str(folder))
    return folder


def test_imported_vocabularies_give_the_same_ids_for_real_sentences(kind, folder, real_sentences):
    vocabulary = tokenizer_files.read(folder)
    assert vocabulary.markers == KINDS[kind][0] and vocabulary.size == SIZE
    assert not find_differences(folder, vocabulary, real_sentences)


def test_imported_vocabularies_give_the_same_ids_for_hard_strings(folder):
    vocabulary = tokenizer_files.read(folder)
    assert not find_differences(folder, vocabulary, HARD)
    assert not find_differences(folder, vocabulary, SPECIALS, split_special_tokens=True)


def test_an_imported_tokenizer_is_exported_unchanged(kind, folder, tmp_path):
    vocabulary = tokenizer_files.read(folder)
    typed = tokenizer_files.pair_marks(folder, vocabulary, has_types=True)
    tokenizer_files.write(vocabulary, tmp_path, 128, typed)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    if (folder / "tokenizer.json").exists():
        content = (folder / "tokenizer.json").read_bytes()
        assert (tmp_path / "tokenizer.json").read_bytes() == content
    assert tokenizer_files.read(tmp_path) == vocabulary
    before, after = map(transformers.AutoTokenizer.from_pretrained, (folder, tmp_path))
    assert after.model_max_length == 128
    assert sorted(before.all_special_ids) == sorted(after.all_special_ids)
    for text in (("a b", "c"), (f"a{before.mask_token} b",)):
        assert before(*text) == after(*text)
