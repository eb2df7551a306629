"""The flags of `xlj.align`, and which of them go together."""

from argparse import Namespace

from xlj.cli import outputs, shards
from xlj.cli.parser import Parser, positive
from xlj.config import ConfigError
from xlj.config.choices import (
    ENCODINGS,
    LINK_FORMATS,
    METHODS,
    TRAINED_METHODS,
    WORD_SPLITS,
)


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    parser.add_checkpoint()
    parser.add_file(
        "--input",
        "sentence pairs: `source TAB target`, `source ||| target`, two files 'A|B', TMX, JSON "
        "lines or Parquet; a first line `src TAB tgt` is a header",
        required=True,
    )
    add(
        "--columns",
        metavar="A,B",
        type=_names,
        default=(),
        help="the columns of source and target (and gold links) of --input: numbers from 1, or "
        "names in its first line, keys of JSON, the two languages of TMX [the first ones]",
    )
    add(
        "--words",
        choices=WORD_SPLITS,
        default="spaces",
        help="what divides words: ASCII spaces and tabs, as for fast_align and eflomal; or any "
        "white space of Unicode, as for SimAlign and awesome-align [spaces]",
    )
    add(
        "--output",
        metavar="FILE",
        help="where the links go, a line a pair, or with --project the labels; - prints them",
    )
    add(
        "--output_format",
        choices=LINK_FORMATS,
        default="pharaoh",
        help="of links: pharaoh (`i-j`, words from 0), pharaoh_1 (from 1), naacl (a line a link, "
        "`PAIR i j S`, from 1), words (`word<sep>word`, as awesome-align's), pieces (pharaoh, of "
        "the vocabulary's pieces) [pharaoh]",
    )
    add("--lowercase", action="store_true", help="compare words in lower case")
    parser.add_malformed("an empty line")
    shards.add_flag(parser)
    _add_choices(parser)
    _add_gold(parser)
    parser.add_file("--plot", "where --layers=all draws its curves (.png, .svg, .pdf) [nowhere]")
    add(
        "--scores",
        metavar="FILE",
        help="where the confidences of the links go, a line a pair, in their order; of "
        "--layers=all, AER as a line of JSON a layer",
    )
    parser.add_file("--html", "where a page goes to look through the alignments")
    parser.add_file(
        "--project",
        "tagged words of one side, `word TAB tag`, blank lines between sentences: --output is the "
        "other side with these tags",
    )


def _add_gold(parser: Parser) -> None:
    """Adds the flags of gold links."""
    add = parser.add_argument
    add(
        "--gold",
        metavar="FILE",
        nargs="?",
        const="",
        help="score against gold links: the third column of the input, or FILE. Links are `i-j` "
        "(sure) and `ipj` (possible), from 0; or FILE has lines `id source target [S|P]`, from 1",
    )
    add(
        "--gold_from",
        type=int,
        choices=(0, 1),
        help="the number of the first word in gold links; with 1, links to 0 (NULL) are left out "
        "[0; of lines `id source target` 1]",
    )


def _add_choices(parser: Parser) -> None:
    """Adds the flags that say how words are linked."""
    add = parser.add_argument
    add(
        "--method",
        choices=(*METHODS, *TRAINED_METHODS, "all"),
        help="optimal_transport: XLM-Align's paper. released: XLM-Align's released aligner. "
        "argmax, itermax, match: SimAlign's. hmm: configs/aligner.py's. all: with --layers=all "
        "[as in training, else optimal_transport]",
    )
    add(
        "--encode",
        choices=(*ENCODINGS, "all"),
        help="together: a pair as one example, as XLM-Align does. apart: each sentence alone, as "
        "SimAlign does. all: with --layers=all [as in training, else together]",
    )
    add(
        "--prior",
        metavar="STRENGTH",
        type=positive,
        help="multiply similarities by exp(-STRENGTH |i/m - j/n|), fast_align's prior on the "
        "diagonal [as in training, else 0]",
    )
    add(
        "--threshold",
        metavar="CONFIDENCE",
        type=positive,
        default=0.0,
        help="leave out links of a lower confidence [0]",
    )
    parser.add_layer("compare")
    add(
        "--layers",
        choices=("all",),
        help="score every layer: a table of AER by layer; needs --gold",
    )


def _names(text: str) -> tuple[str, ...]:
    """The type of a flag that takes names with commas between."""
    return tuple(name.strip() for name in text.split(","))


def check(flags: Namespace) -> None:
    """Refuses flags that do not go together, and outputs that cannot be written (`ConfigError`)."""
    alone = flags.output or flags.html or flags.project or flags.layer is not None
    if flags.layers and (flags.gold is None or alone):
        raise ConfigError(
            "--layers=all only scores: it needs --gold, and no --output, --layer, --html or "
            "--project"
        )
    for name in ("method", "encode"):
        if getattr(flags, name) == "all" and not flags.layers:
            raise ConfigError(f"--{name}=all needs --layers=all")
    if not (flags.output or flags.scores or flags.html) and flags.gold is None:
        raise ConfigError("say where the links go with --output=FILE, or score them with --gold")
    for name in ("gold", "project"):
        if flags.malformed == "skip" and getattr(flags, name) is not None:
            raise ConfigError(f"--malformed=skip: malformed lines always stop --{name}")
    if flags.gold_from is not None and flags.gold is None:
        raise ConfigError("--gold_from is of --gold, which is missing")
    if flags.output_format != "pharaoh" and (flags.project or not flags.output):
        raise ConfigError(f"--output_format={flags.output_format} is of links in --output")
    if flags.output_format == "pieces" and (flags.gold is not None or flags.html):
        raise ConfigError("--output_format=pieces: --gold and --html are of links between words")
    if flags.project and not flags.output:
        raise ConfigError(f"--project={flags.project}: say where the labels go with --output=FILE")
    if flags.shard:
        if flags.output_format == "naacl":
            raise ConfigError(
                "--output_format=naacl numbers all pairs, and --shard has a part of them"
            )
        others = ("gold", "scores", "html", "project", "layers", "plot")
        given = [f"--{name}" for name in others if getattr(flags, name) is not None]
        if given or flags.output == "-":
            raise ConfigError(
                f"--shard only writes links into a folder, --output=FOLDER, without "
                f"{' and '.join(given) or '--output=-'}"
            )
        outputs.check_folder("output", flags.output)
        return
    inputs = [(name, getattr(flags, name)) for name in ("checkpoint", "gold", "project")]
    inputs += [("input", side) for side in {flags.input, *f"{flags.input}".split("|")}]
    for name in ("output", "scores", "html"):
        path = getattr(flags, name)
        if path != "-" or name != "output":
            outputs.check_output(name, path, inputs)
            inputs.append((name, path))
    outputs.check_plot_of_layers(flags.plot, flags.layers, inputs)
