"""Finds the translation of each sentence in another file, and prints the scores.

    python -m xlj.retrieve --checkpoint=DIR --source=de.txt --target=en.txt [--layers=all]
    python -m xlj.retrieve --checkpoint=DIR --set=flores200/dev --languages=all [--changed=numbers]

The files have one sentence per line. Line i of one file translates line i of the other file, unless
--gold names a file of labels in the format of XTREME (Tatoeba). The first command prints accuracy,
F1 and xsim in both directions as JSON. The second command prints a table of all languages of a set,
such as FLORES or NTREX. More: docs/retrieve.md
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
    from collections.abc import Mapping, Sequence

    from xlj.evaluation.bitext import SetScores
    from xlj.retrieval.changed_sentences import Changed
    from xlj.retrieval.sentence_embedder import SentenceEmbedder


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
    sentence_vectors.add_pair_flags(parser, "one sentence per line", required=False)
    parser.add_file(
        "--set",
        "folder of parallel files in many languages, named as in FLORES (eng_Latn.dev), as in "
        "NTREX (newstest2019-ref.deu.txt) or by pair (en-de.tsv), or a file name with {language}; "
        "instead of --source and --target",
    )
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
        help="languages to evaluate, separated by commas, or all. Each replaces {language} in the "
        "file names; the average is printed last [with --set: all]",
    )
    add(
        "--pivot",
        metavar="LANGUAGE",
        help="with --set: score only the pairs with this language [all pairs]",
    )
    add(
        "--changed",
        metavar="numbers|FILE",
        help="with --set: compute xsim++ into English, or into --pivot, with changed sentences of "
        "this language: a file with one per line, such as LASER's eng_Latn_augmented.devtest, or "
        "numbers: the numbers of the sentences are changed. Several are separated by commas",
    )
    parser.add_file("--json", "with --set: file for the scores of all pairs as JSON")
    add("--layers", choices=("all",), help="print the accuracy at every layer (XLM-E Figure 3)")
    parser.add_file(
        "--plot",
        "file for a plot (.png, .svg, .pdf): with --layers=all the accuracy by layer, with --set a "
        "heat map of xsim",
    )
    add(
        "--similarity",
        choices=SIMILARITIES,
        default="cosine",
        help="cosine: the cosine of two vectors. margin: the cosine divided by the mean cosine of "
        "both vectors with their nearest neighbours [cosine]",
    )


def check(flags: Namespace) -> list[Files]:
    """Returns the files of each language; none with --set. Without --languages and --set, this is
    one item, whose language is empty.

    Raises:
      ConfigError: if flags contradict each other, or an output cannot be written.
    """
    from xlj.io import files

    if flags.set:
        _check_set(flags)
        return []
    if not (flags.source and flags.target):
        raise ConfigError("name two files with --source and --target, or a folder with --set")
    for name in ("pivot", "changed", "json"):
        if getattr(flags, name):
            raise ConfigError(f"--{name} is a flag of --set; remove --{name}, or name a --set")
    if flags.layers and (flags.layer is not None or flags.output):
        raise ConfigError("--layers=all only prints scores: remove --layer and --output")
    for name in ("source", "target", "gold", "output"):
        path = getattr(flags, name)
        is_template = "{language}" in str(path)
        if is_template and not flags.languages:
            raise ConfigError(f"--{name}={path}: name the languages with --languages=A,B or =all")
        if flags.languages and path and not is_template and name in ("source", "output"):
            raise ConfigError(f"--{name}={path}: with --languages, the name needs {{language}}")
        if flags.languages and path and not is_template and files.is_stream(path):
            raise ConfigError(
                f"--{name}={path}: --languages reads this input once for each language; name a "
                "file, not a stream"
            )
    by_language = [_files(flags, language) for language in _languages(flags) or [""]]
    inputs = [("checkpoint", flags.checkpoint)]
    for name in ("source", "target", "gold"):
        inputs += [(name, getattr(files_of, name)) for files_of in by_language]
    for files_of in by_language:
        outputs.check_output("output", files_of.output, inputs)
    outputs.check_plot_of_layers(flags.plot, flags.layers, inputs)
    return by_language


def _check_set(flags: Namespace) -> None:
    for name in ("source", "target", "gold", "output", "layers", "columns"):
        if getattr(flags, name):
            raise ConfigError(f"--{name} cannot be combined with --set; remove one of them")
    if flags.centred and flags.changed:
        raise ConfigError("--centred cannot be combined with --changed; remove one of them")
    if flags.similarity != SIMILARITIES[0]:
        raise ConfigError(
            f"--similarity={flags.similarity}: with --set, F1 and accuracy use cosines, and xsim "
            "uses margins; remove --similarity"
        )
    inputs = [("checkpoint", flags.checkpoint), ("set", flags.set)]
    outputs.check_output("json", flags.json, inputs, (".json",))
    outputs.check_output("plot", flags.plot, inputs, outputs.PLOTS)


def _languages(flags: Namespace) -> list[str]:
    """Returns the languages that --languages names; empty for all languages of a set."""
    if not flags.languages or (flags.languages == "all" and flags.set):
        return []
    if flags.languages == "all":
        from xlj.data.text import templates

        found = templates.find_languages(str(flags.source))
        if not found:
            raise ConfigError(f"--source={flags.source}: there is no such file of any language")
        return [language for language, _ in found]
    names = [name.strip() for name in flags.languages.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(f"--languages={flags.languages}: a language is empty or repeated")
    return names


def _files(flags: Namespace, language: str) -> Files:
    source, target, gold, output = (
        Path(str(path).replace("{language}", language)) if path else None
        for path in (flags.source, flags.target, flags.gold, flags.output)
    )
    assert source and target
    return Files(language, source, target, gold, output)


@command.entry("retrieve", __doc__, add)
def main(flags: Namespace) -> None:
    """Embeds all files, searches, and prints the scores."""
    files = check(flags)
    if flags.set:
        _score_set(flags)
        return
    from xlj.evaluation import bitext, language_report
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
    rows: list[list[dict[str, float]]] = [[] for _ in embedder.layers]
    for paths, task in zip(files, tasks, strict=True):
        vectors = sentence_vectors.embed(flags, embedder, task.source, task.target)
        for layer, scores, source, target in zip(embedder.layers, rows, *vectors, strict=True):
            found = bitext.search(source, target)
            best = found.by_cosine
            if flags.similarity == "margin":
                best = nearest(source, target, flags.similarity)
            if paths.output:
                sentence_files.write_indices(paths.output, best.sources.indices[:, 0])
            others = bitext.score(found, (task.source, task.target), task.translations)
            accuracies = accuracy(best, task.translations)
            scores.append({**accuracies._asdict(), **others.as_json()})
            name = {"language": paths.language} if paths.language else {}
            _print({**name, "layer": layer}, scores[-1], len(task.target))
    sentence_vectors.report_truncated(embedder)
    means = [{key: sum(x[key] for x in s) / len(s) for key in s[0]} for s in rows]
    if flags.languages:
        for layer, mean in zip(embedder.layers, means, strict=True):
            _print({"language": "average", "layer": layer}, mean, sum(len(t.target) for t in tasks))
    if flags.plot:
        curves = {
            name.replace("_", " "): [mean[name] for mean in means] for name in Accuracy._fields
        }
        title = f"{flags.source.name}: {flags.similarity}, {flags.pooling or 'mean'}"
        title += ", centred" if flags.centred else ""
        outputs.draw(
            flags.plot, lambda: language_report.plot_layers(curves, flags.plot, title, "accuracy@1")
        )


def _print(names: dict, scores: dict[str, float], sentences: int) -> None:
    print(json.dumps({**names, **scores, "sentences": sentences}), flush=True)


def _embed_and_score(
    flags: Namespace,
    embedder: "SentenceEmbedder",
    texts: "Mapping[str, Sequence[str]]",
    pivot: str,
    changed: "Sequence[Changed]",
) -> "SetScores":
    from tqdm import tqdm

    from xlj.evaluation import bitext

    vectors = {
        language: sentence_vectors.embed(flags, embedder, sentences)[0][0]
        for language, sentences in tqdm(texts.items(), "embedding", unit=" languages", disable=None)
    }
    with_vectors = (changed, embedder.embed([x.text for x in changed])[0]) if changed else None
    with tqdm(desc="scoring", unit=" pairs", disable=None) as bar:
        return bitext.score_set(vectors, texts, pivot, not flags.pivot, with_vectors, bar.update)


def _score_set(flags: Namespace) -> None:
    """Scores the pairs of languages of a set, and prints the table."""
    from xlj.evaluation import language_report
    from xlj.io import json_file
    from xlj.retrieval import changed_sentences, parallel_sets

    texts = parallel_sets.read(flags.set, _languages(flags))
    pivot = flags.pivot or parallel_sets.pivot_of(list(texts))
    if flags.pivot and pivot not in texts:
        raise ConfigError(f"--pivot={pivot} is not a language of the set: {', '.join(texts)}")
    if flags.changed and not pivot:
        raise ConfigError(
            f"--changed={flags.changed}: the set has no English; name the language of the changed "
            f"sentences with --pivot, one of {', '.join(texts)}"
        )
    names = flags.changed.split(",") if flags.changed else []
    changed = changed_sentences.of_sources(names, texts[pivot]) if names else []
    for language, sentences in texts.items():
        sentence_vectors.check_centred(flags, Path(language), sentences)
    embedder = sentence_vectors.load_embedder(flags)
    scores = _embed_and_score(flags, embedder, texts, pivot, changed)
    sentence_vectors.report_truncated(embedder)
    changes = f", {scores.changed:,} changed sentences" if scores.changed else ""
    print(
        f"{len(texts)} languages, {scores.sentences:,} sentences{changes}, layer "
        f"{embedder.layers[0]}; in %.\nxsim: errors by margin, lower is better. F1 (mteb's) "
        "and accuracy: by cosine.\n"
    )
    print(scores.as_table(), flush=True)
    if flags.json:
        about = {"set": str(flags.set), "layer": embedder.layers[0]}
        json_file.write(flags.json, about | scores.as_json())
    if flags.plot:
        title = f"{flags.set.name}: xsim, errors in %"
        outputs.draw(
            flags.plot, lambda: language_report.plot_matrix(*scores.matrix(), flags.plot, title)
        )


if __name__ == "__main__":
    raise SystemExit(main())
