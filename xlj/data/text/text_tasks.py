"""The text of a config: all sources of each language and pair, read one after another."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

from xlj.config import ConfigError, Data
from xlj.data.text.cleaning import clean
from xlj.data.text.sources import TextSource, open_source
from xlj.data.text.templates import match, split_pair

Block = tuple[list[str], ...]


@dataclasses.dataclass(frozen=True)
class TextTask:
    """All sources of one language or pair, read one after another.

    Attributes:
      name: kind and language or pair, such as `text.en`, `pairs.en-de`; the folder of its rows.
      kind: of its rows, one of `config.ROW_KINDS`.
      languages: of each column: one for monolingual text, two for pairs.
      invalid_utf8: `error` or `skip`, as in `Data`.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    sources: tuple[TextSource, ...]
    invalid_utf8: str

    def blocks(self, skipped: Counter[str] | None = None) -> Iterator[Block]:
        """Clean text in columns: an empty line ends a document; a `ConfigError` if it cannot be
        read. `skipped` counts the lines that were left out because they are not UTF-8."""
        for source in self.sources:
            count = 0
            for raw in source.raw_blocks():
                if any(None in column for column in raw):
                    if self.invalid_utf8 == "error":
                        raise ConfigError(
                            f"{source.text}: not UTF-8 in lines {count + 1} to "
                            f"{count + len(raw[0])}; mend it, or set data.invalid_utf8=skip"
                        )
                    rows = [row for row in zip(*raw, strict=True) if None not in row]
                    if skipped is not None:
                        skipped["invalid UTF-8"] += len(raw[0]) - len(rows)
                    raw = tuple(zip(*rows, strict=True))
                if raw and raw[0]:
                    count += len(raw[0])
                    yield tuple(
                        [clean(line) for line in column if line is not None] for column in raw
                    )
            if len(self.languages) == 1:
                yield ([""],)

    def of_kind(self, kind: str) -> "TextTask":
        """The same text as rows of another kind."""
        return dataclasses.replace(self, name=f"{kind}.{self.name.partition('.')[2]}", kind=kind)

    @property
    def text_name(self) -> str:
        """The name of the task whose rows are the plainest kind of this text."""
        return self.of_kind("text" if len(self.languages) == 1 else "pairs").name


def text_tasks(data: Data) -> list[TextTask]:
    """The text of a config: a task for each language, of kind `text`, then one for each pair, of
    kind `pairs`.

    Raises:
      ConfigError: if a template cannot be read as one, a language or pair is in none of them, or a
        template matches none of the languages or pairs. The message lists all of these at once.
    """
    problems: list[str] = []
    tasks = []
    if data.mono:
        values = {name: {"language": name} for name in data.languages}
        found, problems = match(
            data.mono, "data.mono", values, "data.languages",
            lambda text, _: open_source(text, 1, data, "data.mono"),
        )  # fmt: skip
        tasks += [
            TextTask(f"text.{name}", "text", (name,), tuple(sources), data.invalid_utf8)
            for name, sources in found.items()
        ]
    if data.parallel:
        sides = {name: split_pair(name, data.languages) for name in data.pairs}
        values = {
            name: {"pair": name, "source": first, "target": second}
            for name, (first, second) in sides.items()
        }
        found, more = match(
            data.parallel, "data.parallel", values, "data.pairs",
            lambda text, _: open_source(text, 2, data, "data.parallel"),
        )  # fmt: skip
        problems += more
        tasks += [
            TextTask(f"pairs.{name}", "pairs", sides[name], tuple(sources), data.invalid_utf8)
            for name, sources in found.items()
        ]
    if problems:
        raise ConfigError("\n".join(problems))
    if not tasks:
        raise ConfigError("there is no data: set data.mono or data.parallel")
    return tasks
