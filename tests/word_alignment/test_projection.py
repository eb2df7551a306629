"""Labels are projected as in cases solved by hand; files that do not match are refused."""

from collections import Counter

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.word_alignment import projection
from xlj.word_alignment.aligner import PairLinks
from xlj.word_alignment.projection import Labels, Projection, project_chunks, project_tags
from xlj.word_alignment.sentence_pairs import Pair


def parse_links(text):
    """Parses links such as `0-1:9`, with confidences in tenths."""
    items = [item.replace("-", " ").replace(":", " ").split() for item in text.split()]
    return [(int(i), int(j), int(c) / 10) for i, j, c in items]


@pytest.mark.parametrize(
    "links, expected, counts",
    [
        ("0-1:9 1-0:9 2-2:9", "NOUN DET VERB", {"projected": 3}),
        ("0-0:9", "DET _ _", {"projected": 1, "unlinked": 2}),
        # Many to one: the most confident link counts; among equal ones, the first.
        ("0-1:5 1-1:7 2-1:6", "_ NOUN _", {"projected": 1, "unlinked": 2, "contested": 1}),
        ("0-1:5 2-1:5", "_ DET _", {"projected": 1, "unlinked": 2, "contested": 1}),
        # One to many: each word gets the tag.
        ("2-0:5 2-2:5", "VERB _ VERB", {"projected": 2, "unlinked": 1}),
        ("", "_ _ _", {"unlinked": 3}),
    ],
)
def test_tags_are_projected_as_by_hand(links, expected, counts):
    actual_counts = Counter()
    assert (
        project_tags(["DET", "NOUN", "VERB"], parse_links(links), 3, actual_counts)
        == expected.split()
    )
    assert +actual_counts == {"labelled": 3, **counts}


@pytest.mark.parametrize(
    "tags, links, expected, counts",
    [
        # Another order of words; a longer chunk.
        ("B-X I-X O", "0-1:9 1-2:9 2-0:9", "O B-X I-X O", {"projected": 1}),
        ("B-X O", "0-1:9 0-2:8 1-0:9", "O B-X I-X O", {"projected": 1}),
        # A chunk with a gap: words in the gap are included if they have no link, or a link to O.
        ("B-X I-X O", "0-0:9 1-2:9 2-1:9", "B-X I-X I-X O", {"projected": 1, "filled": 1}),
        ("B-X I-X O", "0-0:9 1-3:9", "B-X I-X I-X I-X", {"projected": 1, "filled": 1}),
        # One word of the chunk has no link; no word of the chunk has a link.
        ("O B-X I-X", "2-1:9 0-3:9", "O B-X O O", {"projected": 1}),
        ("B-X O", "1-0:9", "O O O O", {"unlinked": 1}),
        # Many to one: the more confident chunk gets the word; the other gets the rest or nothing.
        ("B-X B-Y", "0-0:5 1-0:9 0-1:5", "B-Y B-X O O", {"projected": 2, "contested": 1}),
        ("B-X B-Y", "0-0:9 1-0:5", "B-X O O O", {"projected": 1, "lost": 1, "contested": 1}),
        ("B-X B-Y", "0-0:5 1-0:5", "B-X O O O", {"projected": 1, "lost": 1, "contested": 1}),
        ("B-X I-X", "0-0:5 1-0:9", "B-X O O O", {"projected": 1}),
        # A chunk around another chunk is cut there. Its more confident part is projected.
        ("B-X I-X B-Y", "0-0:5 1-2:9 2-1:5", "O B-Y B-X O", {"projected": 2, "cut": 1}),
        ("B-X I-X B-Y", "0-0:9 1-2:9 2-1:5", "B-X B-Y O O", {"projected": 2, "cut": 1}),
        # Adjacent chunks of one kind stay separate. Other schemes are read, but BIO is written.
        ("B-X B-X", "0-0:9 1-1:9", "B-X B-X O O", {"projected": 2}),
        ("S-X B-Y I-Y E-Y", "0-0:9 1-1:9 3-3:9", "B-X B-Y I-Y I-Y", {"projected": 2, "filled": 1}),
        ("I-X I-X O", "0-0:9 1-1:9", "B-X I-X O O", {"projected": 1}),
        ("O O", "0-0:9", "O O O O", {}),
    ],
)
def test_chunks_are_projected_as_by_hand(tags, links, expected, counts):
    actual_counts = Counter()
    assert project_chunks(tags.split(), parse_links(links), 4, actual_counts) == expected.split()
    chunks = sum(counts.get(name, 0) for name in ("projected", "unlinked", "lost"))
    assert +actual_counts == {name: n for name, n in {"labelled": chunks, **counts}.items() if n}


