"""Table of the kinds of rows, which users can extend."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

from xlj.config.fields import ConfigError, suggestion
from xlj.config.user_code import function_of

KINDS = {
    "text": "xlj.data.rows.kinds.text:Text",
    "sentences": "xlj.data.rows.kinds.sentences:Sentences",
    "pairs": "xlj.data.rows.kinds.pairs:Pairs",
    "bitext": "xlj.data.rows.kinds.bitext:Bitext",
    "examples": "xlj.data.rows.kinds.examples:Examples",
    "taught_pairs": "xlj.data.rows.kinds.taught:TaughtPairs",
    "taught_text": "xlj.data.rows.kinds.taught:TaughtText",
}
"""Kinds of rows by name: `module:function`, where the function takes no arguments and returns a
`data.rows.row_kind.RowKind`. The options of an objective name a user's kind in the same form. The
function of one of xlj's kinds may take arguments, which `with_arguments` appends to the name."""

SOURCES = {"data.mono": 1, "data.parallel": 2, "data.examples": 0}
"""The config keys of text, and the number of columns of each; 0 for any number."""


def with_arguments(kind: str, arguments: Mapping[str, int | bool | str]) -> str:
    """Returns the name of a kind with arguments, such as `examples?negatives=4`.

    The name is a part of the hashes of rows. Arguments that are empty or 0 are left out.
    """
    named = {name: json.dumps(value) for name, value in arguments.items() if value}
    return f"{kind}?{urlencode(named)}" if named else kind


@cache
def load(kind: str) -> Any:
    """Returns the `RowKind` of a kind.

    Args:
      kind: a name in `KINDS`, with or without arguments (`with_arguments`), or `module:function`.

    Raises:
      ConfigError: if there is no such kind, or if a user's kind is incomplete or has the name of
        one of xlj's kinds.
    """
    name, _, values = kind.partition("?")
    implementation = KINDS.get(name, kind)
    arguments = parse_qsl(values) if name in KINDS else []
    if ":" not in implementation:
        raise ConfigError(
            f"rows of kind {kind!r} do not exist; the kinds are {', '.join(KINDS)}, or "
            f"module:function{suggestion(kind, KINDS)}"
        )
    function = function_of(implementation, "rows")
    try:
        row_kind = function(**{key: json.loads(value) for key, value in arguments})
    except Exception as error:  # raised by the user's module
        raise ConfigError(f"rows={kind}: {type(error).__name__}: {error}") from error
    missing = [
        each for each in ("name", "source", "columns", "length") if not getattr(row_kind, each, "")
    ]
    if missing:
        raise ConfigError(f"rows={kind}: the kind of rows must set {', '.join(missing)}")
    if not row_kind.name.isidentifier() or (name not in KINDS and row_kind.name in KINDS):
        raise ConfigError(
            f"rows={kind}: the name {row_kind.name!r} must be an identifier that is not one of "
            f"{', '.join(KINDS)}"
        )
    columns = SOURCES.get(row_kind.source)
    if columns is None or len(row_kind.columns) != (columns or len(row_kind.columns)):
        has = {key: "any" if count == 0 else count for key, count in SOURCES.items()}
        raise ConfigError(
            f"rows={kind}: {row_kind.source} with {len(row_kind.columns)} columns does not exist; "
            f"the sources and their numbers of columns are "
            f"{', '.join(f'{key} ({count})' for key, count in has.items())}"
        )
    return row_kind


def max_pairs(length: int) -> int:
    """Returns the maximum number of pairs in a row of bitext: one per 32 tokens, at least one."""
    return max(1, length // 32)
