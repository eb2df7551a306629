"""The tables of docs/experiments/multilingual_e5.md: the model as released, and adapted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from result_rows import (
    ALIGNMENT,
    FINE_TUNING,
    LAYER,
    PREFIXES,
    ROWS,
    SETTINGS,
    SIMALIGN,
    WAYS,
    XLM_ALIGN,
)

from xlj.api.data_sets import FROM, INTO, Scores, markdown_table

CAPTION = "multilingual-e5-small with 4-bit weights"


def sections(records: dict[str, Scores], published: dict[str, Scores]) -> list[str]:
    """Returns the sections of the measured rows, beside the published scores."""
    parts = [table(kind, records, published) for kind in SECTIONS]
    parts += [
        layers(name, records[f"aer-{name}"]) for name in ALIGNMENT if f"aer-{name}" in records
    ]
    parts += [tuned(kind, records) for kind in TUNED]
    return [*parts, adaptations(records), tags_of_adapted(records)]


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
            "difference (95 % interval)": lambda measured, _: signed(measured["difference"]),
            "best": lambda measured, _: best(measured),
            "XLM-R base": published("XLM-R base"),
            "eflomal": published("eflomal"),
            "awesome-align": published("awesome-align"),
        },
    ),
}


def table(kind: str, records: dict[str, Scores], others: dict[str, Scores]) -> str:
    """Returns the section of one kind of rows; an empty text if no row of it is measured.

    Args:
      others: the published scores of the rows.
    """
    section = SECTIONS[kind]
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


def change(measured: Scores, language: str) -> str:
    before, after = measured[language]
    return f"{before:.1f} -> {after:.1f}: {signed(measured[f'{language}, difference'])}"


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean, and the standard deviation if there are several values."""
    deviation = round(statistics.stdev(values), 2) if len(values) > 1 else None
    return round(statistics.mean(values), 2), deviation


def signed(difference: Sequence[float]) -> str:
    """Formats a difference and its interval."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*difference)


def with_deviation(values: Sequence[float]) -> str:
    mean_value, deviation = spread(values)
    return f"{mean_value:.1f}" + (f" ± {deviation:.1f}" if deviation is not None else "")
