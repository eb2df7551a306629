"""Finds the sources of each language and pair of a config, and divides them into units."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from xlj.config import ConfigError, Data
from xlj.data.text.sources import FileSource, Part, TextSource, open_sources
from xlj.data.text.templates import fill, match, split_pair
from xlj.io import storage

Unit = tuple[Part, ...]
"""Consecutive parts of sources that one process reads and packs into rows."""


@dataclasses.dataclass(frozen=True)
class TextTask:
    """All sources of one language or pair, in reading order.

    Attributes:
      name: kind and language or pair, such as `text.en`, `pairs.en-de`.
      kind: kind of its rows, one of `config.ROW_KINDS`.
      languages: the language of each column: one for monolingual text, two for pairs.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    sources: tuple[TextSource, ...]

    def units(self, size: int) -> list[Unit]:
        """Divides the text into units of about `size` bytes, from half to one and a half of it.

        A source that cannot be split is one unit, however large. Raises as `TextSource.parts`.
        """
        units: list[Unit] = []
        unit: Unit = ()
        for part in (part for source in self.sources for part in source.parts(size)):
            unit = (*unit, part)
            if sum(part.size for part in unit) > size // 2:
                units.append(unit)
                unit = ()
        return [*units, unit] if unit else units

    def of_kind(self, kind: str) -> "TextTask":
        """Returns the same text as rows of another kind."""
        return dataclasses.replace(self, name=f"{kind}.{self.name.partition('.')[2]}", kind=kind)


def text_tasks(data: Data) -> list[TextTask]:
    """Returns a task for each language, of kind `text`, then one for each pair, of kind `pairs`.

    Raises:
      ConfigError: if a template is invalid, a language or pair matches no template, a template
        matches no language or pair, or a file is matched twice. The message lists all problems.
    """
    problems: list[str] = []
    tasks = []
    for kind, key, templates, languages in _requested(data):
        sources_of, more = match(
            templates, key, _placeholders(languages), _NAMES[key], _find(data, key)
        )
        problems += more + _find_shared_files(key, sources_of)
        tasks += [
            TextTask(f"{kind}.{name}", kind, languages[name], tuple(sources))
            for name, sources in sources_of.items()
        ]
    if problems:
        raise ConfigError("\n".join(problems))
    if not tasks:
        raise ConfigError("no data: set data.mono or data.parallel")
    return tasks


def unused(data: Data, tasks: Iterable[TextTask]) -> list[str]:
    """Describes unused files: those that match a template, but no requested language or pair."""
    used = {path for task in tasks for source in task.sources for path in _paths(source)}
    notes = []
    for _, key, templates, languages in _requested(data):
        names = dict.fromkeys(next(iter(_placeholders(languages).values())), "*")
        for template in templates:
            if template.partition(":")[0] in _UNLISTED or "{" not in template:
                continue
            sides = fill(template, names, key).partition("#")[0].split("|")
            more = [path for side in sides for path in storage.find_files(side) if path not in used]
            if more:
                some = ", ".join(path.name for path in more[:3]) + ", ..." * (len(more) > 3)
                notes.append(
                    f"{key}={template} matches {len(more):,} files of no language or pair in "
                    f"{_NAMES[key]}: {some}"
                )
    return notes


_UNLISTED = ("phrasebook", "tfds", "seqio", "https", "http")
"""Beginnings of templates whose files cannot be listed."""
_NAMES = {"data.mono": "data.languages", "data.parallel": "data.pairs"}


def _requested(data: Data) -> list[tuple[str, str, tuple[str, ...], dict[str, tuple[str, ...]]]]:
    """Returns (kind, key of the templates, templates, languages of each name)."""
    mono: dict[str, tuple[str, ...]] = {name: (name,) for name in data.languages}
    pairs: dict[str, tuple[str, ...]] = {n: split_pair(n, data.languages) for n in data.pairs}
    every = [
        ("text", "data.mono", data.mono, mono),
        ("pairs", "data.parallel", data.parallel, pairs),
    ]
    return [request for request in every if request[2]]


def _placeholders(languages: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    return {
        name: {"language": name}
        if len(sides) == 1
        else {"pair": name, "source": sides[0], "target": sides[1]}
        for name, sides in languages.items()
    }


def _find(data: Data, key: str) -> Callable[[str, str], list[TextSource]]:
    columns = 1 if key == "data.mono" else 2
    return lambda text, _: open_sources(text, columns, data, key)


def _find_shared_files(key: str, sources_of: Mapping[str, list[TextSource]]) -> list[str]:
    """Describes each file that matches two names, or one name twice."""
    owners: dict[object, str] = {}
    problems = []
    for name, sources in sources_of.items():
        for source in sources:
            if isinstance(source, FileSource):
                content = (source.paths, getattr(source, "fields", ()))
                if content in owners:
                    problems.append(
                        f"{key} matches {' and '.join(map(str, source.paths))} twice, for "
                        f"{owners[content]} and for {name}"
                    )
                owners[content] = name
    return problems


def _paths(source: TextSource) -> tuple:
    return source.paths if isinstance(source, FileSource) else ()
