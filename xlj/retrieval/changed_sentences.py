"""Changed sentences, the hard negatives of xsim++: read from files, or numbers changed by rule.

Source: Chen et al. (2023), "xSIM++: An Improved Proxy to Bitext Mining Performance for Low-Resource
Languages". LASER publishes the changed English sentences of FLORES.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.io import hashing, json_file
from xlj.io.quoting import quoted
from xlj.retrieval import sentence_files

NUMBERS = "numbers"
"""The name of the rule that changes numbers, instead of the name of a file."""

_WORDS = (
    "two three four five six seven eight nine ten eleven twelve",
    "twenty thirty forty fifty sixty seventy eighty ninety",
    "hundred thousand million billion",
)
_GROUPS = {word: group.split() for group in _WORDS for word in group.split()}
_NUMBER = re.compile(rf"[0-9](?:[0-9.,:]*[0-9])?|\b(?:{'|'.join(_GROUPS)})\b", re.IGNORECASE)


class Changed(NamedTuple):
    """A sentence with a change of its meaning.

    Attributes:
      original: the sentence before the change; empty if unknown.
      kind: the kind of the change, such as `number`.
    """

    text: str
    original: str
    kind: str


def change_numbers(sentences: Sequence[str]) -> Iterator[Changed]:
    """Yields a changed sentence for each number of each sentence; the same ones in every call.

    Each digit becomes another digit: the number keeps its length, its separators and, if it has
    several digits, a first digit other than 0. An English number word from two to twelve, a
    multiple of ten, or a power such as `million`, becomes another word of its group.
    """
    for sentence in dict.fromkeys(sentences):
        for match in _NUMBER.finditer(sentence):
            draw = hashing.combine(hashing.name_hash(sentence), match.start())
            number = _other_number(match[0], draw)
            text = sentence[: match.start()] + number + sentence[match.end() :]
            yield Changed(text, sentence, "number")


def _other_number(number: str, draw: int) -> str:
    """Returns another number of the same form.

    Args:
      draw: determines the new number.
    """
    if group := _GROUPS.get(number.lower()):
        place = group.index(number.lower()) + 1 + draw % (len(group) - 1)
        word = group[place % len(group)]
        return word.capitalize() if number[0].isupper() else word
    characters = []
    for place, character in enumerate(number):
        if character.isdigit():
            lowest = int(place == 0 and len(number) > 1 and character != "0")
            draw, step = divmod(draw, 9 - lowest)
            value = (int(character) - lowest + 1 + step) % (10 - lowest) + lowest
            character = str(value)
        characters.append(character)
    return "".join(characters)


def read(path: Path) -> list[Changed]:
    """Reads changed sentences, one per line.

    LASER publishes two files: `eng_Latn_augmented.devtest` has the sentences, and
    `eng_Latn_errtype.devtest.json` is an object whose keys are the sentences and whose values have
    the keys `src` and `errtype`. If the second file exists next to `path`, it gives the originals
    and the kinds. A sentence without an entry has no original and the kind `changed`.

    Raises:
      ConfigError: if a file cannot be read, has no sentence, or has another format.
    """
    texts, entries = sentence_files.read(path), dict[str, Any]()
    kinds = path.with_name(f"{path.name.replace('_augmented.', '_errtype.')}.json")
    if "_augmented." in path.name and kinds.is_file():
        entries = json_file.read(kinds)
        if not isinstance(entries, dict) or entries.keys().isdisjoint(texts):
            raise ConfigError(
                f"{kinds} is not about the sentences of {path.name}; expected a JSON object whose "
                "keys are these sentences"
            )
    return [_with_entry(text, entries.get(text, {}), kinds) for text in texts]


def _with_entry(text: str, entry: Any, path: Path) -> Changed:
    """Makes a changed sentence from its value in the JSON file."""
    keys = ("src", "errtype") if isinstance(entry, dict) else ()
    values = [entry.get(key, "") for key in keys]
    if not values or not all(isinstance(value, str) for value in values):
        raise ConfigError(
            f"{path}: the value of {quoted(text)} is {quoted(entry)}; expected an object with the "
            "texts `src` and `errtype`"
        )
    original, kind = values
    return Changed(text, original.strip(), kind or "changed")


def of_sources(names: Sequence[str], sentences: Sequence[str]) -> list[Changed]:
    """Returns the distinct changed sentences of several sources.

    Sentences that are in `sentences` are left out, and those of other originals.

    Args:
      names: files, or `NUMBERS`.
      sentences: the unchanged sentences.

    Raises:
      ConfigError: if a file cannot be used, or there is no changed sentence.
    """
    unchanged, changed = set(sentences), dict[str, Changed]()
    for name in names:
        source = change_numbers(sentences) if name == NUMBERS else read(Path(name).expanduser())
        for each in source:
            is_other = each.original and each.original not in unchanged
            if each.text not in unchanged and not is_other:
                changed.setdefault(each.text, each)
    if not changed:
        raise ConfigError(
            f"{','.join(names)}: there is no changed sentence. The rule `{NUMBERS}` needs "
            "sentences with numbers; a file needs changed forms of these sentences"
        )
    return [*changed.values()]
