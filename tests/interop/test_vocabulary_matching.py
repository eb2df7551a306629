"""A new piece gets the old row of the first rule that matches, for all marker conventions.

Bilingual dictionaries are read in both directions; errors name the line.

Also rows of a new table are copies, means, or random draws that depend only on seed and id.
"""

import gzip
import random
import time

import numpy as np
import pytest
from marked_pieces import MarkedPieces

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import Ragged
from xlj.interop import vocabulary_matching
from xlj.interop.vocabulary_matching import (
    RULES,
    UNMATCHED,
    Matches,
    embeddings,
    load,
    match,
    match_bias,
    read_dictionaries,
    share_table,
)

BERT = MarkedPieces(
    ("the", "paris", "##ing", "dog", ",", "##,", "cafe", "fur", "##und", "and", "to", "[CLS]"),
    "wordpiece",
)

PAPER = ("dictionary", "exact", "normalised", "accents", "place")


def old_ids(matches):
    """Returns the old id of each new id; -1 without one."""
    sources, lengths = matches.sources, matches.sources.lengths
    assert lengths.max() == 1
    return np.where(lengths, sources.ids[np.cumsum(lengths) - 1], -1)


def match_pieces(old, pieces, *dictionaries, **options):
    """Returns (rule, old piece) of each new SentencePiece piece."""
    new = MarkedPieces(tuple(pieces))
    matches = match(old, new, dictionaries, **options)
    assert len(matches.rules) == len(new.pieces) == len(matches.sources.lengths)
    rules = [RULES[rule] for rule in matches.rules]
    none = matches.rules == RULES.index("none")
    assert (matches.sources.lengths == ~none).all()
    names = [None if i < 0 else old.pieces[i] for i in old_ids(matches)]
    return list(zip(rules, names, strict=True))[4:-1]


def test_special_tokens_match_by_role():
    bert = MarkedPieces(("<s>", "<mask>", "a"), "wordpiece")
    matches = match(bert, MarkedPieces(("▁a", "<mask2>")))
    assert old_ids(matches).tolist() == [0, 1, 2, 3, 6, -1, 7]
    assert [RULES[rule] for rule in matches.rules] == (
        ["special"] * 4 + ["exact", "none", "special"]
    )


def test_a_vocabulary_matches_itself():
    for vocabulary in (BERT, MarkedPieces(("▁a", "a", "A", "▁", "ä")),
                       MarkedPieces(("Ġa", "a", "A", "Ġ", "Ċ"), "byte_bpe")):  # fmt: skip
        matches = match(vocabulary, vocabulary)
        ids = np.arange(len(vocabulary.pieces))
        untrained = np.array([piece == "##," for piece in vocabulary.pieces])
        assert (old_ids(matches)[~untrained] == ids[~untrained]).all()


def test_the_first_rule_that_matches_is_used():
    pieces = ("▁the", "▁The", "ing", ",", "▁,", "▁Café", "▁ing", "the", "Ing", "▁xyz", "\u0301")
    assert match_pieces(BERT, pieces) == [
        ("exact", "the"),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", ","),
        ("place", ","),
        ("accents", "cafe"),
        ("place", "##ing"),
        ("place", "the"),
        ("normalised", "##ing"),
        ("none", None),
        ("none", None),
    ]


def test_dictionaries_come_before_guesses():
    german = {
        "für": ("because of", "for", "to"), "und": ("and",), "hund": ("DOG", "the"), "the": ("to",),
        "ing": ("dog",), "leer": ("nothing",),
    }  # fmt: skip
    pieces = ("▁für", "▁und", "▁Hund", "▁The", "ing", "und", "▁leer")
    assert match_pieces(BERT, pieces) == [
        ("accents", "fur"),
        ("place", "##und"),
        ("none", None),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", "##und"),
        ("none", None),
    ]
    assert match_pieces(BERT, pieces, german) == [
        ("dictionary", "to"),  # the first translation that is one old piece
        ("dictionary", "and"),
        ("dictionary", "dog"),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", "##und"),
        ("none", None),
    ]
    other = {"leer": ("the",), "hund": ("cafe",)}
    both = match_pieces(BERT, pieces, german, other)
    assert both[2] == ("dictionary", "dog") and both[6] == ("dictionary", "the")


