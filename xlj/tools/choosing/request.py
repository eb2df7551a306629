"""What a person has, and the cases that fit: the value of `xlj.recipes --for`."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from xlj.config.fields import ConfigError, suggestion
from xlj.io.quoting import quoted
from xlj.tools.choosing.cases import CASES, POD, Case

AIMS = ("encoder", "aligner", "sentences", "adapt")
STARTS = ("none", "english", "multilingual")
_CHOICES = {"aim": AIMS, "start": STARTS}
_MEANINGS = {
    "aim": "encoder, aligner, sentences (vectors) or adapt (add languages)",
    "start": "none, english or multilingual (a released model, such as XLM-R)",
}
_KEYS = ("languages", "words", "pairs", "hardware", *_CHOICES)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
_EXAMPLE = "languages=3,words=20M,pairs=20k,hardware=24GB"


class Request(NamedTuple):
    """What a person has and wants; None if it was not given.

    Attributes:
      names: the languages, if they were named instead of counted.
      languages: the number of languages.
      words: words of text in all languages together.
      pairs: sentence pairs of all language pairs together.
      hardware: as `Case.hardware`.
    """

    names: tuple[str, ...] = ()
    languages: int | None = None
    words: int | None = None
    pairs: int | None = None
    hardware: float | None = None
    aim: str | None = None
    start: str | None = None


def parse(text: str) -> Request:
    """Parses KEY=VALUE items that commas or blanks separate.

    `languages` is a number, or names separated by commas.

    Raises:
      ConfigError: if a key is unknown, repeated or without a value, or if a value is impossible.
    """
    values: dict[str, list[str]] = {}
    key = ""
    for item in re.split(r"[,\s]+", text.strip(", \t\n")):
        name, equals, value = item.partition("=")
        if equals:
            key = name
            if key not in _KEYS:
                raise ConfigError(
                    f"--for: unknown key {quoted(key)}; the keys are {', '.join(_KEYS)}"
                    f"{suggestion(key, _KEYS)}"
                )
            if key in values:
                raise ConfigError(f"--for: {key} is repeated")
            values[key] = []
        elif key != "languages":
            raise ConfigError(
                f"--for: cannot read {quoted(item)}; write KEY=VALUE, for example {_EXAMPLE}"
            )
        values[key].append(value if equals else item)
    read: dict[str, Any] = {}
    for key, (value, *more) in values.items():
        if key == "languages" and (more or not value[:1].isdigit()):
            read["names"] = names = _names([value, *more])
            read[key] = len(names)
        elif key in _CHOICES:
            if value not in _CHOICES[key]:
                raise ConfigError(
                    f"--for: {key}={value}: expected {_MEANINGS[key]}"
                    f"{suggestion(value, _CHOICES[key])}"
                )
            read[key] = value
        else:
            read[key] = _hardware(value) if key == "hardware" else _number(key, value)
    return Request(**read)


def _names(names: list[str]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise ConfigError(
                f"--for: languages={','.join(names)}: expected a number or names, such as 3 or "
                "en,de,sw"
            )
    return tuple(dict.fromkeys(names))


def _number(key: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmb]?)", text.replace("_", "").lower())
    number = float(match[1]) * _UNITS[match[2]] if match else 0.5
    if not number.is_integer() or (key == "languages" and not number):
        raise ConfigError(f"--for: {key}={text}: expected a number, such as 3, 20k, 5M or 1.5B")
    return int(number)


def _hardware(text: str) -> float:
    if text.lower() in ("cpu", "pod"):
        return 0 if text.lower() == "cpu" else POD
    match = re.fullmatch(r"(\d+(?:\.\d+)?)gb", text.lower())
    if not match:
        raise ConfigError(
            f"--for: hardware={text}: expected cpu, the memory of one GPU such as 24GB, or pod "
            "(several GPUs or TPUs)"
        )
    return float(match[1])


def choose(request: Request) -> list[Case]:
    """Returns the cases that fit, those that need the most hardware, text and pairs first."""
    wanted = [case for case in CASES if _is_wanted(case, request)]
    fitting = [case for case in wanted if not list(lacks(case, request))]
    return sorted(fitting, key=lambda case: (-case.hardware, -case.words, -case.pairs))


def nearly(request: Request) -> list[tuple[Case, str]]:
    """Returns the cases for which exactly one thing is missing, with this thing."""
    wanted = [case for case in CASES if _is_wanted(case, request)]
    missing = [(case, list(lacks(case, request))) for case in wanted]
    return [(case, reasons[0]) for case, reasons in missing if len(reasons) == 1]


def _is_wanted(case: Case, request: Request) -> bool:
    """Returns whether the case has the aim and the start of the request, and generates text only
    if the request has none."""
    return (
        request.aim in (None, *case.aims)
        and request.start in (None, case.start)
        and bool(case.words or case.pairs or not (request.words or request.pairs))
    )


def lacks(case: Case, request: Request) -> Iterator[str]:
    """Yields what a case needs and the request does not have. What was not given is no obstacle."""
    low, high = case.languages
    if request.languages is not None and not low <= request.languages <= high:
        yield f"{count(case)} languages"
    if request.words is not None and case.words > request.words:
        yield f"{case.words:,} words of text"
    if request.pairs is not None and case.pairs > request.pairs:
        yield f"{case.pairs:,} sentence pairs"
    if request.hardware is not None and case.hardware > request.hardware:
        yield hardware(case)


def count(case: Case) -> str:
    """Returns the numbers of languages of a case, such as "3 to 20"."""
    low, high = case.languages
    return f"{low}" if low == high else f"{low} or more" if high == POD else f"{low} to {high}"


def hardware(case: Case) -> str:
    """Returns the name of the hardware of a case."""
    if case.hardware in (0, POD):
        return "a CPU" if not case.hardware else "several GPUs or TPUs"
    return f"a GPU of {case.hardware:g} GB"
