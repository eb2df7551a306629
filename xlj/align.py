"""Aligns the words of sentence pairs, and scores alignments against a gold standard.

    python -m xlj.align --checkpoint=DIR --input=pairs.tsv --output=links.txt
    python -m xlj.align --checkpoint=DIR --input=gold.tsv --gold [--layers=all]

A line of the input is `source TAB target`, words separated by spaces; a line of the output has the
links of that pair, `i-j` for the words i and j counted from 0. docs/align.md tells more.
"""

import itertools
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlj.cli import alignment_flags, command, outputs
from xlj.config import ConfigError


@command.entry("align", __doc__, alignment_flags.add)
def main(flags: Namespace) -> None:
    """Aligns, writes links, prints scores."""
    alignment_flags.check(flags)
    from xlj.inference import pretrained
    from xlj.models.encoder import middle_layer
    from xlj.word_alignment import sentence_pairs
    from xlj.word_alignment.aligner import Aligner

    size, pairs = sentence_pairs.checked(flags.input, flags.gold)
    encoder = pretrained.load(flags.checkpoint)
    depth = encoder.model.layers
    layer = middle_layer(depth) if flags.layer is None else flags.layer
    if not 0 <= layer <= depth:
        raise ConfigError(f"--layer={layer}: this model has layers 0 (embeddings) to {depth}")
    layers = list(range(depth + 1)) if flags.layers else [layer]
    aligner = Aligner(encoder, layers, flags.method, flags.encode == "together")
    scores = _aligned(flags, aligner, size, pairs)
    if aligner.windowed:
        print(
            f"{aligner.windowed} of {size} pairs were too long for the model, and were "
            "encoded in overlapping windows",
            file=sys.stderr,
        )
    if flags.layers:
        _report_layers(flags, scores)
    elif scores:
        chosen = {"method": flags.method, "encode": flags.encode, "layer": layer}
        rounded = {name: round(value, 6) for name, value in scores[0]._asdict().items()}
        print(json.dumps({**chosen, "pairs": size, **rounded}))


def _aligned(flags: Namespace, aligner: Any, size: int, pairs: Any) -> list:
    """Writes the links of the first layer, a line a pair; the scores of each, if asked for."""
    from tqdm import tqdm

    from xlj.word_alignment import gold_alignments

    golds, kept = [], []
    pairs, again = itertools.tee(tqdm(pairs, "aligning", size, unit=" pairs", disable=None))
    with outputs.opened(flags.output) as file:
        for links, pair in zip(aligner.align(pairs), again, strict=True):
            if file:
                file.write(b" ".join(b"%d-%d" % (i, j) for i, j in links[0].tolist()) + b"\n")
            if flags.gold is not None:
                golds.append(pair.gold)
                kept.append(links)
    return [gold_alignments.score(of_layer, golds) for of_layer in zip(*kept, strict=True)]


def _report_layers(flags: Namespace, scores: list) -> None:
    from xlj.evaluation import layer_report
    from xlj.io import atomic

    print(layer_report.table(scores))
    if flags.scores:
        lines = [json.dumps({"layer": i, **found._asdict()}) for i, found in enumerate(scores)]
        atomic.write(Path(flags.scores), "".join(f"{line}\n" for line in lines).encode())
    curves, title = {"AER": [found.aer for found in scores]}, f"{flags.input.name}: {flags.method}"
    outputs.draw(flags.plot, lambda: layer_report.plot(curves, flags.plot, title, "AER"))


if __name__ == "__main__":
    raise SystemExit(main())
