"""Bilingual dictionaries: TSV files, and those of MUSE (Lample et al., 2018)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import ConfigError
from xlj.interop.words import folded
from xlj.io import files
from xlj.io.quoting import quoted

Dictionary = Mapping[str, tuple[str, ...]]
"""Of each word of a language in its `folded` form, its translations into the language that a model
knows, as they are written, in the order of the file."""


def load(
    templates: Sequence[str], pairs: Sequence[str] = (), known: str = "en"
) -> tuple[Dictionary, ...]:
    """The dictionaries of some pairs, in the order of the templates, then of the pairs.

    Args:
      templates: files, either with `{pair}`, which is filled in with each of `pairs`, or without;
        then a part of the file's name between dots is the pair (`train.en-de.tsv.gz`).
      pairs: a language on either side of `known`: `en-de` (English words first), `de-en`.
      known: the language that the model knows.

    Raises:
      ConfigError: if a pair is not one with `known`, a template fits no file, a pair is in none of
        the templates with `{pair}`, or a file cannot be read.
    """
    for pair in pairs:
        if _known_first(pair, known) is None:
            raise ConfigError(f"dictionary {pair}: it needs {known} on one side, as in {known}-de")
    found: list[Dictionary] = []
    missing = dict.fromkeys(pairs) if any("{pair}" in template for template in templates) else {}
    for template in templates:
        if "{pair}" not in template:
            found.append(read(Path(template).expanduser(), known=known))
            continue
        filled = {pair: Path(template.replace("{pair}", pair)).expanduser() for pair in pairs}
        there = [pair for pair in pairs if filled[pair].is_file()]
        if not there:
            tried = ", ".join(map(str, filled.values())) or "no pairs: name them"
            raise ConfigError(f"dictionary {template} names no file for any pair; tried {tried}")
        for pair in there:
            missing.pop(pair, None)
            found.append(read(filled[pair], pair, known))
    if missing:
        raise ConfigError(f"dictionary {', '.join(missing)}: in none of {', '.join(templates)}")
    return tuple(found)


def read(path: Path, pair: str = "", known: str = "en") -> Dictionary:
    """The dictionary of one file (plain or compressed) into the language `known`.

    A line is a word, a tab, and a translation, of one word or several; without a tab, two words and
    blanks between (MUSE has both). A word may have several lines; blank lines are skipped.

    Args:
      pair: which language comes first, `en-de` or `de-en`; if empty, the file's name tells.

    Raises:
      ConfigError: if nothing tells the pair, or a line is malformed; it names file and line.
    """
    orders = [_known_first(part, known) for part in ([pair] if pair else path.name.split("."))]
    orders = [order for order in orders if order is not None]
    if len(orders) != 1:
        raise ConfigError(
            f"dictionary {path}: a part of its name must be a pair such as {known}-de or de-{known}"
        )
    found: dict[str, dict[str, None]] = {}
    for number, line in enumerate(files.lines(path), 1):
        if not line.strip():
            continue
        sides = [side.strip() for side in line.split("\t" if "\t" in line else None)]
        if len(sides) != 2 or not all(sides):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} must be a word, a tab or a blank, and its "
                "translation; phrases need a tab"
            )
        translation, word = sides if orders[0] else reversed(sides)
        found.setdefault(folded(word), {})[translation] = None
    return {word: tuple(every) for word, every in found.items()}


def _known_first(pair: str, known: str) -> bool | None:
    """Whether `known` comes first in a pair with another language; None if it is not one."""
    first, last = pair.startswith(f"{known}-"), pair.endswith(f"-{known}")
    return first if (first or last) and len(pair) > len(known) + 1 else None
