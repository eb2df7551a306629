"""Reads `data.languages=@FILE`: a table of languages with their paths and sampling factors."""

import math
from pathlib import Path
from typing import Any

from xlj.config.fields import ConfigError
from xlj.config.paths import local_path

_SET = ("paths", "sampled")
"""The keys of `data` that the file sets, besides `languages`."""


def expand(data: dict[str, Any]) -> dict[str, Any]:
    """Replaces `languages=@FILE` in the section `data` of a config by the content of the file.

    Each line of the file is a language: its code, then optionally its path, then optionally its
    sampling factor, with tabs between them. Blank lines and lines that begin with `# ` are ignored.
    Codes become `languages`, paths become `paths` and factors become `sampled`. Without `mono` and
    `examples`, paths are whole templates: `mono` becomes `{path}`.

    Raises:
      ConfigError: if the file cannot be read, a line is wrong, or the section also sets a key that
        the file sets.
    """
    named = data.get("languages", "")
    named = named if isinstance(named, str) else ",".join(named)
    if not named.startswith("@"):
        return data
    codes, paths, factors = _read(local_path("data.languages", named[1:]))
    expanded = data | {"languages": codes}
    for key, entries in zip(_SET, (paths, factors), strict=True):
        if data.get(key):
            raise ConfigError(
                f"data.languages={named} is a file, which also sets data.{key}; remove data.{key}, "
                "or name the languages without a file"
            )
        if entries:
            expanded[key] = [f"{code}={entry}" for code, entry in zip(codes, entries, strict=True)]
    if paths and not data.get("mono") and not data.get("examples"):
        expanded["mono"] = "{path}"
    return expanded


def _read(file: Path) -> tuple[list[str], list[str], list[str]]:
    """Returns the codes, the paths and the factors; no paths or factors if no line has any."""
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise ConfigError(f"data.languages=@{file}: cannot read this file ({reason})") from None
    rows: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("# "):
            continue
        code, path, factor = _columns(line, f"{file}:{number}")
        if code in rows:
            raise ConfigError(f"{file}:{number}: {code} is also in line {rows[code][0]}")
        rows[code] = (number, path, factor)
    if not rows:
        raise ConfigError(f"data.languages=@{file}: this file has no language")
    missing = [(number, code) for code, (number, path, _) in rows.items() if not path]
    if missing and len(missing) < len(rows):
        number, code = missing[0]
        raise ConfigError(
            f"{file}:{number}: {code} has no path, but other languages have one; add it"
        )
    paths = [] if missing else [path for _, path, _ in rows.values()]
    factors = [factor for *_, factor in rows.values()]
    return list(rows), paths, [each or "1" for each in factors] if any(factors) else []


def _columns(line: str, where: str) -> tuple[str, str, str]:
    """Returns code, path and factor of a line; empty texts for missing columns."""
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) > 3 or not cells[0]:
        raise ConfigError(
            f"{where}: expected a language, its path and its factor with tabs between them; path "
            "and factor may be missing"
        )
    code, path, factor = [*cells, "", ""][:3]
    if bad := next((x for x in (",", "=", "/", "\0", " ") if x in code), ""):
        raise ConfigError(f"{where}: the language {code!r} contains {bad!r}; remove it")
    if "," in path or "{" in path:
        raise ConfigError(f"{where}: the path {path!r} contains a comma or a brace; rename it")
    if factor:
        try:
            is_positive = 0 < float(factor) < math.inf
        except ValueError:
            is_positive = False
        if not is_positive:
            raise ConfigError(f"{where}: the factor {factor!r} must be a number above 0")
    return code, path, factor
