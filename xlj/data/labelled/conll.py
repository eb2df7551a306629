"""Tagged words: reads one word and its tag per line, with a blank line after each sentence, and
finds chunks by the lenient definition of CoNLL that seqeval uses.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled.examples import Words, find_language_prefix
from xlj.io import files, formats
from xlj.io.malformed import MARK, Marked
from xlj.io.quoting import examples, quoted
from xlj.io.storage import AnyPath

_SPACES = " \t"  # other whitespace of Unicode may be a word
_ID = re.compile(r"\d+([-.]\d+)?")  # an id, a range of ids, or the id of an empty node
_PROBABILITY = re.compile(r"[01]?\.\d+")
_COLUMNS_COMMENT = "# global.columns ="  # begins the first line of a CoNLL-U Plus file
_DOCUMENT = "-DOCSTART-"  # begins a line between two documents
_WORD_NAMES = ("form", "word", "words", "token", "tokens", "text")
_TAG_NAMES = (
    *("upos", "tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "entity", "pos"),
    *("pos_tag", "pos_tags", "xpos", "iob", "bio"),
)
"""Names of the columns of words and of tags in headers, in lower case."""
_SENTENCE_NAME = re.compile(r"sent(ence)?([ _]?(id|no|#))?")
COMMENT = re.compile(r"# ?\S+( id)? = |# (id|newdoc|newpar)\b|#\t(https?://|www\.)")
"""Matches lines that look like comments of known formats."""


class _Layout(NamedTuple):
    """The layout of a file.

    Attributes:
      divider: the character between columns; empty if there is only one column.
      width: number of columns.
      has_ids: whether the first column numbers the words of each sentence.
      names: the names of the columns; empty if the file does not name them.
    """

    divider: str
    width: int
    has_ids: bool
    names: list[str]


class _Row(NamedTuple):
    place: str
    fields: list[str]


class _Group(NamedTuple):
    """The lines of a sentence: (place, line) of each, without spaces at both ends.

    A `-DOCSTART-` line is the first line of its group. `is_ended` says whether a blank line follows
    the group.
    """

    lines: list[tuple[str, str]]
    is_ended: bool


class Block(NamedTuple):
    """A sentence without tags, and the other lines of its file.

    Attributes:
      before: the lines before the sentence: comments, without the names of columns, and
        `-DOCSTART-` lines.
      example: the sentence; None if there is no word before the next blank line.
      is_ended: whether a blank line follows.
    """

    before: tuple[str, ...]
    example: Words | None
    is_ended: bool


def read(
    path: AnyPath,
    language: str,
    columns: Sequence[str],
    comments: str = "auto",
    chunk_tags: bool = False,
) -> list[Words]:
    """Reads the sentences of a file.

    Columns are divided by tabs, or by spaces if the file has no tab. All lines must have the same
    number of columns. `-DOCSTART-` lines and comments are skipped. The first line may be a header,
    with names such as `token` and `ner_tags`. The first column may number the words of each
    sentence from 1, as in CoNLL-U, or from 0. In such files, multiword tokens (`1-2`) and empty
    nodes (`3.1`) are skipped.

    Args:
      path: the file.
      language: the code of the language. A prefix such as `en:` is removed from the words if all
        words of the file have it, as in the original files of WikiAnn (`find_language_prefix`).
      columns: the column of words and the column of tags, as one-based numbers or as names of
        CoNLL-U Plus or of the header. If empty, the columns are FORM and UPOS in CoNLL-U and
        CoNLL-U Plus. In other files, they are the columns that the header names, or else the first
        and the last column. If a file without a header has ids, they are the second column and the
        only other column that can contain tags. A file is unlabelled if the column of tags is the
        one after its last column, or if it has ids and all tags are `_`.
      comments: which lines that begin with `#` before the first word of a sentence are comments.
        `yes`: all lines. `no`: no line. `auto`: lines with another number of columns, and lines
        that look like comments (`COMMENT`).
      chunk_tags: whether tags must be chunk tags (`conll.CHUNK_TAG`).

    Raises:
      ConfigError: if the file cannot be read, a line is invalid, all words are underscores, or the
        columns or comments are ambiguous; the message names the file and the line.
    """
    formats.refuse(path, files.head(path), ("CSV", "|||"))  # these may be words of a sentence
    groups = _read_groups(files.lines(path), f"{path}:")
    layout = _detect_layout(groups, columns)
    sentences = [rows for group in groups if (rows := _parse_sentence(group, layout, comments)[1])]
    if not sentences:
        return []
    word, tag = _choose_columns(sentences, layout, columns, chunk_tags)
    return _to_examples(sentences, layout, word, tag, language)


def read_words(lines: Iterable[str], place: str, column: str = "") -> list[Block]:
    """Reads the sentences of a file without their tags, as `read` does, and its other lines.

    Args:
      lines: all lines of the file.
      place: the text before the number of a line in errors, such as `FILE:`.
      column: the column of words, a one-based number or a name; empty to choose it as `read` does.

    Raises:
      ConfigError: as `read`, except for problems with the column of tags.
    """
    groups = _read_groups(lines, place)
    layout = _detect_layout(groups, [column] * bool(column))
    parsed = [_parse_sentence(group, layout, "auto") for group in groups]
    sentences = [rows for _, rows in parsed if rows]
    word = _choose_word(sentences, layout, "--columns", [column] * bool(column)) if sentences else 0
    examples = iter(_to_examples(sentences, layout, word, None, ""))
    return [
        Block(tuple(before), next(examples) if rows else None, group.is_ended)
        for group, (before, rows) in zip(groups, parsed, strict=True)
    ]


def _read_groups(lines: Iterable[str], place: str) -> list[_Group]:
    groups, group = list[_Group](), list[tuple[str, str]]()
    for number, text in enumerate(lines, 1):
        line = text.removesuffix("\r").strip(" ")
        if not line.strip(_SPACES):
            groups.append(_Group(group, True))
            group = []
            continue
        if number > 1 and isinstance(text, Marked) and text[0] in _SPACES:
            # Words of WikiAnn's Tamil are only this mark.
            line = MARK + text.removesuffix("\r").rstrip(" ")
        if line.startswith(_DOCUMENT) and group:
            groups.append(_Group(group, False))
            group = []
        group.append((f"{place}{number}", line))
    return [*groups, _Group(group, False)] if group else groups


def _detect_layout(groups: Sequence[_Group], columns: Sequence[str]) -> _Layout:
    """Determines the layout of a file, and removes its header from the first group.

    Lines that begin with `#` may be comments. They are ignored unless all lines begin with `#`.
    `columns` are the columns that the user chose, if any: a line with their names is a header.
    """
    all_lines = [line for group in groups for _, line in group.lines]
    lines = [line for line in all_lines if not line.startswith(("#", _DOCUMENT))]
    if not lines:
        lines = [line for line in all_lines if not line.startswith(_DOCUMENT)]
        no_comments = [x for x in lines if x[:2] != "# " and not COMMENT.match(x)]
        lines = no_comments or lines
    lines_with_tabs = [line for line in lines if "\t" in line]
    first = next(iter(lines_with_tabs or lines), "")
    divider = "\t" if lines_with_tabs else " " if " " in first else ""
    width = len(_split(first, divider))
    heads = (line for line in all_lines if line.startswith(_COLUMNS_COMMENT))
    names = next(heads, _COLUMNS_COMMENT).removeprefix(_COLUMNS_COMMENT).split()
    if not names and lines and first == lines[0]:
        fields = _split(first, divider)
        has_chosen = bool(columns) and all(x in fields and not x.isdecimal() for x in columns)
        if has_chosen or _is_header(fields):
            names = fields
            _remove_first(groups, first)
    sentences = [
        [
            _Row(place, _split(line, divider))
            for place, line in group.lines
            if not line.startswith(("#", _DOCUMENT))
        ]
        for group in groups
    ]
    has_ids = names[:1] == ["ID"] or (
        width > 1 and _has_ids([rows for rows in sentences if rows], width)
    )
    return _Layout(divider, width, has_ids, names)


def _remove_first(groups: Sequence[_Group], header: str) -> None:
    for group in groups:
        for entry in group.lines:
            if entry[1] == header:
                group.lines.remove(entry)
                return


def _is_header(fields: Sequence[str]) -> bool:
    """Whether a line names its columns: one has words, and another one has tags."""
    names = [field.casefold() for field in fields]
    has_names = not {*_WORD_NAMES}.isdisjoint(names) and not {*_TAG_NAMES}.isdisjoint(names)
    return has_names and len({*names}) == len(names)


def _has_ids(sentences: Sequence[Sequence[_Row]], width: int) -> bool:
    """Whether the first column numbers the words of each sentence.

    This is so if the column counts from 1, or from 0, in all sentences, at least one sentence has
    three words, and the other columns do not consist of numbers only. This is also so in CoNLL-U:
    the file has ten columns and its first line begins with an id.

    Raises:
      ConfigError: if the column contains only ids, but does not count so in all sentences.
    """
    rows = [row for sentence in sentences for row in sentence]
    if rows and width == 10 and _ID.fullmatch(rows[0].fields[0]):
        return True
    if not rows or not all(_ID.fullmatch(row.fields[0]) for row in rows):
        return False
    if all(field.isdecimal() for row in rows for field in row.fields[1:]):
        return False
    start = int(rows[0].fields[0] != "0")
    places: dict[bool, str] = {}
    for sentence in sentences:
        ids = [row.fields[0] for row in sentence if row.fields[0].isdecimal()]
        counts = ids == [str(number) for number in range(start, start + len(ids))]
        if not counts or len(ids) > 2:
            places.setdefault(counts, sentence[0].place)
    if len(places) == 2:
        raise ConfigError(
            f"{places[False]}: the first column may contain ids or words: the column counts from "
            f"{start} in the sentence at {places[True]}, but not in this sentence; "
            f"{_columns_hint(sentences)}"
        )
    return True in places


def _parse_sentence(group: _Group, layout: _Layout, comments: str) -> tuple[list[str], list[_Row]]:
    """Returns the lines before a sentence, and its words.

    Leaves out multiword tokens, empty nodes and the comment with the names of columns.
    """
    before, rows, has_words = list[str](), list[_Row](), False
    for place, line in group.lines:
        is_document = line.startswith(_DOCUMENT)
        is_hash = line.startswith("#")
        if has_words:  # a document may begin without a blank line
            is_other_width = len(_split(line, layout.divider)) != layout.width
            is_hash = is_hash and is_other_width and bool(COMMENT.match(line))
        if is_document or (is_hash and _is_comment(line, layout, comments, place)):
            before += [line] * (not line.startswith(_COLUMNS_COMMENT))
            continue
        has_words = True
        fields = _split(line, layout.divider)
        if len(fields) != layout.width:
            width = f"{len(fields)} column{'s' * (len(fields) > 1)}"
            hint = "" if layout.divider == "\t" else "; divide columns by tabs if words have spaces"
            raise ConfigError(f"{place}: {width}, but the file has {layout.width}{hint}")
        if layout.has_ids and not _ID.fullmatch(fields[0]):
            raise ConfigError(
                f"{place}: {quoted(fields[0])} is not an id of CoNLL-U, such as 1, 1-2 or 1.1"
            )
        if not layout.has_ids or fields[0].isdecimal():
            rows.append(_Row(place, fields))
    return before, rows


def _is_comment(line: str, layout: _Layout, comments: str, place: str) -> bool:
    """Whether a line that begins with `#` before the first word of a sentence is a comment."""
    if comments != "auto":
        return comments == "yes"
    has_other_width = len(_split(line, layout.divider)) != layout.width
    if layout.has_ids or has_other_width or COMMENT.match(line):
        return True
    if not line.startswith("# "):
        return False
    raise ConfigError(
        f"{place}: {quoted(line)} may be a comment or the word #; set task.comments=yes if lines "
        "with # before a sentence are comments, or task.comments=no if these lines are words; or "
        "divide columns by tabs, which makes comments unambiguous"
    )


def _choose_columns(
    sentences: Sequence[Sequence[_Row]],
    layout: _Layout,
    columns: Sequence[str],
    chunk_tags: bool,
) -> tuple[int, int | None]:
    """Returns the zero-based indices of the column of words and of the column of tags.

    The index of the column of tags is None if the file has no such column.
    """
    width, names = layout.width, layout.names
    word = _choose_word(sentences, layout, "task.columns", columns)
    if columns:
        tag = _find_column(columns[-1], names)
        return word, tag if tag < width else None
    if layout.has_ids and width == 10 and not names:
        return word, 3
    if "UPOS" in names:
        return word, names.index("UPOS")
    if not layout.has_ids and not names:
        candidates = [width - 1] if width > 1 else []
    else:
        candidates = [k for k in range(layout.has_ids, width) if k != word]
    named = [k for k in candidates if names and names[k].casefold() in _TAG_NAMES]
    candidates = named or candidates
    tag_columns = candidates
    if width > 2 and chunk_tags:
        tag_columns = [k for k in candidates if _are_mostly_chunk_tags(_column(sentences, k))]
    elif len(candidates) > 1:
        tag_columns = [k for k in candidates if not {*_column(sentences, k)} <= {"_", "-"}]
    tag_columns = [
        k for k in tag_columns if not all(map(_PROBABILITY.fullmatch, _column(sentences, k)))
    ]
    if candidates and len(tag_columns) != 1:
        raise ConfigError(
            f"{sentences[0][0].place}: it is unclear which column has the tags; "
            f"{_columns_hint(sentences)}"
        )
    return word, tag_columns[0] if tag_columns else None


def _choose_word(
    sentences: Sequence[Sequence[_Row]], layout: _Layout, key: str, columns: Sequence[str]
) -> int:
    """Returns the zero-based index of the column of words, after a check of `columns`.

    Args:
      key: the key or flag of `columns`, which names the columns of words and of tags, or nothing.
        `--columns` names only the column of words.
    """
    width, names, place = layout.width, layout.names, sentences[0][0].place
    if names and len(names) != width:
        raise ConfigError(
            f"{place}: {width} columns, but the comment global.columns names {len(names)}; correct "
            "the comment"
        )
    if not columns:
        named = [k for k, name in enumerate(names) if name.casefold() in _WORD_NAMES]
        word = named[0] if named else int(layout.has_ids)
        is_equal = [len({row.fields[word] for row in rows}) == 1 for rows in sentences]
        if width > 2 and all(is_equal) and max(map(len, sentences)) > 2:
            raise ConfigError(
                f"{place}: column {word + 1} has the same text in all lines of each sentence, so "
                f"it is unclear which column has the words; {_columns_hint(sentences)}"
            )
        return word
    shown, count = f"{key}={','.join(columns)}", 1 if key == "--columns" else 2
    if len(columns) != count or not all(name.isdecimal() or name in names for name in columns):
        needs = "the one-based number of the column of words"
        if count == 2:
            needs = "two one-based numbers, the column of words and the column of tags"
        raise ConfigError(f"{shown}: tagging needs {needs}; {_columns_hint(sentences)}")
    word, *tags = (_find_column(column, names) for column in columns)
    if not 0 <= word < width or not all(0 <= tag <= width for tag in tags):
        raise ConfigError(
            f"{place}: {width} columns, but {shown}; columns have the numbers 1 to {width}"
        )
    return word


def _find_column(column: str, names: Sequence[str]) -> int:
    return names.index(column) if column in names else int(column) - 1


def _column(sentences: Sequence[Sequence[_Row]], index: int) -> Iterator[str]:
    return (row.fields[index] for rows in sentences for row in rows)


def _are_mostly_chunk_tags(tags: Iterable[str]) -> bool:
    """Whether more than half of the tags are chunk tags.

    Other tags are probably errors, which `Tagging.check_examples` reports with their lines.
    """
    are_chunks = [bool(re.fullmatch(CHUNK_TAG, tag)) for tag in tags]
    return 2 * sum(are_chunks) > len(are_chunks)


def _columns_hint(sentences: Sequence[Sequence[_Row]]) -> str:
    """Returns the end of an error that asks for task.columns, with examples of each column."""
    columns = zip(*(row.fields for rows in sentences for row in rows), strict=False)
    contents = (f"{number} has {examples(column)}" for number, column in enumerate(columns, 1))
    return (
        "set task.columns=WORD,TAG to two numbers (xlj predict: --columns=WORD); column "
        f"{', '.join(contents)}"
    )


def _to_examples(
    sentences: Sequence[Sequence[_Row]], layout: _Layout, word: int, tag: int | None, language: str
) -> list[Words]:
    has_tags = tag is not None and not (layout.has_ids and {*_column(sentences, tag)} == {"_"})
    prefix = find_language_prefix(language, _column(sentences, word))
    if sentences and {*"".join(_column(sentences, word))} == {"_"}:
        raise ConfigError(
            f"{sentences[0][0].place}: all words of the file are _, so it has no text; some "
            "treebanks are published without text, and with a script that adds it"
        )
    for index, name in enumerate(layout.names):
        is_number = _SENTENCE_NAME.fullmatch(name.casefold())
        if is_number and len(sentences) == 1 < len({*_column(sentences, index)}):
            raise ConfigError(
                f"{sentences[0][0].place}: the file is one sentence, but the column {quoted(name)} "
                "has several numbers or names of sentences; write a blank line after each sentence"
            )
    for row in (row for rows in sentences for row in rows):
        if row.fields[word] == prefix:
            raise ConfigError(f"{row.place}: this line has a tag but no word")
        if tag is not None and not row.fields[tag]:
            raise ConfigError(f"{row.place}: this line has a word but no tag")
    return [
        Words(
            tuple(row.fields[word].removeprefix(prefix) for row in rows),
            tuple(row.fields[tag] for row in rows) if tag is not None and has_tags else None,
            rows[0].place,
            tuple(int(row.place.rpartition(":")[2]) for row in rows),
        )
        for rows in sentences
    ]


def _split(line: str, divider: str) -> list[str]:
    if divider == "\t":
        return [field.strip(" ") for field in line.split("\t")]
    return re.split(" +", line)


CHUNK_TAG = r"O|[BIES]-\S+"
"""Regular expression that matches a whole chunk tag, such as `B-PER`."""


class Chunk(NamedTuple):
    """A chunk of a kind, such as PER: the words [start, end), with zero-based indices."""

    kind: str
    start: int
    end: int


def find_chunks(tags: Sequence[str], raw: bool = False) -> list[Chunk]:
    """Finds the chunks of a sentence, in order.

    A tag is `O` (outside of chunks), or a prefix and a kind, such as `B-PER`. The prefix is B, I, E
    or S. A chunk begins at a word with the prefix B or S, at a word after E, S or O, and at a word
    whose kind differs from the previous kind. A chunk may thus begin with I. A chunk ends before
    the next chunk and before O.

    Args:
      tags: the tag of each word; no tag is empty.
      raw: whether the tags have no prefix, such as parts of speech. The whole tag is then the kind
        (only the part after the last hyphen, if the tag has hyphens), and neighbours with equal
        kinds form one chunk. The first letter still acts as a prefix, as in XTREME's seqeval
        0.0.12, so each SCONJ and SYM is a separate chunk. (Later versions of seqeval remove this
        letter from the kind, and so confuse CCONJ with SCONJ.)
    """
    chunks: list[Chunk] = []
    previous_prefix, previous_kind = "O", ""
    for index, tag in enumerate(tags):
        kind = tag.rpartition("-")[2] if raw else tag[1:].split("-", 1)[-1]
        prefix = tag[0]
        begins = prefix in "BS" or previous_prefix in "ESO" or kind != previous_kind
        if prefix != "O" and begins:
            chunks.append(Chunk(kind, index, index + 1))
        elif prefix != "O":
            chunks[-1] = chunks[-1]._replace(end=index + 1)
        previous_prefix, previous_kind = prefix, kind
    return chunks
