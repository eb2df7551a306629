"""Flags of `xlj.convert`, by action."""

from pathlib import Path

from xlj.cli.parser import Parser

SIZES = {
    "layers": "layers of the larger model",
    "hidden": "width of its hidden vectors",
    "heads": "its attention heads",
    "key_value_heads": "its heads of keys and values",
    "intermediate": "inner width of its feed-forward layers",
}
"""The keys of `model` that `widen` can increase, with their help."""


def add(parser: Parser) -> None:
    """Adds the actions, each with its flags."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="import|export|extend|merge|widen"
    )
    add = actions.add_parser(
        "import",
        doc="Converts a Hugging Face folder (XLM-R, RoBERTa, BERT, mBERT, ERNIE-M, XLM-Align or\n"
        "InfoXLM, with its tokenizer) to an xlj checkpoint for --config.init_from.",
    ).add_argument
    add("--source", metavar="DIR", required=True, type=Path, help="the Hugging Face folder")
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    exporting = actions.add_parser(
        "export",
        doc="Writes a folder for AutoModelForMaskedLM, AutoModel and AutoTokenizer of\n"
        "transformers; for a fine-tuned model AutoModelForSequenceClassification,\n"
        "AutoModelForTokenClassification or AutoModelForQuestionAnswering.",
    )
    _export_flags(exporting)
    extending = actions.add_parser(
        "extend",
        doc="Adds pieces to the vocabulary of a checkpoint, for languages whose words it splits\n"
        "into many short pieces. The vector of a new piece starts from the mean vector of the\n"
        "pieces that it replaces.",
    )
    _extend_flags(extending)
    merging = actions.add_parser(
        "merge",
        doc="Merges models of the same shapes and vocabulary into one checkpoint: their mean or,\n"
        "with --base, the base plus their merged differences from it (TIES).",
    )
    _merge_flags(merging)
    widening = actions.add_parser(
        "widen",
        doc="Builds a larger initial model from a smaller one: the middle of each weight is the\n"
        "smaller weight, which is repeated around it; layers are repeated.",
    )
    _widen_flags(widening)


def _export_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    add(
        "--pooling",
        choices=("mean", "first"),
        help="also make it a sentence-transformers folder, with vectors that are the mean of all "
        "tokens including <s> and </s> (mean), or the vector of <s> (first)",
    )
    add(
        "--layer",
        metavar="N",
        type=int,
        help="export only the layers up to this one, for sentence vectors; the head is exported "
        "only with the last layer",
    )


def _extend_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    add(
        "--text",
        metavar="FILE",
        required=True,
        nargs="+",
        type=Path,
        help="text of the new languages, one sentence per line, plain or compressed",
    )
    add("--pieces", metavar="N", required=True, type=int, help="number of pieces to add")
    add(
        "--share",
        metavar="P",
        type=float,
        help="for unigram vocabularies: expected share of the new languages in future text. A "
        "larger share splits them into fewer pieces, but changes the pieces of old languages more "
        "often [0.01]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")


def _merge_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--models",
        metavar="DIR",
        required=True,
        nargs="+",
        help="workdirs, checkpoint folders or Hugging Face folders",
    )
    add(
        "--weights",
        metavar="W",
        nargs="+",
        type=float,
        help="weight of each model in the mean [equal]",
    )
    add("--base", metavar="DIR", help="merge with TIES: the model that the others started from")
    add(
        "--share",
        metavar="P",
        type=float,
        help="TIES: share of the differences of each model to keep, the largest ones [0.2]",
    )
    add(
        "--scale",
        metavar="X",
        type=float,
        help="TIES: lambda, factor of the merged differences [1]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")


def _widen_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    for name, what in SIZES.items():
        add(f"--{name}", metavar="N", type=int, help=f"{what} [the model's]")
    add(
        "--copied",
        action="store_true",
        help="copy weights unchanged, as for ModernBERT-large. Without this flag, weights are "
        "divided by the number of copies of their input, and noise makes the copies differ",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
