"""Reads tagged words: one word and its tag per line, and a blank line after each sentence."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled.chunks import CHUNK_TAG
from xlj.data.labelled.examples import Words, prefix_of
from xlj.io import files, formats
from xlj.io.quoting import examples, quoted
from xlj.io.storage import AnyPath

_BLANKS = " \t"  # other Unicode blanks may be words
_NODE = re.compile(r"\d+([-.]\d+)?")  # an id, a range of ids or an empty node
_NAMES = "# global.columns ="  # the first line of CoNLL-U Plus
COMMENT = re.compile(r"# ?\S+( id)? = |# (id|newdoc|newpar)\b|#\t(https?://|www\.)")
"""Lines that look like comments of known formats, however many columns they have."""


class _Layout(NamedTuple):
    """The layout of a file.

    Attributes:
      divider: text between columns; empty if there is only one column.
      width: number of columns.
      has_ids: whether the first column numbers the words of each sentence.
    """

    divider: str
    width: int
    has_ids: bool


class _Row(NamedTuple):
    place: str
    fields: list[str]


def read(
    path: AnyPath,
    language: str,
    columns: Sequence[str],
    comments: str = "auto",
    chunk_tags: bool = False,
) -> list[Words]:
    """Reads the sentences of a file.

    Columns are divided by tabs, or by spaces if the file has no tab. All lines have the same number
    of columns. `-DOCSTART-` lines and comments are skipped. The first column may number the words
    of each sentence from 1, as in CoNLL-U; multiword tokens `1-2` and empty nodes `3.1` are then
    skipped.

    Args:
      language: a prefix `language:` is removed if all words of the file have it, as in WikiAnn's
        own files.
      columns: the columns of word and tag, as numbers from 1, or as names of CoNLL-U Plus. Empty:
        FORM and UPOS of CoNLL-U and CoNLL-U Plus; in other files the first and the last column, or
        with ids the only possible one. If the file ends just before the column of tags, or has ids
        and `_` for all tags, it has no tags.
      comments: which lines with `#` before a sentence's first word are comments: all (`yes`), none
        (`no`), or those whose number of columns differs or that look like comments (`auto`).
      chunk_tags: whether tags must be chunk tags.

    Raises:
      ConfigError: if the file cannot be read, a line does not fit, or the columns or comments are
        ambiguous; with file and line.
    """
    formats.refuse(path, files.head(path), ("CSV", "|||"))  # words may be written so
    groups: list[list[tuple[str, str]]] = [[]]
    for number, line in enumerate(files.lines(path), 1):
        line = line.removesuffix("\r").strip(" ")
        if not line.strip(_BLANKS) or line.startswith("-DOCSTART-"):
            groups.append([])
        else:
            groups[-1].append((f"{path}:{number}", line))
    heads = (line for group in groups for _, line in group if line.startswith(_NAMES))
    names = next(heads, _NAMES).removeprefix(_NAMES).split()
    layout = _layout(groups, has_ids=names[:1] == ["ID"])
    sentences = [rows for group in groups if (rows := _rows(group, layout, comments))]
    if not sentences:
        return []
    word, tag = _word_and_tag(sentences, layout, columns, names, chunk_tags)
    return _examples(sentences, layout, word, tag, language)


def _layout(groups: Sequence[Sequence[tuple[str, str]]], has_ids: bool) -> _Layout:
    """Determines the layout of a file, with `has_ids` if it is known to have ids.

    Lines with `#`, which may be comments, are ignored unless there are no others.
    """
    lines = [line for group in groups for _, line in group if not line.startswith("#")]
    if not lines:
        every = [line for group in groups for _, line in group]
        lines = [line for line in every if line[:2] != "# " and not COMMENT.match(line)] or every
    tabbed = [line for line in lines if "\t" in line]
    first = next(iter(tabbed or lines), "")
    divider = "\t" if tabbed else " " if " " in first else ""
    width = len(_split(first, divider))
    numbered = [
        [_Row(place, _split(line, divider)) for place, line in group if line[0] != "#"]
        for group in groups
    ]
    numbers_words = has_ids or (width > 1 and _has_ids([rows for rows in numbered if rows], width))
    return _Layout(divider, width, numbers_words)


def _has_ids(sentences: Sequence[Sequence[_Row]], width: int) -> bool:
    """Whether the first column numbers the words of each sentence.

    It does if it counts from 1 in all sentences, one sentence has three words, and other columns
    are not only numbers. A file with ten columns whose first line begins with an id is CoNLL-U.

    Raises:
      ConfigError: if the column has only ids, but only some sentences count from 1.
    """
    rows = [row for sentence in sentences for row in sentence]
    if rows and width == 10 and _NODE.fullmatch(rows[0].fields[0]):
        return True
    if not all(_NODE.fullmatch(row.fields[0]) for row in rows):
        return False
    if all(field.isdecimal() for row in rows for field in row.fields[1:]):
        return False
    places: dict[bool, str] = {}
    for sentence in sentences:
        ids = [row.fields[0] for row in sentence if row.fields[0].isdecimal()]
        counts = ids == [str(number) for number in range(1, len(ids) + 1)]
        if not counts or len(ids) > 2:
            places.setdefault(counts, sentence[0].place)
    if len(places) == 2:
        raise ConfigError(
            f"{places[False]}: the first column may contain ids or words: it counts from 1 in the "
            f"sentence at {places[True]}, but not here; {_choose(sentences)}"
        )
    return True in places


def _rows(group: Sequence[tuple[str, str]], layout: _Layout, comments: str) -> list[_Row]:
    """Returns the words of a sentence, without comments, multiword tokens and empty nodes."""
    rows, begun = list[_Row](), False
    for place, line in group:
        if not begun and line.startswith("#") and _is_comment(line, layout, comments, place):
            continue
        begun = True
        fields = _split(line, layout.divider)
        if len(fields) != layout.width:
            wrong = f"{len(fields)} column{'s' * (len(fields) > 1)}"
            hint = "" if layout.divider == "\t" else "; divide columns by tabs if words have spaces"
            raise ConfigError(f"{place}: {wrong}, but the file has {layout.width}{hint}")
        if layout.has_ids and not _NODE.fullmatch(fields[0]):
            raise ConfigError(
                f"{place}: {quoted(fields[0])} is not an id of CoNLL-U, such as 1, 1-2 or 1.1"
            )
        if not layout.has_ids or fields[0].isdecimal():
            rows.append(_Row(place, fields))
    return rows


def _is_comment(line: str, layout: _Layout, comments: str, place: str) -> bool:
    """Whether a line with `#` before a sentence's first word is a comment."""
    if comments != "auto":
        return comments == "yes"
    other_width = len(_split(line, layout.divider)) != layout.width
    if layout.has_ids or other_width or COMMENT.match(line):
        return True
    if not line.startswith("# "):
        return False
    raise ConfigError(
        f"{place}: {quoted(line)} may be a comment or the word #; set task.comments=yes if lines "
        "with # before a sentence are comments, or task.comments=no if they are words; or divide "
        "columns by tabs, then it is unambiguous"
    )


