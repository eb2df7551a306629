"""Converts models from and to Hugging Face folders; extends, trims, merges and widens models.

    python -m xlj.convert import --source=DIR --output=DIR
    python -m xlj.convert export --checkpoint=DIR --output=DIR
    python -m xlj.convert extend --checkpoint=DIR --text=new.txt --pieces=2000 --output=DIR
    python -m xlj.convert trim --checkpoint=DIR --text en.txt de.txt --pieces=32000 --output=DIR
    python -m xlj.convert merge --models DIR DIR --output=DIR
    python -m xlj.convert widen --checkpoint=DIR --layers=28 --hidden=1024 --heads=16 --output=DIR

The output folder appears only when it is complete. More: docs/convert.md
"""

import argparse
import os
from argparse import Namespace
from pathlib import Path

from xlj.cli import command
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import CHARACTERS
from xlj.config.paths import local_path
from xlj.io import own_process

SIZES = {
    "layers": "number of layers of the larger model",
    "hidden": "width of the larger model's hidden vectors",
    "heads": "number of the larger model's attention heads",
    "key_value_heads": "number of the larger model's heads of keys and values",
    "intermediate": "inner width of the larger model's feed-forward layers",
}
"""The keys of `model` that `widen` can increase, with their help."""

_NEW_FOLDER = "new folder for the converted model"


