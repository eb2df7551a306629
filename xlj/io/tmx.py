"""Reads and writes TMX files, translation memories in XML: pairs of segments in two languages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from xlj.config import ConfigError
from xlj.config.languages import matching
from xlj.io import files
from xlj.io.markup import without_control_characters
from xlj.io.quoting import examples
from xlj.io.storage import AnyPath

_MARKUP_TAGS = ("bpt", "ept", "it", "ph", "ut")  # contain markup of the original document
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Unit(NamedTuple):
    """A translation unit in two languages.

    Attributes:
      place: the place of the unit in its file, for errors.
      source, target: the text in each language; empty if the unit has no text in the language.
    """

    place: str
    source: str
    target: str


def read(path: AnyPath, languages: Sequence[str] = ()) -> Iterator[Unit]:
    """Yields the translation units of a file in order, in two languages.

    Line feeds and tabs in a segment become spaces.

    Args:
      languages: the source and the target language, as named in the file, or in another form
        (`en` and `eng` match `en-US`). If empty, these are the source language of the header and
        the other language of the first unit.

    Raises:
      ConfigError: if the file cannot be read, is not XML, has no unit, or if `languages` is empty
        and the languages are ambiguous.
    """
    number, source_language, two_languages = 0, "", tuple(languages)
    for element in _elements(path):
        if element.tag == "header":
            source_language = element.get("srclang", "")
        if element.tag != "tu":
            continue
        number += 1
        texts = {_language(part): _segment(part) for part in element if _tag_of(part) == "tuv"}
        if not two_languages:
            two_languages = _choose_languages(path, list(texts), source_language)
        source, target = (_text_in(texts, language) for language in two_languages)
        yield Unit(f"{path}: unit {number}", source, target)
    if not number:
        raise ConfigError(f"{path} has no translation unit (an element <tu>); check that it is TMX")


def _elements(path: AnyPath) -> Iterator[ElementTree.Element]:
    """Yields the elements of a file in the order of their end tags; frees each unit after use."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    body: ElementTree.Element | None = None
    try:
        for piece in files.pieces(path):
            parser.feed(piece)
            for event, element in parser.read_events():
                element.tag = _tag_of(element)
                if event == "start" and element.tag == "body":
                    body = element
                elif event == "end":
                    yield element
                    if element.tag == "tu" and body is not None:
                        body.clear()
        parser.close()
    except (ElementTree.ParseError, RecursionError, ValueError, LookupError) as error:
        raise ConfigError(f"{path}: not valid XML ({error})") from None


def _tag_of(element: ElementTree.Element) -> str:
    """Returns the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _language(part: ElementTree.Element) -> str:
    return part.get(_LANGUAGE) or part.get("lang") or ""


def _segment(part: ElementTree.Element) -> str:
    segment = next((child for child in part if _tag_of(child) == "seg"), None)
    return "" if segment is None else re.sub(r"[\t\r\n]+", " ", _content(segment)).strip(" ")


def _content(segment: ElementTree.Element) -> str:
    """Returns the text of a segment and of its elements, except elements that contain markup."""
    parts: list[str] = []
    stack: list[ElementTree.Element | str | None] = [segment]
    while stack:
        part = stack.pop()
        if isinstance(part, ElementTree.Element):
            for child in reversed(part):
                stack += [child.tail, "" if _tag_of(child) in _MARKUP_TAGS else child]
            stack.append(part.text)
        else:
            parts.append(part or "")
    return "".join(parts)


def _choose_languages(path: AnyPath, names: Sequence[str], source: str) -> tuple[str, str]:
    """Returns the source and the target language of a file.

    Args:
      path: the file, for the error.
      names: the languages of the first unit.
      source: the source language in the header of the file.
    """
    sources = matching(source, names) or list(names[:1])
    targets = [name for name in names if name not in sources]
    if len(sources) != 1 or len(targets) != 1:
        raise ConfigError(
            f"{path}: set the two languages to read; the first unit has {examples(names)}"
        )
    return sources[0], targets[0]


def _text_in(texts: dict[str, str], language: str) -> str:
    return next((texts[name] for name in matching(language, texts)), "")


TAIL = "</body>\n</tmx>\n"
"""The end of a file."""


def head(source_language: str) -> str:
    """Returns the beginning of a file."""
    header = ElementTree.Element(
        "header",
        {
            "creationtool": "xlj",
            "creationtoolversion": "1",
            "segtype": "sentence",
            "o-tmf": "xlj",
            "adminlang": "en",
            "srclang": source_language,
            "datatype": "plaintext",
        },
    )
    start = '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
    return f"{start}{_written(header)}\n<body>\n"


def unit(texts: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Returns a translation unit.

    Args:
      texts: the text of each language.
      properties: values of elements `prop`, by type.
    """
    element = ElementTree.Element("tu")
    for name, value in properties.items():
        prop = ElementTree.SubElement(element, "prop", {"type": f"x-{name}"})
        prop.text = without_control_characters(value)
    for language, text in texts.items():
        variant = ElementTree.SubElement(element, "tuv", {"xml:lang": language})
        segment = ElementTree.SubElement(variant, "seg")
        segment.text = without_control_characters(text)
    return f"{_written(element)}\n"


def _written(element: ElementTree.Element) -> str:
    return ElementTree.tostring(element, encoding="unicode")
