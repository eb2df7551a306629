"""The flags of `xlj.convert`, by action."""

from pathlib import Path

from xlj.cli.parser import Parser

SIZES = {
    "layers": "layers of the larger model",
    "hidden": "width of its vectors",
    "heads": "heads of its attention",
    "key_value_heads": "heads of keys and values",
    "intermediate": "width inside its feed-forward layers",
}
"""The keys of `model` that `widen` may raise."""


def add(parser: Parser) -> None:
    """Adds the actions, each with its flags."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="import|export|extend|merge|widen"
    )
    add = actions.add_parser(
        "import",
        doc="Makes a checkpoint of xlj, to start from with --config.init_from, of a Hugging Face "
        "folder:\nXLM-R, RoBERTa, BERT, mBERT, ERNIE-M, XLM-Align or InfoXLM, with its tokenizer.",
    ).add_argument
    add("--source", metavar="DIR", required=True, type=Path, help="the Hugging Face folder")
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    exporting = actions.add_parser(
        "export",
        doc="Writes a folder that transformers' AutoModelForMaskedLM, AutoModel and AutoTokenizer "
        "load;\nof a fine-tuned model AutoModelForSequenceClassification, TokenClassification or\n"
        "QuestionAnswering.",
    )
    _export_flags(exporting)
    extending = actions.add_parser(
        "extend",
        doc="Makes a checkpoint whose vocabulary has more pieces, for languages that it cuts to\n"
        "bits. A new piece starts from the mean of those that it was cut into.",
    )
    _extend_flags(extending)
    merging = actions.add_parser(
        "merge",
        doc="Makes one checkpoint of several models of the same shapes and vocabulary: their mean\n"
        "or, with --base, what they have learned since it (TIES).",
    )
    _merge_flags(merging)
    widening = actions.add_parser(
        "widen",
        doc="Makes a larger model of a smaller one, to start from: its weights in the middle of\n"
        "larger ones and the same again around them; layers are repeated.",
    )
    _widen_flags(widening)


def _export_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    add(
        "--pooling",
        choices=("mean", "first"),
        help="make it a sentence-transformers folder too: the mean of all tokens, <s> and </s> "
        "too, or <s>'s vector",
    )
    add(
        "--layer",
        metavar="N",
        type=int,
        help="end after this layer, for sentence vectors, without the head if it is not the last",
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
        help="text of the new languages, a sentence a line, plain or compressed",
    )
    add("--pieces", metavar="N", required=True, type=int, help="how many to add")
    add(
        "--share",
        metavar="P",
        type=float,
        help="of a unigram vocabulary, of the new languages in the text to come: more cuts them "
        "into fewer pieces, and old languages at other places [0.01]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")


def _merge_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--models",
        metavar="DIR",
        required=True,
        nargs="+",
        help="workdirs, folders of checkpoints, or Hugging Face folders",
    )
    add("--weights", metavar="W", nargs="+", type=float, help="of each model in the mean [equal]")
    add("--base", metavar="DIR", help="the model that they were trained from: merge by TIES")
    add(
        "--share",
        metavar="P",
        type=float,
        help="TIES: the share of each model's differences from the base that is kept, the largest "
        "ones [0.2]",
    )
    add("--scale", metavar="X", type=float, help="TIES: lambda, times the merged differences [1]")
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")


def _widen_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    for name, what in SIZES.items():
        add(f"--{name}", metavar="N", type=int, help=f"{what} [the model's]")
    add(
        "--copied",
        action="store_true",
        help="copy weights as they are, as ModernBERT-large was made; without it they are divided "
        "by the copies of their input and get noise, which separates the copies",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
