"""Facts about the rows that objectives read."""

import dataclasses

from xlj.data.rows.store import RowStore


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Vocabulary and languages of a row store.

    Attributes:
      vocabulary_size: ids, specials and `<mask>` included.
      languages: in the order of the tasks; a row's language ids are indices into it.
      tokens: of each language, in its monolingual rows.
      paired: those languages that stand in a pair.
    """

    vocabulary_size: int
    languages: tuple[str, ...]
    tokens: tuple[int, ...]
    paired: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: RowStore) -> "Corpus":
        """The corpus in a row store."""
        tokens = dict.fromkeys(store.manifest.languages, 0)
        for task in store.manifest.tasks:
            if len(task.languages) == 1:
                language = task.languages[0]
                tokens[language] = max(tokens[language], task.train.tokens)
        pairs = [task.languages for task in store.manifest.tasks if len(task.languages) == 2]
        paired = tuple(dict.fromkeys(name for languages in pairs for name in languages))
        return cls(store.manifest.vocabulary_size, tuple(tokens), tuple(tokens.values()), paired)

    def sides(self, languages: tuple[str, ...]) -> tuple[int, int]:
        """Indices of the languages of a task's two sides; text has one twice."""
        return self.languages.index(languages[0]), self.languages.index(languages[-1])
