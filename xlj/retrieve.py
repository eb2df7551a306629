"""Finds the translation of each sentence in another file, and prints the accuracy.

    python -m xlj.retrieve --checkpoint=DIR --source=de.txt --target=en.txt [--layers=all]

The files have one sentence per line. Line i of one file translates line i of the other file, unless
--gold names a file of labels in the format of XTREME (Tatoeba). The command prints accuracy@1 in
both directions as JSON. More: docs/retrieve.md
"""

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from xlj.cli import command, outputs, retrieval_flags, sentence_vectors

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.retrieval.search import Accuracy


@command.entry("retrieve", __doc__, retrieval_flags.add)
def main(flags: Namespace) -> None:
    """Embeds all files, searches, and prints the accuracy."""
    files = retrieval_flags.check(flags)
    from xlj.evaluation import language_report
    from xlj.retrieval import sentence_files
    from xlj.retrieval.search import Accuracy, accuracy, nearest

    # Reads all files before the model is loaded, so that errors in them are reported early.
    tasks = [
        sentence_files.read_task(
            paths.source, paths.target, paths.gold, is_numbered=paths.output is not None
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
                sentence_files.write_places(paths.output, neighbours.sources.indices[:, 0])
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