def test_dictionaries_can_come_first_as_in_the_paper():
    """Chi et al. (2021, section 3.2): "first searching the word translation in the dictionaries,
    and then applying the mapping strategy"."""
    german = {"the": ("to",), "fur": ("and",), "dog": ("of", "Paris")}
    pieces = ("▁the", "▁The", "▁Dog", "ing", "▁café", "▁paris", "▁xyz")
    without_dictionary = ["the", "the", "dog", "##ing", "cafe", "paris", None]
    assert [piece for _, piece in match_pieces(BERT, pieces, german)] == without_dictionary
    assert match_pieces(BERT, pieces, german, rules=PAPER) == [
        ("dictionary", "to"),
        ("dictionary", "to"),
        ("dictionary", "paris"),
        ("exact", "##ing"),
        ("accents", "cafe"),
        ("exact", "paris"),
        ("none", None),
    ]


@pytest.mark.parametrize("accents", [True, False])
@pytest.mark.parametrize("place", [True, False])
def test_guesses_can_be_switched_off(accents, place):
    pieces = ("▁Café", "▁und", "▁Ing", "▁Íng", "ing", "▁The")
    rules = [*PAPER[1:3], *["accents"] * accents, *["place"] * place]
    assert match_pieces(BERT, pieces, rules=rules) == [
        ("accents", "cafe") if accents else ("none", None),
        ("place", "##und") if place else ("none", None),
        ("place", "##ing") if place else ("none", None),
        ("place", "##ing") if place and accents else ("none", None),
        ("exact", "##ing"),
        ("normalised", "the"),
    ]


def test_in_scripts_without_spaces_pieces_without_markers_are_words():
    words = {"狗": ("dog",), "หมา": ("dog",), "개": ("dog",)}
    assert match_pieces(BERT, ("狗", "หมา", "개", "▁개"), words) == [
        ("dictionary", "dog"),
        ("dictionary", "dog"),
        ("none", None),
        ("dictionary", "dog"),
    ]


def test_translations_match_pieces_that_start_words():
    old = MarkedPieces(("dog", "ĠDog", "Ġcat", "cat"), "byte_bpe")
    german = {"hund": ("dog",), "katze": ("cat",)}
    assert match_pieces(old, ("▁Hund", "▁Katze"), german) == [
        ("dictionary", "ĠDog"),
        ("dictionary", "Ġcat"),
    ]


def test_pieces_without_text_match_only_exactly():
    old = MarkedPieces(("▁a", "▁", "▁a\u0301"))
    assert match_pieces(old, ("▁", "▁\u0301", "\u0301")) == [("exact", "▁")] + [("none", None)] * 2


def test_the_nearest_form_comes_first():
    old = MarkedPieces(("##cafe", "##café", "the", "##Zoé", "##zoe", "##zoé"), "wordpiece")
    pieces = ("▁café", "▁CAFÉ", "▁Zoé", "▁ZOÉ", "▁zoë")
    expected = ["##café", "##café", "##Zoé", "##zoé", "##zoe"]
    assert [piece for _, piece in match_pieces(old, pieces)] == expected
    assert [
        piece for _, piece in match_pieces(old, pieces, rules=("exact", "normalised", "place"))
    ] == [*expected[:4], None]
    old = MarkedPieces(("Ġdog", "ĠDog"), "byte_bpe")
    german = {"hund": ("Dog",), "dogge": ("DOG",)}
    assert [piece for _, piece in match_pieces(old, ("▁Hund", "▁Dogge"), german)] == [
        "ĠDog",
        "Ġdog",
    ]


def test_ties_are_won_by_the_piece_in_normal_form_then_by_the_first_piece():
    old = MarkedPieces(("ĠTHE", "ĠThe", "ĠÃ©", "Ġthe", "ĠE", "Ġe"), "byte_bpe")
    assert match_pieces(old, ("▁tHe", "▁È")) == [("normalised", "Ġthe"), ("accents", "Ġe")]
    first = MarkedPieces(("ĠTHE", "ĠThe"), "byte_bpe")
    assert match_pieces(first, ("▁the",)) == [("normalised", "ĠTHE")]


