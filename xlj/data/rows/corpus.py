"""Properties of a row store that objectives need: the size of the vocabulary, and the languages."""

import dataclasses

from xlj.data.rows.store import RowStore


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Size of the vocabulary, and languages, of a row store.

    Attributes:
      vocabulary_size: number of ids, including special tokens and `<mask>`.
      languages: the languages, in the order of the tasks. Language ids of rows are indices into
        this tuple.
      tokens: number of tokens in the monolingual training rows of each language. If a language has
        several kinds or lengths of such rows, it is the largest of their numbers.
      paired: the languages that are part of a pair.
    """

    vocabulary_size: int
    languages: tuple[str, ...]
    tokens: tuple[int, ...]
    paired: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: RowStore) -> "Corpus":
        """Returns the corpus of a row store."""
        tokens = dict.fromkeys(store.manifest.languages, 0)
        for task in store.manifest.tasks:
            if len(set(task.languages)) == 1:
                language = task.languages[0]
                tokens[language] = max(tokens[language], task.train.tokens)
        pairs = [task.languages for task in store.manifest.tasks if len(set(task.languages)) > 1]
        paired = tuple(dict.fromkeys(name for languages in pairs for name in languages))
        return cls(store.manifest.vocabulary_size, tuple(tokens), tuple(tokens.values()), paired)

    def sides(self, languages: tuple[str, ...]) -> tuple[int, ...]:
        """Returns the language ids of the sides of a task, one for each column of its text.

        Text with one column has two equal ids, for examples with two sentences.

        Args:
          languages: the languages of the task.
        """
        ids = tuple(map(self.languages.index, languages))
        return ids * 2 if len(ids) == 1 else ids
