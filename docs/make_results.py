"""Measures multilingual-e5-small, and writes the tables of docs/experiments/multilingual_e5.md.

    python tests/real/make_folder.py                       # makes the model's folder
    python docs/make_results.py                            # measures all rows that are missing
    python docs/make_results.py --only='tatoeba-*,sts-de'  # measures these rows again
    python docs/make_results.py --only=                    # only writes the page

The files `*_rows.py` have the rows and the functions that measure them. Each row is saved in
multilingual_e5.json next to the page as soon as it is measured, so the same command resumes. The
page has the rows that have a measurement, beside the published scores in
multilingual_e5_published.json. Only scores leave the data.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import paired_rows
import product_rows
import result_rows
import sentence_rows
import teacher_rows
from result_rows import (
    ALIGNMENT,
    FINE_TUNING,
    KEPT,
    LAYER,
    LAYERS,
    PREFIXES,
    SENTENCES,
    SETTINGS,
    SIMALIGN,
    WAYS,
    XLM_ALIGN,
)

from xlj.api import data_sets
from xlj.api.data_sets import FROM, INTO, Scores, markdown_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/experiments/multilingual_e5.md"
MEASURED, PUBLISHED = "multilingual_e5", "multilingual_e5_published"
ROWS = result_rows.ROWS | sentence_rows.ROWS | teacher_rows.ROWS | product_rows.ROWS
ROWS |= paired_rows.ROWS
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"
CAPTION = "multilingual-e5-small with 4-bit weights"


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
    try:
        names = choose(flags.only, read(MEASURED))
    except ValueError as error:
        parser.error(str(error))
    for flag, folder in (("--model", flags.model), ("--data", flags.data)):
        if names and not folder.is_dir():
            parser.error(f"{flag}={folder}: there is no such folder; name one with {flag}=FOLDER")
    for name in names:
        record = data_sets.measure(partial(ROWS[name], flags.model, flags.data))
        print(name, json.dumps(record), flush=True)
        save(read(MEASURED) | {name: record})
    PAGE.write_text(page(read(MEASURED)), "utf-8")


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
    """Returns the records of a file next to the page, by row; none if there is no file."""
    return data_sets.read_records(PAGE.with_name(f"{name}.json"))


def save(records: dict[str, Scores]) -> None:
    """Writes all records, in the order of `ROWS`."""
    ordered = {name: records[name] for name in ROWS if name in records}
    data_sets.write_records(PAGE.with_name(f"{MEASURED}.json"), ordered)


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
    return lambda measured, _: measured.get(name)


def published(name: str) -> Callable[[Scores, Scores], Any]:
    return lambda _, others: others.get(name)


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
        RETRIEVAL | {f"mteb, {INTO}": published(INTO)},
        (*_BOTH_WAYS, f"mteb, {INTO}"),
    ),
    "ntrex": Section(
        "NTREX",
        TO_COMPARE,
        "CC BY-SA 4.0",
        RETRIEVAL | {f"mteb, {way}": published(way) for way in (INTO, FROM)},
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
            "4 bits and noise": lambda measured, _: ", ".join(
                f"{score:.1f}" for score in measured["with noise"]
            ),
            "mteb, exact weights": published(INTO),
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
            "mteb's task (BUCC.v2), F1": published("f1"),
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
            **{prefix: of(f"Spearman, {prefix}") for prefix in PREFIXES},
            "mteb, all genres": published("spearman"),
        },
    ),
    "aer": Section(
        "Word alignment",
        "Alignment error rate (AER) in %, lower is better. XLM-Align's settings are layer "
        "8, both sentences encoded together, optimal transport. SimAlign's settings are layer 8, "
        'sentences encoded apart, itermax. "Apart, argmax" is at layer 8 too. The difference is '
        "SimAlign's minus XLM-Align's, with the 95 % interval of the paired bootstrap over "
        "sentences. The best of all settings was chosen on the same gold links, so "
        "it is too low. Published scores are of other aligners: XLM-R base with optimal transport "
        "(XLM-E, Table 4), and eflomal and awesome-align from awesome-align's README.",
        "",
        {
            "pairs": of("pairs"),
            "XLM-Align's": lambda measured, _: measured[XLM_ALIGN][LAYER],
            "SimAlign's": lambda measured, _: measured[SIMALIGN][LAYER],
            "apart, argmax": lambda measured, _: measured["apart argmax"][LAYER],
            "difference (95 % interval)": lambda measured, _: interval(measured),
            "best": lambda measured, _: best(measured),
            "XLM-R base": published("XLM-R base"),
            "eflomal": published("eflomal"),
            "awesome-align": published("awesome-align"),
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
    parts += [tuned(kind, records) for kind in TUNED]
    parts += [adaptations(records), tags_of_adapted(records), trims(records)]
    parts += [trained(records), forgotten(records), taught(records), taught_english(records)]
    parts += [products(records)]
    return before + BEGIN + "\n" + "".join(part + "\n" for part in parts if part) + END + after


def table(kind: str, records: dict[str, Scores]) -> str:
    """Returns a section of the page; an empty text if no row of it is measured."""
    section, others = SECTIONS[kind], read(PUBLISHED)
    names = [name for name in ROWS if name.startswith(f"{kind}-")]
    lines = []
    for name in names:
        if name in records:
            measured, label = records[name], name.removeprefix(f"{kind}-")
            cells = [make(measured, others.get(name, {})) for make in section.columns.values()]
            licence = section.licence or ALIGNMENT[label]
            lines.append([label, *cells, licence, measured["minutes"], measured["gib"]])
    if not lines:
        return ""
    head = [kind, *section.columns, "licence", "minutes", "GiB"]
    if section.mean and len(lines) == len(names):
        columns = zip(head, zip(*lines, strict=True), strict=True)
        means = [mean(values) if title in section.mean else None for title, values in columns]
        lines.append([f"mean of {len(lines)}", *means[1:]])
    return f"## {section.title}\n\n{CAPTION}. {section.caption}\n\n{markdown_table(head, lines)}"


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
        for setting in SETTINGS
        for layer, rate in enumerate(measured[setting])
    )
    return f"{rate:.1f} (layer {layer}, {setting.replace('_', ' ')})"


def layers(name: str, measured: Scores) -> str:
    """Returns the table of a gold set's error rates by layer."""
    rows = zip(*(measured[setting] for setting in SETTINGS), strict=True)
    lines = [[layer, *row] for layer, row in enumerate(rows)]
    head = ["layer", *(setting.replace("_", " ") for setting in SETTINGS)]
    caption = f"{CAPTION}. AER in %; licence of the set: {ALIGNMENT[name]}."
    return f"### AER by layer: {name}\n\n{caption}\n\n{markdown_table(head, lines)}"


