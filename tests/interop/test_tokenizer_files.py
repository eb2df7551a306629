"""Tokenizers of Hugging Face folders are read and written; errors name the problem."""

import io
import json
import resource
import shutil

import numpy as np
import pytest
import sentencepiece
from real_text import HARD, SPECIALS
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Tokenizer, pre_tokenizers

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import tokenizer_files

LINES = {
    name: [line for _, line in zip(range(1500), phrasebook.text_lines(name), strict=False) if line]
    for name in ("en", "zh", "hi")
}
TEXT = [line for lines in LINES.values() for line in lines[:200]]
SIZE = 800
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def trained(request):
    weights = dict.fromkeys(LINES, 1)
    model = vocabulary_training.train(LINES, weights, SIZE, 1.0, request.param)
    trainer = ModelProto.FromString(model).trainer_spec
    assert trainer.model_type == (trainer.BPE if request.param == "bpe" else trainer.UNIGRAM)
    return Vocabulary(model)


@pytest.fixture
def xlmr(trained, tmp_path):
    """A folder with the exported tokenizer of `trained`."""
    folder = tmp_path / "xlmr"
    folder.mkdir()
    tokenizer_files.write(trained, folder, 77)
    return folder


@pytest.fixture
def bert(tmp_path):
    folder = tmp_path / "bert"
    folder.mkdir()
    pieces = [*BERT, *"abcde", *(f"##{c}" for c in "abcde"), "A", "é", "漢", "[", "]", "MASK"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return folder


@pytest.fixture
def roberta(tmp_path):
    folder = tmp_path / "roberta"
    folder.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, "ab", "Ġab", "<mask>"]
    content = json.dumps({piece: i for i, piece in enumerate(pieces)})
    (folder / "vocab.json").write_text(content)
    (folder / "merges.txt").write_text("#version: 0.2\na b\nĠ ab\n", encoding="utf-8")
    return folder


def encoded(vocabulary, text):
    return [vocabulary.pieces[i] for i in vocabulary.encode([text]).ids]


def same(one, other, lines):
    return all(map(np.array_equal, one.encode_batch(lines), other.encode_batch(lines)))


# Export and import.


def test_import_of_an_export_gives_the_same_vocabulary(trained, xlmr):
    assert tokenizer_files.read(xlmr) == trained
    config = json.loads((xlmr / "tokenizer_config.json").read_bytes())
    assert config["model_max_length"] == 77 and config["mask_token"] == "<mask>"


def test_the_exported_tokenizer_json_gives_the_same_ids(trained, xlmr):
    (xlmr / "sentencepiece.bpe.model").unlink()
    again = tokenizer_files.read(xlmr)
    assert again.pieces == trained.pieces and again.markers == trained.markers
    assert (again.native_ids == trained.native_ids).all()
    assert same(again, trained, [*TEXT, *HARD, *SPECIALS])


def test_a_tokenizer_json_is_written_unchanged(bert, tmp_path):
    vocabulary = tokenizer_files.read(bert)
    tokenizer_files.write(vocabulary, tmp_path, 512, ("types",))
    assert (tmp_path / "tokenizer.json").read_bytes() == vocabulary.model
    assert not (tmp_path / "sentencepiece.bpe.model").exists()
    config = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    assert config["cls_token"] == "[CLS]" and "token_type_ids" in config["model_input_names"]
    assert tokenizer_files.read(tmp_path) == vocabulary


def test_a_tokenizer_that_pads_and_truncates_has_the_pairs_of_one_that_does_not(bert, tmp_path):
    """As in all-MiniLM-L6-v2, whose tokenizer.json pads each text to 128 tokens."""
    written = tmp_path / "written"
    written.mkdir()
    tokenizer_files.write(tokenizer_files.read(bert), written, 64, ("types",))
    (written / "config.json").write_text('{"model_type": "bert"}')
    file = written / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(8)
    tokenizer.save(str(file))
    vocabulary = tokenizer_files.read(written)
    assert tokenizer_files.pair_marks(written, vocabulary, has_types=True) == ("types",)
    again = tmp_path / "again"
    again.mkdir()
    tokenizer_files.write(vocabulary, again, 64, ("types",))
    assert json.loads((again / "tokenizer.json").read_text()) == json.loads(file.read_text())


