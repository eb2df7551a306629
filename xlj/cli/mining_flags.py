"""The flags of `xlj.mine`, and which of them go together."""

import math
from argparse import Namespace

from xlj.cli import outputs, sentence_vectors, shards
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError
from xlj.config.choices import SEARCHES


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_pair_flags(parser, "a sentence a line, or `id TAB sentence`")
    add(
        "--threshold",
        metavar="T",
        type=float,
        help="the least margin of a pair: its cosine over the mean cosine of both sentences with "
        "their nearest neighbours. Default: the one of the best F1 on --gold",
    )
    parser.add_file(
        "--gold", "the true pairs, lines `source id TAB target id`; prints precision, recall and F1"
    )
    parser.add_file("--output", "where the pairs go, best first")
    shards.add_flag(parser)
    add(
        "--search",
        choices=SEARCHES,
        default="exact",
        help="exact: every cosine is computed (the default). faiss: an index of FAISS, among whose "
        "candidates margins are taken; prints the recall against the exact search",
    )
    add("--index", help="the index, as FAISS's index_factory takes it ['IVF...,SQfp16']")
    add("--probes", metavar="N", type=at_least(1), default=32, help="lists looked through [32]")
    add("--scores", action="store_true", help="write the margin as a third column of --output")


def check(flags: Namespace) -> None:
    """Refuses flags that do not go together, and an output that cannot be written
    (`ConfigError`)."""
    if flags.threshold is None and flags.gold is None:
        raise ConfigError(
            "say how alike the sentences of a pair must be with --threshold=T (1.06, say; 0 keeps "
            "all), or find it with --gold=FILE"
        )
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is no number")
    if flags.gold is None and flags.output is None:
        raise ConfigError("say where the pairs go with --output=FILE, or score them with --gold")
    if flags.index and flags.search != "faiss":
        raise ConfigError("--index is of --search=faiss")
    if flags.scores and flags.output is None:
        raise ConfigError("--scores is a column of --output, which is missing")
    if flags.shard and flags.output is None:
        raise ConfigError("--shard needs the folder that the shards share, --output=FOLDER")
    if flags.shard:
        outputs.check_folder("output", flags.output)
        return
    names = ("checkpoint", "source", "target", "gold")
    outputs.check_output("output", flags.output, [(name, getattr(flags, name)) for name in names])