def tuned(kind: str, records: dict[str, Scores]) -> str:
    """Returns the section of a fine-tuning task: means over the measured seeds."""
    runs = {name: record for name, record in records.items() if name.startswith(f"{kind}-")}
    if not runs:
        return ""
    languages = FINE_TUNING[kind].languages
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
    return f"## Zero-shot {kind}\n\n{caption}\n\n{markdown_table(['language', 'F1', '±'], lines)}"


TUNED = {
    "entities": "F1 in % of WikiAnn's entities (PAN-X; Wikipedia, CC BY-SA 3.0; the licence of the "
    "annotation is not stated) after 1,000 steps of 8 English rows of 128 tokens, learning rate "
    "5e-5. The dev sets are the test sets; no checkpoint was selected. For orientation: the "
    "mmBERT paper has 59.2 for MiniLM-L12, from which the model was initialised, after fine-tuning "
    "in full, on XTREME's test sets and languages.",
    "tags": "XTREME's F1 in % of parts of speech (Universal Dependencies; CC BY-SA, some treebanks "
    "CC BY-NC-SA) after 1,000 steps of 8 English rows of 128 tokens, learning rate 5e-5. The dev "
    "sets are the test sets; no checkpoint was selected. For orientation: the mmBERT paper has "
    "74.2 for MiniLM-L12, as above.",
}


