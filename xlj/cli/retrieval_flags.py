"""The flags of `xlj.retrieve`, which of them go together, and the files of each language."""

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
    sentence_vectors.add_pair_flags(parser, "a sentence a line")
    parser.add_file(
        "--gold",
        "XTREME's labels: line i says which line of the source, from 0, line i of the target "
        "translates. Without it, the files are translations line by line",
    )
    parser.add_file(
        "--output",
        "XTREME's predictions: for each line of the target, its nearest source's, from 0",
    )
    add(
        "--languages",
        metavar="A,B",
        help="goes through them, in place of {language} in the files' names; and their average",
    )
    add("--layers", choices=("all",), help="accuracy at every layer (XLM-E Figure 3)")
    parser.add_file("--plot", "where --layers=all draws its curve (.png, .svg, .pdf) [nowhere]")
    add(
        "--similarity",
        choices=SIMILARITIES,
        default="cosine",
        help="cosine (the default), or the ratio margin over the nearest neighbours",
    )


def check(flags: Namespace) -> list[Files]:
    """The files of each language, or of the one without a name; raises a `ConfigError` if flags do
    not go together, or an output cannot be written."""
    from xlj.io import files

    languages = [name.strip() for name in flags.languages.split(",")] if flags.languages else [""]
    if flags.layers and (flags.layer is not None or flags.output):
        raise ConfigError("--layers=all only scores: it takes no --layer and no --output")
    for name in ("source", "target", "gold", "output"):
        path = getattr(flags, name)
        there = "{language}" in str(path)
        if there and not flags.languages:
            raise ConfigError(f"--{name}={path}: say which with --languages=A,B")
        if flags.languages and path and not there and name in ("source", "output"):
            raise ConfigError(f"--{name}={path}: with --languages it needs {{language}}")
        if flags.languages and path and not there and files.is_stream(path):
            raise ConfigError(f"--{name}={path}: it is read for each language, so must be a file")
    if flags.languages and ("" in languages or len(set(languages)) < len(languages)):
        raise ConfigError(f"--languages={flags.languages}: each language once, A,B")
    found = [_files(flags, language) for language in languages]
    inputs = [("checkpoint", flags.checkpoint)]
    for name in ("source", "target", "gold"):
        inputs += [(name, getattr(of_language, name)) for of_language in found]
    for of_language in found:
        outputs.check_output("output", of_language.output, inputs)
    outputs.check_plot_of_layers(flags.plot, flags.layers, inputs)
    return found


def _files(flags: Namespace, language: str) -> Files:
    source, target, gold, output = (
        Path(str(path).replace("{language}", language)) if path else None
        for path in (flags.source, flags.target, flags.gold, flags.output)
    )
    assert source and target
    return Files(language, source, target, gold, output)
