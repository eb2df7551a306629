"""The flags of `xlj.align`, and which of them go together."""

from argparse import Namespace
from pathlib import Path

from xlj.cli import outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import METHODS


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    parser.add_checkpoint()
    parser.add_file(
        "--input",
        "sentence pairs: TSV, also .gz, .xz or .zst; a first line `src TAB tgt` is a header",
        required=True,
    )
    add("--output", metavar="FILE", help="where the links go, a line a pair; - prints them")
    add(
        "--method",
        choices=METHODS,
        default="optimal_transport",
        help="optimal_transport: XLM-Align's paper (the default). released: XLM-Align's released "
        "aligner. argmax, itermax, match: SimAlign's",
    )
    add(
        "--encode",
        choices=("together", "apart"),
        default="together",
        help="together: a pair as one example, as XLM-Align does (the default). apart: each "
        "sentence alone, as SimAlign does",
    )
    parser.add_layer("compare")
    add(
        "--layers",
        choices=("all",),
        help="score every layer: a table of AER by layer, and a plot; needs --gold",
    )
    add(
        "--gold",
        metavar="FILE",
        nargs="?",
        const="",
        help="score against gold links: the third column of the input, or FILE. Links are `i-j` "
        "(sure) and `ipj` (possible), from 0; or FILE has lines `id source target [S|P]`, from 1",
    )
    parser.add_file(
        "--plot",
        "where --layers=all draws (.png, .svg, .pdf) [aer_by_layer.png]",
        default=Path("aer_by_layer.png"),
    )
    add("--scores", metavar="FILE", help="where --layers=all writes a line of JSON a layer")


def check(flags: Namespace) -> None:
    """Refuses flags that do not go together, and outputs that cannot be written (`ConfigError`)."""
    if flags.layers and (flags.gold is None or flags.output or flags.layer is not None):
        raise ConfigError("--layers=all only scores: it needs --gold, and no --output or --layer")
    if not flags.output and flags.gold is None:
        raise ConfigError("say where the links go with --output=FILE, or score them with --gold")
    if flags.scores and not flags.layers:
        raise ConfigError(f"--scores={flags.scores} needs --layers=all")
    inputs = [(name, getattr(flags, name)) for name in ("checkpoint", "input", "gold")]
    if flags.output != "-":
        outputs.check_output("output", flags.output, inputs)
    outputs.check_output("scores", flags.scores, inputs)
    if flags.layers:
        outputs.check_output("plot", flags.plot, [*inputs, ("scores", flags.scores)], outputs.PLOTS)
