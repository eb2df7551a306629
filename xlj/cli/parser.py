"""Parser of a command's flags, and its --help."""

import argparse
import math
import re
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from xlj.cli.configs import Schema, help_of
from xlj.config.fields import ConfigError, nearest, other_name, suggestion
from xlj.io.quoting import quoted

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_FLAGS_ELSEWHERE = {
    "output_dir": "--workdir",
    "out": "--output",
    "model": "--checkpoint",
    "model_name_or_path": "--checkpoint",
    "model-path": "--checkpoint",
}
"""Flags of other programs, and the flags of xlj for the same purpose."""

_OVERRIDE = re.compile(r"--?config\.")


class Parser(argparse.ArgumentParser):
    """Parses the flags of a command; errors are `ConfigError`s.

    Args:
      command: the name of the command: `align` for `python -m xlj.align`.
      doc: the docstring of the command, which `--help` prints first.
      schema: the schema of the command's config; adds the flags --config and --check. None for a
        command without a config.
      prog: set by argparse for the parsers of sub-commands.
    """

    def __init__(
        self, command: str = "", doc: str | None = "", schema: Schema | None = None, prog: str = ""
    ):
        super().__init__(
            prog=prog or f"python -m xlj.{command}",
            usage=argparse.SUPPRESS,
            description=textwrap.dedent(doc or "").strip(),
            epilog=help_of(schema) if schema else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.command, self.schema = command, schema
        if schema:
            self.add_argument(
                "--config",
                metavar="FILE",
                help="name of a recipe, or config file; :VARIANT selects a variant, for example "
                "xlm_r_base:tiny",
            )
            help = "check the config, print it as JSON, and exit"
            self.add_argument("--check", action="store_true", help=help)

    def add_file(self, name: str, help: str, **more: Any) -> None:
        """Adds a flag that names a file, with further arguments of `add_argument`."""
        self.add_argument(name, metavar="FILE", type=Path, help=help, **more)

    def add_checkpoint(self) -> None:
        """Adds --checkpoint."""
        self.add_argument(
            "--checkpoint",
            metavar="DIR",
            required=True,
            help="model: a workdir (its latest checkpoint, or for a finished fine-tuning run such "
            "as seed-0/ the scored checkpoint), a checkpoint folder, a Hugging Face folder, or "
            "hf://OWNER/NAME for a model of the hub",
        )

    def add_layer(self, use: str, default: str = "") -> None:
        """Adds --layer.

        Args:
          use: the verb for what the command does with the layer's vectors.
          default: a default that has precedence over the layer at two thirds of the depth.
        """
        self.add_argument(
            "--layer",
            metavar="N",
            type=int,
            help=f"layer whose hidden vectors to {use}; layer 0 is the embeddings [{default}the "
            "layer nearest to two thirds of the depth, for example 8 of 12]",
        )

    def add_columns(self, help: str) -> None:
        """Adds --columns, a list of columns."""
        self.add_argument("--columns", metavar="A,B", type=_parse_names, default=(), help=help)

    def add_malformed(self, placeholder: str) -> None:
        """Adds --malformed; `placeholder` is the output for a malformed line."""
        self.add_argument(
            "--malformed",
            choices=("error", "skip"),
            default="error",
            help="what to do with malformed lines (invalid UTF-8, NUL, too long, too few columns). "
            f"error: stop. skip: count these lines, and for each line write {placeholder} [error]",
        )

    def read(self, arguments: Sequence[str] | None = None) -> Namespace:
        """Parses flags.

        Args:
          arguments: None for the arguments of the process.

        Returns:
          The flags. If the command has a flag --config, the attribute `overrides` has the arguments
          `--config.KEY=VALUE`. The attribute `is_process` is true if `arguments` is None.

        Raises:
          ConfigError: if a flag is unknown or has no value.
        """
        is_process = arguments is None
        arguments = sys.argv[1:] if arguments is None else arguments
        has_config = "--config" in self._option_string_actions
        overrides = [x for x in arguments if has_config and _OVERRIDE.match(x)]
        flags, rest = self.parse_known_args([x for x in arguments if x not in overrides])
        if rest and rest[0].startswith("-"):
            raise ConfigError(f"unknown flags: {' '.join(rest)}{self._suggestion(rest)}")
        if rest:
            raise ConfigError(f"cannot read {quoted(rest[0])}; flags look like --NAME=VALUE")
        for argument in overrides:
            if "=" not in argument:
                raise ConfigError(
                    f"cannot read {quoted(argument)}; set keys with an equals sign, "
                    "--config.KEY=VALUE"
                )
        flags.arguments, flags.overrides = list(arguments), overrides
        flags.is_process = is_process
        return flags

    def _suggestion(self, rest: Sequence[str]) -> str:
        """Returns the end of an error about unknown flags: a flag or config key that is close to
        the first of them."""
        flag, _, value = rest[0].partition("=")
        name = flag.lstrip("-")
        if name in _FLAGS_ELSEWHERE and _FLAGS_ELSEWHERE[name] in self._option_string_actions:
            return f"; did you mean {_FLAGS_ELSEWHERE[name]}?"
        keys = [path for path, _ in self.schema.keys()] if self.schema else []
        is_key = other_name(name, keys) or any(name in (key, key.split(".")[-1]) for key in keys)
        hint = "" if is_key else suggestion(flag, self._option_string_actions)
        if hint or not keys:
            return hint
        value = value or next((text for text in rest[1:2] if not text.startswith("-")), "VALUE")
        hint = nearest(name, keys)
        return hint.replace("did you mean ", "did you mean --config.").replace("?", f"={value}?")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Prints all flags. Unlike argparse, raises an error if the output is closed."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raises a `ConfigError` with the message that argparse would print."""
        raise ConfigError(message)


def _parse_names(text: str) -> tuple[str, ...]:
    """Converts the value of a flag that takes names separated by commas."""
    return tuple(name.strip() for name in text.split(","))


def at_least(lowest: int) -> Callable[[str], int]:
    """Returns the type of a flag that takes an int of at least `lowest`."""

    def number(text: str) -> int:
        if int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text} is below {lowest}")
        return int(text)

    number.__name__ = "int"  # argparse prints the name if the text is not a number
    return number


def parse_non_negative(text: str) -> float:
    """Converts the value of a flag that takes a finite number of at least 0."""
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return float(text)


parse_non_negative.__name__ = "float"
