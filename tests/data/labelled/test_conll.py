"""Reading words and their tags from columns."""

import pytest

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import conll, task_sources
from xlj.data.labelled.examples import Words
from xlj.tasks.tagging import Tagging


@pytest.fixture
def write(tmp_path):
    def write(content):
        file = tmp_path / "a.conll"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def plain(sentences):
    return [(sentence.words, sentence.tags) for sentence in sentences]


def test_an_error_about_a_word_names_its_line(write):
    """Line numbers count comments, ranges of ids and blank lines too."""
    file = write("# a\n1-2\tx" + "\t_" * 8 + "\n1\tx\tx\tDET" + "\t_" * 6 + "\n")
    with file.open("a") as more:
        more.write("1.1\te" + "\t_" * 8 + "\n2\ty\ty\tNO" + "\t_" * 6 + "\n")
    with pytest.raises(ConfigError, match=r"a\.conll:5: 'NO' of 'y' is not a label of the task"):
        task_sources.check_labels(conll.read(file, "en", ()), ("DET",))
    file = write("a\tO\nb\tB-PER\n\nc\tO\nd\tNOUN\n")
    with pytest.raises(
        ConfigError, match=r"a\.conll:5: 'NOUN' is not a chunk tag, but task\.metric=chunk_f1"
    ):
        Tagging().check_examples(
            conll.read(file, "en", ()), ("O", "B-PER", "NOUN"), Task(kind="tagging")
        )


def test_columns_with_tabs_are_read_with_the_places_of_sentences(write):
    file = write("the\tDET\r\n10 000\tNUM\r\n\r\n\r\n \nb\u00a0c\tX\n\u3000\tX\n")
    assert conll.read(file, "en", ()) == [
        Words(("the", "10 000"), ("DET", "NUM"), f"{file}:1"),
        Words(("b\u00a0c", "\u3000"), ("X", "X"), f"{file}:6"),
    ]


def test_columns_with_spaces_are_read_as_in_conll_2003(write):
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


def test_conllu_files_are_read(write):
    text = "# sent_id = 1\n" + conllu(
        ("1-2", "zum", "_"), ("1", "zu", "ADP"), ("2", "dem", "DET"), ("2.1", "x", "X")
    )
    assert plain(conll.read(write(text), "de", ())) == [(("zu", "dem"), ("ADP", "DET"))]
    assert plain(conll.read(write(text), "de", ("2", "5")))[0][1] == ("XP", "XP")
    bare = conllu(("1", "zu", "_"), ("2", "dem", "_"))
    assert plain(conll.read(write(bare), "de", ())) == [(("zu", "dem"), None)]
    with pytest.raises(ConfigError, match="a.conll:2: 'a' is not an id"):
        conll.read(write(conllu(("1", "zu", "ADP"), ("a", "dem", "DET"))), "de", ())


def test_the_language_before_wikiann_words_is_removed_if_all_words_have_it(write):
    content = "en:a\tO\nen::\tO\n\nen:en:b\tB-PER\n"
    assert [words for words, _ in plain(conll.read(write(content), "en", ()))] == [
        ("a", ":"),
        ("en:b",),
    ]
    for code in ("de", "eng_Latn", ""):
        assert conll.read(write(content), code, ())[0].words == ("a", ":")
    minnan = content.replace("en:a", "zh-min-nan:a").replace("en:", "zh-min-nan:")
    assert conll.read(write(minnan), "nan", ())[0].words[1] == ":"
    for other in ("x\tO\n", "en:\tO\n", "de:x\tO\n"):
        assert conll.read(write(content + other), "de", ())[0].words == ("en:a", "en::")
    assert conll.read(write("re:x\tO\n"), "de", ())[0].words == ("re:x",)  # one word is no proof
    for words in (("http://a", "http://b"), ("12:30", "12:45")):
        assert conll.read(write("".join(f"{w}\tO\n" for w in words)), "de", ())[0].words == words


def test_files_without_tags_are_read(write):
    expected = [(("a", "b"), None), (("c",), None)]
    for columns in ((), ("1", "2")):
        assert plain(conll.read(write("a\nb\n\nc\n"), "en", columns)) == expected


def test_a_byte_order_mark_is_a_word_if_it_is_the_only_text_before_a_tag(write):
    """WikiAnn's Tamil has such words; a mark before another word is none."""
    for divider, end in (("\t", ""), (" ", " \r")):
        lines = [
            f"{word}{divider}{tag}{end}\n"
            for word, tag in zip(("\ufeffa", "\ufeff", "\ufeffb"), "XOX", strict=True)
        ]
        expected = [(("a", "\ufeff", "b"), ("X", "O", "X"))]
        assert plain(conll.read(write("".join(lines)), "ta", ())) == expected


