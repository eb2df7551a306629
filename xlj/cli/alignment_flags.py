"""Flags of `xlj.align`, and checks of their combinations."""

from argparse import Namespace

from xlj.cli import compute_flags, outputs
from xlj.cli.parser import Parser, parse_non_negative
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
        "sentence pairs: lines `source TAB target` or `source ||| target`, two files 'A|B', TMX, "
        "JSON lines or Parquet; a first line `src TAB tgt` is a header",
        required=True,
    )
    parser.add_columns(
        "columns of --input that contain the source, the target and, with --gold, the gold "
        "links. Columns are one-based numbers, names in the first line of --input, JSON keys, or "
        "the two languages of a TMX file [the first columns, in this order]",
    )
    add(
        "--words",
        choices=WORD_SPLITS,
        default="spaces",
        help="word separators. spaces: ASCII spaces and tabs, as in fast_align and eflomal. "
        "whitespace: any Unicode white space, as in SimAlign and awesome-align [spaces]",
    )
    add(
        "--output",
        metavar="FILE",
        help="file for the links, one line per pair; with --project, file for the projected "
        "labels; with --layers=all, file for the AER of each layer, one JSON object per line; - "
        "for standard output",
    )
    add(
        "--output_format",
        choices=LINK_FORMATS,
        default="pharaoh",
        help="format of the links. pharaoh: `i-j` with zero-based words. pharaoh_1: `i-j` with "
        "one-based words. naacl: a line `PAIR i j S` for each link, with one-based numbers. words: "
        "`word<sep>word`, as awesome-align writes. pieces: `i-j` with zero-based pieces of the "
        "vocabulary instead of words [pharaoh]",
    )
    add("--lowercase", action="store_true", help="lowercase words before the alignment")
    parser.add_malformed("an empty line")
    outputs.add_shard_flag(parser)
    compute_flags.add(parser, has_backends=False)
    _add_choices(parser)
    _add_gold(parser)
    parser.add_file(
        "--plot", "file for a plot of the AER by layer, with --layers=all (.png, .svg, .pdf)"
    )
    outputs.add_scores(parser, "confidences of the links")
    parser.add_file("--html", "file for an HTML page that shows the alignments")
    parser.add_file(
        "--project",
        "file of tagged words of one side: a line `word TAB tag` for each word, and a blank line "
        "between sentences. --output then contains the words of the other side with projected tags",
    )


def _add_gold(parser: Parser) -> None:
    """Adds the flags of gold links."""
    add = parser.add_argument
    add(
        "--gold",
        metavar="FILE",
        nargs="?",
        const="",
        help="score the links against gold links in the third column of --input, or in FILE. A "
        "line has the links of a pair, `i-j` (sure) or `ipj` (possible), with zero-based words. "
        "Instead, FILE may have one line `id source target [S|P]` per link, with one-based words",
    )
    add(
        "--gold_from",
        type=int,
        choices=(0, 1),
        help="number of the first word in gold links; with 1, links to 0 (NULL) are skipped [0, "
        "but 1 for lines `id source target`]",
    )


def _add_choices(parser: Parser) -> None:
    """Adds the flags of the alignment method."""
    add = parser.add_argument
    add(
        "--method",
        choices=(*METHODS, *TRAINED_METHODS, "all"),
        help="optimal_transport: the method of XLM-Align's paper. released: XLM-Align's released "
        "aligner. argmax, itermax, match: the methods of SimAlign. hmm: a hidden Markov model, for "
        "models of configs/aligner.py. word_links: the head that is trained on links. all: every "
        "method, with --layers=all [evaluation.alignment.method of the model's config, else "
        "word_links for a model that was trained on links, optimal_transport for one that was "
        "trained on pairs encoded together, argmax for other models]",
    )
    add(
        "--encode",
        choices=(*ENCODINGS, "all"),
        help="together: encode a pair as one example, as XLM-Align does. apart: encode each "
        "sentence separately, as SimAlign does. all: both, with --layers=all "
        "[evaluation.alignment.encode of the model's config, else together for a model that was "
        "trained on links or on pairs encoded together, apart for other models]",
    )
    add(
        "--prior",
        metavar="STRENGTH",
        type=parse_non_negative,
        help="multiply the similarity of piece i of m in the source and piece j of n in the target "
        "by exp(-STRENGTH |i/m - j/n|), the diagonal prior of fast_align; hmm ignores it "
        "[evaluation.alignment.prior of the model's config, else 0]",
    )
    add(
        "--threshold",
        metavar="CONFIDENCE",
        type=parse_non_negative,
        default=0.0,
        help="drop links whose confidence is below this value [0]",
    )
    parser.add_layer("compare", "evaluation.alignment.layer of the model's config, else ")
    add(
        "--layers",
        choices=("all",),
        help="score every layer and print a table of AER by layer; needs --gold",
    )


def check(flags: Namespace) -> None:
    """Raises a `ConfigError` if flags contradict each other, or an output cannot be written."""
    has_other_output = flags.html or flags.project or flags.layer is not None or flags.scores
    if flags.layers and (flags.gold is None or has_other_output or flags.output == "-"):
        raise ConfigError(
            "--layers=all prints the scores of all layers: set --gold, and remove --layer, --html, "
            "--project, --scores and --output=-"
        )
    for name in ("method", "encode"):
        if getattr(flags, name) == "all" and not flags.layers:
            raise ConfigError(f"--{name}=all needs --layers=all")
    if not (flags.output or flags.html) and flags.gold is None:
        raise ConfigError("nothing to do: name a file for the links with --output=FILE, or score "
                          "them with --gold")  # fmt: skip
    for name in ("gold", "project"):
        if flags.malformed == "skip" and getattr(flags, name) is not None:
            raise ConfigError(f"--malformed=skip cannot be used with --{name}")
    if flags.gold_from is not None and flags.gold is None:
        raise ConfigError("--gold_from needs --gold")
    if flags.output_format != "pharaoh" and (flags.project or not flags.output):
        raise ConfigError(
            f"--output_format={flags.output_format} is a format of links: set --output=FILE, and "
            "remove --project"
        )
    if flags.output_format == "pieces" and (flags.gold is not None or flags.html):
        raise ConfigError(
            "--output_format=pieces: --gold and --html need links between words; remove them"
        )
    if flags.project and not flags.output:
        raise ConfigError(f"--project={flags.project}: name a file for the labels: --output=FILE")
    if flags.scores and (flags.project or not flags.output):
        raise ConfigError(
            "--scores writes a column beside the links: set --output=FILE, and remove --project"
        )
    if flags.shard:
        if flags.output_format == "naacl":
            raise ConfigError(
                "--output_format=naacl numbers all pairs, but --shard reads only a part of them; "
                "use another format"
            )
        others = ("gold", "html", "project", "layers", "plot")
        excluded = [f"--{name}" for name in others if getattr(flags, name) is not None]
        if excluded or flags.output == "-":
            raise ConfigError(
                f"--shard writes only links, into a folder, --output=FOLDER; remove "
                f"{' and '.join(excluded) or '--output=-'}"
            )
        outputs.check_folder("output", flags.output)
        return
    inputs = [(name, getattr(flags, name)) for name in ("checkpoint", "gold", "project")]
    inputs += [("input", side) for side in {flags.input, *f"{flags.input}".split("|")}]
    for name in ("output", "html"):
        path = getattr(flags, name)
        if path != "-" or name != "output":
            outputs.check_output(name, path, inputs)
            inputs.append((name, path))
    outputs.check_plot_of_layers(flags.plot, flags.layers, inputs)