@pytest.mark.slow
def test_matching_vocabularies_of_full_size_takes_less_than_a_minute():
    letters = [chr(k) for k in (*range(0x61, 0x7B), *range(0xC0, 0xF0), *range(0x430, 0x450))]

    def pieces(seed):
        rng = random.Random(seed)
        words = ("".join(rng.choices(letters, k=rng.randint(3, 8))) for _ in range(260_000))
        return MarkedPieces(tuple(dict.fromkeys(f"▁{x}" for x in words))[:249_997])

    old, new = pieces(0), pieces(1)
    began = time.monotonic()
    matches = match(old, new)
    assert time.monotonic() - began < 60
    assert (matches.rules == RULES.index("none")).mean() > 0.5


def test_tabs_spaces_order_and_case_of_entries(tmp_path):
    file = tmp_path / "train.en-de.tsv.gz"
    text = (
        "dog\tHund\r\n\nhound Hund\nice cream\tEis\nthe\tDIE\nthe\tdie\nice\t  Eis \n"
        "dog\u00a0\tHund\nof\tvon  der\n"
    )
    file.write_bytes(gzip.compress(text.encode()))
    dictionary = read_dictionaries(file)
    assert dictionary == {
        "hund": ("dog", "hound"),
        "eis": ("ice cream", "ice"),
        "die": ("the",),
        "von  der": ("of",),
    }


def test_the_language_pair_determines_the_direction(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("a b\n")
    assert read_dictionaries(file, "en-de") == {"b": ("a",)}
    assert read_dictionaries(file, "de-en") == {"a": ("b",)}
    assert read_dictionaries(file, "zh-CN-en") == {"a": ("b",)}
    assert read_dictionaries(file, "de-fr", known="fr") == {"a": ("b",)}
    named = {"en-de.0-5000.txt": ("b", "a"), "fr-en.txt": ("a", "b"), "en-sr_RS.txt": ("b", "a")}
    for name, (word, translation) in named.items():
        (tmp_path / name).write_text("a b\n")
        assert read_dictionaries(tmp_path / name) == {word: (translation,)}


@pytest.mark.parametrize("name", ["words.txt", "bg-tr.txt", "en-.txt", "en-de.fr-en.txt"])
def test_a_name_without_a_direction_is_refused(tmp_path, name):
    (tmp_path / name).write_text("a b\n")
    with pytest.raises(ConfigError, match=f"{name}: the file name must contain one pair"):
        read_dictionaries(tmp_path / name)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a b\nalone\n", "2: 'alone'; expected a word"),
        (b"a b\n\na b c\n", "3: 'a b c'; expected a word.*by a tab"),
        (b"a\tb\tc\n", "1: "),
        (b"a\t \n", "1: "),
        (b"a b\n\xff b\n", "2: the line is not UTF-8"),
    ],
)
def test_malformed_lines_are_refused(tmp_path, content, message):
    file = tmp_path / "en-de.txt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"en-de.txt:{message}"):
        read_dictionaries(file)


def test_templates_load_the_dictionaries_of_all_pairs(tmp_path):
    for name, text in (("a.en-de", "x y"), ("a.fr-en", "v x"), ("b.en-de", "z y")):
        (tmp_path / name).write_text(text + "\n")
    dictionaries = load([f"{tmp_path}/b.{{pair}}", f"{tmp_path}/a.{{pair}}"], ["en-de", "fr-en"])
    assert dictionaries == ({"y": ("z",)}, {"y": ("x",)}, {"v": ("x",)})
    assert load([f"{tmp_path}/a.fr-en"]) == dictionaries[2:]
    assert load([]) == ()


