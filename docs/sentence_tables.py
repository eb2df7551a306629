"""The tables of docs/experiments/sentence_encoders.md: sentence encoders that xlj trained."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import paired_rows
import product_rows
import sentence_rows
import teacher_rows
from released_tables import CAPTION, signed, with_deviation
from result_rows import HEALED_FOR, KEPT, LAYERS, SENTENCES

from xlj.api.data_sets import Scores, markdown_table


def sections(records: dict[str, Scores]) -> list[str]:
    """Returns the sections of the measured rows."""
    parts = (trained, cut, forgotten, taught, taught_english, trims, products)
    return [part(records) for part in parts]


def trained(records: dict[str, Scores]) -> str:
    """Returns the section of sentence encoders: a line for each way, with means over its seeds."""
    ways = runs_by_way(records, "sentences-")
    for name in ("all languages", "cut"):
        ways.pop(name, None)
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
        minutes = statistics.median(run["minutes"] for run in runs)
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
    '"Negatives" adds one mined negative for each sentence, "guard" leaves out negatives whose '
    'cosine exceeds that of the translation by more than 0.1, "matryoshka" adds losses on 64 and '
    "128 dimensions. Accuracy in % of retrieval with English among the first "
    f"{sentence_rows.FIRST:,} sentences, the mean of both directions without a prefix; Tatoeba is "
    "the mean of [25 languages](multilingual_e5.md#tatoeba), "
    f"{sentence_rows.FIRST_OF_TATOEBA} sentences each. "
    "± is the standard deviation over the seeds. Other work ran beside seed 0 of xlj and beside "
    "some ways with one seed, so their examples per second are low. Intervals are over "
    "sentences, not seeds. The minutes are the median over the seeds, with the measurement; seed 0 "
    "of xlj was trained before."
)


def cut(records: dict[str, Scores]) -> str:
    """Returns the section of vectors with fewer dimensions."""
    measured = records.get("sentences-cut-0")
    if not measured:
        return ""
    lines = [
        [name, *measured[name], signed(measured[f"{name}, difference"])]
        for name in sentence_rows.SETS
    ]
    caption = (
        f"Accuracy as above, of the first {sentence_rows.FEWEST} of 384 dimensions, seed 0. The "
        "difference is matryoshka minus xlj, with the 95 % interval of the paired bootstrap."
    )
    table = markdown_table(["test set", "before", "xlj", "matryoshka", "difference"], lines)
    return f"### Vectors with fewer dimensions\n\n{CAPTION}. {caption}\n\n{table}"


def forgotten(records: dict[str, Scores]) -> str:
    """Returns the section of what a sentence encoder forgets: the worst languages of Tatoeba."""
    name = "sentences-all languages-0"
    if name not in records:
        return ""
    measured = {key: row for key, row in records[name].items() if isinstance(row, list)}
    languages = {key: measured[key] for key in measured if key.startswith("tatoeba ")}
    before, *after = (statistics.mean(row[i] for row in languages.values()) for i in (1, 2, 6))
    worst = sorted(languages, key=lambda key: languages[key][3])[:10]
    large = [row for row in languages.values() if row[0] >= 500]
    lines = [
        [
            key,
            count,
            score,
            trained,
            signed(differences[:3]),
            differences[3],
            signed(differences[4:]),
        ]
        for key in (*sentence_rows.SETS, *worst)
        for count, score, trained, *differences in [measured[key]]
    ]
    caption = (
        "All sentences of the test sets: before the training of xlj (seed 0), after it, and with "
        "the mean of the models before and after (`xlj convert merge`). Differences have the 95 % "
        "interval of the paired bootstrap over sentences. The mean of Tatoeba's "
        f"{len(languages)} languages is {before:.2f} % before, {after[0]:.2f} % after, and "
        f"{after[1]:.2f} % with the mean of the models. Of the {len(large)} languages with at "
        f"least 500 pairs, the worst changes by {min(row[3] for row in large):+.1f} points, with "
        f"the mean of the models by {min(row[7] for row in large):+.1f}. The table has "
        "the ten languages that lose most."
    )
    head = ["test set", "pairs", "before", "xlj", "difference", "mean", "difference"]
    table = markdown_table(head, lines)
    return f"### What the other languages lose\n\n{CAPTION}. {caption}\n\n{table}"


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
    caption = TRIMS + HEALED * any("healed" in line[0] for line in lines)
    return f"## Trimmed models\n\n{CAPTION}. {caption}\n\n{markdown_table(head, lines)}" + (
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


HEALED = (
    ' "Healed" and its seed is "pieces and first layers", trained on the same text with '
    f"`--heal --minutes={HEALED_FOR}`."
)


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
