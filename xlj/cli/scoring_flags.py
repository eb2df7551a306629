"""Flags of `xlj.score`, and checks of their combinations."""

import argparse
import math
from argparse import Namespace
from pathlib import Path

from xlj.cli import outputs, sentence_vectors, shards
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import PAIR_SCORES


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_flags(parser)
    parser.add_file(
        "--input",
        "file of pairs, one `source TAB target` or `source ||| target` per line [standard input]",
    )
    for name in ("--source", "--target"):
        parser.add_file(name, f"file whose line i is the {name[2:]} of pair i, instead of --input")
    add(
        "--by",
        choices=PAIR_SCORES,
        default="cosine",
        help="cosine: the cosine of the two sentence vectors. margin: the cosine divided by the "
        "mean cosine of both vectors with their nearest neighbours among all pairs, as in LASER. "
        "likelihood: how well a model of configs/aligner.py generates each sentence from the other "
        "sentence [cosine]",
    )
    add(
        "--output",
        metavar="FILE",
        default="-",
        help="file for the scores, or for the pairs that --keep or --threshold selects; with "
        "--shard, a folder of parts [standard output]",
    )
    add(
        "--keep",
        metavar="SHARE",
        type=_parse_share,
        help="write this share of the pairs instead of scores: the pairs with the best scores",
    )
    add(
        "--threshold",
        metavar="T",
        type=float,
        help="write the pairs with at least this score instead of scores",
    )
    add(
        "--scores",
        action="store_true",
        help="with --keep or --threshold: write the score as the last column of the pairs",
    )
    parser.add_malformed("the score nan, which --keep and --threshold never select")
    shards.add_flag(parser)


def _parse_share(text: str) -> float:
    """Converts the value of a flag that takes a share above 0 and at most 1."""
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a share above 0 and up to 1; for a minimum score use --threshold"
        )
    return share


_parse_share.__name__ = "float"


def check(flags: Namespace) -> None:
    """Raises a `ConfigError` if flags contradict each other, or the output cannot be written."""
    if (flags.source is None) != (flags.target is None):
        raise ConfigError("--source and --target must be set together: line i of both is pair i")
    if flags.source and flags.input:
        raise ConfigError("name pairs with --input, or with --source and --target, not both")
    is_filter = flags.keep is not None or flags.threshold is not None
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is not a number")
    if flags.scores and not is_filter:
        raise ConfigError("--scores adds a column to filtered pairs: set --keep or --threshold")
    if flags.shard:
        if flags.output == "-":
            raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
        outputs.check_folder("output", flags.output)
        return
    if flags.output != "-":
        names = ("checkpoint", "input", "source", "target")
        inputs: list[tuple[str, str | Path | None]] = [(n, getattr(flags, n)) for n in names]
        outputs.check_output("output", flags.output, inputs)
