"""Aligns the words of sentence pairs, and scores alignments against a gold standard.

    python -m xlj.align --checkpoint=DIR --input=pairs.tsv --output=links.txt
    python -m xlj.align --checkpoint=DIR --input=gold.tsv --gold [--layers=all]

An input line is `source TAB target`, with words separated by spaces. Output line n has the links of
input line n: `i-j` links word i of the source to word j of the target (zero-based). --html writes a
page that shows the alignments. --project transfers tags to the other language. --shard=I/N divides
the work among hosts. More: docs/align.md
"""

import contextlib
import dataclasses
import itertools
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import alignment_flags, command, compute_flags, outputs
from xlj.config import ConfigError
from xlj.config.choices import ENCODINGS, AlignmentOptions
from xlj.io.malformed import Skipping

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.api.encoder import Encoder
    from xlj.word_alignment.aligner import Aligner
    from xlj.word_alignment.gold_alignments import AlignmentScores
    from xlj.word_alignment.projection import Projection
    from xlj.word_alignment.sentence_pairs import Pair


@command.entry("align", __doc__, alignment_flags.add)
def main(flags: Namespace) -> None:
    """Aligns, writes links and prints scores."""
    alignment_flags.check(flags)
    if flags.shard:
        _align_shard(flags)
        return
    from xlj.word_alignment import projection, sentence_pairs

    form = sentence_pairs.Form(flags.columns, flags.words, flags.gold_from)
    skipping = Skipping(flags.malformed, "--malformed")
    size, pairs = sentence_pairs.read_checked(flags.input, flags.gold, skipping, form)
    labels = None
    if flags.project:
        in_memory = list(pairs)
        labels, pairs = projection.read(flags.project, in_memory), iter(in_memory)
    encoder = _load(flags)
    if flags.layers:
        _score_layers(flags, encoder, size, list(pairs))
        return
    options = _options(flags, encoder)
    aligner = _aligner(flags, encoder, options)
    _report_options(options, encoder)
    settings = dataclasses.asdict(options) | {"threshold": aligner.threshold}
    settings = {name: value for name, value in settings.items() if value or name == "layer"}
    tags = projection.Projection(labels) if labels else None
    scores = _align(flags, aligner, size, pairs, settings, tags)
    for name in ("output", "html"):
        path = getattr(flags, name)
        if path and path != "-":
            what = "labels" if tags and name == "output" else _CONTENTS[name]
            print(f"{path}: {what} of {size:,} pairs", file=sys.stderr)
    _report_windows(aligner, size)
    skipping.report()
    if tags:
        print(tags.report(), file=sys.stderr)
    if scores:
        rounded = {name: round(value, 6) for name, value in scores._asdict().items()}
        print(json.dumps({**settings, "pairs": size, **rounded}))


_CONTENTS = {"output": "links", "html": "a page"}
_OPTIONS = tuple(field.name for field in dataclasses.fields(AlignmentOptions))


def _load(flags: Namespace) -> "Encoder":
    """Loads the encoder. On --text, the means of the vectors that are aligned are compared."""
    return compute_flags.load_encoder(flags, () if flags.layer is None else (flags.layer,), "text")


def _options(flags: Namespace, encoder: "Encoder") -> AlignmentOptions:
    """Returns the alignment options. The model's options replace flags that are not set."""
    depth = encoder.layers
    if flags.layer is not None and not 0 <= flags.layer <= depth:
        raise ConfigError(f"--layer={flags.layer}: this model has layers 0 (embeddings) to {depth}")
    return encoder.alignment_options(**{name: getattr(flags, name) for name in _OPTIONS})


def _report_options(options: AlignmentOptions, encoder: "Encoder") -> None:
    """Prints the method, the encoding and the layer."""
    from xlj.word_alignment import defaults

    print(defaults.describe(options, encoder.pretrained), file=sys.stderr)


def _aligner(
    flags: Namespace, encoder: "Encoder", options: AlignmentOptions, layers: Iterable[int] = ()
) -> "Aligner":
    from xlj.word_alignment.aligner import Aligner

    return Aligner(encoder.pretrained, options, tuple(layers), flags.threshold)


def _align_shard(flags: Namespace) -> None:
    """Aligns the missing parts of this shard."""
    from xlj.io import atomic, file_ranges
    from xlj.io.part_files import PartFiles
    from xlj.word_alignment import link_formats, sentence_pairs

    form = sentence_pairs.Form(flags.columns, flags.words)
    paths = file_ranges.files_of_flag("input", flags.input)
    units = file_ranges.split_files(paths)
    layouts = {path: sentence_pairs.find_layout(path, columns=flags.columns) for path in paths}
    names = (*_OPTIONS, "threshold", "lowercase", "columns", "words", "output_format", "scores")
    job = outputs.shard_job(flags, paths, names)
    part_files = PartFiles(Path(flags.output), job, len(units), ".links", flags.shard)
    skipping = Skipping(flags.malformed, "--malformed")
    if part_files.remaining():
        encoder = _load(flags)
        options = _options(flags, encoder)
        aligner = _aligner(flags, encoder, options)
        _report_options(options, encoder)
    for part in part_files.remaining():
        unit, size = units[part], 0
        texts = sentence_pairs.of_lines(
            unit.lines(skipping), unit.place, layouts[unit.path], skipping, not unit.start
        )
        pairs: Iterable[Pair] = (sentence_pairs.make_pair(each, form) for each in texts)
        pairs, same_pairs = itertools.tee(_with_progress(pairs, None))
        with atomic.writing(part_files.file(part)) as output:
            alignments = aligner.scored(
                _normalise(pairs, flags), of_pieces=flags.output_format == "pieces"
            )
            for size, ((aligned,), pair) in enumerate(zip(alignments, same_pairs, strict=True), 1):
                links = link_formats.write(flags.output_format, size, pair, aligned, flags.scores)
                output.write(links.encode())
        part_files.mark_complete(part, **unit.as_json(), pairs=size)
    skipping.report()
    outputs.finish_shard(part_files)