@pytest.mark.parametrize(
    "content, columns, message",
    [
        ("a\tX\nb\n", (), "a.conll:2: 1 column, but the file has 2"),
        ("a\tX\nb\tX\tY\n", (), "a.conll:2: 3 columns, but the file has 2"),
        ("a X\nb c X\n", (), "a.conll:2: 3 columns, .*divide columns by tabs"),
        ("a\nb X\n", (), "a.conll:2: 2 columns, but the file has 1"),
        ("a\tX\n\tX\n", (), "a.conll:2: this line has a tag but no word"),
        ("a\tX\n \tX\n", (), "a.conll:2: this line has a tag but no word"),
        ("en:a\tX\nen:\tX\n", (), "a.conll:2: this line has a tag but no word"),
        ("a\tX\nb\t\n", (), "a.conll:2: this line has a word but no tag"),
        ("a\tX\n", ("1", "4"), "a.conll:1: 2 columns, but task.columns=1,4"),
        ("a\tX\n", ("0", "2"), "a.conll:1: 2 columns, but task.columns=0,2"),
        ("a\tX\n", ("word", "tag"), "two numbers"),
        ("a\tX\n", ("1", "2", "3"), "two numbers"),
        (b"a\tX\n\xff\tX\n", (), "a.conll:2: the line is not UTF-8"),
    ],
)
def test_invalid_lines_and_columns_are_refused(write, content, columns, message):
    with pytest.raises(ConfigError, match=message):
        conll.read(write(content), "en", columns)


def test_comments_do_not_determine_columns(write):
    multiconer = "# id aa-1\tdomain=en\nmaria _ _ B-PER\nsings _ _ O\n\n"
    multiconer += "# id aa-2\tdomain=en\noslo _ _ B-LOC\n"
    for columns in ((), ("1", "4")):
        assert plain(conll.read(write(multiconer), "en", columns)) == [
            (("maria", "sings"), ("B-PER", "O")),
            (("oslo",), ("B-LOC",)),
        ]
    tabs = "#\tid='1'\tspan='1'\n" + conllu(("1", "In", "ADP"), ("2", "via", "NOUN"))
    assert plain(conll.read(write(tabs), "la", ())) == [(("In", "via"), ("ADP", "NOUN"))]
    four = "# sent_id = 1\na b c X\n\n# id x y\nd e f Y\n"  # each comment has four columns, too
    assert plain(conll.read(write(four), "en", ())) == [(("a",), ("X",)), (("d",), ("Y",))]


def test_hashtags_are_words(write):
    """In tweets, a sentence may begin with a hashtag, and # alone may be a word."""
    for divider in "\t ":
        text = "#love O\nOslo B-LOC\n#no O\n\n#id O\n\n@a O\n# O\n".replace(" ", divider)
        for comments in ("auto", "no"):
            assert [words for words, _ in plain(conll.read(write(text), "en", (), comments))] == [
                ("#love", "Oslo", "#no"),
                ("#id",),
                ("@a", "#"),
            ]
    assert plain(conll.read(write("#a\n\n#b\n"), "en", ())) == [(("#a",), None), (("#b",), None)]


def test_a_line_that_may_be_a_comment_is_refused_unless_an_option_decides(write):
    text = "a b X\n\n# c X\nd e Y\n"
    with pytest.raises(ConfigError, match="a.conll:3: .* task.comments=yes .* task.comments=no"):
        conll.read(write(text), "en", ())
    assert plain(conll.read(write(text), "en", (), "no"))[1] == (("#", "d"), ("X", "Y"))
    assert plain(conll.read(write(text), "en", (), "yes"))[1] == (("d",), ("Y",))


UNER = (
    "# sent_id = 1\n1\tAda\tB-PER\t-\tann1\n2\tLee\tI-PER\t-\tann1\n"
    "3-4\tzum\tO\t-\tann1\n3\tzu\tO\t-\tann1\n3.1\tx\tO\t-\tann1\n\n"
    "1\tOslo\tB-LOC\t-\tann2\n"
)


