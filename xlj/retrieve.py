"""Finds the translation of each sentence in another file, and prints the accuracy.

    python -m xlj.retrieve --checkpoint=DIR --source=de.txt --target=en.txt [--layers=all]

The files have one sentence per line. Line i of one file translates line i of the other file, unless
--gold names a file of labels in the format of XTREME (Tatoeba). The command prints accuracy@1 in
both directions as JSON. More: docs/retrieve.md
"""

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xlj.cli import command, outputs, sentence_vectors
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import SIMILARITIES

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.retrieval.search import Accuracy


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


@command.entry("retrieve", __doc__, add)
def main(flags: Namespace) -> None:
    """Embeds all files, searches, and prints the accuracy."""
    files = check(flags)
    from xlj.evaluation import language_report
    from xlj.retrieval import sentence_files
    from xlj.retrieval.search import Accuracy, accuracy, nearest

    # Reads all files before the model is loaded, so that errors in them are reported early.
    tasks = [
        sentence_files.read_task(
            paths.source,
            paths.target,
            paths.gold,
            is_numbered=paths.output is not None,
            columns=flags.columns,
        )
        for paths in files
    ]
    for paths, task in zip(files, tasks, strict=True):
        sentence_vectors.check_centred(flags, paths.source, task.source)
        sentence_vectors.check_centred(flags, paths.target, task.target)
    embedder = sentence_vectors.load_embedder(flags, all_layers=bool(flags.layers))
    layers: list[list[Accuracy]] = [[] for _ in embedder.layers]
    for paths, task in zip(files, tasks, strict=True):
        vectors = sentence_vectors.embed(flags, embedder, task.source, task.target)
        for layer, scores, source, target in zip(embedder.layers, layers, *vectors, strict=True):
            neighbours = nearest(source, target, flags.similarity)
            if paths.output:
                sentence_files.write_indices(paths.output, neighbours.sources.indices[:, 0])
            scores.append(accuracy(neighbours, task.translations))
            name = {"language": paths.language} if paths.language else {}
            _print({**name, "layer": layer}, scores[-1], len(task.target))
    sentence_vectors.report_truncated(embedder)
    means = [Accuracy(*(sum(x) / len(x) for x in zip(*s, strict=True))) for s in layers]
    if flags.languages:
        for layer, mean in zip(embedder.layers, means, strict=True):
            _print({"language": "average", "layer": layer}, mean, sum(len(t.target) for t in tasks))
    if flags.plot:
        curves = {
            "source to target": [mean.source_to_target for mean in means],
            "target to source": [mean.target_to_source for mean in means],
        }
        title = f"{flags.source.name}: {flags.similarity}, {flags.pooling or 'mean'}"
        title += ", centred" if flags.centred else ""
        outputs.draw(
            flags.plot, lambda: language_report.plot_layers(curves, flags.plot, title, "accuracy@1")
        )


def _print(names: dict, accuracy: "Accuracy", sentences: int) -> None:
    print(json.dumps({**names, **accuracy._asdict(), "sentences": sentences}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
