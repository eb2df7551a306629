"""Finds the text sources of each language and pair, and divides them into units of work."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from xlj.config import ConfigError, Data
from xlj.data.text.example_sources import open_examples
from xlj.data.text.sources import (
    FileSource,
    Part,
    TextSource,
    open_exchanged,
    open_sources,
)
from xlj.data.text.templates import fill, match, split_pair
from xlj.io import storage

Unit = tuple[Part, ...]
"""A unit of work: consecutive parts of sources that one process reads and packs into rows."""


@dataclasses.dataclass(frozen=True)
class TextTask:
    """All sources of one language or pair.

    Attributes:
      name: kind of text or of rows, and language or pair, such as `text.en` or `pairs.en-de`.
      source: the config key of the templates of the sources, such as `data.mono`.
      languages: the language of each column that decides what is held out.
      sources: the sources, in the order in which they are read.
    """

    name: str
    source: str
    languages: tuple[str, ...]
    sources: tuple[TextSource, ...]

    def units(self, size: int) -> list[Unit]:
        """Divides the text into units of about `size` bytes, as stored (compressed or not).

        A unit has between 0.5 and 2 times `size` bytes. The last unit may be smaller. A unit may be
        larger if a source cannot be split, or if its Parquet file has large row groups.

        Raises:
          ConfigError: if a source cannot be read, or does not have a field that its template names.
        """
        for source in self.sources if self.source != "data.examples" else ():
            source.check(self.source)
        units: list[Unit] = []
        unit: Unit = ()
        for part in (part for source in self.sources for part in source.parts(size)):
            unit = (*unit, part)
            if sum(part.size for part in unit) > size // 2:
                units.append(unit)
                unit = ()
        return [*units, unit] if unit else units

    def of_kind(self, row_kind: Any) -> "TextTask":
        """Returns a task with the same sources, named for a `RowKind` that packs its text."""
        name = f"{row_kind.name}.{self.name.partition('.')[2]}"
        return dataclasses.replace(self, name=name)


def text_tasks(data: Data, row_kinds: Iterable[Any] = ()) -> list[TextTask]:
    """Returns a task for each language of `data.mono`, then for each pair of `data.parallel`, then
    for each language of `data.examples`.

    Args:
      row_kinds: the kinds of rows (`RowKind`) that name the columns of `data.examples`.

    Raises:
      ConfigError: if the config has no template, or if a template is invalid. Also if a language or
        pair has no source, a template matches no source for any language or pair, or a file is
        matched twice; the message then lists all problems of these three kinds.
    """
    problems: list[str] = []
    tasks = []
    for request in _requested(data, row_kinds):
        key, languages = request.key, request.languages
        find = _source_finder(data, request)
        sources_of, template_problems = match(
            request.templates,
            key,
            _placeholders(languages, key, data.path_of),
            _NAME_KEYS[key],
            find,
            otherwise=_exchanged_finder(languages, key, find),
            may_lack=bool(request.source_name),
        )
        problems += template_problems + _describe_shared_files(key, sources_of)
        ending = f".{request.source_name}" if request.source_name else ""
        tasks += [
            TextTask(f"{request.kind}.{name}{ending}", key, languages[name], tuple(sources))
            for name, sources in sources_of.items()
            if sources or not ending
        ]
    if problems:
        raise ConfigError("\n".join(problems))
    if not tasks:
        raise ConfigError("no data: set data.mono or data.parallel")
    return tasks


def describe_unused_files(data: Data, tasks: Iterable[TextTask]) -> list[str]:
    """Describes files that match a template only for languages or pairs not in the config, and the
    files of pairs in the other order."""
    tasks = list(tasks)
    used = {path for task in tasks for source in task.sources for path in _paths(source)}
    descriptions = []
    for _, key, templates, _, languages, *_ in _requested(data):
        values = _placeholders(languages, key, data.path_of)
        filled = {fill(template, each, key) for template in templates for each in values.values()}
        descriptions += [
            f"{key}: {task.name.partition('.')[2]} has text in the other order, which xlj reads "
            f"with exchanged sides: {source.text}"
            for task in tasks
            for source in task.sources
            if task.source == key == "data.parallel" and source.text not in filled
        ]
        names = dict.fromkeys(next(iter(values.values())), "*")
        for template in templates:
            is_listable = template.partition(":")[0] not in _NOT_LISTABLE
            if not is_listable or "{path}" in template or not _WILD.search(template):
                continue
            sides = fill(template, names, key).partition("#")[0].split("|")
            found = dict.fromkeys(path for side in sides for path in storage.find_files(side))
            unused = [path for path in found if path not in used]
            if unused:
                examples = ", ".join(path.name for path in unused[:3]) + ", ..." * (len(unused) > 3)
                descriptions.append(
                    f"{key}={template} also matches {len(unused):,} files of languages or pairs "
                    f"that are not in {_NAME_KEYS[key]}; these files are not read: {examples}"
                )
    return descriptions


_NOT_LISTABLE = ("phrasebook", "tfds", "seqio", "https", "http", "hf")
"""Schemes of templates whose files cannot be listed, or of which a repository may have millions."""
_WILD = re.compile(r"\{(?![^\[\]]*\])")
"""A placeholder in the name of a file, not in the value of a field, `[FIELD={language}]`."""
_NAME_KEYS = {
    "data.mono": "data.languages",
    "data.parallel": "data.pairs",
    "data.examples": "data.languages",
}
"""For each config key of templates, the config key of the languages or pairs that fill them."""


class _Requested(NamedTuple):
    """What to read for a config key of templates."""

    kind: str
    key: str
    templates: tuple[str, ...]
    columns: tuple[str, ...]
    languages: dict[str, tuple[str, ...]]
    """The language of each column that decides what is held out, by the name of the language or
    pair."""
    optional: int = 0
    deciding: int = 0
    """How many of the last columns may be empty, and how many of the first columns decide what is
    held out (`RowKind`)."""
    source_name: str = ""
    """The name of a source of examples, whose languages are drawn separately; empty for none."""


def _requested(data: Data, row_kinds: Iterable[Any] = ()) -> list[_Requested]:
    """Returns what to read for each key of templates that the config sets.

    Raises:
      ConfigError: if kinds of rows name other columns for the same source.
    """
    row_kinds = [kind for kind in row_kinds if kind.source == "data.examples"]
    of_kinds = {kind.columns: kind.name for kind in row_kinds}
    if len(of_kinds) > 1:
        raise ConfigError(
            f"kinds of rows name different columns of data.examples: "
            f"{' and '.join(f'{name} {columns}' for columns, name in of_kinds.items())}"
        )
    columns = next(iter(of_kinds), ("text",))
    optional, deciding = (row_kinds[0].optional, row_kinds[0].deciding) if row_kinds else (0, 0)
    mono: dict[str, tuple[str, ...]] = {name: (name,) for name in data.languages}
    pairs: dict[str, tuple[str, ...]] = {n: split_pair(n, data.languages) for n in data.pairs}
    examples = {name: (name,) * (deciding or len(columns)) for name in data.languages}
    named: dict[str, list[str]] = defaultdict(list)
    for template in data.examples:
        name, sign, text = template.partition("@")
        is_named = bool(sign) and name.isidentifier()
        named[name if is_named else ""].append(text if is_named else template)
    requests = [
        _Requested("text", "data.mono", data.mono, ("text",), mono),
        _Requested("pairs", "data.parallel", data.parallel, ("source", "target"), pairs),
        *(
            _Requested(
                "examples", "data.examples", (*texts,), columns, examples, optional, deciding, name
            )
            for name, texts in named.items()
        ),
    ]
    return [request for request in requests if request.templates]


def _placeholders(
    languages: Mapping[str, tuple[str, ...]], key: str, path_of: Mapping[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """Returns, for each language or pair, the value of each placeholder of a template of a key.

    Args:
      path_of: the path of each language (`data.paths`); None or empty for no paths.
    """
    if _NAME_KEYS[key] == "data.pairs":
        return {
            name: {"pair": name, "source": sides[0], "target": sides[1]}
            for name, sides in languages.items()
        }
    return {
        name: {"language": name} | ({"path": path_of[name]} if path_of else {})
        for name in languages
    }


def _source_finder(data: Data, request: _Requested) -> Callable[[str, str], list[TextSource]]:
    key, columns = request.key, request.columns
    if request.deciding:
        return lambda text, _: open_examples(text, columns, request.optional, request.deciding, key)
    return lambda text, _: open_sources(text, columns, data, key)


def _exchanged_finder(
    languages: Mapping[str, tuple[str, ...]], key: str, find: Callable[[str, str], list[TextSource]]
) -> Callable[[str, str], list[TextSource]]:
    """Returns a function that finds the sources of a template and a pair in the other order.

    OPUS sorts the codes of a pair: the files of `de-en` are the text of `en-de`, with exchanged
    sides.
    """

    def find_exchanged(template: str, name: str) -> list[TextSource]:
        exchanged = "-".join(languages[name][::-1])
        if _NAME_KEYS[key] != "data.pairs" or exchanged in languages:
            return []
        values = _placeholders({exchanged: languages[name][::-1]}, key)[exchanged]
        return open_exchanged(fill(template, values, key), lambda text: find(text, name))

    return find_exchanged


def _describe_shared_files(key: str, sources_of: Mapping[str, list[TextSource]]) -> list[str]:
    """Describes each file that is matched twice: for two languages or pairs, or twice for one."""
    owners: dict[object, str] = {}
    problems = []
    for name, sources in sources_of.items():
        for source in sources:
            if isinstance(source, FileSource):
                content = (source.paths, getattr(source, "fields", ()), _only(source))
                if content in owners:
                    problems.append(
                        f"{key} matches {' and '.join(map(str, source.paths))} twice, for "
                        f"{owners[content]} and for {name}; change a template so that it does not "
                        "match this file"
                    )
                owners[content] = name
    return problems


def _only(source: TextSource) -> tuple[str, ...]:
    """Returns the field and the value of the records that are read from a file of examples."""
    reader = getattr(source, "reader", None)
    return reader.only if reader else ()


def _paths(source: TextSource) -> tuple:
    return source.paths if isinstance(source, FileSource) else ()
