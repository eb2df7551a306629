"""Reads sets of parallel texts in many languages, whose lines i translate each other.

The files of a folder are named as in FLORES (`eng_Latn.dev`, or `dev.eng_Latn` in FLORES+), as in
NTREX (`newstest2019-src.eng.txt`, `newstest2019-ref.deu.txt`), or have two columns (`en-de.tsv`:
lines `source TAB target`, with the same source sentences in all files).
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.config.languages import ENGLISH, matching
from xlj.data.text import templates
from xlj.io import compressed, files, formats, storage
from xlj.io.columns import WHOLE_LINES, open_lines
from xlj.io.quoting import examples

_CODE = "[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]+)*"
_LAYOUTS = (
    rf"(?P<language>{_CODE})\.(?:dev|devtest)",
    rf"(?:dev|devtest)\.(?P<language>{_CODE})",
    rf"newstest2019-(?:src|ref)\.(?P<language>{_CODE})\.txt",
    rf"(?P<first>[A-Za-z]{{2,8}}(?:_[A-Za-z]{{4}})?)-(?P<language>{_CODE})\.tsv",
)


class _File(NamedTuple):
    """A file, and the language of its first column; empty if the file has no columns."""

    path: Path
    first: str


def pivot_of(languages: Sequence[str]) -> str:
    """Returns the code of English, if possible without a region; empty if there is none."""
    return next(iter(matching(ENGLISH, languages)), "")


def read(source: Path, languages: Sequence[str] = ()) -> dict[str, list[str]]:
    """Reads the texts of a set, by language.

    Args:
      source: a folder, or a file name with `{language}`.
      languages: the languages to read, in this order; empty for all languages by name. In files of
        two columns, the language of the first columns comes first.

    Raises:
      ConfigError: if there are fewer than two languages, a language has no file or two files, a
        file cannot be read or has a blank line, or the files are not parallel.
    """
    by_language = _find_files(source)
    firsts = list(dict.fromkeys(file.first for file in by_language.values() if file.first))
    known = [*firsts, *(name for name in sorted(by_language) if name not in firsts)]
    names = list(languages) or known
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"{source} has no file for {', '.join(unknown)}; it has {', '.join(known)}"
        )
    if len(names) < 2 or len(firsts) > 1:
        raise ConfigError(
            f"{source} has files of {', '.join(known)}"
            + (", with several first languages" if firsts[1:] else "")
            + "; expected at least two languages, and one first language in files of two columns"
        )
    texts: dict[str, list[str]] = {}
    reference: tuple[Path, list[str]] | None = None  # the lines with which all others are parallel
    for name in [name for name in names if name in by_language]:
        path, first = by_language[name]
        columns = _read_columns(path, 2 if first else 1)
        reference = reference or (path, columns[0])
        _check_parallel(path, columns[0], *reference, is_equal=bool(first))
        texts[name] = columns[-1]
        if first in names:
            texts.setdefault(first, columns[0])
    return {name: texts[name] for name in names}


def _find_files(source: Path) -> dict[str, _File]:
    """Returns the file of each language."""
    if "{language}" in str(source):
        found = [(name, _File(path, "")) for name, path in templates.find_languages(str(source))]
    elif source.is_dir():
        found, others = [], []
        for path in sorted(source.iterdir()):
            name = path.name.removesuffix(path.suffix if path.suffix in compressed.ENDINGS else "")
            match = next(filter(None, (re.fullmatch(layout, name) for layout in _LAYOUTS)), None)
            if match and path.is_file():
                found.append((match["language"], _File(path, match.groupdict().get("first") or "")))
            else:
                others.append(path.name)
        if found and others:
            shown = f"{len(others)} of {len(found) + len(others)} files: {examples(others)}"
            print(f"{source}: not in the set are {shown}", file=sys.stderr)
    else:
        hint = storage.what_is_there(source)
        raise ConfigError(
            f"{source} is not a folder{hint}; name a folder, or FILES/{{language}}.txt"
        )
    if not found:
        raise ConfigError(
            f"{source} has no files named as in FLORES (eng_Latn.dev), as in NTREX "
            "(newstest2019-ref.deu.txt) or by pair (en-de.tsv); for other names put {language} in "
            "their place, such as FOLDER/{language}.txt"
        )
    by_language: dict[str, _File] = {}
    for name, file in found:
        other = by_language.setdefault(name, file)
        if other != file:
            raise ConfigError(
                f"{source} has two files of {name}, {other.path.name} and {file.path.name}; name "
                "the files of one set with {language}, such as FOLDER/{language}.dev"
            )
    return by_language


def _read_columns(path: Path, width: int) -> list[list[str]]:
    """Reads a file of one sentence, or of `width` columns, per line; returns the columns."""
    formats.refuse(path, files.head(path))
    layout, lines = open_lines(path) if width == 1 else (WHOLE_LINES, files.lines(path))
    columns: list[list[str]] = [[] for _ in range(width)]
    for number, line in enumerate(lines, 1 + layout.has_header):
        row = [part.strip() for part in (line.split("\t") if width > 1 else [line])]
        if len(row) != width or "" in row:
            expected = "a sentence" if width == 1 else "two sentences with a tab between them"
            problem = f"{len(row)} columns" if all(row) else "a sentence is blank"
            raise ConfigError(f"{path}:{number}: {problem}; expected {expected} on each line")
        for column, text in zip(columns, row, strict=True):
            column.append(text)
    if len(columns[0]) < 2:
        raise ConfigError(f"{path} has fewer than two sentences; retrieval needs at least two")
    return columns


def _check_parallel(
    path: Path, lines: list[str], other: Path, others: list[str], is_equal: bool
) -> None:
    """Raises a `ConfigError` if two files have different numbers of lines or, with `is_equal`,
    different lines."""
    if len(lines) != len(others):
        raise ConfigError(
            f"{path} has {len(lines)} sentences, but {other} has {len(others)}; the files of a set "
            "must translate each other line by line"
        )
    for number, pair in enumerate(zip(lines, others, strict=True), 1):
        if is_equal and pair[0] != pair[1]:
            raise ConfigError(
                f"{path}:{number}: the first column differs from {other}:{number}; all files of a "
                "set need the same sentences. Score these files with --source and --target instead"
            )
