"""Templates such as `text/{language}.txt`, the sources they match, and pairs such as `en-de`."""

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
    """The sources of each name, in the order of the templates, and all that is wrong with them: a
    template that matches no name or gives several the same source, a name that no template has.

    Args:
      key: of the templates, for errors.
      names: languages or pairs, each with the values of its placeholders.
      names_key: what the names are, for errors.
      find: the sources of a filled template and its name.
      may_share: whether a template may give several names the same.

    Raises:
      ConfigError: on an unknown placeholder, or as `find`.
    """
    found: dict[str, list[Source]] = {name: [] for name in names}
    problems = []
    for template in templates:
        filled = {name: fill(template, values, key) for name, values in names.items()}
        sources = {name: find(text, name) for name, text in filled.items()}
        if len(set(filled.values())) < len(filled) and not may_share(template):
            needed = " or ".join(f"{{{value}}}" for value in next(iter(names.values())))
            problems.append(
                f"{key}={template} gives several of {names_key} the same source; use {needed}"
            )
            continue
        for name, there in sources.items():
            found[name] += there
        if not any(sources.values()):
            texts = list(filled.values())
            few = texts if len(texts) < 4 else [texts[0], f"{texts[1]} ... {texts[-1]}"]
            problems.append(
                f"{key}={template} matches none of the {len(names)} {names_key}; "
                f"tried {', '.join(few)}"
            )
    for name, values in names.items():
        if not found[name] and any(found.values()):
            tried = ", ".join(fill(template, values, key) for template in templates)
            problems.append(f"{names_key}={name} is in no source of {key}; tried {tried}")
    return found, problems


def fill(template: str, values: dict[str, str], key: str) -> str:
    """A template with its placeholders replaced; a `ConfigError` that names `key` on one that is
    none of `values`."""

    def value(match: re.Match) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(
                f"{key}={template}: unknown placeholder {match[0]}; there are {known}"
            )
        return values[match[1]]

    return re.sub(r"\{(\w*)\}", value, template)


def split_pair(
    pair: str, languages: Sequence[str] = (), key: str = "data.pairs"
) -> tuple[str, str]:
    """The two languages of a pair: `en-de`. The first hyphen divides them, unless another one alone
    leaves two of `languages` (`zh-CN-en`). If there are not two different languages, it raises a
    `ConfigError` that names `key`."""
    parts = pair.split("-")
    splits = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    known = [split for split in splits if set(split) <= set(languages)]
    first, second = (known if len(known) == 1 else splits or [("", "")])[0]
    if not first or not second or first == second:
        raise ConfigError(f"{key}={pair}: a pair is two languages and a hyphen, such as en-de")
    return first, second


def paired_languages(data: Data) -> list[str]:
    """The languages of `data.pairs`, each once, in order; raises as `split_pair`."""
    found = (name for pair in data.pairs for name in split_pair(pair, data.languages))
    return list(dict.fromkeys(found))
