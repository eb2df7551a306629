"""The flags of `xlj.convert`, by action."""

from pathlib import Path

from xlj.cli.parser import Parser


def add(parser: Parser) -> None:
    """Adds the actions, each with its flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="import|export|extend")
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
    exporting.add_checkpoint()
    add = exporting.add_argument
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
    extending = actions.add_parser(
        "extend",
        doc="Makes a checkpoint whose vocabulary has more pieces, for languages that it cuts to\n"
        "bits. A new piece starts from the mean of those that it was cut into.",
    )
    extending.add_checkpoint()
    add = extending.add_argument
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
