"""Finds each sentence's translation among those of another file, and says how often rightly.

    python -m xlj.retrieve --checkpoint=DIR --source=de.txt --target=en.txt [--layers=all]

The files hold a sentence a line, translations of each other line by line, or in XTREME's form
(Tatoeba), with --gold. Prints accuracy@1 in both directions as JSON. docs/retrieve.md tells more.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlj import cli, sentence_doors
from xlj.config import ConfigError


class _Task(NamedTuple):
    """Two files of sentences, and which of them translate each other."""

    language: str
    source: list[str]
    target: list[str]
    translations: Any  # int64 [targets], or None: line by line
    output: Path | None


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    sentence_doors.add_flags(parser)
    for name in ("--source", "--target"):
        add(
            name,
            metavar="FILE",
            required=True,
            help="a sentence a line: text, also .gz, .xz or .zst",
        )
    add(
        "--gold",
        metavar="FILE",
        help="XTREME's labels: line i says which line of the source, from 0, line i of the target "
        "translates. Without it, the files are translations line by line",
    )
    add(
        "--output",
        metavar="FILE",
        help="XTREME's predictions: for each line of the target, its nearest source's, from 0",
    )
    add(
        "--languages",
        metavar="A,B",
        help="goes through them, in place of {language} in the files' names; and their average",
    )
    add("--layers", choices=("all",), help="accuracy at every layer, and a plot (XLM-E Figure 3)")
    add(
        "--plot",
        metavar="FILE",
        type=Path,
        default=Path("accuracy_by_layer.png"),
        help="where --layers=all draws (.png, .svg, .pdf) [accuracy_by_layer.png]",
    )
    add(
        "--similarity",
        choices=("cosine", "margin"),
        default="cosine",
        help="cosine (the default), or the ratio margin over the nearest neighbours",
    )
    sentence_doors.add_centred(parser)
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Embeds all files, searches, prints."""
    languages = [name.strip() for name in flags.languages.split(",")] if flags.languages else [""]
    _check(flags, languages)
    # Reads everything before any work, so that no error in it comes late.
    tasks = [_read(flags, language) for language in languages]
    from xlj.retrieval.nearest import Accuracy, accuracy, nearest

    embedder = sentence_doors.embedder(flags, all_layers=bool(flags.layers))
    layers: list[list[Accuracy]] = [[] for _ in embedder.layers]
    for task in tasks:
        vectors = sentence_doors.embed(flags, embedder, task.source, task.target)
        for layer, scores, source, target in zip(embedder.layers, layers, *vectors, strict=True):
            found = nearest(source, target, flags.similarity)
            if task.output:
                _write(task.output, found.sources.indices[:, 0])
            scores.append(accuracy(found, task.translations))
            named = {"language": task.language} if task.language else {}
            _print({**named, "layer": layer}, scores[-1], len(task.target))
    sentence_doors.report_cut(embedder)
    means = [Accuracy(*(sum(x) / len(x) for x in zip(*s, strict=True))) for s in layers]
    if flags.languages:
        for layer, mean in zip(embedder.layers, means, strict=True):
            _print({"language": "average", "layer": layer}, mean, sum(len(t.target) for t in tasks))
    if flags.layers:
        _draw(flags, means)


def _check(flags: Namespace, languages: Sequence[str]) -> None:
    from xlj.io import files

    if flags.layers and (flags.layer is not None or flags.output):
        raise ConfigError("--layers=all only scores: it takes no --layer and no --output")
    for name in ("source", "target", "gold", "output"):
        path = getattr(flags, name)
        there = "{language}" in (path or "")
        if there and not flags.languages:
            raise ConfigError(f"--{name}={path}: say which with --languages=A,B")
        if flags.languages and path and not there and name in ("source", "output"):
            raise ConfigError(f"--{name}={path}: with --languages it needs {{language}}")
        if flags.languages and path and not there and files.is_stream(Path(path)):
            raise ConfigError(f"--{name}={path}: it is read for each language, so must be a file")
    if flags.languages and ("" in languages or len(set(languages)) < len(languages)):
        raise ConfigError(f"--languages={flags.languages}: each language once, A,B")
    for language in languages:
        if flags.output:
            cli.check_output("output", flags.output.replace("{language}", language))
    if flags.layers:
        cli.check_output("plot", flags.plot, cli.PLOTS)


def _read(flags: Namespace, language: str) -> _Task:
    from xlj.retrieval import sentence_files

    source, target, gold, output = (
        Path(path.replace("{language}", language)) if path else None
        for path in (flags.source, flags.target, flags.gold, flags.output)
    )
    assert source and target
    sides = sentence_files.read(source), sentence_files.read(target)
    sizes = len(sides[0]), len(sides[1])
    if not gold and sizes[0] != sizes[1]:
        raise ConfigError(
            f"{source} has {sizes[0]} lines but {target} has {sizes[1]}; line i of one must be the "
            "translation of line i of the other, or --gold must say which is whose"
        )
    if sizes == (1, 1):
        raise ConfigError(f"{source} has one sentence, and so has {target}: there are no others")
    for path, side in zip((source, target), sides, strict=True):
        sentence_doors.check_centred(flags, path, side)
    if gold:
        return _Task(language, *sides, sentence_files.read_places(gold, *sizes), output)
    for path, side, other in ((source, *sides), (target, *sides[::-1])):
        if len(side) >= 10 and side == sorted(side) and other != sorted(other):
            print(
                f"{path} is sorted, as the English side of XTREME's Tatoeba is; if the lines do "
                "not translate each other one by one, give --gold",
                file=sys.stderr,
            )
    return _Task(language, *sides, None, output)


def _print(first: dict, found: Any, sentences: int) -> None:
    print(json.dumps({**first, **found._asdict(), "sentences": sentences}), flush=True)


def _write(path: Path, places: Any) -> None:
    from xlj.io import atomic

    atomic.write(path, "".join(f"{place}\n" for place in places).encode())


def _draw(flags: Namespace, means: Sequence[Any]) -> None:
    from xlj.evaluation import layer_report

    names = ("source to target", "target to source")
    curves = dict(zip(names, zip(*means, strict=True), strict=True))
    title = f"{Path(flags.source).name}: {flags.similarity}, {flags.pooling}"
    title += ", centred" if flags.centred else ""
    cli.draw(flags.plot, lambda: layer_report.plot(curves, flags.plot, title, "accuracy@1"))


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