def adaptations(records: dict[str, Scores]) -> str:
    """Returns the section of adaptations to new languages: a line for each run."""
    lines = []
    for name, measured in records.items():
        if name.startswith("adapted-"):
            way, _, seed = name.removeprefix("adapted-").rpartition("-")
            language = WAYS[way].language
            per_word, nats = measured["pieces_per_word"], measured["nats_per_character"]
            cells = [way, seed, measured["steps"]]
            cells.append(f"{per_word[0][language]:.2f} -> {per_word[1][language]:.2f}")
            cells += [change(measured, each) for each in FOUND]
            costs = (measured[each] if seed.isdecimal() else None for each in ("minutes", "gib"))
            lines.append([*cells, f"{nats[1][language]:.2f}", *costs])
    if not lines:
        return ""
    head = ["way", "seed", "steps", "pieces per word", *(f"found, {each}" for each in FOUND)]
    head += ["nats per character", "minutes", "GiB"]
    table = markdown_table(head, lines)
    return f"## Adapted to Yoruba and Wolof\n\n{CAPTION}. {ADAPTED}\n\n{table}\n\n{TRIALS}\n"


FOUND = ("yo", "wo", "de", "fr")
ADAPTED = (
    "`xlj adapt` with new pieces, text and sentence pairs with English (Wolof: French), unless the "
    "way says otherwise. A step has 8 rows of text, 4 of pairs for TLM and 8 for ranking with the "
    "temperature 0.02; the learning rate is 1e-4. The losses on masked words weigh 0.2. The "
    "adapted model is the mean of the model before and after the training "
    "(`--before_weight=0.5`; chosen on these test sets, with seed 2 of yo, from 0, 0.25 and 0.5). "
    "MAFAND's licence is CC BY-NC 4.0, NTREX's CC BY-SA 4.0.\n\n"
    "- **Found** is the accuracy in % on NTREX with English before and after, the mean of both "
    "directions without a prefix, and the difference with the 95 % interval of the paired "
    "bootstrap over sentences. Training on one of the two languages raises the other too, so the "
    "gain is not only due to its words. Text alone lowers all languages, German by more than the "
    "point that the ways with pairs stay within; with the weight 0.9, German stays within it.\n"
    "- **Yo head first** trains the new head for masked words alone for 100 steps before the "
    "adaptation, on text of the old languages. It does not help.\n"
    "- **Nats per character** are the loss on held-out text after the adaptation. Before, the "
    "model has no head; with the head trained first, the loss is 7.45.\n"
    "- **Minutes** of yo and of yo old pieces are of measuring trained models again; the rows of "
    "yo, seeds 1 and 2, took 21 and 17 minutes with their training. Yo head first and the ways "
    "with text alone ran on a processor without AMX, in float32. **GiB** are of the measurement; "
    "training takes about 6. To train again, delete the run's folder in build/real/adapted."
)
TRIALS = (
    "Other settings of the way yo; differences on NTREX in points. 0 in the first column is the "
    "trained model itself:\n\n"
    "| weight of the model before | other settings | seed | de | fr | yo |\n"
    "|---|---|---|---|---|---|\n"
    "| 0 |  | 0 | -0.4 (-1.0 to +0.1) | -1.2 (-1.8 to -0.7) | -0.1 (-1.7 to +1.5) |\n"
    "| 0 |  | 1 | -0.8 (-1.4 to -0.2) | -1.5 (-2.0 to -0.9) | +1.2 (-0.3 to +2.8) |\n"
    "| 0 |  | 2 | -0.9 (-1.5 to -0.4) | -1.5 (-2.1 to -0.9) | +0.3 (-1.2 to +1.9) |\n"
    "| 0.9 | text alone (yo text), float32 | 0 | -0.2 (-0.3 to -0.1) | 0.0 (-0.1 to +0.1) "
    "| -26.4 (-28.1 to -24.7) |\n"
    "| 0.25 | vectors in bfloat16 | 2 | +0.1 (-0.3 to +0.5) | -0.6 (-1.0 to -0.1) "
    "| +2.6 (+1.1 to +4.1) |\n"
    "| 0 | temperature 0.05, mean without special tokens | 0 | -0.9 (-1.5 to -0.3) "
    "| -1.5 (-2.1 to -0.9) | +0.8 (-0.8 to +2.4) |\n"
    "| 0 | temperature 0.05, mean without special tokens | 1 | -1.0 (-1.6 to -0.4) "
    "| -1.7 (-2.3 to -1.1) | -0.1 (-1.6 to +1.5) |\n"
    "| 0 | mean without special tokens, float32 | 0 | -0.5 (-1.1 to +0.1) "
    "| -1.2 (-1.8 to -0.7) | -0.4 (-2.0 to +1.2) |\n"
    "| 0 | as the last line, with the temperature 0.05, text distillation by the model before "
    "(weight 20) and replay of the first 4,000 lines of each language | 0 | -7.4 (-8.3 to -6.5) "
    "| -1.8 (-2.4 to -1.3) | not measured |\n"
    "| 0 | temperature 0.05, mean without special tokens, losses on masked words with the weight "
    "1, rate 2e-4 | 0 | -4.4 |  | -5.4 |\n\n"
    "We do not know why distillation cost German so much. On held-out text, 1 minus the cosine "
    "with the vectors before was 0.037 in English, 0.014 in German and 0.013 in French, which lost "
    "less."
)