@pytest.mark.parametrize(
    "templates, pairs, message",
    [
        (["a.{pair}"], ["de-fr"], "de-fr: one language must be en, as in en-de"),
        (["a.{pair}"], ["en-fr"], "no file for any pair; tried .*a.en-fr"),
        (["a.{pair}"], [], "no file for any pair; tried no path, because there are no pairs"),
        (["a.{pair}", "b.{pair}"], ["en-de"], "b.{pair}: no file for any pair"),
        (
            ["a.{pair}"],
            ["en-de", "en-it", "en-fr"],
            "en-it, en-fr: no file for these pairs in .*a.{pair}",
        ),
        (["none.en-de"], [], "none.en-de"),
    ],
)
def test_templates_without_files_are_refused(tmp_path, templates, pairs, message):
    (tmp_path / "a.en-de").write_text("x y\n")
    with pytest.raises(ConfigError, match=message):
        load([f"{tmp_path}/{template}" for template in templates], pairs)


SOURCES = [[3], [], [0, 2], [1], [], [3, 3, 0], []]


def matches_of(sources):
    flat = np.array([i for ids in sources for i in ids], np.int32)
    rules = ["none" if not ids else "exact" if len(ids) == 1 else "pieces" for ids in sources]
    lengths = np.array([len(ids) for ids in sources], np.int64)
    return Matches(Ragged(flat, lengths), np.array([RULES.index(rule) for rule in rules], np.int8))


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(0.5, 2, (4, 3000)).astype(np.float32)


