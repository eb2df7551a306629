"""Trimmed vocabularies split a text whose pieces all remain as before, in each kind of file."""

import functools
import io
import itertools
import json
from collections import Counter

import pytest
import sentencepiece
from modern_tokenizers import BYTES, eurobert, mmbert, modernbert
from real_text import HARD
from tokenizers import Tokenizer
from tokenizers.implementations import BertWordPieceTokenizer
from tokenizers.processors import BertProcessing

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.tokenizer.layout import SPECIALS, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.sentencepiece_json import from_sentencepiece
from xlj.interop.vocabulary_trimming import one_character, trim

ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def text(language, start, stop):
    return list(itertools.islice(phrasebook.text_lines(language), start, stop))


LINES = {name: text(name, 0, 600) for name in ("en", "tr", "zh", "hi")}
ALL = [line for lines in LINES.values() for line in lines]
KEPT = {"en": LINES["en"], "tr": LINES["tr"][:50]}
TESTS = [line for name in LINES for line in text(name, 600, 800)]
TESTS += [word for line in TESTS for word in line.split()] + list(HARD)


def sentencepiece_model(kind, **options):
    options = {"vocab_size": 900, "minloglevel": 2, "character_coverage": 1.0} | options
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL), model_writer=model, model_type=kind, **options
    )
    return model.getvalue()


def json_of(kind):
    model = sentencepiece_model(kind, normalization_rule_name="identity")
    pieces = Vocabulary(model).pieces
    return from_sentencepiece(model, pieces, ROBERTA)


def unigram_json():
    """As in some released files, the special tokens have the score 0, and `<unk>` is not first."""
    content = json.loads(json_of("unigram"))
    vocab = content["model"]["vocab"]
    *rest, mask = vocab[:3] + vocab[4:]
    vocab[:] = [*rest, ["<unk>", 0.0], mask]
    content["model"]["unk_id"] = len(rest)
    for entry in vocab:
        entry[1] = 0.0 if entry[0] in ROBERTA else entry[1]
    for token in content["added_tokens"]:
        token["id"] = next(i for i, (piece, _) in enumerate(vocab) if piece == token["content"])
    return json.dumps(content).encode()


