"""The flags of `xlj.score`, and which of them go together."""

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
        "pairs, `source TAB target` or `source ||| target` a line; the default is standard input",
    )
    for name in ("--source", "--target"):
        parser.add_file(name, "instead: files whose line i is a side of pair i")
    add(
        "--by",
        choices=PAIR_SCORES,
        default="cosine",
        help="cosine of the sentences' vectors. margin: over the mean cosine of both with their "
        "nearest neighbours among all pairs, as LASER's. likelihood: how well each is generated "
        "from the other, of a model that configs/aligner.py trained [cosine]",
    )
    add(
        "--output",
        metavar="FILE",
        default="-",
        help="where the scores go, or the pairs that are kept [standard output]; a folder with "
        "--shard",
    )
    add("--keep", metavar="SHARE", type=_share, help="write the best pairs, 0.8 of them say")
    add("--threshold", metavar="T", type=float, help="write the pairs of at least this score")
    add("--scores", action="store_true", help="write the score as a last column of kept pairs")
    parser.add_malformed("nan, and it is not kept,")
    shards.add_flag(parser)


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share above 0, at most 1; of a score use "
                                         "--threshold")  # fmt: skip
    return share


_share.__name__ = "float"


def check(flags: Namespace) -> None:
    """Refuses flags that do not go together, and an output that cannot be written
    (`ConfigError`)."""
    if (flags.source is None) != (flags.target is None):
        raise ConfigError("--source and --target go together: line i of both is pair i")
    if flags.source and flags.input:
        raise ConfigError("name pairs by --input, or by --source and --target, not both")
    filters = flags.keep is not None or flags.threshold is not None
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is no number")
    if flags.scores and not filters:
        raise ConfigError("--scores is a column of kept pairs: set --keep or --threshold")
    if flags.shard:
        if flags.output == "-":
            raise ConfigError("--shard needs the folder that the shards share, --output=FOLDER")
        outputs.check_folder("output", flags.output)
        return
    if flags.output != "-":
        names = ("checkpoint", "input", "source", "target")
        inputs: list[tuple[str, str | Path | None]] = [(n, getattr(flags, n)) for n in names]
        outputs.check_output("output", flags.output, inputs)