def _word_and_tag(
    sentences: Sequence[Sequence[_Row]],
    layout: _Layout,
    columns: Sequence[str],
    names: Sequence[str],
    chunk_tags: bool,
) -> tuple[int, int | None]:
    """Returns the indices of the columns of words and of tags; None without tags."""
    width, place = layout.width, sentences[0][0].place
    if names and len(names) != width:
        raise ConfigError(f"{place}: {width} columns, but global.columns names {len(names)}")
    if columns:
        if len(columns) != 2 or not all(name.isdecimal() or name in names for name in columns):
            raise ConfigError(
                f"task.columns={','.join(columns)}: tagging needs two numbers from 1, the columns "
                f"of words and of tags; {_choose(sentences)}"
            )
        word, tag = (names.index(c) if c in names else int(c) - 1 for c in columns)
        if not 0 <= word < width or not 0 <= tag <= width:
            raise ConfigError(
                f"{place}: {width} columns, but task.columns={','.join(columns)} (from 1)"
            )
        return word, tag if tag < width else None
    word = names.index("FORM") if "FORM" in names else int(layout.has_ids)
    if layout.has_ids and width == 10 and not names:
        return word, 3
    if "UPOS" in names:
        return word, names.index("UPOS")
    if not layout.has_ids and not names:
        others = [width - 1] if width > 1 else []
    else:
        others = [k for k in range(layout.has_ids, width) if k != word]
    fitting = others
    if width > 2 and chunk_tags:
        fitting = [k for k in others if _mostly_chunks(_column(sentences, k))]
    elif len(others) > 1:
        fitting = [k for k in others if not {*_column(sentences, k)} <= {"_", "-"}]
    if others and len(fitting) != 1:
        raise ConfigError(f"{place}: it is unclear which column has the tags; {_choose(sentences)}")
    return word, fitting[0] if fitting else None


def _column(sentences: Sequence[Sequence[_Row]], index: int) -> Iterator[str]:
    return (row.fields[index] for rows in sentences for row in rows)


def _mostly_chunks(tags: Iterable[str]) -> bool:
    """Whether tags are chunk tags; a few may be wrong, and are reported with their lines later."""
    are_chunks = [bool(re.fullmatch(CHUNK_TAG, tag)) for tag in tags]
    return 2 * sum(are_chunks) > len(are_chunks)


def _choose(sentences: Sequence[Sequence[_Row]]) -> str:
    """Returns the end of an error that asks for task.columns, with examples of each column."""
    columns = zip(*(row.fields for rows in sentences for row in rows), strict=False)
    shown = (f"{number} has {examples(column)}" for number, column in enumerate(columns, 1))
    return f"set task.columns=WORD,TAG to two numbers; column {', '.join(shown)}"


def _examples(
    sentences: Sequence[Sequence[_Row]], layout: _Layout, word: int, tag: int | None, language: str
) -> list[Words]:
    tagged = tag is not None and not (layout.has_ids and {*_column(sentences, tag)} == {"_"})
    prefix = prefix_of(language, _column(sentences, word))
    for row in (row for rows in sentences for row in rows):
        if row.fields[word] == prefix:
            raise ConfigError(f"{row.place}: this line has a tag but no word")
        if tag is not None and not row.fields[tag]:
            raise ConfigError(f"{row.place}: this line has a word but no tag")
    return [
        Words(
            tuple(row.fields[word].removeprefix(prefix) for row in rows),
            tuple(row.fields[tag] for row in rows) if tag is not None and tagged else None,
            rows[0].place,
            tuple(int(row.place.rpartition(":")[2]) for row in rows),
        )
        for rows in sentences
    ]


def _split(line: str, divider: str) -> list[str]:
    if divider == "\t":
        return [field.strip(" ") for field in line.split("\t")]
    return re.split(" +", line)