def wordpiece():
    """BERT's tokenizer with padding, and the special tokens last."""
    tokenizer = BertWordPieceTokenizer(lowercase=False)
    tokenizer.train_from_iterator(ALL, vocab_size=900, show_progress=False)
    frame = [(name, tokenizer.token_to_id(name)) for name in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = BertProcessing(*frame)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"), pad_token="[PAD]")
    content = json.loads(tokenizer.to_str())
    vocab, frame = content["model"]["vocab"], content["post_processor"]
    vocab.update({piece: (i - 5) % 900 for piece, i in vocab.items()})
    for token in content["added_tokens"]:
        token["id"] = vocab[token["content"]]
    for entry in (frame["cls"], frame["sep"]):
        entry[1] = vocab[entry[0]]
    content["padding"]["pad_id"] = vocab["[PAD]"]
    return json.dumps(content).encode()


FILES = {
    "unigram": lambda: sentencepiece_model("unigram"),
    "bpe": lambda: sentencepiece_model("bpe"),
    "bytes and user-defined": lambda: sentencepiece_model(
        "unigram", byte_fallback=True, user_defined_symbols="xyz", vocab_size=1200
    ),
    "unigram json": unigram_json,
    "bpe json": lambda: json_of("bpe"),
    "wordpiece": wordpiece,
    "modernbert": lambda: modernbert(ALL, 900).to_str().encode(),
    "mmbert": lambda: mmbert(ALL, 1200).to_str().encode(),
    "eurobert": lambda: eurobert(ALL, 900).to_str().encode(),
}


@functools.cache
def old_of(kind):
    return Vocabulary(FILES[kind]())


@functools.cache
def trimmed(kind, pieces=None, coverage=None, characters="all"):
    return trim(old_of(kind), KEPT, pieces, coverage, characters)


def strings(vocabulary, lines):
    return [[vocabulary.pieces[i] for i in ids] for ids in vocabulary.encode_batch(lines)]


OPTIONS = [
    *((kind, "all") for kind in FILES),
    *((kind, way) for kind in ("unigram", "bpe json", "mmbert") for way in ("scripts", "text")),
]


@pytest.mark.parametrize("kind, characters", OPTIONS)
def test_a_text_whose_pieces_remain_is_split_as_before(kind, characters):
    old, new = old_of(kind), trimmed(kind, coverage=0.9, characters=characters)
    remain, unknown = set(new.pieces), old.pieces[UNK]
    kept = changed = 0
    for before, after in zip(strings(old, TESTS), strings(new, TESTS), strict=True):
        if remain.issuperset(before) and unknown not in before:
            assert after == before
            kept += bool(before)
        changed += after != before
    assert kept > 100 and changed > 100
    assert new.size < old.size - 100


@pytest.mark.parametrize("kind", FILES)
def test_the_file_agrees_with_the_layout(kind):
    old, new = old_of(kind), trimmed(kind, coverage=0.9)
    remain = set(new.pieces)
    assert new.pieces == tuple(piece for piece in old.pieces if piece in remain)
    assert new.native_specials == old.native_specials and new.separator == old.separator
    assert trim(old, KEPT, coverage=0.9).model == new.model
    if not new.model.startswith(b"{"):
        proto = sentencepiece.SentencePieceProcessor(model_proto=new.model)
        assert proto.get_piece_size() == new.size - 2
        return
    before, after = (Tokenizer.from_str(v.model.decode()) for v in (old, new))
    assert after.get_vocab_size() == new.native_size
    order = sorted(after.get_vocab(), key=before.token_to_id)
    assert [after.token_to_id(token) for token in order] == [*range(new.native_size)]
    added = json.loads(new.model)["added_tokens"]
    assert [token["content"] for token in added] == [
        token["content"] for token in json.loads(old.model)["added_tokens"]
    ]
    assert all(after.token_to_id(token["content"]) == token["id"] for token in added)
    first, second = (
        [tokenizer.id_to_token(i) for i in tokenizer.encode("a", "a").ids]
        for tokenizer in (before, after)
    )
    assert first == second
    if padding := json.loads(new.model)["padding"]:
        assert after.token_to_id(padding["pad_token"]) == padding["pad_id"]
        assert before.token_to_id(padding["pad_token"]) != padding["pad_id"]
    if kind == "unigram json":
        assert after.encode("\u1234").tokens[1:-1][-1:] == ["\u1234"]
        assert after.encode("\u1234").ids[-2] == after.token_to_id("<unk>")


@pytest.mark.parametrize("kind", ["bytes and user-defined", "mmbert"])
def test_all_bytes_remain(kind):
    assert set(BYTES) <= set(trimmed(kind, coverage=0.01, characters="text").pieces)


@pytest.mark.parametrize("kind", ["bpe json", "modernbert", "mmbert", "eurobert"])
def test_bpe_keeps_the_merges_of_the_derivations_and_no_others(kind):
    old, new = (json.loads(v.model)["model"] for v in (old_of(kind), trimmed(kind, coverage=0.9)))
    for model in (old, new):
        model["merges"] = [tuple(merge) for merge in model["merges"]]
    # The model alone splits a word into characters, and applies the merges.
    words = [piece for piece in new["vocab"] if len(piece) > 1]
    ignore = {"ignore_merges": False}
    spell = Tokenizer.from_str(json.dumps(_bare(old | ignore))).model.tokenize
    again = Tokenizer.from_str(json.dumps(_bare(new | ignore))).model.tokenize
    made = [word for word in words if [t.value for t in spell(word)] == [word]]
    assert len(made) > 50
    assert all([t.value for t in again(word)] == [word] for word in made)
    # Without any of the merges, some piece is not made.
    for merge in new["merges"][::7]:
        fewer = new | ignore | {"merges": [other for other in new["merges"] if other != merge]}
        spell = Tokenizer.from_str(json.dumps(_bare(fewer))).model.tokenize
        joined = "".join(merge)
        assert any([t.value for t in spell(w)] != [w] for w in made if joined in w)
    order = {merge: rank for rank, merge in enumerate(old["merges"])}
    ranks = [order[merge] for merge in new["merges"]]
    assert ranks == sorted(ranks)


def _bare(model):
    merges = [list(merge) for merge in model["merges"]]
    return {"model": model | {"merges": merges, "unk_token": None}, "added_tokens": []}


def test_the_most_frequent_pieces_remain_and_each_language_counts_equally():
    old = old_of("unigram")
    counts = {name: Counter(itertools.chain(*strings(old, lines))) for name, lines in KEPT.items()}
    shares = Counter()
    for of_language in counts.values():
        known = {p: n for p, n in of_language.items() if p not in SPECIALS}
        for piece, count in known.items():
            shares[piece] += count / sum(known.values())
    proto = sentencepiece.SentencePieceProcessor(model_proto=old.model)
    learned = old.pieces[4:-1]
    scores = {piece: proto.get_score(proto.piece_to_id(piece)) for piece in learned}
    stay = {p for p in learned if len(p) == 1}
    stay |= {min(scores, key=scores.get), max(scores, key=scores.get)}
    ranked = sorted(learned, key=lambda piece: -shares[piece])
    for size in (len(stay) + 5, len(stay) + 60):
        expected = set(stay)
        for piece in ranked:
            if len(expected) < size - 5:
                expected.add(piece)
        assert set(trimmed("unigram", size).pieces[4:-1]) == expected
    for coverage in (0.8, 0.95, 1.0):
        kept = set(trimmed("unigram", coverage=coverage).pieces)
        total = sum(shares[piece] for piece in kept) / 2
        rarest = min((piece for piece in kept - stay if shares[piece]), key=shares.__getitem__)
        assert total >= coverage - 1e-9
        assert coverage == 1 or total - shares[rarest] / 2 < coverage
        assert coverage < 1 or kept >= {piece for piece in shares if shares[piece]}


def test_unknown_characters_cost_as_much_as_before():
    old = old_of("unigram")

    def lowest(vocabulary):
        proto = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
        return min(proto.get_score(i) for i in range(3, proto.get_piece_size()))

    new = trim(old, {"en": ["a"]}, coverage=0.01, characters="text")
    assert lowest(new) == lowest(old) and new.size < 15
    of_json = old_of("unigram json")
    trimmed_json = trim(of_json, {"en": ["a"]}, coverage=0.01, characters="text")
    before, after = (json.loads(each.model) for each in (of_json, trimmed_json))
    lowest_scores = [min(score for _, score in each["model"]["vocab"]) for each in (before, after)]
    assert lowest_scores[0] == lowest_scores[1] < 0 and len(after["model"]["vocab"]) < 15


def test_characters_remain_by_text_or_by_script():
    old = old_of("unigram")
    lines = {"en": LINES["en"], "zh": [*LINES["en"], "天"]}  # a stray character is no script
    letters = {p for p in old.pieces if len(p) == 1}
    in_text = letters & set("\u2581".join(old.pieces[i] for v in lines.values()
                                          for i in set(old.encode(v).ids)))  # fmt: skip
    latin = {c for c in letters if c.isalpha() and c < "\u0250"}
    hindi = {c for c in letters if "\u0900" <= c < "\u0964"}
    common = {c for c in letters - hindi if not c.isalpha()}
    remain = {
        way: one_character(trim(old, lines, coverage=0.5, characters=way)).keys()
        for way in ("all", "scripts", "text")
    }
    extremes = one_character(trim(old, {"en": ["a"]}, coverage=0.01, characters="text")).keys()
    assert remain["all"] == letters and len(hindi) > 20 and "ş" in latin
    assert remain["text"] - extremes == in_text - extremes and "天" in remain["text"]
    assert remain["scripts"] - extremes == (in_text | latin | common) - extremes
    of_words = one_character(old_of("wordpiece"))
    assert of_words["##a"] == of_words["a"] == "a" and "##ab" not in of_words


def test_a_piece_that_does_not_fit_with_its_derivation_is_skipped():
    """The number of pieces is a maximum; rarer pieces use the remaining room."""
    small = trimmed("modernbert", coverage=0.01).native_size
    sizes = [trimmed("modernbert", small + more).native_size - small for more in range(1, 9)]
    assert sizes == [*range(1, 9)]


def without_merges(kind, change):
    content = json.loads(old_of(kind).model)
    change(content["model"])
    return Vocabulary(json.dumps(content).encode())


@pytest.mark.parametrize(
    "make, options, message",
    [
        (lambda: old_of("unigram"), {"pieces": 10}, r"--pieces=10 is too small: \d+ pieces must"
         r" remain, of which \d+ are single characters; set --pieces to \d+ or more, or set --ch"),
        (lambda: old_of("unigram"), {"pieces": 900 + 2}, "the vocabulary has 902 ids; expected"),
        (lambda: old_of("modernbert"), {"coverage": 0.9, "characters": "text"},
         "--characters=text has no effect on a byte-level vocabulary"),
        (lambda: Vocabulary(sentencepiece_model("char", vocab_size=200)), {"pieces": 20},
         "is of the type char, which xlj cannot trim; expected unigram or bpe"),
        (lambda: without_merges("mmbert", lambda m: m["merges"].append(["<0x41>", "<0x42>"])
                                or m["vocab"].setdefault("<0x41><0x42>", len(m["vocab"]))),
         {"coverage": 0.9}, "merges of byte pieces, which xlj cannot trim"),
        (lambda: without_merges("eurobert", lambda m: m.update(end_of_word_suffix="</w>")),
         {"coverage": 0.9}, "a BPE model with end_of_word_suffix='</w>', which xlj cannot trim"),
    ],
)  # fmt: skip
def test_other_vocabularies_and_sizes_are_refused(make, options, message):
    with pytest.raises(ConfigError, match=message):
        trim(make(), KEPT, **options)


def test_the_smallest_size_in_the_message_is_accepted():
    with pytest.raises(ConfigError) as error:
        trimmed("unigram", 10)
    needed = int(str(error.value).partition("set --pieces to ")[2].split()[0])
    assert trimmed("unigram", needed).size == needed
    with pytest.raises(ConfigError, match="too small"):
        trimmed("unigram", needed - 1)


def test_a_piece_that_the_frame_uses_remains():
    """Some files put ordinary pieces around a text, such as the name of a task."""
    content = json.loads(old_of("wordpiece").model)
    ids = content["model"]["vocab"]
    remain = trimmed("wordpiece", coverage=0.5).pieces
    rare = next(
        piece for piece in ids if len(piece) > 2 and piece.isalpha() and piece not in remain
    )
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": n, "type_id": 0}} for n in ("[CLS]", rare)]
        + [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in ("[CLS]", rare, "[SEP]")
        },
    }
    new = trim(Vocabulary(json.dumps(content).encode()), KEPT, coverage=0.5)
    tokenizer = Tokenizer.from_str(new.model.decode())
    encoded = [tokenizer.id_to_token(i) for i in tokenizer.encode("a").ids]
    assert encoded == ["[CLS]", rare, "a", "[SEP]"]
