"""Words and their tags, in columns."""

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import conll
from xlj.data.labelled.examples import Words


@pytest.fixture
def write(tmp_path):
    def write(content):
        file = tmp_path / "a.conll"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def plain(sentences):
    return [(sentence.words, sentence.tags) for sentence in sentences]


def test_tabs_blank_lines_and_places(write):
    file = write("the\tDET\r\n10 000\tNUM\r\n\r\n\r\n \nb\u00a0c\tX\n\u3000\tX\n")
    assert conll.read(file, "en", ()) == [
        Words(("the", "10 000"), ("DET", "NUM"), f"{file}:1"),
        Words(("b\u00a0c", "\u3000"), ("X", "X"), f"{file}:6"),
    ]


def test_spaces_as_in_conll_2003(write):
    content = "-DOCSTART- -X- O O\n\nEU  NNP B-NP B-ORG\nb\u00a0c NN I-NP O\n-DOCSTART-\nx X X O"
    assert plain(conll.read(write(content), "en", ())) == [
        (("EU", "b\u00a0c"), ("B-ORG", "O")),
        (("x",), ("O",)),
    ]
    assert plain(conll.read(write(content), "en", ("1", "2")))[0][1] == ("NNP", "NN")


def test_a_hash_is_a_comment_only_where_it_cannot_be_a_word(write):
    tabs = "#a\n# text = b\n#\tSYM\n1\tNUM\n#c\tX\n"
    assert plain(conll.read(write(tabs), "en", ())) == [(("#", "1", "#c"), ("SYM", "NUM", "X"))]
    spaces = "# sent id 3\n#a X\n# SYM\n"
    assert plain(conll.read(write(spaces), "en", ())) == [(("#a", "#"), ("X", "SYM"))]
    words = "# text = # 1\n#\n1\n"
    assert plain(conll.read(write(words), "en", ())) == [(("#", "1"), None)]
    with pytest.raises(ConfigError, match="a.conll:3: '# SYM' may be a comment or the word #"):
        conll.read(write("a X\n\n# SYM\n"), "en", ())


def conllu(*rows):
    return "".join(
        "\t".join([number, word, word, upos, "XP", *"_____"]) + "\n" for number, word, upos in rows
    )


def test_conllu(write):
    text = "# sent_id = 1\n" + conllu(
        ("1-2", "zum", "_"), ("1", "zu", "ADP"), ("2", "dem", "DET"), ("2.1", "x", "X")
    )
    assert plain(conll.read(write(text), "de", ())) == [(("zu", "dem"), ("ADP", "DET"))]
    assert plain(conll.read(write(text), "de", ("2", "5")))[0][1] == ("XP", "XP")
    bare = conllu(("1", "zu", "_"), ("2", "dem", "_"))
    assert plain(conll.read(write(bare), "de", ())) == [(("zu", "dem"), None)]
    with pytest.raises(ConfigError, match="a.conll:2: 'a' is no id"):
        conll.read(write(conllu(("1", "zu", "ADP"), ("a", "dem", "DET"))), "de", ())


def test_the_language_before_words_of_wikiann(write):
    content = "en:a\tO\nen::\tO\n\nen:en:b\tB-PER\n"
    assert [words for words, _ in plain(conll.read(write(content), "en", ()))] == [
        ("a", ":"),
        ("en:b",),
    ]
    assert conll.read(write(content), "de", ())[0].words == ("en:a", "en::")
    assert conll.read(write(content + "x\tO\n"), "en", ())[0].words == ("en:a", "en::")


def test_files_without_tags(write):
    expected = [(("a", "b"), None), (("c",), None)]
    for columns in ((), ("1", "2")):
        assert plain(conll.read(write("a\nb\n\nc\n"), "en", columns)) == expected


@pytest.mark.parametrize(
    "content, columns, message",
    [
        ("a\tX\nb\n", (), "a.conll:2: 1 column, but the file has 2"),
        ("a\tX\nb\tX\tY\n", (), "a.conll:2: 3 columns, but the file has 2"),
        ("a X\nb c X\n", (), "a.conll:2: 3 columns, .*divide columns by tabs"),
        ("a\nb X\n", (), "a.conll:2: 2 columns, but the file has 1"),
        ("a\tX\n\tX\n", (), "a.conll:2: a tag without a word"),
        ("a\tX\n \tX\n", (), "a.conll:2: a tag without a word"),
        ("en:a\tX\nen:\tX\n", (), "a.conll:2: a tag without a word"),
        ("a\tX\nb\t\n", (), "a.conll:2: a word without a tag"),
        ("a\tX\n", ("1", "4"), "a.conll:1: 2 columns, but task.columns=1,4"),
        ("a\tX\n", ("0", "2"), "a.conll:1: 2 columns, but task.columns=0,2"),
        ("a\tX\n", ("word", "tag"), "two numbers"),
        ("a\tX\n", ("1", "2", "3"), "two numbers"),
        (b"a\tX\n\xff\tX\n", (), "a.conll:2: the line is not UTF-8"),
    ],
)
def test_what_does_not_fit(write, content, columns, message):
    with pytest.raises(ConfigError, match=message):
        conll.read(write(content), "en", columns)