def _align(
    flags: Namespace,
    aligner: "Aligner",
    size: int,
    pairs: Iterator["Pair"],
    settings: dict,
    projection: "Projection | None",
) -> "AlignmentScores | None":
    """Aligns each pair and writes the files that the flags name; returns the scores if --gold is
    set."""
    from xlj.word_alignment import gold_alignments, link_formats
    from xlj.word_alignment.page import Page

    golds, predictions = [], []
    hidden = outputs.hides_bar(flags.output)
    pairs, same_pairs = itertools.tee(_with_progress(pairs, size, hidden))
    with contextlib.ExitStack() as files:
        output, html = (
            files.enter_context(outputs.open_output(path))
            for path in (flags.output, flags.html and str(flags.html))
        )
        title = f"{flags.input.name}, aligned"
        page = Page(html, title, settings, flags.gold is not None) if html else None
        if page:
            files.enter_context(page)
        of_pieces = flags.output_format == "pieces"
        alignments = aligner.scored(_normalise(pairs, flags), of_pieces=of_pieces)
        for index, ((aligned,), pair) in enumerate(zip(alignments, same_pairs, strict=True)):
            if output and projection:
                words, tags = projection.tags(index, pair, aligned)
                lines = [f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)]
                output.write("".join([*lines, "\n"] if lines else lines).encode())
            elif output:
                links = link_formats.write(
                    flags.output_format, index + 1, pair, aligned, flags.scores
                )
                output.write(links.encode())
            if page:
                page.add(pair, aligned)
            if flags.gold is not None and pair.gold is not None:
                golds.append(pair.gold)
                predictions.append(aligned.links)
    return gold_alignments.score(predictions, golds) if flags.gold is not None else None


def _with_progress(
    pairs: Iterable["Pair"], size: int | None, hides_bar: bool | None = None
) -> Iterable["Pair"]:
    """Wraps the pairs in a progress bar."""
    from tqdm import tqdm

    return tqdm(pairs, "aligning", size, unit=" pairs", disable=hides_bar)


def _normalise(pairs: Iterable["Pair"], flags: Namespace) -> Iterator["Pair"]:
    """Yields the pairs, with lowercase words if --lowercase is set."""
    for pair in pairs:
        if flags.lowercase:
            source, target = ([word.lower() for word in side] for side in pair[1:3])
            pair = pair._replace(source=source, target=target)
        yield pair


def _report_windows(aligner: "Aligner", size: int) -> None:
    if aligner.windowed:
        print(
            f"{aligner.windowed} of {size} pairs were too long for the model and were encoded in "
            "overlapping windows",
            file=sys.stderr,
        )


def _score_layers(flags: Namespace, encoder: "Encoder", size: int, pairs: list["Pair"]) -> None:
    """Prints the scores of all layers for each selected method and encoding. Also writes the scores
    to --output, and plots them to --plot."""
    from xlj.evaluation import language_report
    from xlj.io import atomic
    from xlj.word_alignment import gold_alignments

    options = _options(flags, encoder)
    methods = encoder.methods if options.method == "all" else (options.method,)
    encodings = ENCODINGS if options.encode == "all" else (options.encode,)
    variants = list(itertools.product(encodings, methods))
    layers = range(encoder.layers + 1)
    by_variant: dict[str, list] = {}
    lines = []
    for encode, method in variants:
        variant = dataclasses.replace(options, encode=encode, method=method)
        aligner = _aligner(flags, encoder, variant, layers)
        links = list(aligner.align(_normalise(_with_progress(pairs, size), flags)))
        golds = [pair.gold for pair in pairs if pair.gold is not None]
        scores = [gold_alignments.score([by_layer[k] for by_layer in links], golds) for k in layers]
        by_variant[f"{encode} {method}"] = scores
        names = {"encode": encode, "method": method} if len(variants) > 1 else {}
        lines += [{**names, "layer": i, **score._asdict()} for i, score in enumerate(scores)]
        if method == methods[0]:
            _report_windows(aligner, size)
    print(language_report.layer_table(by_variant))
    if flags.output:
        content = "".join(f"{json.dumps(line)}\n" for line in lines)
        atomic.write(Path(flags.output), content.encode())
    curves = {name: [score.aer for score in scores] for name, scores in by_variant.items()}
    title = flags.input.name if len(variants) > 1 else f"{flags.input.name}: {options.method}"
    if flags.plot:
        outputs.draw(
            flags.plot, lambda: language_report.plot_layers(curves, flags.plot, title, "AER")
        )


if __name__ == "__main__":
    raise SystemExit(main())
