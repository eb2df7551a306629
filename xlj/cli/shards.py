"""The flag --shard, by which several hosts divide the input of a command and write parts of its
output to one folder."""

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli.parser import Parser

if TYPE_CHECKING:  # types only: a command reads its flags without the imports of these modules
    from xlj.io.json_file import Record
    from xlj.io.parts import Parts


def add_flag(parser: Parser) -> None:
    """Adds --shard."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        type=_shard,
        help="process shard I of N of the input; I is one-based. --output is then a folder that N "
        "commands share; the command that finishes last writes the manifest of the folder. The "
        "same command resumes an interrupted shard. --shard=1/1 processes the whole input. An "
        "input may be several files: a pattern ('text/*.txt') or names separated by commas [the "
        "whole input, into one file]",
    )


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text} is not I/N with I from 1 to N, such as 3/16")
    return int(match[1]), int(match[2])


def job(flags: Namespace, paths: Sequence[Path], names: Sequence[str]) -> "Record":
    """Returns a record of everything that determines the parts: the model, the inputs with their
    sizes in bytes, and the values of the flags in `names`."""
    from xlj.checkpoints import stored_models

    values = {name: getattr(flags, name) for name in names}
    return {
        "checkpoint": stored_models.find(flags.checkpoint).digest(),
        "inputs": [[str(path), path.stat().st_size] for path in paths],
        # As JSON returns them:
        **{name: list(x) if isinstance(x, tuple) else x for name, x in values.items()},
    }


def finish(parts: "Parts") -> bool:
    """Writes the manifest if all parts of the folder exist; otherwise prints how many parts are
    missing. Returns whether all parts exist."""
    if parts.finish() is not None:
        return True
    print(
        f"parts of other shards that are still missing: {parts.count_missing()}; the shard that "
        "finishes last writes the manifest",
        file=sys.stderr,
    )
    return False