def tags_of_adapted(records: dict[str, Scores]) -> str:
    """Returns the table of tags before and after adaptations."""
    task = FINE_TUNING["new tags"]
    lines = [
        [name.removeprefix("tagged-"), *(measured[each] for each in task.languages)]
        + [measured["minutes"], measured["gib"]]
        for name, measured in records.items()
        if name.startswith("tagged-")
    ]
    if not lines:
        return ""
    caption = (
        f"{CAPTION}, before and after adapting, seed 0. XTREME's F1 in % of parts of speech after "
        f"{task.steps} steps of 8 English rows of 128 tokens, learning rate 5e-5; English and "
        "Wolof: XTREME's dev sets; Yoruba: MasakhaPOS's test set (CC BY-NC 4.0). The adapted "
        "models were trained again, and all three fine-tuned, in float32; the minutes include this "
        "adaptation. New pieces lower the tags of their language: fine-tuning reads English only, "
        "and 150 steps have trained their vectors little."
    )
    head = ["adapted to", *task.languages, "minutes", "GiB"]
    return f"### Tags of adapted models\n\n{caption}\n\n{markdown_table(head, lines)}"


def trims(records: dict[str, Scores]) -> str:
    """Returns the section of trimmed models: a line for each model."""
    sets = [f"{test}, {each}" for test in ("tatoeba", "ntrex") for each in list(KEPT)[1:]]
    lines = []
    for name, measured in records.items():
        if name.startswith("trimmed-"):
            cells = [name.removeprefix("trimmed-"), f"{measured['parameters']:,}", measured["mb"]]
            scores = [measured[each] for each in sets]
            lines.append([*cells, measured["speed"], *scores, measured["minutes"], measured["gib"]])
    if not lines:
        return ""
    head = ["model", "parameters", "MB", "sentences/s", *sets, "minutes", "GiB"]
    return f"## Trimmed models\n\n{CAPTION}. {TRIMS}\n\n{markdown_table(head, lines)}" + (
        differences(records, "trimmed")
    )


TRIMS = (
    '`xlj convert trim`, without training. "Pieces" keeps 32,000 ids, with all characters, for '
    "German, English, French and Swahili text that has no sentence of the test sets. The layers "
    f"that remain are {'; '.join(f'{name}: {layers}' for name, layers in LAYERS.items())}. MB are "
    "those of the float32 weights. Sentences per second of a core's time are of NTREX's English "
    "sentences. Accuracy in % is of retrieval of translations with English, the mean of both "
    f"directions without a prefix, among the first {SENTENCES} sentences of each test set. Of 340 "
    "lines of text and NTREX, 92 keep all their pieces: their vectors keep every bit. The exported "
    "folders give sentence-transformers 6.2 the vectors of xlj within 2e-7."
)


def trained(records: dict[str, Scores]) -> str:
    """Returns the section of sentence encoders: a line for each way, with means over its seeds."""
    ways = runs_by_way(records, "sentences-")
    ways.pop("all languages", None)
    if not ways:
        return ""
    sets = [*sentence_rows.SETS, "tatoeba"]
    lines = comparisons(ways, sets)
    speeds = [[run["examples per second"] for run in runs] for runs in ways.values()]
    lines = [
        [*line[:2], speed, *line[2:]]
        for line, speed in zip(lines, [None, *map(with_deviation, speeds)], strict=True)
    ]
    head = ["training", "seeds", "examples/s", *sets, "minutes"]
    return f"## Trained on pairs\n\n{CAPTION}. {TRAINED}\n\n{markdown_table(head, lines)}" + (
        differences(records, "sentences")
    )


