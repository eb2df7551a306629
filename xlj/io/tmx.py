"""Reads TMX files, translation memories in XML: pairs of segments in two languages."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from xlj.config import ConfigError
from xlj.io import files
from xlj.io.quoting import examples
from xlj.io.storage import AnyPath

_CODES = ("bpt", "ept", "it", "ph", "ut")  # their content is markup of another format
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Unit(NamedTuple):
    """A translation unit: its place, and its text in two languages, empty if it has none."""

    place: str
    source: str
    target: str


def read(path: AnyPath, languages: Sequence[str] = ()) -> Iterator[Unit]:
    """Yields the units of a file in order, in two languages.

    Line feeds and tabs in a segment become spaces.

    Args:
      languages: source and target, as named in the file, or without region (`en` matches `en-US`).
        Empty: the source language of the header, and the other language of the first unit.

    Raises:
      ConfigError: if the file cannot be read, is not XML, or the languages are ambiguous.
    """
    number, main, chosen = 0, "", tuple(languages)
    for element in _elements(path):
        if element.tag == "header":
            main = element.get("srclang", "")
        if element.tag != "tu":
            continue
        number += 1
        texts = {_language(part): _segment(part) for part in element if _name(part) == "tuv"}
        chosen = chosen or _both(path, list(texts), main)
        yield Unit(f"{path}: unit {number}", *(_text(texts, language) for language in chosen))
    if not number:
        raise ConfigError(f"{path} has no translation unit (tu)")


def _elements(path: AnyPath) -> Iterator[ElementTree.Element]:
    """Yields the elements of a file as they end; units are removed from memory after use."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    body: ElementTree.Element | None = None
    try:
        for piece in files.pieces(path):
            parser.feed(piece)
            for event, element in parser.read_events():
                element.tag = _name(element)
                if event == "start" and element.tag == "body":
                    body = element
                elif event == "end":
                    yield element
                    if element.tag == "tu" and body is not None:
                        body.clear()
        parser.close()
    except (ElementTree.ParseError, RecursionError, ValueError, LookupError) as error:
        raise ConfigError(f"{path}: not valid XML ({error})") from None


def _name(element: ElementTree.Element) -> str:
    """Returns the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _language(part: ElementTree.Element) -> str:
    return part.get(_LANGUAGE) or part.get("lang") or ""


def _segment(part: ElementTree.Element) -> str:
    segment = next((child for child in part if _name(child) == "seg"), None)
    return "" if segment is None else re.sub(r"[\t\r\n]+", " ", _content(segment)).strip(" ")


def _content(segment: ElementTree.Element) -> str:
    """Returns the text of a segment and its elements, without the content of codes."""
    parts: list[str] = []
    ahead: list[ElementTree.Element | str | None] = [segment]
    while ahead:
        part = ahead.pop()
        if isinstance(part, ElementTree.Element):
            for child in reversed(part):
                ahead += [child.tail, "" if _name(child) in _CODES else child]
            ahead.append(part.text)
        else:
            parts.append(part or "")
    return "".join(parts)


def _both(path: AnyPath, names: Sequence[str], main: str) -> tuple[str, str]:
    """Returns the two languages of a file, from its first unit and the header's source language."""
    first = [name for name in names if _is(name, main)] or list(names[:1])
    others = [name for name in names if name not in first]
    if len(first) != 1 or len(others) != 1:
        raise ConfigError(
            f"{path}: set the two languages to read; the first unit has {examples(names)}"
        )
    return first[0], others[0]


def _text(texts: dict[str, str], language: str) -> str:
    return next((text for name, text in texts.items() if _is(name, language)), "")


def _is(name: str, language: str) -> bool:
    name, language = name.lower().replace("_", "-"), language.lower().replace("_", "-")
    return name == language or name.startswith(f"{language}-")