@pytest.mark.parametrize("unmatched", UNMATCHED)
def test_matched_rows_are_copies_or_means(table, unmatched):
    rows = embeddings(table, matches_of(SOURCES), unmatched, 0.02, 7)
    assert rows.dtype == np.float32 and rows.shape == (7, 3000)
    assert (rows[0] == table[3]).all() and (rows[3] == table[1]).all()
    np.testing.assert_allclose(rows[2], table[[0, 2]].mean(0), rtol=1e-6)
    np.testing.assert_allclose(rows[5], table[[3, 3, 0]].mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_with_one_source_are_copied_bit_for_bit(dtype):
    """-0.0 equals 0.0, so only bits show a lost sign. Rows without a source have the bias +0."""
    bias = np.array([-0.0, 0.0, 1e-7, -np.inf], dtype)
    expected = np.array([0.0, bias[3], bias[0], bias[2], bias[1]], np.float32)
    matches = matches_of([[], [3], [0], [2], [1]])
    assert match_bias(bias, matches).view(np.int32).tolist() == expected.view(np.int32).tolist()
    rows = embeddings(bias[:, None], matches, "random", 0.02, 7)[1:, 0]
    assert rows.view(np.int32).tolist() == expected[1:].view(np.int32).tolist()


def test_rows_of_a_half_precision_table_are_float32(table):
    half = table.astype(np.float16)
    rows = embeddings(half, matches_of([[1], []]), "sampled", 0.02, 7)
    assert rows.dtype == np.float32 and (rows[0] == half[1].astype(np.float32)).all()
    assert np.isfinite(rows).all()


def test_unmatched_rows_can_be_the_mean_of_the_table(table):
    rows = embeddings(table, matches_of(SOURCES), "mean", 0.02, 7)
    np.testing.assert_allclose(rows[[1, 4, 6]], np.tile(table.mean(0), (3, 1)), rtol=1e-4)


@pytest.mark.parametrize("unmatched", ["random", "sampled"])
def test_drawn_rows_depend_on_seed_and_id_only(table, unmatched):
    def rows(sources, seed=7):
        return embeddings(table, matches_of(sources), unmatched, 0.02, seed)

    other_sources = [[0]] * 4 + [[], [1], [2], [3]]
    first = rows(SOURCES)
    assert (rows(other_sources)[4] == first[4]).all()
    assert (rows(SOURCES) == first).all()
    assert not (rows(SOURCES, seed=8)[4] == first[4]).any()
    assert not (first[1] == first[4]).any()
    narrow_rows = embeddings(table[:, :7], matches_of(SOURCES), unmatched, 0.02, 7)
    np.testing.assert_array_equal(narrow_rows, first[:, :7])
    many_rows = rows([[]] * 5000)  # several blocks
    assert (many_rows[[1, 4, 6]] == first[[1, 4, 6]]).all() and len(
        np.unique(many_rows, axis=0)
    ) == 5000


def test_drawn_rows_are_normal():
    old = np.random.default_rng(1).normal([1, -3], [0.5, 4], (100, 2))
    matches = matches_of([[]] * 20_000)
    random = embeddings(old, matches, "random", 0.02, 0) / 0.02
    sampled = (embeddings(old, matches, "sampled", 0.02, 0) - old.mean(0)) / old.std(0)
    np.testing.assert_allclose(random, sampled, atol=1e-4)
    np.testing.assert_allclose(random.mean(0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(random.T), np.eye(2), atol=0.04)
    np.testing.assert_allclose((np.abs(random) < 1).mean(0), 0.6827, atol=0.015)
    np.testing.assert_allclose((random**4).mean(0), 3, atol=0.25)
    wide_rows = embeddings(np.zeros((1, 5000)), matches_of([[]] * 4), "random", 1.0, 0)
    assert abs(np.corrcoef(wide_rows)[np.triu_indices(4, 1)]).max() < 0.06


def test_drawn_rows_equal_recorded_values():
    result = embeddings(np.zeros((1, 3)), matches_of([[], [0], []]), "random", 1.0, 7)
    expected = [[0.6000129, 0.6189254, 0.7030998], [0, 0, 0], [0.8598661, -0.5559390, 1.3236812]]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_draws_equal_the_box_muller_transform_bit_for_bit(monkeypatch):
    """The transform uses the two halves of each hash. All angles are below one full turn."""
    hashes = np.random.default_rng(0).integers(0, 2**64, (50, 7), np.uint64)
    monkeypatch.setattr(vocabulary_matching, "hash64", lambda ids, keys: hashes)
    first, second = hashes // 2**32, (hashes % 2**32).astype(np.float64)
    radius = np.sqrt(-2 * np.log((first + 0.5) / 2**32))
    expected = radius * np.cos(2 * np.pi * second / 2**32)
    np.testing.assert_array_equal(vocabulary_matching._normal(np.arange(50), 7, 3), expected)


def test_the_smallest_draw_is_finite(monkeypatch):
    monkeypatch.setattr(vocabulary_matching, "hash64", lambda ids, keys: np.zeros_like(keys + ids))
    result = embeddings(np.zeros((1, 3)), matches_of([[]]), "random", 1.0, 7)
    np.testing.assert_allclose(result, np.sqrt(66 * np.log(2)), rtol=1e-6)


def test_sums_are_computed_in_the_order_of_the_sources():
    table = np.array([[1e8], [-1e8], [1]], np.float32)
    assert embeddings(table, matches_of([[0, 1, 2]]), "mean", 0.02, 7) == np.float32(1) / 3


def test_an_unknown_rule_for_unmatched_rows_is_refused(table):
    with pytest.raises(ValueError, match="unmatched=zero: expected one of random, mean, sampled"):
        embeddings(table, matches_of(SOURCES), "zero", 0.02, 7)


def test_biases_are_copies_means_or_zero():
    bias = np.array([1, 2, 3, 4], np.float32)
    result = match_bias(bias, matches_of(SOURCES))
    assert result.dtype == np.float32
    assert result.tolist() == [4, 0, 2, 2, 0, 3, 0]


def test_the_share_of_each_rule_is_in_the_table():
    old = MarkedPieces(("the", "dog"), "wordpiece")
    new = MarkedPieces(("▁the", "▁The", "▁Hund", "x"))
    matches = match(old, new, [{"hund": ("dog",)}])
    tokens = {
        "en": np.array([0, 0, 0, 1, 6, 2, 0, 1, 0]),
        "de": np.array([0, 0, 0, 0, 1, 0, 3, 0, 0]),
        "sw": np.zeros(9, np.int64),
    }
    used = [RULES.index(rule) for rule in ("special", "exact", "normalised", "dictionary", "none")]
    assert sorted(matches.rules) == sorted([0] * 4 + used)
    assert share_table(matches, tokens).split("\n") == [
        "            total  special %  exact %  normalised %  dictionary %  none %",
        "vocabulary      9      55.56    11.11         11.11         11.11   11.11",
        "en             10      10.00    60.00         20.00          0.00   10.00",
        "de              4       0.00    25.00          0.00         75.00    0.00",
        "sw              0       0.00     0.00          0.00          0.00    0.00",
    ]