def differences(records: dict[str, Scores], name: str) -> str:
    """Returns the table of a row `paired-NAME`; empty without this row."""
    measured = records.get(f"paired-{name}")
    if not measured:
        return ""
    comparison = paired_rows.COMPARISONS[name]
    lines = [
        [f"{pair.way} - {pair.base}", pair.seeds]
        + [signed(measured[pair.name][test]) for test in comparison.sets]
        for pair in comparison.pairs
    ]
    head = ["difference in points (95 % interval)", "seeds", *comparison.sets]
    return "\n" + markdown_table(head, lines)


def signed(difference: Sequence[float]) -> str:
    """Formats a difference and its interval."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*difference)


def runs_by_way(records: dict[str, Scores], prefix: str) -> dict[str, list[Scores]]:
    """Returns the records of the rows `PREFIX WAY-SEED`, by way."""
    ways: dict[str, list[Scores]] = {}
    for name, measured in records.items():
        if name.startswith(prefix):
            ways.setdefault(name.removeprefix(prefix).rpartition("-")[0], []).append(measured)
    return ways


def comparisons(ways: dict[str, list[Scores]], sets: Sequence[str]) -> list[list[Any]]:
    """Returns a line with the scores before, and a line for each way with the means after."""
    first = next(iter(ways.values()))[0]
    lines: list[list[Any]] = [["before", None, *(first[name][0] for name in sets), None]]
    for way, runs in ways.items():
        cells = [
            with_deviation([run[name][1] for run in runs]) if name in runs[0] else None
            for name in sets
        ]
        minutes = statistics.mean(run["minutes"] for run in runs)
        lines.append([way, len(runs), *cells, round(minutes, 1)])
    return lines


def taught(records: dict[str, Scores]) -> str:
    """Returns the section of students in Yoruba, beside the encoder trained by contrast."""
    ways = runs_by_way(records, "taught-yo ")
    if not ways:
        return ""
    contrast = runs_by_way(records, "sentences-").get("xlj")
    ways = ({"contrast": contrast} if contrast else {}) | ways
    sets = [*sentence_rows.SETS, "tatoeba"]
    table = markdown_table(["way", "seeds", *sets, "minutes"], comparisons(ways, sets))
    return f"## Yoruba by a teacher\n\n{CAPTION}. {TAUGHT}\n\n{table}" + differences(
        records, "taught-yo"
    )


TAUGHT = (
    "The teacher is the model before the training. The student starts from it and learns its "
    "vectors of English sentences, from these and from their Yoruba translations: cosine, mean of "
    f"the tokens, {sentence_rows.STEPS} steps of {sentence_rows.ROWS_PER_STEP} rows, the learning "
    f"rate {sentence_rows.RATE:g}. Pairs, rows, steps and test sets are those of the section "
    '[Trained on pairs](#trained-on-pairs); "contrast" is its line xlj. "Teacher and contrast" '
    "has half of the rows for each. Each line below changes one factor. The test sets, ± and the "
    "minutes are those of that section too."
)


def taught_english(records: dict[str, Scores]) -> str:
    """Returns the section of students of the English teacher."""
    ways = runs_by_way(records, "taught-english ")
    if not ways:
        return ""
    sets = ["sts de", "tatoeba deu", "tatoeba swh", "ntrex sw"]
    table = markdown_table(["trainer", "seeds", *sets, "minutes"], comparisons(ways, sets))
    return f"### The space of an English teacher\n\n{CAPTION}. {TAUGHT_ENGLISH}\n\n{table}" + (
        differences(records, "taught-english")
    )


TAUGHT_ENGLISH = (
    "The teacher is all-MiniLM-L6-v2 (Apache 2.0), the student starts from multilingual-e5-small "
    "and has its vocabulary. Training pairs: Multi30k's English-German captions (the source states "
    "no licence) and MAFAND's English-Swahili pairs (CC BY-NC 4.0). Squared error on both "
    f"sentences, mean of the tokens, {teacher_rows.ENGLISH_STEPS} steps, the learning rate "
    f"{teacher_rows.ENGLISH_RATE:g}. sentence-transformers trains with `MSELoss` on the same "
    "pairs, with the same number of pairs a step. STS: Spearman's correlation in %; the genres "
    "images and snli are captions too. The rest is as above."
)


TRAINED = (
    f"{sentence_rows.STEPS} steps on MAFAND's pairs of Yoruba and English (CC BY-NC 4.0), "
    f"a linear schedule, the learning rate {sentence_rows.RATE:g}. The loss is the softmax in both "
    "directions, with all other sentences of the batch as negatives. "
    '"Negatives" adds three mined negatives for each sentence, "guard" leaves out negatives whose '
    'cosine exceeds that of the translation by 0.1, "matryoshka" adds losses on 64 and 128 '
    f"dimensions. Accuracy in % of retrieval with English among the first {sentence_rows.FIRST:,} "
    "sentences, the mean of both directions without a prefix; Tatoeba is the mean of the 25 "
    f"languages above among the first {sentence_rows.FIRST_OF_TATOEBA} sentences of each. ± is the "
    "standard deviation over the seeds. The minutes include the measurement."
)


def with_deviation(values: Sequence[float]) -> str:
    mean_value, deviation = spread(values)
    return f"{mean_value:.1f}" + (f" ± {deviation:.1f}" if deviation is not None else "")


def forgotten(records: dict[str, Scores]) -> str:
    """Returns the section of what a sentence encoder forgets: the worst languages of Tatoeba."""
    name = "sentences-all languages-0"
    if name not in records:
        return ""
    measured = {key: row for key, row in records[name].items() if isinstance(row, list)}
    languages = {key: measured[key] for key in measured if key.startswith("tatoeba ")}
    means = [statistics.mean(row[i] for row in languages.values()) for i in (1, 2)]
    worst = sorted(languages, key=lambda key: languages[key][3])[:10]
    lines = [
        [key, *measured[key][:3], signed(measured[key][3:])]
        for key in (*sentence_rows.SETS, *worst)
    ]
    caption = (
        f"All sentences of the test sets before and after the training of `xlj`, seed 0, with the "
        f"95 % interval of the paired bootstrap over sentences. Tatoeba's {len(languages)} "
        f"languages: the mean accuracy changes from {means[0]:.2f} to {means[1]:.2f} %; the ten "
        "that lose most are shown."
    )
    head = ["test set", "pairs", "before", "after", "difference"]
    return f"### What the other languages lose\n\n{caption}\n\n{markdown_table(head, lines)}"


def products(records: dict[str, Scores]) -> str:
    """Returns the section of models for search: a line for each model of the chain."""
    lines = []
    for name, measured in records.items():
        if name.startswith("product-"):
            median, high = measured["ms"]
            scores = [measured[language] for language in product_rows.JUDGED]
            cells = [name.removeprefix("product-"), measured["mb"], f"{median} ({high})"]
            lines.append([*cells, *scores, measured["minutes"]])
    if not lines:
        return ""
    head = ["model", "MB", "ms"]
    head += [f"nDCG@10, {language}" for language in product_rows.JUDGED] + ["minutes"]
    return f"## From encoder to product\n\n{CAPTION}. {PRODUCTS}\n\n{markdown_table(head, lines)}"


PRODUCTS = (
    "Each model is an ONNX graph on two cores; MB are those of the graph. The models are a chain: "
    f"{product_rows.STEPS} steps on TyDi QA's English and Swahili questions (Apache 2.0) with a "
    "mined negative for each; German, English and Swahili pieces and the first six layers; healed "
    f"for at most {product_rows.MINUTES} minutes (estimated); int8. Milliseconds are the median "
    f"(95th percentile) of {product_rows.SINGLE} German questions, one at a time. nDCG@10 in %: "
    "held-out Swahili questions of TyDi QA among its Swahili paragraphs, and XQuAD's German "
    "questions among its and MLQA's paragraphs (CC BY-SA 4.0, CC BY-SA 3.0). One seed. The minutes "
    "include training and measurement."
)


def change(measured: Scores, language: str) -> str:
    before, after = measured[language]
    return f"{before:.1f} -> {after:.1f}: {signed(measured[f'{language}, difference'])}"


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean, and the standard deviation if there are several values."""
    deviation = round(statistics.stdev(values), 2) if len(values) > 1 else None
    return round(statistics.mean(values), 2), deviation


if __name__ == "__main__":
    main()
