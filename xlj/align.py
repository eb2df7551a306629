"""Aligns the words of sentence pairs, and scores alignments against a gold standard.

    python -m xlj.align --checkpoint=DIR --input=pairs.tsv --output=links.txt
    python -m xlj.align --checkpoint=DIR --input=gold.tsv --gold [--layers=all]

A line of the input is `source TAB target`, words separated by spaces; a line of the output has the
links of that pair, `i-j` for the words i and j counted from 0. docs/align.md tells more.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from xlj.cli import alignment_flags, command, outputs
from xlj.config import ConfigError


@command.entry("align", __doc__, alignment_flags.add)
def main(flags: Namespace) -> None:
    """Aligns, writes links, prints scores."""
    alignment_flags.check(flags)
    from xlj.inference import pretrained
    from xlj.models.encoder import middle_layer
    from xlj.word_alignment import pair_files, sentence_pairs
    from xlj.word_alignment.aligner import Aligner

    size, pairs = sentence_pairs.checked(flags.input, flags.gold)
    encoder = pretrained.load(flags.checkpoint)
    depth = encoder.model.layers
    layer = middle_layer(depth) if flags.layer is None else flags.layer
    if not 0 <= layer <= depth:
        raise ConfigError(f"--layer={layer}: this model has layers 0 (embeddings) to {depth}")
    layers = list(range(depth + 1)) if flags.layers else [layer]
    aligner = Aligner(encoder, layers, flags.method, flags.encode == "together")
    with outputs.opened(flags.output) as file:
        scores = pair_files.align(aligner, size, pairs, file, scored=flags.gold is not None)
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
