"""Reads bilingual dictionaries: TSV files, and MUSE's files (Lample et al., 2018)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import ConfigError
from xlj.interop.piece_text import folded
from xlj.io import files
from xlj.io.quoting import quoted

Dictionary = Mapping[str, tuple[str, ...]]
"""Maps words to their translations into a language of the old model.

The old model is the model whose embeddings initialise the embeddings of a new vocabulary
(`vocabulary_matching`). Keys are words in the form that `words.folded` returns. Values are the
translations as the file writes them, in the file's order."""


def load(
    templates: Sequence[str], pairs: Sequence[str] = (), known: str = "en"
) -> tuple[Dictionary, ...]:
    """Reads the dictionaries of language pairs, ordered by template and then by pair.

    Args:
      templates: paths. `{pair}` in a path is replaced by each of `pairs`. In a path without
        `{pair}`, the file name must contain the pair between dots (`train.en-de.tsv.gz`).
      pairs: pairs of `known` and another language: `en-de` (English words first) or `de-en`.
      known: the language of the old model into which the dictionaries translate.

    Raises:
      ConfigError: if a pair does not contain `known`; if a file cannot be read; if no file of a
        template with `{pair}` exists; or if the files of a pair are missing in all such templates.
    """
    for pair in pairs:
        if _is_known_first(pair, known) is None:
            raise ConfigError(f"dictionary {pair}: one language must be {known}, as in {known}-de")
    dictionaries: list[Dictionary] = []
    missing = dict.fromkeys(pairs) if any("{pair}" in template for template in templates) else {}
    for template in templates:
        if "{pair}" not in template:
            dictionaries.append(read(Path(template).expanduser(), known=known))
            continue
        filled = {pair: Path(template.replace("{pair}", pair)).expanduser() for pair in pairs}
        existing = [pair for pair in pairs if filled[pair].is_file()]
        if not existing:
            tried = ", ".join(map(str, filled.values())) or "no path, because there are no pairs"
            raise ConfigError(f"dictionary {template}: no file for any pair; tried {tried}")
        for pair in existing:
            missing.pop(pair, None)
            dictionaries.append(read(filled[pair], pair, known))
    if missing:
        raise ConfigError(
            f"dictionary {', '.join(missing)}: no file for these pairs in "
            f"{', '.join(templates)}; add the files or remove the pairs"
        )
    return tuple(dictionaries)


def read(path: Path, pair: str = "", known: str = "en") -> Dictionary:
    """Reads one dictionary file, plain or compressed, with translations into the language `known`.

    A line has two columns, separated by a tab; a translation may have several words. In a line
    without a tab, spaces separate two single words. MUSE has lines of both formats. A word may have
    several lines. Blank lines are skipped.

    Args:
      pair: the languages in the order of the columns, such as `en-de` or `de-en`. If empty, the
        file name must contain the pair between dots.
      known: the language of the old model. It may be the language of either column.

    Raises:
      ConfigError: if the pair does not contain `known`, the file cannot be read, or a line is
        malformed. For a malformed line, the message names the file and the line.
    """
    known_first = [
        _is_known_first(part, known) for part in ([pair] if pair else path.name.split("."))
    ]
    known_first = [order for order in known_first if order is not None]
    if len(known_first) != 1 and pair:
        raise ConfigError(f"dictionary {path}: the pair {pair} does not contain {known}")
    if len(known_first) != 1:
        raise ConfigError(
            f"dictionary {path}: the file name must contain one pair such as {known}-de or "
            f"de-{known} between dots; rename the file"
        )
    translations: dict[str, dict[str, None]] = {}
    for number, line in enumerate(files.lines(path), 1):
        if not line.strip():
            continue
        sides = [side.strip() for side in line.split("\t" if "\t" in line else None)]
        if len(sides) != 2 or not all(sides):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)}; expected a word and its translation, separated "
                "by a tab or, for single words, by spaces"
            )
        translation, word = sides if known_first[0] else reversed(sides)
        translations.setdefault(folded(word), {})[translation] = None
    return {word: tuple(distinct) for word, distinct in translations.items()}


def _is_known_first(pair: str, known: str) -> bool | None:
    """Returns whether `known` is the first language of a pair; None if it is not in the pair."""
    first, last = pair.startswith(f"{known}-"), pair.endswith(f"-{known}")
    return first if (first or last) and len(pair) > len(known) + 1 else None
