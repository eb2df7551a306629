"""Measures multilingual-e5-small, and writes the tables of docs/experiments/multilingual_e5.md.

    python tests/real/make_folder.py                       # makes the model's folder
    python docs/make_results.py                            # measures all rows that are missing
    python docs/make_results.py --only='tatoeba-*,sts-de'  # measures these rows again
    python docs/make_results.py --only=                    # only writes the page

A row is one data set in one language or pair, or one fine-tuning run. Each row is saved in
multilingual_e5.json next to the page as soon as it is measured, so the same command resumes. The
page has the rows that have a measurement, beside the published scores in
multilingual_e5_published.json. Only scores leave the data.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs/experiments/multilingual_e5.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"
CAPTION = "multilingual-e5-small with 4-bit weights"

TATOEBA = (
    "ara ben bul cmn deu ell est fra heb hun ind jav jpn kaz mal mar pes por rus swh tam tgl tha "
    "tur vie"
).split()
"""The languages of XTREME's Tatoeba that the data have: 25 of 36."""
NTREX = (
    "af am ar be bg bn ca cy da de el es fa fr ga gl gu he hi hr hy is ja kk kn lo lt lv mk mr ms "
    "mt my ne pa pl ro ru sk sl so sr-Cyrl sv sw ta th tr ur vi wo xh yo zh-CN zu"
).split()
ROUNDING = "jav kaz swh tha".split()
"""Languages of Tatoeba with few sentences, in which noise is measured."""
STS = "de en es fr ja nl pt ru".split()
ALIGNMENT = {
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
"""The licences of the gold sets."""
ENTITIES = (
    "ar az bg de en es et fa fr gu he hi hu id ja jv kk lt ml mr ms pa pl pt qu ro ru ta tl tr uk "
    "ur vi zh"
).split()
TAGS = "af ar bg de en es et fa fr hu id ja lt mr nl pt ro ru te tr uk ur vi wo zh".split()
PREFIXES = {"query:": "query: ", "no prefix": ""}
INTO, FROM = "into English", "from English"
METHODS = ("argmax", "itermax", "match", "optimal_transport")
ENCODINGS = {"apart": False, "together": True}
LAYER = 8
"""The layer of the defaults of `xlj.align`, and of SimAlign, for 12 layers."""
DEFAULT, SIMALIGN = "together optimal_transport", "apart itermax"

Scores = dict[str, Any]
"""The scores of a row, in percent, by name; other numbers, such as numbers of sentences."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", help="names of rows with * and ?, separated by commas [rows without measurement]"
    )
    parser.add_argument(
        "--model", type=Path, default=ROOT / "build/real/e5", help="the folder [build/real/e5]"
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "../shared/data", help="the data sets [../shared/data]"
    )
    flags = parser.parse_args()
    records = read("multilingual_e5")
    try:
        names = choose(flags.only, records)
    except ValueError as error:
        parser.error(str(error))
    for name in names:
        records[name] = measure(name, flags.model, flags.data)
        save(records)
        print(name, json.dumps(records[name]), flush=True)
    PAGE.write_text(page(records), "utf-8")


def choose(only: str | None, records: dict[str, Scores]) -> list[str]:
    """Returns the rows to measure.

    Raises:
      ValueError: if a pattern matches no row.
    """
    if only is None:
        return [name for name in ROWS if name not in records]
    patterns = [pattern for pattern in only.split(",") if pattern]
    for pattern in patterns:
        if not fnmatch.filter(ROWS, pattern):
            raise ValueError(f"--only: no row matches {pattern!r}; the rows are {', '.join(ROWS)}")
    return [name for name in ROWS if any(fnmatch.fnmatch(name, each) for each in patterns)]


def read(name: str) -> dict[str, Scores]:
    file = PAGE.with_name(f"{name}.json")
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def save(records: dict[str, Scores]) -> None:
    """Writes all records, a line for each row, in the order of `ROWS`."""
    from xlj.io import atomic

    lines = [f"{json.dumps(name)}: {json.dumps(records[name])}" for name in ROWS if name in records]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    atomic.write(PAGE.with_name("multilingual_e5.json"), text.encode())


def measure(name: str, model: Path, data: Path) -> Scores:
    """Measures a row.

    Returns:
      The scores, and three more values: the minutes, including the time to load the model and to
      compile programs; the highest memory of the process meanwhile, in GiB; and the date.
    """
    from xlj.tools.benchmarking.measurements import peak_memory

    Path("/proc/self/clear_refs").write_text("5")  # the peak restarts at the present memory
    began = time.monotonic()
    scores = ROWS[name](model, data)
    return scores | {
        "minutes": round((time.monotonic() - began) / 60, 2),
        "gib": round((peak_memory() or 0) / 2**30, 2),
        "date": datetime.date.today().isoformat(),
    }


def lines_of(file: Path) -> list[str]:
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def with_prefixes(*sides: Iterable[str]) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields both ways to read sentences: the name of the way, and the sentences of each side.

    The model's card prescribes the prefix for tasks in which both sides are alike. mteb uses none.
    """
    texts = [list(side) for side in sides]
    for name, prefix in PREFIXES.items():
        yield name, [[prefix + sentence for sentence in side] for side in texts]


def percent(share: float) -> float:
    return round(100 * float(share), 2)


def tatoeba(language: str, model: Path, data: Path) -> Scores:
    return retrieve(model, *tatoeba_sides(language, data))


def tatoeba_sides(language: str, data: Path) -> list[list[str]]:
    prefix = f"tatoeba/tatoeba.{language}-eng"
    return [lines_of(data / f"{prefix}.{side}.gz") for side in (language, "eng")]


def ntrex(language: str, model: Path, data: Path) -> Scores:
    rows = [
        line.split("\t") for line in lines_of(data / f"parallel/ntrex/test/en-{language}.tsv.gz")
    ]
    return retrieve(model, [row[1] for row in rows], [row[0] for row in rows])


def retrieve(model: Path, sentences: list[str], english: list[str]) -> Scores:
    """Measures how often the nearest sentence is the translation, in both directions."""
    import numpy as np

    import xlj

    encoder, gold, scores = xlj.load(model), np.arange(len(english)), {"sentences": len(english)}
    for prefix, sides in with_prefixes(sentences, english):
        found = encoder.retrieve(*sides)
        for direction, nearest in ((INTO, found.targets), (FROM, found.sources)):
            scores[f"{direction}, {prefix}"] = percent((nearest.indices[:, 0] == gold).mean())
    return scores


def bucc(model: Path, data: Path) -> Scores:
    """Mines sentence pairs, with the threshold that is best on the same set, as in XTREME."""
    import xlj
    from xlj.evaluation.metrics import pairs

    sides = [
        dict(line.split("\t", 1) for line in lines_of(data / f"bucc2018/zh-en.dev.{language}.gz"))
        for language in ("zh", "en")
    ]
    gold = {tuple(line.split("\t")) for line in lines_of(data / "bucc2018/zh-en.dev.gold.gz")}
    _, texts = next(with_prefixes(*(side.values() for side in sides)))
    mined = xlj.load(model).mine(*texts)
    ids = [list(side) for side in sides]
    found = [(ids[0][i], ids[1][j]) for i, j in zip(mined.sources, mined.targets, strict=True)]
    threshold = pairs.best_threshold(mined.scores, [pair in gold for pair in found], len(gold))
    selected = [pair for pair, score in zip(found, mined.scores, strict=True) if score >= threshold]
    scores = pairs.pair_scores(selected, gold)
    return {
        "sentences": sum(map(len, sides)),
        "pairs": len(gold),
        "threshold": round(threshold, 4),
        **{name: percent(value) for name, value in scores._asdict().items()},
    }


def sts(language: str, model: Path, data: Path) -> Scores:
    """Measures Spearman's correlation of cosines with gold scores."""
    import xlj
    from xlj.evaluation.metrics.correlations import spearman

    rows = [line.split("\t") for line in lines_of(data / f"sts/test/{language}.tsv.gz")][1:]
    gold, encoder = [float(row[0]) for row in rows], xlj.load(model)
    scores: Scores = {"pairs": len(rows)}
    for prefix, sides in with_prefixes((row[2] for row in rows), (row[3] for row in rows)):
        cosines = encoder.score(list(zip(*sides, strict=True)))
        scores[prefix] = percent(spearman(cosines.tolist(), gold))
    return scores


def error_rates(name: str, model: Path, data: Path) -> Scores:
    """Measures the alignment error rate of each layer, encoding and method.

    "difference" is the rate of SimAlign's settings minus the rate of the defaults, with the 95 %
    interval of the paired bootstrap over sentences.
    """
    import xlj
    from xlj.alignment_math.error_rate import from_counts
    from xlj.evaluation.bootstrap import paired_bootstrap
    from xlj.word_alignment import gold_alignments, sentence_pairs

    pairs = list(sentence_pairs.read(data / f"alignment/{name}.tsv.gz", with_gold=True))
    golds, encoder = [pair.gold for pair in pairs], xlj.load(model)
    counts = {}
    for encoding, together in ENCODINGS.items():
        for method in METHODS:
            aligner = encoder.aligner(range(encoder.layers + 1), method, together)
            by_layer = zip(*aligner.align(pairs), strict=True)
            counts[f"{encoding} {method}"] = [
                gold_alignments.count(links, golds) for links in by_layer
            ]

    def rate(of_pairs: Any) -> float:
        return from_counts(*of_pairs.sum(0)).aer

    first, second = (counts[setting][LAYER] for setting in (DEFAULT, SIMALIGN))
    difference = paired_bootstrap(first, second, rate)
    rates = {name: [percent(rate(layer)) for layer in layers] for name, layers in counts.items()}
    return {"pairs": len(pairs), "difference": [percent(each) for each in difference], **rates}


def fine_tune(kind: str, seed: int, model: Path, data: Path) -> Scores:
    """Fine-tunes on English for 1,000 steps of 8 rows, and scores the last step in each language.

    The test sets are the dev sets of the data. No checkpoint is selected on them.
    """
    import xlj

    recipe, folder, test_languages = FINE_TUNING[kind]
    config = xlj.recipe(f"finetune/{recipe}")
    config.init_from = str(model)
    config.task.train = (f"{data}/{folder}/train.{{language}}.tsv.gz",)
    config.task.test = (f"{data}/{folder}/dev.{{language}}.tsv.gz",)
    config.task.dev, config.task.select = (), "last"
    config.task.test_languages = tuple(test_languages)
    config.task.batch_size, config.task.length, config.train.steps = 8, 128, "1000"
    config.optimizer.learning_rate = 5e-5
    config.train.seed = seed
    with tempfile.TemporaryDirectory() as workdir:
        config.data.cache = f"{workdir}/rows"
        (run,) = xlj.fine_tune(config, workdir).runs
    (by_language,) = run.test.values()
    return {language: round(score, 2) for language, score in by_language.items()}


def rounding(language: str, model: Path, data: Path) -> Scores:
    """Measures Tatoeba, into English and without a prefix, with noise as large as the rounding.

    Each value of a matrix gets uniform noise from minus to plus half the distance of two values of
    4 bits. The effect of the noise estimates the effect of the rounding, which cannot be measured
    without the exact weights.
    """
    import numpy as np

    import xlj

    sides = tatoeba_sides(language, data)
    encoder, gold = xlj.load(model), np.arange(len(sides[0]))
    accuracies = []
    for seed in (None, 0, 1, 2):
        changed = encoder if seed is None else with_noise(encoder, seed)
        found = changed.retrieve(*sides).targets
        accuracies.append(percent((found.indices[:, 0] == gold).mean()))
    return {
        "sentences": len(gold),
        "without noise": accuracies[0],
        "with noise": accuracies[1:],
    }


def with_noise(encoder: Any, seed: int) -> Any:
    """Returns an encoder whose 4-bit matrices have noise.

    The package rounds blocks of 32 values of a row of PyTorch's matrix, to multiples of an eighth
    of the largest value.
    """
    import jax
    import numpy as np

    import xlj

    rng = np.random.RandomState(seed)

    def change(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if not name.endswith("/kernel") and name != "embeddings/word":
            return leaf
        axis = -2 if name.endswith("/kernel") else -1  # xlj's kernels are [.., in, out]
        rows = np.moveaxis(np.array(leaf), axis, -1)
        blocks = rows.reshape(-1, 32)
        steps = np.abs(blocks).max(1, keepdims=True) / 8
        blocks = blocks + steps * rng.uniform(-0.5, 0.5, blocks.shape)
        return np.moveaxis(blocks.astype(np.float32).reshape(rows.shape), -1, axis)

    params = jax.tree_util.tree_map_with_path(change, encoder.pretrained.params)
    return xlj.Encoder(encoder.pretrained._replace(params=jax.tree.map(jax.numpy.asarray, params)))


FINE_TUNING = {
    "entities": ("panx", "ner/panx", ENTITIES),
    "tags": ("udpos", "pos/xtreme-ud", TAGS),
}
"""The recipe, the folder of the data and the test languages of each task."""

ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    **{f"tatoeba-{language}": partial(tatoeba, language) for language in TATOEBA},
    **{f"ntrex-{language}": partial(ntrex, language) for language in NTREX},
    **{f"rounding-{language}": partial(rounding, language) for language in ROUNDING},
    "bucc-zh-en": bucc,
    **{f"sts-{language}": partial(sts, language) for language in STS},
    **{f"aer-{name}": partial(error_rates, name) for name in ALIGNMENT},
    **{f"entities-{seed}": partial(fine_tune, "entities", seed) for seed in range(3)},
    "tags-0": partial(fine_tune, "tags", 0),
}
"""The function that measures each row, from the model's folder and the folder of the data."""


class Section(NamedTuple):
    """A section of the page with one table, whose lines are the rows of one kind.

    Attributes:
      caption: what was measured and how, and where the published scores come from.
      columns: by title of a column: a function that makes the cell from (the measured scores, the
        published scores).
      mean: the titles whose mean is shown, if all rows are measured.
    """

    title: str
    caption: str
    licence: str
    columns: dict[str, Callable[[Scores, Scores], Any]]
    mean: Sequence[str] = ()


def of(name: str) -> Callable[[Scores, Scores], Any]:
    return lambda measured, published: measured.get(name)


def in_mteb(name: str) -> Callable[[Scores, Scores], Any]:
    return lambda measured, published: published.get(name)


_BOTH_WAYS = [f"{direction}, {prefix}" for prefix in PREFIXES for direction in (INTO, FROM)]
RETRIEVAL = {"sentences": of("sentences")} | {name: of(name) for name in _BOTH_WAYS}
TO_COMPARE = (
    "Accuracy in %: how often the nearest sentence of the other language is the translation. The "
    "model's card prescribes the prefix `query: `. mteb's scores are of the exact weights, without "
    "a prefix."
)
SECTIONS = {
    "tatoeba": Section(
        "Tatoeba",
        f"{TO_COMPARE} These are the languages of XTREME's 36 that the data have.",
        "CC BY 2.0 FR",
        RETRIEVAL | {f"mteb, {INTO}": in_mteb(INTO)},
        (*_BOTH_WAYS, f"mteb, {INTO}"),
    ),
    "ntrex": Section(
        "NTREX",
        TO_COMPARE,
        "CC BY-SA 4.0",
        RETRIEVAL | {f"mteb, {way}": in_mteb(way) for way in (INTO, FROM)},
        (*_BOTH_WAYS, f"mteb, {INTO}", f"mteb, {FROM}"),
    ),
    "rounding": Section(
        "Effect of the rounding",
        "Tatoeba, accuracy in % into English, without a prefix. The noise is as large as the error "
        "of rounding to 4 bits, and is added to the rounded weights. Three draws of the noise.",
        "CC BY 2.0 FR",
        {
            "sentences": of("sentences"),
            "4 bits": of("without noise"),
            "4 bits and noise": lambda measured, published: ", ".join(
                f"{score:.1f}" for score in measured["with noise"]
            ),
            "mteb, exact weights": in_mteb(INTO),
        },
    ),
    "bucc": Section(
        "BUCC",
        "Mining of sentence pairs in BUCC 2018's sample set by margin, in %, with the threshold "
        "that is best on this set, as in XTREME. mteb's task is another one: retrieval of the gold "
        "pairs of the test set.",
        "not stated",
        {
            "sentences": of("sentences"),
            "gold pairs": of("pairs"),
            "threshold": of("threshold"),
            "F1": of("f1"),
            "precision": of("precision"),
            "recall": of("recall"),
            "mteb's task (BUCC.v2), F1": in_mteb("f1"),
        },
    ),
    "sts": Section(
        "Semantic textual similarity",
        "Spearman's correlation in % of cosines with gold scores, in the test set of the "
        "multilingual STS benchmark (machine translations). The data have three of its genres "
        "(images, headlines, snli); mteb's scores are of all 1,379 pairs.",
        "CC BY-SA 4.0 (scores)",
        {
            "pairs": of("pairs"),
            **{prefix: of(prefix) for prefix in PREFIXES},
            "mteb, all genres": in_mteb("spearman"),
        },
    ),
    "aer": Section(
        "Word alignment",
        "Alignment error rate (AER) in %, lower is better. The defaults of `xlj align` are layer "
        "8, both sentences encoded together, optimal transport. SimAlign's settings are layer 8, "
        "sentences encoded apart, itermax. The difference has the 95 % interval of the paired "
        "bootstrap over sentences. The best of all settings was chosen on the same gold links, so "
        "it is too low. Published scores are of other aligners: XLM-R base with optimal transport "
        "(XLM-E, Table 4), and eflomal and awesome-align from awesome-align's README.",
        "",
        {
            "pairs": of("pairs"),
            "defaults": lambda measured, published: measured[DEFAULT][LAYER],
            "SimAlign's": lambda measured, published: measured[SIMALIGN][LAYER],
            "difference (95 % interval)": lambda measured, published: interval(measured),
            "best": lambda measured, published: best(measured),
            "XLM-R base": in_mteb("XLM-R base"),
            "eflomal": in_mteb("eflomal"),
            "awesome-align": in_mteb("awesome-align"),
        },
    ),
}


def page(records: dict[str, Scores]) -> str:
    """Returns the text of the page, with the tables of the measured rows."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [table(kind, records) for kind in SECTIONS]
    parts += [
        layers(name, records[f"aer-{name}"]) for name in ALIGNMENT if f"aer-{name}" in records
    ]
    parts += [tuned(kind, records) for kind in FINE_TUNING]
    return before + BEGIN + "\n" + "".join(part + "\n" for part in parts if part) + END + after


def table(kind: str, records: dict[str, Scores]) -> str:
    """Returns a section of the page; an empty text if no row of it is measured."""
    section, published = SECTIONS[kind], read("multilingual_e5_published")
    names = [name for name in ROWS if name.startswith(f"{kind}-")]
    rows = []
    for name in names:
        if name in records:
            cells = [
                make(records[name], published.get(name, {})) for make in section.columns.values()
            ]
            rows.append([name.removeprefix(f"{kind}-"), *cells])
    if not rows:
        return ""
    titles = [kind, *section.columns]
    lines = [
        [*cells, section.licence or ALIGNMENT[cells[0]], records[f"{kind}-{cells[0]}"]["minutes"],
         records[f"{kind}-{cells[0]}"]["gib"]] for cells in rows
    ]  # fmt: skip
    if section.mean and len(rows) == len(names):
        columns = list(zip(*rows, strict=True))
        means = [
            mean(columns[titles.index(title)]) if title in section.mean else None
            for title in titles[1:]
        ]
        lines.append([f"mean of {len(rows)}", *means, None, None, None])
    head = [*titles, "licence", "minutes", "GiB"]
    return f"## {section.title}\n\n{CAPTION}. {section.caption}\n\n{markdown(head, lines)}"


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is missing, because means of other rows do not compare."""
    numbers = [value for value in values if value is not None]
    return round(statistics.mean(numbers), 2) if len(numbers) == len(values) else None


def interval(measured: Scores) -> str:
    difference, low, high = measured["difference"]
    return f"{difference:+.1f} ({low:+.1f} to {high:+.1f})"


def best(measured: Scores) -> str:
    """Returns the lowest error rate of all layers, encodings and methods, and its setting."""
    rate, layer, setting = min(
        (rate, layer, setting)
        for setting in settings()
        for layer, rate in enumerate(measured[setting])
    )
    return f"{rate:.1f} (layer {layer}, {setting.replace('_', ' ')})"


def settings() -> list[str]:
    return [f"{encoding} {method}" for encoding in ENCODINGS for method in METHODS]


def layers(name: str, measured: Scores) -> str:
    """Returns the table of a gold set's error rates by layer."""
    rows = zip(*(measured[setting] for setting in settings()), strict=True)
    lines = [[layer, *row] for layer, row in enumerate(rows)]
    head = ["layer", *(setting.replace("_", " ") for setting in settings())]
    caption = f"{CAPTION}. AER in %; licence of the set: {ALIGNMENT[name]}."
    return f"### AER by layer: {name}\n\n{caption}\n\n{markdown(head, lines)}"


def tuned(kind: str, records: dict[str, Scores]) -> str:
    """Returns the section of a fine-tuning task: means over the measured seeds."""
    runs = {name: record for name, record in records.items() if name.startswith(f"{kind}-")}
    if not runs:
        return ""
    languages = FINE_TUNING[kind][2]
    lines = []
    for language in languages:
        scores = [run[language] for run in runs.values()]
        lines.append([language, *spread(scores)])
    others = [
        statistics.mean(run[language] for language in languages if language != "en")
        for run in runs.values()
    ]
    lines.append([f"mean of {len(languages) - 1} without en", *spread(others)])
    costs = "; ".join(
        f"{name} {run['minutes']} minutes, {run['gib']} GiB" for name, run in runs.items()
    )
    caption = f"{CAPTION}. {TUNED[kind]} Mean and standard deviation over the seeds. {costs}."
    return f"## Zero-shot {kind}\n\n{caption}\n\n{markdown(['language', 'F1', '±'], lines)}"


TUNED = {
    "entities": "F1 in % of WikiAnn's entities (PAN-X; Wikipedia, CC BY-SA 3.0; the licence of the "
    "annotation is not stated) after 1,000 steps of 8 English rows of 128 tokens, learning rate "
    "5e-5. The dev sets are the test sets; no checkpoint was selected.",
    "tags": "XTREME's F1 in % of parts of speech (Universal Dependencies; CC BY-SA, some treebanks "
    "CC BY-NC-SA) after 1,000 steps of 8 English rows of 128 tokens, learning rate 5e-5. The dev "
    "sets are the test sets; no checkpoint was selected.",
}


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean, and the standard deviation if there are several values."""
    deviation = round(statistics.stdev(values), 2) if len(values) > 1 else None
    return round(statistics.mean(values), 2), deviation


def markdown(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Returns a Markdown table. Scores have one digit after the point; None is an empty cell."""
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for cells in lines:
        texts = ["" if c is None else f"{c:.1f}" if isinstance(c, float) else f"{c}" for c in cells]
        rows.append("| " + " | ".join(texts) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
