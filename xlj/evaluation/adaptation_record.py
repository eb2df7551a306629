"""Formats the record of an adaptation: measures of the model before and after."""

from collections.abc import Mapping

from xlj.io.json_file import Record

FILE = "adaptation.json"
"""The file in a workdir to which `xlj.adapt` writes the record."""

LABELS = {
    "pieces_per_word": "pieces per word",
    "unknown_percent": "unknown pieces, %",
    "nats_per_character": "held-out loss, nats per character",
    "accuracy_percent": "translations found (accuracy@1), %",
}
"""The names of the measures in the record, in order, with their labels in tables."""

_DIGITS = {"nats_per_character": 3, "pieces_per_word": 2}

Scores = dict[str, dict[str, float]]
"""Scores by measure, then by language or language pair."""


def sides(record: Record) -> Mapping[str, Scores]:
    """Returns the scores under `before` and `after`; empty if the adaptation is not finished."""
    names = ("before", "after")
    return {name: record[name] for name in names} if all(name in record for name in names) else {}


def markdown(record: Record) -> str:
    """Returns the Markdown text that describes the adaptation in a model card; empty if the
    adaptation is not finished."""
    scores = sides(record)
    if not scores:
        return ""
    request = record["request"]
    text = f"Adapted from `{record['source']}` to {', '.join(request['languages'])}"
    if request["replay"]:
        text += f", with text of {', '.join(request['replay'])}"
    added = [f"{each['pieces']:,} for {each['language']}" for each in record["pieces"]]
    text += f". Pieces added to the vocabulary: {', '.join(added)}."
    if weight := record.get("before_weight"):
        text += f" The parameters are {mean_of(weight)}."
    rows = table(*scores.values())
    rows[1:1] = [["---"] * len(rows[0])]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([text, "", *lines])


def mean_of(before_weight: float) -> str:
    """Describes the parameters of a model that is the mean of those before and after."""
    after = f"{1 - before_weight:g}"
    return f"{before_weight:g} times those before the training and {after} times those after it"


def table(before: Scores, after: Scores) -> list[list[str]]:
    """Returns the cells of a table: a header, and a row for each measure and language or pair."""
    rows = [["measure", "of", "before", "after"]]
    for name, label in LABELS.items():
        for language in dict.fromkeys((*before.get(name, {}), *after.get(name, {}))):
            values = [scores.get(name, {}).get(language) for scores in (before, after)]
            digits = _DIGITS.get(name, 1)
            rows.append(
                [label, language, *("" if v is None else f"{v:.{digits}f}" for v in values)]
            )
    return rows