def test_ids_of_words_are_not_read_as_words(write):
    expected = [(("Ada", "Lee", "zu"), ("B-PER", "I-PER", "O")), (("Oslo",), ("B-LOC",))]
    assert plain(conll.read(write(UNER), "en", (), chunk_tags=True)) == expected
    assert plain(conll.read(write(UNER), "en", ("2", "3"))) == expected
    assert plain(conll.read(write(UNER), "en", ("1", "5")))[0] == (("1", "2", "3"), ("ann1",) * 3)
    with pytest.raises(
        ConfigError, match="column 1 has '1', '2'.* 2 has 'Ada'.* 5 has 'ann1', 'ann2'"
    ):
        conll.read(write(UNER), "en", ())
    three = UNER.replace("\t-\tann1", "").replace("\t-\tann2", "")
    assert plain(conll.read(write(three), "en", ())) == expected
    spaces = UNER.replace("\t", " ")
    assert plain(conll.read(write(spaces), "en", (), chunk_tags=True)) == expected


def test_numbers_may_be_words(write):
    short = "1\tNUM\n2\tNUM\n\n1\tNUM\n"  # no sentence has three words
    assert plain(conll.read(write(short), "en", ()))[0] == (("1", "2"), ("NUM", "NUM"))
    classes = "1\t7\n2\t8\n3\t9\n"  # all columns are numbers
    assert plain(conll.read(write(classes), "en", ())) == [(("1", "2", "3"), ("7", "8", "9"))]
    years = "1905\tNUM\n1906\tNUM\n1907\tNUM\n"
    assert plain(conll.read(write(years), "en", ()))[0][0] == ("1905", "1906", "1907")
    mixed = "1\tNUM\n2\tNUM\n3\tNUM\n\n7\tNUM\n"
    with pytest.raises(ConfigError, match="a.conll:5: the first column may contain ids or words"):
        conll.read(write(mixed), "en", ())


def test_conllu_plus_files_are_read(write):
    head = "# global.columns = ID FORM UPOS PARSEME:MWE\n"
    text = head + "# text = zum x\n1-2\tzum\t_\t*\n1\tzu\tADP\t1\n2\tdem\tDET\t*\n2.1\ty\tX\t*\n"
    assert plain(conll.read(write(text), "de", ())) == [(("zu", "dem"), ("ADP", "DET"))]
    actual = plain(conll.read(write(text), "de", ("FORM", "PARSEME:MWE")))
    assert actual == [(("zu", "dem"), ("1", "*"))]
    with pytest.raises(ConfigError, match="4 columns, but the comment global.columns names 3"):
        conll.read(write(text.replace(" UPOS", "")), "de", ())


def test_ids_may_count_from_zero(write):
    """As in WikiNEuRal and MultiNERD."""
    text = "0\tAda\tB-PER\n1\tLee\tI-PER\n2\tsang\tO\n\n0\tOslo\tB-LOC\n"
    expected = [(("Ada", "Lee", "sang"), ("B-PER", "I-PER", "O")), (("Oslo",), ("B-LOC",))]
    assert plain(conll.read(write(text), "en", ())) == expected
    with pytest.raises(ConfigError, match="a.conll:5: .* counts from 0 in the sentence at .*:1"):
        conll.read(write(text.replace("0\tOslo", "1\tOslo")), "en", ())


def test_a_header_names_the_columns(write):
    rows = "Ada\tNNP\tB-PER\nsang\tVBD\tO\n\nOslo\tNNP\tB-LOC\n"
    expected = [(("Ada", "sang"), ("B-PER", "O")), (("Oslo",), ("B-LOC",))]
    text = "# x = y\nToken\tpos\tner\n" + rows
    assert plain(conll.read(write(text), "en", (), chunk_tags=True)) == expected
    assert plain(conll.read(write(text), "en", ("Token", "pos")))[0][1] == ("NNP", "VBD")
    swapped = "tags Word\nO Ada\nX sang\n"
    assert plain(conll.read(write(swapped), "en", ())) == [(("Ada", "sang"), ("O", "X"))]
    numbered = "sentence\tform\tupos\n1\tAda\tPROPN\n1\tsang\tVERB\n"
    assert plain(conll.read(write(numbered), "en", ()))[0] == (("Ada", "sang"), ("PROPN", "VERB"))
    words = "word\tNOUN\ntoken\tNOUN\n"  # no header: the second column has a tag
    assert plain(conll.read(write(words), "en", ()))[0][0] == ("word", "token")