def sentencepiece_model(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES["en"]), model_writer=model, vocab_size=400, minloglevel=2,
        hard_vocab_limit=False, **options,
    )  # fmt: skip
    return Vocabulary(model.getvalue())


@pytest.mark.parametrize("reason", ["pieces of equal score", "of its pieces is not a piece"])
def test_bpe_with_another_order_of_merges_is_refused(reason, tmp_path):
    proto = ModelProto.FromString(sentencepiece_model(model_type="bpe").model)
    if reason == "pieces of equal score":
        proto.pieces[4].score = proto.pieces[3].score
    else:
        del proto.pieces[[piece.piece for piece in proto.pieces].index("e")]
    with pytest.raises(ConfigError, match=reason):
        tokenizer_files.write(Vocabulary(proto.SerializeToString()), tmp_path, 512)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "char"}, "it is neither a unigram nor a BPE model"),
        ({"remove_extra_whitespaces": False}, "does not remove repeated spaces"),
        ({"add_dummy_prefix": False}, "does not add a space at the start"),
        ({"user_defined_symbols": ["cat"]}, "user-defined"),
        ({"byte_fallback": True}, "byte pieces"),
        ({"normalization_rule_tsv": "RULES"}, "has user-defined rules"),
        ({"treat_whitespace_as_suffix": True}, "it marks the ends of words"),
        ({"split_by_whitespace": False}, "it has pieces that contain a space"),
    ],
)
def test_models_without_an_equivalent_are_refused(options, reason, tmp_path):
    if "normalization_rule_tsv" in options:
        (tmp_path / "rules.tsv").write_text("61 62\t63\n")
        options = {"normalization_rule_tsv": str(tmp_path / "rules.tsv")}
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ConfigError, match=reason):
        tokenizer_files.write(sentencepiece_model(**options), folder, 512)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("rule", ["identity", "nfkc", "nmt_nfkc_cf"])
def test_other_normalisations_are_exported_too(rule, tmp_path):
    vocabulary = sentencepiece_model(normalization_rule_name=rule)
    tokenizer_files.write(vocabulary, tmp_path, 512)
    again = Vocabulary.load(tmp_path / "tokenizer.json")
    # Except with nmt rules, a literal U+2581 is a space only to SentencePiece (docs/tokenizers.md).
    markers = [line for line in HARD if "\u2581" in line] if not rule.startswith("nmt") else []
    assert same(again, vocabulary, [*TEXT, *SPECIALS, *(set(HARD) - set(markers))])


# BERT and RoBERTa without tokenizer.json.


def test_bert_is_read_without_tokenizer_json(bert):
    vocabulary = tokenizer_files.read(bert)
    assert vocabulary.markers == "wordpiece" and vocabulary.size == 21
    assert vocabulary.native_specials == ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
    assert encoded(vocabulary, "abA 漢a é") == ["<unk>", "漢", "a", "é"]
    assert encoded(vocabulary, "ab [MASK]") == ["a", "##b", "[", "MASK", "]"]
    ids = [0, *vocabulary.encode(["abe"]).ids, 2]
    assert vocabulary.native_ids[ids].tolist() == [2, 5, 11, 14, 3]


@pytest.mark.parametrize(
    ("config", "pieces"),
    [
        ({}, ["a", "##b", "##a", "e"]),
        ({"do_lower_case": True, "strip_accents": False}, ["a", "##b", "##a", "é"]),
        ({"do_lower_case": False, "strip_accents": True}, ["<unk>", "e"]),
    ],
)
def test_the_settings_of_berts_tokenizer_are_used(bert, config, pieces):
    (bert / "tokenizer_config.json").write_text(json.dumps(config))
    assert encoded(tokenizer_files.read(bert), "abA é") == pieces


