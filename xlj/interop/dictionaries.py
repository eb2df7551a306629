"""Reads bilingual dictionaries: TSV files, and files of MUSE (Lample et al., 2018)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import ConfigError
from xlj.interop.words import folded
from xlj.io import files
from xlj.io.quoting import quoted

Dictionary = Mapping[str, tuple[str, ...]]
"""Translations of words into the language that the model knows.

Keys are words in their `folded` form. Values are the translations as in the file, in its order."""


def load(
    templates: Sequence[str], pairs: Sequence[str] = (), known: str = "en"
) -> tuple[Dictionary, ...]:
    """Reads the dictionaries of some pairs, in the order of the templates, then of the pairs.

    Args:
      templates: paths. `{pair}` in a path is replaced by each of `pairs`. Without it, a part of the
        file's name between dots must be the pair (`train.en-de.tsv.gz`).
      pairs: pairs of `known` and another language: `en-de` (English words first) or `de-en`.
      known: the language that the model knows.

    Raises:
      ConfigError: if a pair does not contain `known`, a template has no file, a pair has no file in
        any template with `{pair}`, or a file cannot be read.
    """
    for pair in pairs:
        if _known_first(pair, known) is None:
            raise ConfigError(
                f"dictionary {pair}: expected {known} on one side, such as {known}-de"
            )
    dictionaries: list[Dictionary] = []
    missing = dict.fromkeys(pairs) if any("{pair}" in template for template in templates) else {}
    for template in templates:
        if "{pair}" not in template:
            dictionaries.append(read(Path(template).expanduser(), known=known))
            continue
        filled = {pair: Path(template.replace("{pair}", pair)).expanduser() for pair in pairs}
        existing = [pair for pair in pairs if filled[pair].is_file()]
        if not existing:
            tried = ", ".join(map(str, filled.values())) or "nothing, because no pairs are given"
            raise ConfigError(f"dictionary {template}: no file for any pair; tried {tried}")
        for pair in existing:
            missing.pop(pair, None)
            dictionaries.append(read(filled[pair], pair, known))
    if missing:
        raise ConfigError(f"dictionary {', '.join(missing)}: no file in {', '.join(templates)}")
    return tuple(dictionaries)


def read(path: Path, pair: str = "", known: str = "en") -> Dictionary:
    """Reads a dictionary into the language `known` from one file (plain or compressed).

    Each line has a word, a tab and a translation of one or more words. Without a tab, it has two
    words separated by spaces (MUSE has both). A word may have several lines. Blank lines are
    skipped.

    Args:
      pair: the languages in the order of the columns, `en-de` or `de-en`; if empty, it is part of
        the file's name.

    Raises:
      ConfigError: if the pair is unknown, or a line is malformed (with file and line).
    """
    orders = [_known_first(part, known) for part in ([pair] if pair else path.name.split("."))]
    orders = [order for order in orders if order is not None]
    if len(orders) != 1:
        raise ConfigError(
            f"dictionary {path}: its name must contain a pair such as {known}-de or de-{known}, "
            "between dots"
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
        translation, word = sides if orders[0] else reversed(sides)
        translations.setdefault(folded(word), {})[translation] = None
    return {word: tuple(distinct) for word, distinct in translations.items()}


def _known_first(pair: str, known: str) -> bool | None:
    """Returns whether `known` comes first in a pair; None if the string is not a pair with it."""
    first, last = pair.startswith(f"{known}-"), pair.endswith(f"-{known}")
    return first if (first or last) and len(pair) > len(known) + 1 else None
