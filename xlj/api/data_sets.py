"""Finds public test sets in a folder, and measures an encoder on them: the rows of `xlj card`.

    DATA/tatoeba/tatoeba.deu-eng.deu.gz    translations, one sentence per line
    DATA/parallel/ntrex/test/en-de.tsv.gz  `English TAB translation`
    DATA/bucc2018/zh-en.dev.zh.gz          `id TAB sentence`; pairs of ids in zh-en.dev.gold.gz
    DATA/sts/test/de.tsv.gz                columns score, genre, sentence1, sentence2
    DATA/alignment/de-en.NAME.tsv.gz       `source TAB target TAB gold links`
    DATA/NAME/corpus.jsonl                 search sets in BEIR's form; DATA may be such a folder

A row is one set in one language or pair. Scores are in percent.
"""

import datetime
import functools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xlj.api.encoder import Encoder
from xlj.config import ConfigError
from xlj.evaluation import bitext, metrics, sts
from xlj.io import atomic, files, json_file
from xlj.retrieval import beir, mining, sentence_files
from xlj.tools.benchmarking.measurements import peak_memory
from xlj.word_alignment import gold_alignments, sentence_pairs

INTO, FROM = "into English", "from English"
RANKS = (10, 100)
"""The ranks at which search is scored."""
ALIGNMENT_LICENCES = {
    "de-en.rwth.test": "research only",
    "en-cs.czenali.test": "CC BY-SA 4.0",
    "en-es.golden.test": "no restriction stated",
    "en-fr.golden.test": "no restriction stated",
    "en-fr.wpt03.test": "no restriction stated",
    "en-hi.wpt05.test": "no restriction stated",
    "en-sv.ges.test": "no restriction stated",
    "ja-en.kftt.dev": "CC BY-SA 3.0",
    "zh-en.tsinghua.test": "not stated",
}
"""The licences of sets with gold links."""

Scores = dict[str, Any]
"""The scores of a row, in percent, by name; other numbers, such as numbers of sentences."""


class Prompts(NamedTuple):
    """The texts before sentences. None: the prompt of the sentence-transformers folder.

    Attributes:
      alike: for sets whose sides are alike, by name; each of them is measured. The name is a part
        of the names of the scores, unless it is empty.
      query, document: for search sets.
    """

    alike: Mapping[str, str | None] = {"": None}
    query: str | None = None
    document: str | None = None


Measure = Callable[[Encoder, Prompts], Scores]


class Kind(NamedTuple):
    """A kind of sets.

    Attributes:
      title, caption: what the scores are, and how they are measured.
      licence: of all sets, or by name; empty if it is not known.
      find: yields (the language, pair or name of a set, the function that measures it).
    """

    title: str
    caption: str
    licence: str | Mapping[str, str]
    find: Callable[[Path], Iterator[tuple[str, Measure]]]


def find(data: Path) -> dict[str, Measure]:
    """Returns the rows that the files in a folder allow, by name: `tatoeba-deu`, `sts-de`.

    Raises:
      ConfigError: if there is no such folder, or none of its files belong to a set.
    """
    if not data.is_dir():
        raise ConfigError(f"--data={data}: there is no such folder")
    rows = {
        f"{name}-{label}": measure
        for name, kind in KINDS.items()
        for label, measure in kind.find(data)
    }
    if not rows:
        layouts = "tatoeba/, parallel/ntrex/test/, bucc2018/, sts/test/, alignment/"
        raise ConfigError(
            f"--data={data}: there is no test set; expected {layouts} or folders with "
            "corpus.jsonl, queries.jsonl and qrels/ (docs/search.md)"
        )
    return rows