PAIRS = [
    Pair("p.tsv:1", ["a", "b"], ["x", "y", "z"]),
    Pair("p.tsv:2", [], ["x"]),
    Pair("p.tsv:3", ["c"], []),
    Pair("p.tsv:4", ["d"], ["w"]),
]


@pytest.fixture
def read(tmp_path):
    def read(text, pairs=PAIRS):
        file = tmp_path / "tags.conll"
        file.write_text(text)
        return projection.read(file, pairs)

    return read


def test_the_labelled_side_is_recognised_by_its_words(read):
    assert read("a\tB-P\nb\tO\n\nc\tO\n\nd\tO\n") == Labels(
        [("B-P", "O"), (), ("O",), ("O",)], True, True
    )
    assert read("x\tA\ny\tA\nz\tB\n\nx\tA\n\nw\tB\n") == Labels(
        [("A", "A", "B"), ("A",), (), ("B",)], False, False
    )
    same = [Pair("", ["a"], ["a"])]
    assert read("a\tA\n", same).of_source


def test_labels_are_projected_in_both_directions():
    links = np.array([[0, 2], [1, 0]], np.int32)
    pair_links = PairLinks(links, np.array([0.5, 0.5], np.float32))
    to_target = Projection(Labels([("A", "B")], True, False))
    assert to_target.tags(0, PAIRS[0], pair_links) == (["x", "y", "z"], ["B", "_", "A"])
    to_source = Projection(Labels([("A", "B", "C")], False, False))
    assert to_source.tags(0, PAIRS[0], pair_links) == (["a", "b"], ["C", "A"])
    assert to_target.report() == (
        "tagged 2 of 3 words: 1 had no link, 0 were linked to words with different tags"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "tags.conll: no tags; expected lines `word TAB tag`"),
        ("a\nb\n", "tags.conll:1: no tags"),
        (
            "a\tA\nq\tA\n\nc\tA\n\nd\tA\n",
            "tags.conll:1: the words are 'a q', expected 'a b' (at p.tsv:1)",
        ),
        (
            "a\tA\nb\tA\n\nc\tA\n",
            "tags.conll has only 2 sentences, fewer than there are pairs (at p.tsv:4)",
        ),
        (
            "a\tA\nb\tA\n\nc\tA\n\nd\tA\n\ne\tA\n",
            "tags.conll:8: the file has more sentences than there are pairs; the file must",
        ),
        (
            "x\tA\ny\tA\nz\tB\n\nx\tA\n\nv\tB\n",
            "tags.conll:7: the words are 'v', expected 'w' (at p.tsv:4); the file must have the "
            "words of one side",
        ),
        (
            "a\tB-P\nb\tPER\n\nc\tO\n\nd\tO\n",
            "tags.conll: 'B-P' is a chunk tag, but 'PER' is not; expected chunk tags only (O, "
            "B-PER, ...), or no chunk tags",
        ),
    ],
)
def test_files_that_do_not_match_the_pairs_are_refused(read, text, message):
    with pytest.raises(ConfigError) as error:
        read(text)
    assert message in str(error.value)
