"""Flags of `xlj.retrieve`, checks of their combinations, and the files of each language."""

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from xlj.cli import outputs, sentence_vectors
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import SIMILARITIES


class Files(NamedTuple):
    """The files of one language."""

    language: str
    source: Path
    target: Path
    gold: Path | None
    output: Path | None


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_pair_flags(parser, "one sentence per line")
    parser.add_file(
        "--gold",
        "file of labels in the format of XTREME: line i has the zero-based number of the source "
        "line that target line i translates [target line i translates source line i]",
    )
    parser.add_file(
        "--output",
        "file for predictions in the format of XTREME: for each target line, the zero-based number "
        "of the nearest source line",
    )
    add(
        "--languages",
        metavar="A,B",
        help="languages to evaluate one after another, separated by commas. Each replaces "
        "{language} in the file names; the average is printed last",
    )
    add("--layers", choices=("all",), help="print the accuracy at every layer (XLM-E Figure 3)")
    parser.add_file(
        "--plot", "file for a plot of the accuracy by layer, with --layers=all (.png, .svg, .pdf)"
    )
    add(
        "--similarity",
        choices=SIMILARITIES,
        default="cosine",
        help="cosine: the cosine of two vectors. margin: the cosine divided by the mean cosine of "
        "both vectors with their nearest neighbours [cosine]",
    )


def check(flags: Namespace) -> list[Files]:
    """Returns the files of each language. Without --languages, this is one item, whose language is
    empty.

    Raises:
      ConfigError: if flags contradict each other, or an output cannot be written.
    """
    from xlj.io import files

    languages = [name.strip() for name in flags.languages.split(",")] if flags.languages else [""]
    if flags.layers and (flags.layer is not None or flags.output):
        raise ConfigError("--layers=all only prints scores: remove --layer and --output")
    for name in ("source", "target", "gold", "output"):
        path = getattr(flags, name)
        is_template = "{language}" in str(path)
        if is_template and not flags.languages:
            raise ConfigError(f"--{name}={path}: name the languages with --languages=A,B")
        if flags.languages and path and not is_template and name in ("source", "output"):
            raise ConfigError(f"--{name}={path}: with --languages, the name needs {{language}}")
        if flags.languages and path and not is_template and files.is_stream(path):
            raise ConfigError(
                f"--{name}={path}: --languages reads this input once for each language; name a "
                "file, not a stream"
            )
    if flags.languages and ("" in languages or len(set(languages)) < len(languages)):
        raise ConfigError(f"--languages={flags.languages}: a language is empty or repeated")
    by_language = [_files(flags, language) for language in languages]
    inputs = [("checkpoint", flags.checkpoint)]
    for name in ("source", "target", "gold"):
        inputs += [(name, getattr(files_of, name)) for files_of in by_language]
    for files_of in by_language:
        outputs.check_output("output", files_of.output, inputs)
    outputs.check_plot_of_layers(flags.plot, flags.layers, inputs)
    return by_language


def _files(flags: Namespace, language: str) -> Files:
    source, target, gold, output = (
        Path(str(path).replace("{language}", language)) if path else None
        for path in (flags.source, flags.target, flags.gold, flags.output)
    )
    assert source and target
    return Files(language, source, target, gold, output)
