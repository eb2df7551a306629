"""Templates of the config, such as `text/{language}.txt`, and names of pairs, such as `en-de`."""

import re
from collections.abc import Sequence

from xlj.config import ConfigError


def fill(template: str, values: dict[str, str], key: str) -> str:
    """A template with its placeholders replaced.

    Raises:
      ConfigError: on a placeholder that is none of `values`; it names `key`.
    """

    def value(match: re.Match) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(
                f"{key}={template}: unknown placeholder {match[0]}; there are {known}"
            )
        return values[match[1]]

    return re.sub(r"\{(\w*)\}", value, template)


def split_pair(
    pair: str, languages: Sequence[str] = (), key: str = "data.pairs"
) -> tuple[str, str]:
    """The two languages of a pair: `en-de`. The first hyphen divides them, unless another one alone
    leaves two of `languages` (`zh-CN-en`).

    Args:
      key: what named the pair, for the error.

    Raises:
      ConfigError: if there are not two different languages.
    """
    parts = pair.split("-")
    splits = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    known = [split for split in splits if set(split) <= set(languages)]
    first, second = (known if len(known) == 1 else splits or [("", "")])[0]
    if not first or not second or first == second:
        raise ConfigError(f"{key}={pair}: a pair is two languages and a hyphen, such as en-de")
    return first, second


def some(names: list[str]) -> str:
    """A few names of a list, for errors."""
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} ... {names[-1]}"