def test_a_treebank_without_text_is_refused(write):
    for form in "_", "___":
        text = conllu(("1", form, "ADP"), ("2", "_", "DET"))
        with pytest.raises(ConfigError, match="a.conll:1: all words of the file are _"):
            conll.read(write(text), "ar", ())
        with pytest.raises(ConfigError, match="a.conll:1: all words of the file are _"):
            conll.read_words(text.split("\n"), "a.conll:")
    assert conll.read(write(text + "\n" + conllu(("1", "a", "X"))), "ar", ())


def test_new_text_has_the_words_of_labelled_text(write):
    """`read_words` ignores tags, so columns of tags may be ambiguous."""
    files = [
        UNER,
        UNER.replace("\t", " "),
        "# global.columns = ID FORM UPOS\n1\ta\tX\n2\tb\tY\n",
        "-DOCSTART- -X- O\n\na b O\n-DOCSTART- -X- O\nc\u00a0d e O\n\n\n",
        "sw:Mei\tB-PER\nsw:10 000\tO\n",
        "token\tlabel\nAda\tO\n",
        "# id aa\tdomain=en\nmaria _ _ B-PER\n",
    ]
    for text in files:
        blocks = conll.read_words(text.split("\n")[:-1], "x:")
        examples = [block.example for block in blocks if block.example]
        expected = conll.read(write(text), "", ("2", "3") if text.startswith("# sent_id") else ())
        assert [e.words for e in examples] == [e.words for e in expected]
        assert [e.lines for e in examples] == [e.lines for e in expected]
        assert not any(e.tags for e in examples)
    before = [block.before for block in conll.read_words(files[3].split("\n")[:-1], "x:")]
    assert before == [("-DOCSTART- -X- O",), (), ("-DOCSTART- -X- O",), ()]
    assert conll.read_words(UNER.split("\n"), "x:", "3")[0].example.words[0] == "B-PER"
    with pytest.raises(ConfigError, match=r"x:2: 5 columns, but --columns=6; .* 1 to 5"):
        conll.read_words(UNER.split("\n"), "x:", "6")
    with pytest.raises(ConfigError, match="--columns=word: tagging needs the one-based number"):
        conll.read_words(UNER.split("\n"), "x:", "word")


def test_chunk_tags_outside_the_last_column_are_an_error(write):
    text = "a\tB-PER\tx1\nb\tO\tx2\n"
    with pytest.raises(
        ConfigError, match="it is unclear which column has the tags; .*2 has 'B-PER'"
    ):
        conll.read(write(text), "en", (), chunk_tags=True)
    assert plain(conll.read(write(text), "en", ())) == [(("a", "b"), ("x1", "x2"))]


def test_ids_of_sentences_are_no_words_and_probabilities_no_tags(write):
    ids = "s1\tthe\tDET\ns1\tcat\tNOUN\ns1\tx\tX\n\ns2\ta\tDET\n"
    with pytest.raises(ConfigError, match=r"a\.conll:1: column 1 has the same text .*WORD,TAG"):
        conll.read(write(ids), "en", ())
    with pytest.raises(ConfigError, match="column 1 has the same text .*--columns=WORD"):
        conll.read_words(ids.splitlines(), "f:")
    assert conll.read(write(ids), "en", ("2", "3"))[0].words == ("the", "cat", "x")
    numbered = "sentence_id\tword\ttag\n0\tthe\tDET\n0\tcat\tNOUN\n1\ta\tDET\n"
    with pytest.raises(ConfigError, match=r"a\.conll:2: the file is one sentence, .*'sentence_id'"):
        conll.read(write(numbered), "en", ())
    two = conll.read(write(numbered.replace("\n1", "\n\n1")), "en", ())
    assert [example.words for example in two] == [("the", "cat"), ("a",)]
    with pytest.raises(ConfigError, match="unclear which column has the tags"):
        conll.read(write("the\tDET\t0.99\ncat\tNOUN\t.5\n"), "en", ())


def test_chosen_names_are_the_header_and_documents_need_no_blank_line(write):
    hipe = "TOKEN\tLIT\tMISC\n# document_id = x\nDer\tO\t_\nRat\tB-org\t_\n# date = y\nx\tO\t_\n"
    expected = [(("Der", "Rat", "x"), ("O", "B-org", "O"))]
    assert plain(conll.read(write(hipe), "de", ("TOKEN", "LIT"))) == expected
    (block,) = conll.read_words(hipe.splitlines(), "f:", "TOKEN")
    assert block.example.words == expected[0][0]
    assert len(conll.read(write(hipe), "de", ("1", "2"))[0].words) == 4
