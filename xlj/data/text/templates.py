"""Matches templates such as `text/{language}.txt` to sources, and splits pairs such as `en-de`."""

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from xlj.config import ConfigError, Data
from xlj.io import storage

Source = TypeVar("Source")

_MANY = 16  # names from which on one listing of all files takes fewer requests


def match(
    templates: Sequence[str],
    key: str,
    names: Mapping[str, dict[str, str]],
    names_key: str,
    find: Callable[[str, str], list[Source]],
    may_share: Callable[[str], bool] = lambda template: False,
    otherwise: Callable[[str, str], list[Source]] = lambda template, name: [],
    may_lack: bool = False,
) -> tuple[dict[str, list[Source]], list[str]]:
    """Finds the sources of each name (a language or a pair), and lists all problems.

    The problems are: a template that matches no source for any name, a template that gives several
    names the same source, and a name without a source although another name has one.

    Args:
      templates: the templates.
      key: the config key of the templates, for the descriptions of problems.
      names: the languages or pairs, each with the values of the placeholders.
      names_key: the config key of the names, or a plural noun for them, for the descriptions.
      find: `find(filled template, name)` returns the sources that exist.
      may_share: `may_share(template)` returns whether the template may give several names the same
        source.
      otherwise: `otherwise(template, name)` returns other sources of a template for a name for
        which `find` returns none.
      may_lack: whether a name may have no source.

    Returns:
      The sources of each name, in the order of the templates, and the descriptions of problems.

    Raises:
      ConfigError: if a template has an unknown placeholder, or if `find` raises one.
    """
    by_name: dict[str, list[Source]] = {name: [] for name in names}
    problems = []
    for template in templates:
        filled = {name: fill(template, values, key) for name, values in names.items()}
        if len(names) >= _MANY:
            storage.list_ahead(os.path.commonprefix([*filled.values()]))
        sources = {
            name: find(text, name) or otherwise(template, name) for name, text in filled.items()
        }
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
            shown = texts if len(texts) < 4 else [texts[0], f"{texts[1]} ... {texts[-1]}"]
            problems.append(
                f"{key}={template} matches none of the {len(names)} {names_key}; "
                f"tried {', '.join(shown)}{_what_is_there(texts)}"
            )
    for name, values in names.items():
        if not by_name[name] and any(by_name.values()) and not may_lack:
            tried = [fill(template, values, key) for template in templates]
            problems.append(
                f"{names_key}={name} has no source in {key}; tried {', '.join(tried)}"
                f"{_what_is_there(tried)}"
            )
    return by_name, problems


def _what_is_there(tried: Sequence[str]) -> str:
    """Returns the hint about the first missing files, if there is one."""
    return next(filter(None, map(storage.what_is_there, tried[:8])), "")


def fill(template: str, values: dict[str, str], key: str) -> str:
    """Replaces the placeholders of a template.

    Args:
      template: a text with placeholders such as `{language}`.
      values: the value of each placeholder.
      key: the config key of the template, for the error.

    Raises:
      ConfigError: if the template has a placeholder that is not in `values`.
    """

    def replace(match: re.Match) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(f"{key}={template}: unknown placeholder {match[0]}; use {known}")
        return values[match[1]]

    return re.sub(r"\{(\w*)\}", replace, template)


def find_languages(template: str) -> list[tuple[str, Path]]:
    """Returns the languages and files of a template of a local file, such as `text/{language}.gz`,
    sorted by language.

    A language is a text without slashes and dots. If the template repeats the placeholder, all
    places have the same language.
    """
    parts = [*map(re.escape, template.split("{language}"))]
    pattern = re.compile(parts[0] + r"([^/.]+)" + r"\1".join(parts[1:]))
    names = glob.glob("*".join(map(glob.escape, template.split("{language}"))))
    matches = filter(None, map(pattern.fullmatch, names))
    return sorted((match[1], Path(match[0])) for match in matches if Path(match[0]).is_file())


def split_pair(
    pair: str, languages: Sequence[str] = (), key: str = "data.pairs"
) -> tuple[str, str]:
    """Splits a pair such as `en-de` into its two languages.

    If exactly one hyphen of the pair separates two of `languages`, as in `zh-CN-en`, the pair is
    split at this hyphen. Otherwise the pair is split at the first hyphen.

    Args:
      pair: the pair.
      languages: known languages.
      key: the config key of the pair, for the error.

    Raises:
      ConfigError: if the result is not two different languages.
    """
    codes = pair.split("-")
    splits = [("-".join(codes[:i]), "-".join(codes[i:])) for i in range(1, len(codes))]
    known = [split for split in splits if set(split) <= set(languages)]
    first, second = (known if len(known) == 1 else splits or [("", "")])[0]
    if not first or not second or first == second:
        raise ConfigError(
            f"{key}={pair}: a pair must be two languages with a hyphen between them, such as en-de"
        )
    return first, second


def paired_languages(data: Data) -> list[str]:
    """Returns the distinct languages of `data.pairs`, in order.

    Raises:
      ConfigError: if a pair is not two different languages with a hyphen between them.
    """
    names = (name for pair in data.pairs for name in split_pair(pair, data.languages))
    return list(dict.fromkeys(names))
