"""The flags of a command, and its --help."""

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

_OTHER_FLAGS = {
    "output_dir": "--workdir",
    "out": "--output",
    "model": "--checkpoint",
    "model_name_or_path": "--checkpoint",
    "model-path": "--checkpoint",
}
_OVERRIDE = re.compile(r"--?config\.")


class Parser(argparse.ArgumentParser):
    """Reads the flags of a command; its errors are `ConfigError`s.

    Args:
      command: its name, `align` for `python -m xlj.align`.
      doc: its docstring, the first part of `--help`.
      schema: of its config, if it has one; --config and --check are then among its flags.
      prog: argparse gives it to the parsers of sub-commands.
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
                help="config file; NAME.py:VARIANT for a variant, e.g. xlm_r_base.py:tiny",
            )
            help = "check the config, print it as JSON, and do nothing"
            self.add_argument("--check", action="store_true", help=help)

    def add_file(self, name: str, help: str, **more: Any) -> None:
        """Adds a flag that names a file; `more` is what `add_argument` takes."""
        self.add_argument(name, metavar="FILE", type=Path, help=help, **more)

    def add_checkpoint(self) -> None:
        """Adds --checkpoint."""
        self.add_argument(
            "--checkpoint",
            metavar="DIR",
            required=True,
            help="a workdir (its latest checkpoint; of a finished fine-tuning run, as seed-0/, "
            "that which was scored), one checkpoint's folder, or a Hugging Face folder",
        )

    def add_layer(self, use: str) -> None:
        """Adds --layer, whose hidden vectors the command has a use for."""
        self.add_argument(
            "--layer",
            metavar="N",
            type=int,
            help=f"whose hidden vectors to {use}; 0 is the embeddings. The default is the layer "
            "nearest to two thirds of the depth: 8 of 12",
        )

    def add_malformed(self, place: str) -> None:
        """Adds --malformed; `place` is what the output has in the place of such a line."""
        self.add_argument(
            "--malformed",
            choices=("error", "skip"),
            default="error",
            help="what a malformed line does (invalid UTF-8, NUL, too long, too few columns): stop "
            f"the command, or be skipped and counted; the output has {place} in its place [error]",
        )

    def read(self, arguments: Sequence[str] | None = None) -> Namespace:
        """The flags; those of the process without `arguments`. `overrides` among them has the
        arguments `--config.KEY=VALUE`, where the command has a flag --config; `is_process` whether
        the arguments are the process's.

        Raises:
          ConfigError: on an unknown flag, or one without its value.
        """
        is_process = arguments is None
        arguments = sys.argv[1:] if arguments is None else arguments
        has_config = "--config" in self._option_string_actions
        overrides = [x for x in arguments if has_config and _OVERRIDE.match(x)]
        flags, rest = self.parse_known_args([x for x in arguments if x not in overrides])
        if rest and rest[0].startswith("-"):
            raise ConfigError(f"unrecognized arguments: {' '.join(rest)}{self._meant(rest)}")
        if rest:
            raise ConfigError(f"cannot read {quoted(rest[0])}; flags look like --NAME=VALUE")
        for argument in overrides:
            if "=" not in argument:
                raise ConfigError(
                    f"cannot read {quoted(argument)}; give the value after an equals sign, "
                    "--config.KEY=VALUE"
                )
        flags.arguments, flags.overrides = list(arguments), overrides
        flags.is_process = is_process
        return flags

    def _meant(self, rest: Sequence[str]) -> str:
        """The rest of an error about unknown flags: the flag, or the key of the config, that the
        first of them may have meant."""
        flag, _, value = rest[0].partition("=")
        name = flag.lstrip("-")
        if name in _OTHER_FLAGS and _OTHER_FLAGS[name] in self._option_string_actions:
            return f"; did you mean {_OTHER_FLAGS[name]}?"
        keys = [path for path, _ in self.schema.keys()] if self.schema else []
        is_key = other_name(name, keys) or any(name in (key, key.split(".")[-1]) for key in keys)
        hint = "" if is_key else suggestion(flag, self._option_string_actions)
        if hint or not keys:
            return hint
        value = value or next((text for text in rest[1:2] if not text.startswith("-")), "VALUE")
        hint = nearest(name, keys)
        return hint.replace("did you mean ", "did you mean --config.").replace("?", f"={value}?")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Prints all flags; a closed output is an error, which argparse would pass over."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would print, without its usage."""
        raise ConfigError(message)


def at_least(lowest: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number, none below `lowest`."""

    def number(text: str) -> int:
        if int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text} is below {lowest}")
        return int(text)

    number.__name__ = "int"  # argparse names it where the text is no number
    return number


def positive(text: str) -> float:
    """The type of a flag that takes a finite number, none below 0."""
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number from 0 on")
    return float(text)


positive.__name__ = "float"
