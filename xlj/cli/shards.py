"""The flag --shard: a command that several hosts share, into a folder of parts with a manifest."""

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli.parser import Parser

if TYPE_CHECKING:  # types only: a command reads its flags without what they need
    from xlj.io.json_file import Record
    from xlj.io.parts import Parts


def add_flag(parser: Parser) -> None:
    """Adds --shard."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        type=_shard,
        help="do the part I of N of the work, from 1: --output is then a folder that N commands "
        "share, with a manifest once all is done; the same command goes on after a kill. 1/1 is "
        "all of it. The inputs may be several files: a pattern ('text/*.txt'), or with commas",
    )


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text} is not I/N with I from 1 to N, 3/16 say")
    return int(match[1]), int(match[2])


def job(flags: Namespace, paths: Sequence[Path], names: Sequence[str]) -> "Record":
    """What decides the content of the parts: the model, the inputs with their sizes in bytes, and
    the values of the flags of these names."""
    from xlj.checkpoints import stored_models

    return {
        "checkpoint": stored_models.find(flags.checkpoint).digest(),
        "inputs": [[str(path), path.stat().st_size] for path in paths],
        **{name: getattr(flags, name) for name in names},
    }


def end(parts: "Parts") -> bool:
    """Writes the manifest of a folder's `Parts` if all are there; says what is missing else."""
    if parts.finish() is not None:
        return True
    print(
        f"{parts.count_missing()} parts of other shards are missing; the shard that finishes last "
        "writes the manifest",
        file=sys.stderr,
    )
    return False
