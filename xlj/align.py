"""Aligns the words of sentence pairs, and scores alignments against a gold standard.

    python -m xlj.align --checkpoint=DIR --input=pairs.tsv --output=links.txt
    python -m xlj.align --checkpoint=DIR --input=gold.tsv --gold [--layers=all]

A line of the input is `source TAB target`, words separated by spaces; a line of the output has the
links of that pair, `i-j` for the words i and j counted from 0. docs/align.md tells more.
"""

from __future__ import annotations

import contextlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xlj import cli
from xlj.config import ConfigError

_METHODS = ("optimal_transport", "released", "argmax", "itermax", "match")


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    add(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help=cli.CHECKPOINT,
    )
    add(
        "--input",
        metavar="FILE",
        required=True,
        type=Path,
        help="sentence pairs: TSV, also .gz, .xz or .zst; a first line `src TAB tgt` is a header",
    )
    add("--output", metavar="FILE", help="where the links go, a line a pair; - prints them")
    add(
        "--method",
        choices=_METHODS,
        default="optimal_transport",
        help="optimal_transport: XLM-Align's paper (the default). released: XLM-Align's released "
        "aligner. argmax, itermax, match: SimAlign's",
    )
    add(
        "--encode",
        choices=("together", "apart"),
        default="together",
        help="together: a pair as one example, as XLM-Align does (the default). apart: each "
        "sentence alone, as SimAlign does",
    )
    add(
        "--layer",
        metavar="N",
        type=int,
        help="whose hidden vectors to compare; 0 is the embeddings. The default is the layer "
        "nearest to two thirds of the depth: 8 of 12",
    )
    add(
        "--layers",
        choices=("all",),
        help="score every layer: a table of AER by layer, and a plot; needs --gold",
    )
    add(
        "--gold",
        metavar="FILE",
        nargs="?",
        const="",
        help="score against gold links: the third column of the input, or FILE. Links are `i-j` "
        "(sure) and `ipj` (possible), from 0; or FILE has lines `id source target [S|P]`, from 1",
    )
    add(
        "--plot",
        metavar="FILE",
        type=Path,
        default=Path("aer_by_layer.png"),
        help="where --layers=all draws (.png, .svg, .pdf) [aer_by_layer.png]",
    )
    add("--scores", metavar="FILE", help="where --layers=all writes a line of JSON a layer")
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Aligns, writes links, prints scores."""
    _check(flags)
    from xlj.inference import pretrained
    from xlj.models.encoder import middle_layer
    from xlj.word_alignment import gold_alignments, sentence_pairs
    from xlj.word_alignment.aligner import Aligner

    # Reads everything once before any work, so that no error in it comes late.
    pairs, source = sentence_pairs.counted(flags.input, with_gold=flags.gold == "")
    golds = gold_alignments.read(Path(flags.gold)) if flags.gold else None
    if golds is not None and len(golds) != pairs:
        raise ConfigError(
            f"--gold={flags.gold} has links of {len(golds)} sentence pairs, but {flags.input} has "
            f"{pairs} pairs"
        )
    encoder = pretrained.load(flags.checkpoint)
    depth = encoder.model.layers
    layer = middle_layer(depth) if flags.layer is None else flags.layer
    if not 0 <= layer <= depth:
        raise ConfigError(f"--layer={layer}: this model has layers 0 (embeddings) to {depth}")
    layers = list(range(depth + 1)) if flags.layers else [layer]
    aligner = Aligner(encoder, layers, flags.method, flags.encode == "together")
    scores = _align(flags, aligner, source, pairs, golds)
    if aligner.windowed:
        print(
            f"{aligner.windowed} of {pairs} pairs were too long for the model, and were encoded in "
            "overlapping windows",
            file=sys.stderr,
        )
    if flags.layers:
        _report_layers(flags, scores)
    elif scores:
        chosen = {"method": flags.method, "encode": flags.encode, "layer": layer, "pairs": pairs}
        rounded = {name: round(value, 6) for name, value in scores[0]._asdict().items()}
        print(json.dumps({**chosen, **rounded}))


def _check(flags: Namespace) -> None:
    if flags.layers and (flags.gold is None or flags.output or flags.layer is not None):
        raise ConfigError("--layers=all only scores: it needs --gold, and no --output or --layer")
    if not flags.output and flags.gold is None:
        raise ConfigError("say where the links go with --output=FILE, or score them with --gold")
    if flags.scores and not flags.layers:
        raise ConfigError(f"--scores={flags.scores} needs --layers=all")
    paths = {"output": flags.output, "plot": flags.layers and flags.plot, "scores": flags.scores}
    for flag, path in paths.items():
        if path and path != "-":
            cli.check_output(flag, path, cli.PLOTS if flag == "plot" else ())


def _align(
    flags: Namespace, aligner: Any, source: Iterator[Any], pairs: int, golds: list | None
) -> list:
    """Writes the links, and returns the `Scores` of each layer if there is gold."""
    from tqdm import tqdm

    from xlj.word_alignment import gold_alignments

    kept: list = []

    def passing() -> Iterator[Any]:
        for pair in tqdm(source, "aligning", pairs, unit=" pairs", disable=None):
            if pair.gold:
                kept.append(pair.gold)
            yield pair

    found = []
    with _output(flags.output) as file:
        for links in aligner.align(passing()):
            if file:
                file.write(b" ".join(b"%d-%d" % (i, j) for i, j in links[0].tolist()) + b"\n")
            if flags.gold is not None:
                found.append(links)
    golds = kept if golds is None else golds
    if not golds:
        return []
    return [
        gold_alignments.score([links[layer] for links in found], golds)
        for layer in range(len(found[0]))
    ]


def _output(path: str | None) -> contextlib.AbstractContextManager:
    from xlj.io import atomic

    if path is None:
        return contextlib.nullcontext()
    if path == "-":
        return contextlib.nullcontext(sys.stdout.buffer)
    return atomic.writing(Path(path))


def _report_layers(flags: Namespace, scores: list) -> None:
    from xlj.evaluation import layer_report
    from xlj.io import atomic

    print(layer_report.table(scores))
    if flags.scores:
        lines = [json.dumps({"layer": i, **found._asdict()}) for i, found in enumerate(scores)]
        atomic.write(Path(flags.scores), "".join(f"{line}\n" for line in lines).encode())
    curves, title = {"AER": [found.aer for found in scores]}, f"{flags.input.name}: {flags.method}"
    cli.draw(flags.plot, lambda: layer_report.plot(curves, flags.plot, title, "AER"))


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
