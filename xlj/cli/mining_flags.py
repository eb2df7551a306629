"""Flags of `xlj.mine`, and checks of their combinations."""

import math
from argparse import Namespace

from xlj.cli import outputs, sentence_vectors, shards
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError
from xlj.config.choices import SEARCHES


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_pair_flags(parser, "one sentence per line, or `id TAB sentence`")
    add(
        "--threshold",
        metavar="T",
        type=float,
        help="minimum margin of a pair. The margin is the cosine of the pair divided by the mean "
        "cosine of both sentences with their nearest neighbours [the threshold with the best F1 on "
        "--gold]",
    )
    parser.add_file(
        "--gold",
        "file of true pairs, one `source id TAB target id` per line; the command then prints "
        "precision, recall and F1",
    )
    parser.add_file(
        "--output", "file for the pairs, best pair first; with --shard, a folder of parts"
    )
    shards.add_flag(parser)
    add(
        "--search",
        choices=SEARCHES,
        default="exact",
        help="exact: compute every cosine. faiss: compute margins only for candidates from a FAISS "
        "index, and print the recall compared with the exact search [exact]",
    )
    add(
        "--index",
        help="FAISS index, in the syntax of FAISS' index_factory [IVFn,SQfp16 with about n = 4 "
        "sqrt(sentences) lists; Flat for few sentences]",
    )
    add(
        "--probes",
        metavar="N",
        type=at_least(1),
        default=32,
        help="number of FAISS lists to search for each sentence [32]",
    )
    add("--scores", action="store_true", help="write the margin as a third column of --output")


def check(flags: Namespace) -> None:
    """Raises a `ConfigError` if flags contradict each other, or the output cannot be written."""
    if flags.threshold is None and flags.gold is None:
        raise ConfigError(
            "set the minimum margin of a pair with --threshold=T (for example 1.06; 0 keeps all "
            "pairs), or determine it with --gold=FILE"
        )
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is not a number")
    if flags.gold is None and flags.output is None:
        raise ConfigError(
            "nothing to do: name a file for the pairs with --output=FILE, or score them with --gold"
        )
    if flags.index and flags.search != "faiss":
        raise ConfigError("--index needs --search=faiss")
    if flags.scores and flags.output is None:
        raise ConfigError("--scores writes a column of --output; set --output=FILE")
    if flags.shard and flags.output is None:
        raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
    if flags.shard:
        outputs.check_folder("output", flags.output)
        return
    names = ("checkpoint", "source", "target", "gold")
    outputs.check_output("output", flags.output, [(name, getattr(flags, name)) for name in names])
