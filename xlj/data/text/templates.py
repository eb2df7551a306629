"""Matches templates such as `text/{language}.txt` to sources, and splits pairs such as `en-de`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from xlj.config import ConfigError, Data

Source = TypeVar("Source")


def match(
    templates: Sequence[str],
    key: str,
    names: Mapping[str, dict[str, str]],
    names_key: str,
    find: Callable[[str, str], list[Source]],
    may_share: Callable[[str], bool] = lambda template: False,
) -> tuple[dict[str, list[Source]], list[str]]:
    """Finds the sources of each name, in the order of the templates, and lists all problems.

    Problems are: a template that matches no name, a template that gives several names the same
    source, and a name without a source.

    Args:
      key: the key of the templates, for errors.
      names: languages or pairs, each with the values of its placeholders.
      names_key: the key of the names, for errors.
      find: returns the sources of a filled template and its name.
      may_share: whether a template may give several names the same source.

    Raises:
      ConfigError: on an unknown placeholder, or raised by `find`.
    """
    by_name: dict[str, list[Source]] = {name: [] for name in names}
    problems = []
    for template in templates:
        filled = {name: fill(template, values, key) for name, values in names.items()}
        sources = {name: find(text, name) for name, text in filled.items()}
        if len(set(filled.values())) < len(filled) and not may_share(template):
            needed = " or ".join(f"{{{value}}}" for value in next(iter(names.values())))
            problems.append(
                f"{key}={template} gives several {names_key} the same source; use {needed}"
            )
            continue
        for name, name_sources in sources.items():
            by_name[name] += name_sources
        if not any(sources.values()):
            texts = list(filled.values())
            few = texts if len(texts) < 4 else [texts[0], f"{texts[1]} ... {texts[-1]}"]
            problems.append(
                f"{key}={template} matches none of the {len(names)} {names_key}; "
                f"tried {', '.join(few)}"
            )
    for name, values in names.items():
        if not by_name[name] and any(by_name.values()):
            tried = ", ".join(fill(template, values, key) for template in templates)
            problems.append(f"{names_key}={name} has no source in {key}; tried {tried}")
    return by_name, problems


def fill(template: str, values: dict[str, str], key: str) -> str:
    """Replaces the placeholders of a template.

    Raises:
      ConfigError: if a placeholder is not in `values`; the message names `key`.
    """

    def value(match: re.Match) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(f"{key}={template}: unknown placeholder {match[0]}; use {known}")
        return values[match[1]]

    return re.sub(r"\{(\w*)\}", value, template)


def split_pair(
    pair: str, languages: Sequence[str] = (), key: str = "data.pairs"
) -> tuple[str, str]:
    """Splits a pair such as `en-de` into its two languages.

    Splits at the first hyphen, unless exactly one hyphen separates two of `languages` (`zh-CN-en`).

    Raises:
      ConfigError: if the result is not two different languages; the message names `key`.
    """
    parts = pair.split("-")
    splits = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    known = [split for split in splits if set(split) <= set(languages)]
    first, second = (known if len(known) == 1 else splits or [("", "")])[0]
    if not first or not second or first == second:
        raise ConfigError(
            f"{key}={pair}: a pair must be two languages with a hyphen between them, such as en-de"
        )
    return first, second


def paired_languages(data: Data) -> list[str]:
    """Returns the languages of `data.pairs`, each once, in order; raises as `split_pair`."""
    names = (name for pair in data.pairs for name in split_pair(pair, data.languages))
    return list(dict.fromkeys(names))