def add(parser: Parser) -> None:
    """Adds the actions, each with its flags."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="import|export|extend|trim|merge|widen"
    )
    add = actions.add_parser(
        "import",
        doc="Converts a Hugging Face folder with its tokenizer to an xlj checkpoint for\n"
        "--config.init_from. docs/models.md lists the models.",
    ).add_argument
    add("--source", metavar="DIR", required=True, type=Path, help="Hugging Face folder to convert")
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)
    exporting = actions.add_parser(
        "export",
        doc="Writes a Hugging Face folder. AutoModelForMaskedLM, AutoModel and AutoTokenizer of\n"
        "transformers load it. A fine-tuned model is loaded with one of these classes instead of\n"
        "AutoModelForMaskedLM: AutoModelForSequenceClassification, AutoModelForMultipleChoice,\n"
        "AutoModelForTokenClassification or AutoModelForQuestionAnswering.",
    )
    _export_flags(exporting)
    extending = actions.add_parser(
        "extend",
        doc="Adds pieces to the vocabulary of a checkpoint, for languages whose words this\n"
        "vocabulary splits into many short pieces. The vector of a new piece starts from the\n"
        "mean vector of the pieces that the new piece replaces.",
    )
    _extend_flags(extending)
    trimming = actions.add_parser(
        "trim",
        doc="Makes a smaller model: keeps the pieces of the vocabulary that a text needs, or some\n"
        "of the layers, or both. A text whose pieces all remain is split as before.",
    )
    _trim_flags(trimming)
    merging = actions.add_parser(
        "merge",
        doc="Merges models of the same shapes and vocabulary into one checkpoint: the mean of the\n"
        "models or, with --base, the base plus the merged differences of the models from the\n"
        "base (TIES).",
    )
    _merge_flags(merging)
    widening = actions.add_parser(
        "widen",
        doc="Builds a larger initial model from a smaller model. The middle of each weight matrix\n"
        "is the smaller model's matrix, and copies of the smaller matrix surround it. Layers are\n"
        "repeated.",
    )
    _widen_flags(widening)


def _export_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)
    add(
        "--pooling",
        choices=("mean", "first"),
        help="also write the files of sentence-transformers. mean: a sentence vector is the mean "
        "over all tokens including <s> and </s>. first: the vector of <s>. Without "
        "this flag, the sentence-transformers modules of an imported model are written, if it has "
        "any",
    )
    add(
        "--layer",
        metavar="N",
        type=int,
        help="last layer to export, for sentence vectors from this layer. An export of "
        "fewer layers has no head [all layers]",
    )
    add(
        "--format",
        choices=("safetensors", "onnx"),
        default="safetensors",
        help="safetensors: a folder for transformers. onnx: also write the model as an ONNX graph, "
        "which onnxruntime, fastembed and transformers.js run without PyTorch "
        "(needs pip install -e '.[onnx]') [safetensors]",
    )
    add(
        "--int8",
        action="store_true",
        help="with --format=onnx: also write graphs with int8 weights, which are smaller and, on "
        "processors with VNNI, faster",
    )
    add(
        "--text",
        metavar="FILE",
        nargs="+",
        type=Path,
        default=[],
        help="with --int8: text files, one for each language, one sentence per line, to measure "
        "what int8 weights change. The first 1,000 lines of each are used",
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
        help="text files of the new languages, one sentence per line, plain or compressed",
    )
    add("--pieces", metavar="N", required=True, type=int, help="number of pieces to add")
    add(
        "--share",
        metavar="P",
        type=float,
        help="for unigram vocabularies: expected share of the new languages in future text. With a "
        "larger share, text of the new languages has fewer pieces, but text of old languages "
        "is split differently more often [0.01]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)


def _trim_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    add(
        "--text",
        metavar="FILE",
        nargs="+",
        type=Path,
        default=[],
        help="text files, one for each language that the model must keep, one sentence per line, "
        "plain or compressed. Each language counts equally",
    )
    add(
        "--pieces",
        metavar="N",
        type=int,
        help="maximum number of ids of the new vocabulary, with characters and special tokens",
    )
    add(
        "--coverage",
        metavar="P",
        type=float,
        help="instead of --pieces: share of the text's pieces that must remain, such as 0.999",
    )
    add(
        "--characters",
        choices=CHARACTERS,
        help="one-character pieces that always remain. all: all. scripts: those of the scripts of "
        "the text, and digits, punctuation and symbols. text: those of the text [all]",
    )
    add(
        "--layers",
        metavar="N,N,...",
        type=_parse_layers,
        default=(),
        help="layers to keep, counted from 0, separated by commas [all layers]",
    )
    add(
        "--heal",
        action="store_true",
        help="train the smaller model, a sentence encoder, towards the vectors that the whole "
        "model has of --text (which must not be test text). The same command resumes",
    )
    add(
        "--minutes",
        metavar="N",
        type=float,
        help="with --heal: the time of training steps, at most [45]",
    )
    add("--seed", metavar="N", type=int, help="with --heal: seed of the training [0]")
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)


def _parse_layers(text: str) -> tuple[int, ...]:
    """Parses numbers that are separated by commas."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected numbers of layers separated by commas, such as 0,2,4"
        ) from None


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
    add(
        "--base",
        metavar="DIR",
        help="merge with TIES, where DIR is the model from which the training of --models started "
        "[without --base, the merge is the mean]",
    )
    add(
        "--share",
        metavar="P",
        type=float,
        help="TIES: share of each model's differences from the base to keep; the largest are kept "
        "[0.2]",
    )
    add(
        "--scale",
        metavar="X",
        type=float,
        help="TIES: factor of the merged differences (lambda) [1]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)


def _widen_flags(parser: Parser) -> None:
    parser.add_checkpoint()
    add = parser.add_argument
    for name, what in SIZES.items():
        add(f"--{name}", metavar="N", type=int, help=f"{what} [as in --checkpoint]")
    add(
        "--copied",
        action="store_true",
        help="copy weights unchanged, as for ModernBERT-large. Without this flag, weights are "
        "divided by the number of copies of their input, and noise makes the copies differ",
    )
    add("--output", metavar="DIR", required=True, type=Path, help=_NEW_FOLDER)


@command.entry("convert", __doc__, add)
def main(flags: Namespace) -> int:
    """Writes the converted model to a new folder; returns 75 if healing was stopped."""
    output = local_path("--output", flags.output).absolute()
    if os.path.lexists(output):
        raise ConfigError(f"--output={flags.output} exists already; name a new folder")
    try:
        if flags.action == "import":
            from xlj.conversion.importing import import_folder

            import_folder(flags.source.expanduser(), output)
        elif flags.action == "export":
            _export(flags, output)
        elif flags.action == "merge":
            from xlj.conversion.merging import Ties, merge

            options = {name: getattr(flags, name) for name in ("share", "scale")}
            options = {name: value for name, value in options.items() if value is not None}
            if options and not flags.base:
                raise ConfigError(f"--{next(iter(options))} is an option of TIES; set --base too")
            ties = Ties(flags.base, **options) if flags.base else None
            merge(flags.models, output, flags.weights or (), ties)
        elif flags.action == "widen":
            from xlj.conversion.widening import widen

            sizes = {name: getattr(flags, name) for name in SIZES}
            sizes = {name: size for name, size in sizes.items() if size is not None}
            widen(flags.checkpoint, sizes, output, flags.copied)
        elif flags.action == "trim":
            if not _trim(flags, output):
                return own_process.CONTINUE
        else:
            if flags.pieces < 1 or not (flags.share is None or 0 < flags.share <= 1):
                raise ConfigError("--pieces must be at least 1, and --share above 0 and at most 1")
            from xlj.conversion.extending import extend_checkpoint

            text, pieces, share = flags.text, flags.pieces, flags.share
            extend_checkpoint(flags.checkpoint, text, pieces, share, output)
    except OSError as error:  # of the output, since errors of inputs are ConfigErrors
        raise ConfigError(f"--output={flags.output} cannot be written: {error}") from None
    return 0


def _export(flags: Namespace, output: Path) -> None:
    """Exports a model.

    Raises:
      ConfigError: if flags contradict each other.
    """
    if flags.int8 and flags.format != "onnx":
        raise ConfigError("--int8 needs --format=onnx")
    if flags.text and not flags.int8:
        raise ConfigError("--text measures what int8 weights change; set --int8 too")
    from xlj.conversion.exporting import export
    from xlj.conversion.graphs import Graphs
    from xlj.data.text.cleaning import read_texts

    graphs = Graphs(flags.int8, read_texts(flags.text)) if flags.format == "onnx" else None
    export(flags.checkpoint, output, flags.layer, flags.pooling or "", graphs=graphs)


def _trim(flags: Namespace, output: Path) -> bool:
    """Trims a model; returns False if healing was interrupted.

    Raises:
      ConfigError: if flags contradict each other.
    """
    by_text = flags.pieces is not None or flags.coverage is not None
    if not (by_text or flags.layers):
        raise ConfigError("nothing to trim; set --text with --pieces or --coverage, or --layers")
    if flags.pieces is not None and flags.coverage is not None:
        raise ConfigError("--pieces and --coverage are two ways to choose pieces; remove one flag")
    if by_text and not flags.text:
        raise ConfigError("--text: expected the text whose pieces remain")
    if flags.characters and not by_text:
        raise ConfigError(f"--characters={flags.characters} needs --pieces or --coverage")
    if not (flags.pieces is None or flags.pieces >= 1):
        raise ConfigError(f"--pieces={flags.pieces}: expected at least 1")
    if not (flags.coverage is None or 0 < flags.coverage <= 1):
        raise ConfigError(f"--coverage={flags.coverage:g}: expected above 0 and at most 1")
    if flags.heal and not flags.text:
        raise ConfigError("--heal needs --text to train on")
    if flags.minutes is not None and not (flags.heal and flags.minutes > 0):
        raise ConfigError(f"--minutes={flags.minutes:g}: expected above 0, and --heal")
    if flags.seed is not None and not flags.heal:
        raise ConfigError(f"--seed={flags.seed} needs --heal, which trains")
    from xlj.conversion.importing import print_next
    from xlj.conversion.trimming import Pieces, trim

    remaining = Pieces(flags.pieces, flags.coverage, flags.characters or "all")
    pieces = remaining if by_text else None
    if not flags.heal:
        trim(flags.checkpoint, output, flags.text, pieces, flags.layers)
        print_next(output)
        return True
    from xlj.adaptation.healing import MINUTES, check_source, heal
    from xlj.data.text.cleaning import read_texts

    check_source(flags.checkpoint)
    work = output.with_name(f"{output.name}.healing")
    if not (work / "trimmed").exists():
        work.mkdir(exist_ok=True)
        trim(flags.checkpoint, work / "trimmed", flags.text, pieces, flags.layers)
    minutes = flags.minutes or MINUTES
    texts = read_texts(flags.text)
    return heal(flags.checkpoint, texts, work, output, minutes, flags.seed or 0)


if __name__ == "__main__":
    raise SystemExit(main())
