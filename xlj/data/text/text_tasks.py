"""The text of a config: all sources of each language and pair, and the units that they are read
in."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from xlj.config import ConfigError, Data
from xlj.data.text.sources import FileSource, Part, TextSource, open_sources
from xlj.data.text.templates import fill, match, split_pair
from xlj.io import storage

Unit = tuple[Part, ...]
"""What one process reads and makes rows of at a time: parts of sources that follow each other."""


@dataclasses.dataclass(frozen=True)
class TextTask:
    """All sources of one language or pair, read one after another.

    Attributes:
      name: kind and language or pair, such as `text.en`, `pairs.en-de`.
      kind: of its rows, one of `config.ROW_KINDS`.
      languages: of each column: one for monolingual text, two for pairs.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    sources: tuple[TextSource, ...]

    def units(self, size: int) -> list[Unit]:
        """The text in units of about `size` bytes, from half of it to one and a half; a source that
        cannot be cut is in one however large it is. Raises as `TextSource.parts`."""
        units: list[Unit] = []
        unit: Unit = ()
        for part in (part for source in self.sources for part in source.parts(size)):
            unit = (*unit, part)
            if sum(part.size for part in unit) > size // 2:
                units.append(unit)
                unit = ()
        return [*units, unit] if unit else units

    def of_kind(self, kind: str) -> "TextTask":
        """The same text as rows of another kind."""
        return dataclasses.replace(self, name=f"{kind}.{self.name.partition('.')[2]}", kind=kind)


def text_tasks(data: Data) -> list[TextTask]:
    """The text of a config: a task for each language, of kind `text`, then one for each pair, of
    kind `pairs`.

    Raises:
      ConfigError: if a template cannot be read as one, a language or pair is in none of them, a
        template matches none of the languages or pairs, or a file is matched twice. The message
        lists all of these at once.
    """
    problems: list[str] = []
    tasks = []
    for kind, key, templates, languages in _wanted(data):
        found, more = match(templates, key, _placeholders(languages), _NAMES[key], _find(data, key))
        problems += more + _twice(key, found)
        tasks += [
            TextTask(f"{kind}.{name}", kind, languages[name], tuple(sources))
            for name, sources in found.items()
        ]
    if problems:
        raise ConfigError("\n".join(problems))
    if not tasks:
        raise ConfigError("there is no data: set data.mono or data.parallel")
    return tasks


def unused(data: Data, tasks: Iterable[TextTask]) -> list[str]:
    """What a user may want to know of the files beside those of the tasks: which match a template,
    but none of the languages or pairs that are named."""
    used = {path for task in tasks for source in task.sources for path in _paths(source)}
    notes = []
    for _, key, templates, languages in _wanted(data):
        names = dict.fromkeys(next(iter(_placeholders(languages).values())), "*")
        for template in templates:
            if template.partition(":")[0] in _UNLISTED or "{" not in template:
                continue
            sides = fill(template, names, key).partition("#")[0].split("|")
            more = [path for side in sides for path in storage.matching(side) if path not in used]
            if more:
                some = ", ".join(path.name for path in more[:3]) + ", ..." * (len(more) > 3)
                notes.append(
                    f"{key}={template} matches {len(more):,} files of none of {_NAMES[key]}: {some}"
                )
    return notes


_UNLISTED = ("phrasebook", "tfds", "seqio", "https", "http")
"""What a template begins with that stands for no files, or for some that nobody lists."""
_NAMES = {"data.mono": "data.languages", "data.parallel": "data.pairs"}


def _wanted(data: Data) -> list[tuple[str, str, tuple[str, ...], dict[str, tuple[str, ...]]]]:
    """(kind, key of the templates, templates, languages of each name), of what is asked for."""
    mono: dict[str, tuple[str, ...]] = {name: (name,) for name in data.languages}
    pairs: dict[str, tuple[str, ...]] = {n: split_pair(n, data.languages) for n in data.pairs}
    every = [
        ("text", "data.mono", data.mono, mono),
        ("pairs", "data.parallel", data.parallel, pairs),
    ]
    return [wanted for wanted in every if wanted[2]]


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


def _twice(key: str, found: Mapping[str, list[TextSource]]) -> list[str]:
    """What is wrong where the same file stands for two names, or twice for one."""
    owners: dict[object, str] = {}
    problems = []
    for name, sources in found.items():
        for source in sources:
            if isinstance(source, FileSource):
                what = (source.paths, getattr(source, "fields", ()))
                if what in owners:
                    problems.append(
                        f"{key} matches {' and '.join(map(str, source.paths))} twice, for "
                        f"{owners[what]} and for {name}"
                    )
                owners[what] = name
    return problems


def _paths(source: TextSource) -> tuple:
    return source.paths if isinstance(source, FileSource) else ()