def test_roberta_is_read_without_tokenizer_json(roberta):
    vocabulary = tokenizer_files.read(roberta)
    assert vocabulary.markers == "byte_bpe" and vocabulary.size == 263
    assert (vocabulary.native_ids == np.arange(263)).all()
    assert encoded(vocabulary, "ab ab") == ["ab", "Ġab"]
    (roberta / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert encoded(tokenizer_files.read(roberta), "ab ab") == ["Ġab", "Ġab"]


# ERNIE-M.

ALIASES = {
    "<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]",
}  # fmt: skip


@pytest.fixture
def ernie_m(trained, tmp_path):
    """A function that writes an ERNIE-M folder in which the pieces have the ids of `order`.

    vocab.txt contains the ids, or they follow from the order of the lines.
    """

    def make(order, write_ids):
        folder = tmp_path / "ernie_m"
        folder.mkdir()
        (folder / "sentencepiece.bpe.model").write_bytes(trained.model)
        pieces = [ALIASES.get(piece, piece) for piece in trained.pieces]
        if write_ids:  # lines in the order of the SentencePiece model
            lines = [f"{piece}\t{i}" for piece, i in zip(pieces, np.argsort(order), strict=True)]
        else:
            lines = [pieces[i] for i in order]
        text = "".join(f"{line}\n" for line in lines)
        (folder / "vocab.txt").write_text(text, encoding="utf-8")
        return folder

    return make


@pytest.mark.parametrize("write_ids", [False, True])
def test_ernie_m_with_the_ids_of_xlm_r_is_read_as_its_sentencepiece_model(
    trained, ernie_m, write_ids
):
    assert tokenizer_files.read(ernie_m(np.arange(SIZE), write_ids)) == trained


@pytest.mark.parametrize("write_ids", [False, True])
def test_ernie_m_with_other_ids_keeps_its_ids(trained, ernie_m, write_ids):
    order = np.random.default_rng(0).permutation(SIZE)
    vocabulary = tokenizer_files.read(ernie_m(order, write_ids))
    assert vocabulary.native_specials == tuple(ALIASES.values())
    place = np.argsort(order)  # of each id of XLM-R in the file
    expected = [place[ids].tolist() for ids in trained.encode_batch([*TEXT, *HARD])]
    actual = [
        vocabulary.native_ids[ids].tolist() for ids in vocabulary.encode_batch([*TEXT, *HARD])
    ]
    assert actual == expected


# Errors.


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="expected sentencepiece.bpe.model, tokenizer.json, vocab"
    ):
        tokenizer_files.read(tmp_path)


def test_roberta_without_merges_is_refused(roberta):
    (roberta / "merges.txt").unlink()
    with pytest.raises(ConfigError, match=r"has vocab.json but no merges.txt; download"):
        tokenizer_files.read(roberta)


def test_links_are_not_followed_out_of_the_folder(xlmr, tmp_path):
    outside, name = tmp_path / "outside", "sentencepiece.bpe.model"
    shutil.move(xlmr / name, outside)
    (xlmr / name).symlink_to(outside)
    with pytest.raises(ConfigError, match=f"{name} is a link to .*outside.*, outside the folder"):
        tokenizer_files.read(xlmr)
    (xlmr / name).unlink()
    shutil.move(outside, xlmr / "blob")
    (xlmr / name).symlink_to("blob")
    tokenizer_files.read(xlmr)


def test_two_tokenizers_of_different_sizes_are_refused(xlmr, bert):
    tokenizer_files.write(tokenizer_files.read(bert), xlmr, 77)
    with pytest.raises(
        ConfigError, match="bpe.model has 800 ids, but tokenizer.json has 21; remove"
    ):
        tokenizer_files.read(xlmr)