def measure(function: Callable[[], Scores]) -> Scores:
    """Measures a row.

    Returns:
      The scores, and three more values: the minutes, including the time to load the model and to
      compile programs; the highest memory of the process meanwhile, in GiB (on Linux); and the
      date.
    """
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")  # the peak restarts at the present memory
    began = time.monotonic()
    scores = function()
    return scores | {
        "minutes": round((time.monotonic() - began) / 60, 2),
        "gib": round((peak_memory() or 0) / 2**30, 2),
        "date": datetime.date.today().isoformat(),
    }


def read_records(file: Path) -> dict[str, Scores]:
    """Returns the records of a file by row; none if there is no file."""
    return json_file.read_object(file) if file.exists() else {}


def write_records(file: Path, records: Mapping[str, Scores]) -> None:
    """Writes all records, a line for each row."""
    lines = [f"{json.dumps(name)}: {json.dumps(record)}" for name, record in records.items()]
    atomic.write(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def percent(share: float) -> float:
    return round(100 * float(share), 2)


def named(score: str, prompt: str) -> str:
    """Returns the name of a score that was measured with a named prompt."""
    return f"{score}, {prompt}" if prompt else score


def tatoeba_sides(language: str, data: Path) -> tuple[list[str], list[str]]:
    """Reads the sentences of a language of Tatoeba, and the English sentences."""
    prefix = f"tatoeba/tatoeba.{language}-eng"
    sides = [files.lines(data / f"{prefix}.{side}.gz") for side in (language, "eng")]
    return list(sides[0]), list(sides[1])


def ntrex_sides(language: str, data: Path) -> tuple[list[str], list[str]]:
    """Reads the sentences of a language of NTREX, and the English sentences."""
    file = data / f"parallel/ntrex/test/en-{language}.tsv.gz"
    rows = [line.split("\t") for line in files.lines(file)]
    return [row[1] for row in rows], [row[0] for row in rows]


def measure_translations(
    sides: Callable[[], tuple[list[str], list[str]]], encoder: Encoder, prompts: Prompts
) -> Scores:
    """Measures how often the nearest sentence is the translation, xsim and F1, in both directions.

    Args:
      sides: returns the sentences, and their translations into English.
    """
    sentences, english = sides()
    scores: Scores = {"sentences": len(english)}
    for name, prompt in prompts.alike.items():
        vectors = encoder.encode(sentences, prompt=prompt)
        found = bitext.search(vectors, english_vectors(encoder, prompt, tuple(english)))
        for way, result in zip(
            (INTO, FROM), bitext.score(found, (sentences, english)), strict=True
        ):
            scores[named(way, name)] = percent(result.accuracy)
            scores[named(f"xsim {way}", name)] = percent(result.xsim)
            scores[named(f"F1 {way}", name)] = percent(result.f1)
    return scores


@functools.lru_cache(maxsize=2)
def english_vectors(encoder: Encoder, prompt: str | None, english: tuple[str, ...]) -> np.ndarray:
    """Embeds an English side, once for all languages: those of NTREX have the same one."""
    return encoder.encode(list(english), prompt=prompt)


def measure_bucc(pair: str, data: Path, encoder: Encoder, prompts: Prompts) -> Scores:
    """Mines sentence pairs, with the threshold that is best on the same set, as in XTREME.

    Only the first of the prompts is used.
    """
    folder, languages = data / "bucc2018", pair.split("-")
    sides = [
        dict(line.split("\t", 1) for line in files.lines(folder / f"{pair}.dev.{one}.gz"))
        for one in languages
    ]
    gold = sentence_files.read_pairs(folder / f"{pair}.dev.gold.gz", list(sides[0]), list(sides[1]))
    prompt = next(iter(prompts.alike.values()))
    ids, vectors = [], []
    for side in sides:
        texts = list(side.values())
        first = mining.first_occurrences(texts)
        ids.append([list(side)[i] for i in first])
        vectors.append(encoder.encode([texts[i] for i in first], prompt=prompt))
    mined = mining.mine(vectors[0], vectors[1])
    found = [(ids[0][i], ids[1][j]) for i, j in zip(mined.sources, mined.targets, strict=True)]
    is_gold = np.array([each in gold for each in found])
    threshold = metrics.best_threshold(mined.scores, is_gold, len(gold))
    selected = [one for one, score in zip(found, mined.scores, strict=True) if score >= threshold]
    scores = metrics.pair_scores(selected, gold)._asdict()
    return {
        "sentences": sum(map(len, sides)),
        "pairs": len(gold),
        # The threshold is infinite if no mined pair is a gold pair.
        "threshold": round(threshold, 4) if np.isfinite(threshold) else None,
        **{name: percent(value) for name, value in scores.items()},
    }


def measure_sts(language: str, data: Path, encoder: Encoder, prompts: Prompts) -> Scores:
    """Measures correlations of cosines with gold scores."""
    rated = sts.read(data / f"sts/test/{language}.tsv.gz")
    scores: Scores = {"pairs": len(rated.pairs)}
    for name, prompt in prompts.alike.items():
        first, second = (
            encoder.encode(list(side), prompt=prompt) for side in zip(*rated.pairs, strict=True)
        )
        cosines = encoder.similarity_pairwise(first, second).tolist()
        result = sts.correlate(cosines, rated.scores)
        scores[named("Spearman", name)] = percent(result.spearman)
        scores[named("Pearson", name)] = percent(result.pearson)
    return scores


def measure_alignment(file: Path, encoder: Encoder, _: Prompts) -> Scores:
    """Measures word alignment with the defaults of the encoder (`xlj align`)."""
    pairs = list(sentence_pairs.read(file, with_gold=True))
    links = [of_layers[0] for of_layers in encoder.aligner().align(pairs)]
    golds = [pair.gold for pair in pairs if pair.gold]
    counts = gold_alignments.count(links, golds).sum(0)
    scores = gold_alignments.from_counts(*counts)
    rates = {name: percent(value) for name, value in scores._asdict().items()}
    options = encoder.alignment_options()
    return {"pairs": len(pairs), "layer": options.layer, **rates}


def measure_search(folder: Path, split: str, encoder: Encoder, prompts: Prompts) -> Scores:
    """Measures search by cosine, as `xlj search` does."""
    judged = beir.read(folder, split)
    queries = encoder.role_embedder("query", prompts.query)
    documents = encoder.role_embedder("document", prompts.document)
    run = beir.run_of(judged, beir.rank(judged, queries, documents, max(RANKS)))
    means = metrics.mean_scores(metrics.ranking_scores(run, judged.judgements, RANKS))
    counts = {"queries": len(judged.queries), "documents": len(judged.documents)}
    return counts | {name: percent(value) for name, value in means.items()}


def tables(records: Mapping[str, Scores]) -> str:
    """Returns a section for each kind of sets that was measured: a table with a line for each row,
    and their mean."""
    sections, missing = [], []
    for name, kind in KINDS.items():
        rows = {row: records[row] for row in records if row.startswith(f"{name}-")}
        if rows:
            licences = kind.licence if isinstance(kind.licence, Mapping) else {}
            licence = f" Licence: {kind.licence}." if kind.licence and not licences else ""
            sections.append(
                f"### {kind.title}\n\n{kind.caption}{licence}\n\n{_table(name, rows, licences)}"
            )
        else:
            missing.append(kind.title)
    if missing:
        sections.append(f"Not measured: {', '.join(missing)}.\n")
    return "\n".join(sections)


def _table(name: str, rows: Mapping[str, Scores], licences: Mapping[str, str]) -> str:
    costs = ("minutes", "gib", "date")
    columns = [column for column in next(iter(rows.values())) if column not in costs]
    lines = [
        [row.removeprefix(f"{name}-"), *(record.get(column) for column in columns)]
        for row, record in rows.items()
    ]
    if len(lines) > 1:
        values = list(zip(*lines, strict=True))[1:]
        lines.append([f"mean of {len(lines)}", *map(_mean, values)])
    if licences:
        columns.append("licence")
        lines = [[*line, licences.get(f"{line[0]}", "")] for line in lines]
    return markdown_table([name, *columns], lines)


def _mean(values: Sequence[Any]) -> float | None:
    """Returns the mean of scores; None for numbers of sentences."""
    is_score = all(isinstance(value, float) for value in values)
    return round(statistics.mean(values), 2) if is_score else None


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Returns a Markdown table. Scores have one digit after the point; None is an empty cell."""
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for cells in lines:
        texts = ["" if c is None else f"{c:.1f}" if isinstance(c, float) else f"{c}" for c in cells]
        rows.append("| " + " | ".join(texts) + " |")
    return "\n".join(rows) + "\n"


def _find_files(
    pattern: str, function: Callable[[str, Path], Measure]
) -> Callable[[Path], Iterator[tuple[str, Measure]]]:
    """Returns the function `find` of a kind whose sets are files. `*` matches the name."""
    before, after = Path(pattern).name.split("*")

    def find(data: Path) -> Iterator[tuple[str, Measure]]:
        for file in sorted(data.glob(pattern)):
            name = file.name.removeprefix(before).removesuffix(after)
            yield name, function(name, data)

    return find


def _translations(sides: Callable[[str, Path], tuple[list[str], list[str]]]) -> Any:
    return lambda name, data: functools.partial(
        measure_translations, functools.partial(sides, name, data)
    )


def _find_searches(data: Path) -> Iterator[tuple[str, Measure]]:
    for folder in (data, *sorted(path for path in data.iterdir() if path.is_dir())):
        for split in beir.splits(folder):
            name = folder.resolve().name
            yield f"{name}-{split}", functools.partial(measure_search, folder, split)


_FOUND = (
    "Accuracy: how often the nearest sentence by cosine is the translation. xsim (LASER): errors "
    "of the ratio margin among the four nearest sentences, lower is better. F1: of mteb."
)
KINDS = {
    "tatoeba": Kind(
        "Tatoeba",
        _FOUND,
        "CC BY 2.0 FR",
        _find_files("tatoeba/tatoeba.*-eng.eng.gz", _translations(tatoeba_sides)),
    ),
    "ntrex": Kind(
        "NTREX-128",
        _FOUND,
        "CC BY-SA 4.0",
        _find_files("parallel/ntrex/test/en-*.tsv.gz", _translations(ntrex_sides)),
    ),
    "bucc": Kind(
        "BUCC 2018",
        "Mining of sentence pairs in the sample set by margin, with the threshold that is best on "
        "this set, as in XTREME.",
        "not stated",
        _find_files(
            "bucc2018/*.dev.gold.gz", lambda name, data: functools.partial(measure_bucc, name, data)
        ),
    ),
    "sts": Kind(
        "Semantic textual similarity",
        "Correlations of cosines with gold scores in the multilingual STS benchmark (machine "
        "translations). If a row has not 1,379 pairs, it does not compare with published scores.",
        "CC BY-SA 4.0 (scores)",
        _find_files(
            "sts/test/*.tsv.gz", lambda name, data: functools.partial(measure_sts, name, data)
        ),
    ),
    "aer": Kind(
        "Word alignment",
        "Alignment error rate (AER), lower is better; precision, recall and F1. The defaults of "
        "`xlj align`.",
        ALIGNMENT_LICENCES,
        _find_files(
            "alignment/*.tsv.gz",
            lambda name, data: functools.partial(
                measure_alignment, data / f"alignment/{name}.tsv.gz"
            ),
        ),
    ),
    "search": Kind(
        "Search",
        "Folders in BEIR's form, exact search by cosine; nDCG, MRR and recall as trec_eval "
        "computes them.",
        "",
        _find_searches,
    ),
}
"""The kinds of sets by the first part of the names of rows."""