@pytest.mark.parametrize("decoder", [None, ["[MASK]"], {"4": "[MASK]"}, {"4": {}}])
def test_a_damaged_list_of_added_tokens_is_named(bert, decoder):
    (bert / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json: added_tokens_decoder must"):
        tokenizer_files.read(bert)


def test_added_tokens_outside_of_the_vocabulary_are_refused(bert):
    (bert / "added_tokens.json").write_text('{"[MASK]": 4, "<ent>": 21}')
    with pytest.raises(ConfigError, match="1 added tokens, such as '<ent>', are not in"):
        tokenizer_files.read(bert)
    (bert / "added_tokens.json").unlink()
    decoder = {"4": {"content": "[MASK]"}, "21": {"content": "<ent>"}}
    config = json.dumps({"added_tokens_decoder": decoder})
    (bert / "tokenizer_config.json").write_text(config)
    with pytest.raises(ConfigError, match="1 added tokens, such as '<ent>', are not in"):
        tokenizer_files.read(bert)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab.txt has no <mask> or \[MASK\]"),
        ("vocab.txt", b"\xff\xfe[PAD]\n", "vocab.txt .*UTF-8"),
        ("vocab.txt", "\n".join([*BERT, "a", "a", "b"]).encode(), "none or two with id 5"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json:1: not valid JSON"),
        ("tokenizer_config.json", b"[]", "tokenizer_config.json: expected a JSON object"),
        ("tokenizer.json", b"{}", "tokenizer.json cannot be read as tokenizer.json by tokenizers"),
        ("sentencepiece.bpe.model", b"text", "bpe.model is neither a SentencePiece model"),
    ],
)
def test_damaged_files_are_named(bert, name, content, message):
    (bert / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        tokenizer_files.read(bert)


@pytest.mark.parametrize("number", [2**31, -1, 300, 1.5, "7", None, True, 10**200])
def test_ids_are_checked_before_memory_is_allocated_for_them(roberta, number):
    ids = json.loads((roberta / "vocab.json").read_text())
    (roberta / "vocab.json").write_text(json.dumps(ids | {"ab": number}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=r"^vocabulary \S*vocab\.json has the id .* for 'ab'"):
        tokenizer_files.read(roberta)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


@pytest.mark.parametrize("content", [b"[]", b"{", b"", b'{"a": ' * 100_000, b"\xff"])
def test_a_damaged_vocab_json_is_named(roberta, content):
    (roberta / "vocab.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"vocab\.json"):
        tokenizer_files.read(roberta)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], r"vocab.txt lacks the special tokens \[MASK\]"),
        (
            lambda lines: [*lines[:-1], "[MASK]\tlast"],
            "vocab.txt: expected `piece` or `piece TAB id` on each line",
        ),
        (
            lambda lines: [*lines[:-1], "[MASK]\t800"],
            "vocab.txt: id 799 is missing or occurs twice",
        ),
        (lambda lines: [*lines[:9], "new", *lines[10:]], "vocab.txt: .* differ in 2 pieces, such"),
    ],
)
def test_a_damaged_vocabulary_of_ernie_m_is_refused(ernie_m, change, message):
    folder = ernie_m(np.arange(SIZE), False)
    lines = (folder / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
    (folder / "vocab.txt").write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        tokenizer_files.read(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_a_wrong_id_of_pad_is_reported_where_positions_depend_on_it(kind, xlmr, capsys):
    """Other tests of warnings have no `model_type`. The released multilingual-e5-small is such a
    BERT, and each command warned of it."""
    config = {"model_type": kind, "pad_token_id": 0, "cls_token_id": 2}
    (xlmr / "config.json").write_text(json.dumps(config))
    tokenizer_files.read(xlmr)
    of_file = f"warning: {xlmr}/config.json:"
    value = "but the tokenizer has '{}' ({}); xlj uses the tokenizer's value"
    expected = [f"{of_file} cls_token_id is 2, {value.format('<s>', 0)}"]
    if kind != "bert":
        expected.append(f"{of_file} pad_token_id is 0, {value.format('<pad>', 1)}")
    assert capsys.readouterr().err.splitlines() == expected
