"""Draws bar charts of results, from the numbers in tables of the documentation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pictures.svg import WIDTH, Drawing

PAGES = Path(__file__).parents[1]
COLOURS = ("see", "grey", "second")
EDGE = 12


@dataclasses.dataclass(frozen=True)
class Number:
    """A number in a table, and the standard deviation; 0 if the table has none."""

    value: float
    deviation: float = 0.0


def table(page: str, corner: str) -> dict[str, dict[str, Number]]:
    """The numbers of a page's table: by row, then by column.

    Args:
      page: a file, relative to docs/.
      corner: the text of the table's first cells, which name it.

    Raises:
      ValueError: if the page has no such table, or columns of the same name.
    """
    lines = (PAGES / page).read_text("utf-8").splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith(f"| {corner} |")]
    if len(starts) != 1:
        raise ValueError(f"{page} has {len(starts)} tables that begin with {corner!r}, not one")
    _, *columns = _cells(lines[starts[0]])
    if len(set(columns)) < len(columns):
        raise ValueError(
            f"{page}: the table {corner!r} has two columns of the same name: {columns}"
        )
    rows: dict[str, dict[str, Number]] = {}
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = _cells(line)
        rows[name] = {
            column: Number(*(float(n.replace(",", "")) for n in numbers[: 1 + ("±" in cell)]))
            for column, cell in zip(columns, cells, strict=True)
            if (numbers := re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", cell))
        }
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")]


def _legend(drawing: Drawing, y: float, names: Sequence[str]) -> None:
    x = float(EDGE)
    for name, colour in zip(names, COLOURS, strict=False):
        drawing.box(x, y - 11, 14, 12, f"bar {colour}", 2)
        drawing.text(x + 19, y, name, "soft small")
        x += 6.1 * len(name) + 36


def columns(title: str, series: Mapping[str, Mapping[str, Number]]) -> str:
    """Upright bars in groups, from 0: a group for each name, a bar for each series."""
    names = list(next(iter(series.values())))
    drawing = Drawing(title)
    drawing.text(EDGE, 22, title, "strong")
    _legend(drawing, 44, list(series))
    left, top, height = 38, 62, 150
    most = max(n.value + n.deviation for of_series in series.values() for n in of_series.values())
    scale = height / most
    for tick in (t for t in range(0, 101, 20) if t <= most):
        y = top + height - tick * scale
        drawing.path(f"M{left},{y:.1f} H{WIDTH - EDGE}", "grid")
        drawing.text(left - 6, y + 4, str(tick), "end soft small")
    step = (WIDTH - EDGE - left) / len(names)
    width = (step - 8) / len(series)
    for place, name in enumerate(names):
        x = left + step * place + 4
        for colour, numbers in zip(COLOURS, series.values(), strict=False):
            number = numbers[name]
            y = top + height - number.value * scale
            drawing.box(x, y, width - 1, number.value * scale, f"bar {colour}", 1.5)
            if number.deviation:
                reach = number.deviation * scale
                middle = x + width / 2 - 0.5
                drawing.path(f"M{middle:.1f},{y - reach:.1f} v{2 * reach:.1f}", "error")
            x += width
        drawing.text(left + step * (place + 0.5), top + height + 18, name, "middle small")
    return drawing.render()


def bars(title: str, series: Mapping[str, Mapping[str, Number]], left: float) -> str:
    """Lying bars in groups, from 0, each with its number.

    Args:
      left: room for the names, in units.
    """
    names = list(next(iter(series.values())))
    drawing = Drawing(title)
    drawing.text(EDGE, 22, title, "strong")
    if len(series) > 1:
        _legend(drawing, 44, list(series))
    most = max(n.value + n.deviation for of_series in series.values() for n in of_series.values())
    scale = (WIDTH - left - 44) / most
    y = 58.0 if len(series) > 1 else 36.0
    for name in names:
        group = 13.0 * len(series)
        drawing.text(left - 8, y + group / 2 + 4, name, "end small")
        for colour, numbers in zip(COLOURS, series.values(), strict=False):
            number = numbers[name]
            end = left + number.value * scale
            drawing.box(left, y, number.value * scale, 12, f"bar {colour}", 1.5)
            if number.deviation:
                reach = number.deviation * scale
                drawing.path(f"M{end - reach:.1f},{y + 6} h{2 * reach:.1f}", "error")
            text = end + number.deviation * scale + 4
            drawing.text(text, y + 10.5, f"{number.value:.1f}", "soft small")
            y += 13
        y += 8
    return drawing.render()


def _by_language(title: str, page: str, corner: str, rows: Mapping[str, str]) -> str:
    """Columns by language; `rows` maps the rows of a table to the names of the series."""
    numbers = table(f"experiments/{page}", corner)
    languages = [name for name in numbers[next(iter(rows))] if len(name) == 2]
    series = {
        label: {language: numbers[row][language] for language in languages}
        for row, label in rows.items()
    }
    return columns(title, series)


def zero_shot_udpos() -> str:
    """Parts of speech in eight languages."""
    names = {
        "quickstart": "quickstart's encoder",
        "fresh weights": "fresh weights",
        "each word's most frequent tag": "most frequent tag",
    }
    return _by_language(
        "Parts of speech, F1; trained on English", "zero_shot.md", "parts of speech, F1", names
    )


def zero_shot_xquad() -> str:
    """Questions in eight languages."""
    names = {"quickstart": "quickstart's encoder", "fresh weights": "fresh weights"}
    return _by_language("Questions, F1; trained on English", "zero_shot.md", "questions, F1", names)


def zero_shot_xnli() -> str:
    """Entailment in eight languages."""
    names = {
        "quickstart": "quickstart's encoder",
        "fresh weights": "fresh weights",
        "most frequent label": "most frequent label",
    }
    corner = "entailment, accuracy, three seeds of the task"
    return _by_language("Entailment, accuracy; trained on English", "zero_shot.md", corner, names)


def minilm_udpos() -> str:
    """Parts of speech in seven languages, after continued pretraining and from fresh weights."""
    names = {
        "all negatives": "retrieval against all",
        "hardest negatives": "hardest negatives",
        "fresh weights (float32)": "fresh weights",
    }
    title, corner = "Parts of speech, F1; trained on English", "parts of speech (PUD), F1"
    return _by_language(title, "minilm.md", corner, names)


def minilm_translations() -> str:
    """Translations found in six languages, after three ways of training and scoring."""
    numbers = table("experiments/minilm.md", "Tatoeba, accuracy@1, layer 3, margin")
    names = {
        "all negatives, centred, to English": "against all, centred",
        "hardest negatives, centred, to English": "hardest, centred",
        "hardest negatives, not centred, to English": "hardest, plain",
    }
    series = {label: numbers[row] for row, label in names.items()}
    return columns("Tatoeba: English translations found, %", series)


def adaptation() -> str:
    """Translations found in Yoruba and Swahili, by way of adaptation."""
    numbers = table("experiments/adapting.md", "way | pieces per word, yo")
    columns_of = {"English-Yoruba": "found, en-yo (%)", "English-Swahili": "found, en-sw (%)"}
    series = {
        label: {way: row[column] for way, row in numbers.items()}
        for label, column in columns_of.items()
    }
    return bars("Translations found among 1,997, %", series, 168)


def speed_h100() -> str:
    """Tokens per second of a train step on an H100, of xlj and transformers."""
    numbers = table("benchmarks.md", "train step | ms")
    step = "XLM-R base, MMLM, 32 x 512"
    names = {
        f"{step}, layers unrolled": "xlj",
        f"{step}, in transformers with `torch.compile`": "transformers, compiled",
        f"{step}, in transformers, not compiled": "transformers, not compiled",
    }
    thousands = {
        label: Number(numbers[row]["tokens/s"].value / 1000) for row, label in names.items()
    }
    return bars("XLM-R base on one H100, thousand tokens/s", {"": thousands}, 170)


def aligners() -> str:
    """Alignment error rates on nine gold sets."""
    numbers = table("experiments/aligner.md", "gold set | fast_align | eflomal | xlj, 0.4 passes")
    series = {
        column: {gold_set: row[column] for gold_set, row in numbers.items()}
        for column in ("xlj, 2 passes", "fast_align", "eflomal")
    }
    return bars("Alignment error rate, %; lower is better", series, 112)


def _objectives(title: str, corner: str) -> str:
    numbers = table("experiments/objectives.md", corner)
    return bars(title, {"": {name: row["layer 3"] for name, row in numbers.items()}}, 238)


def objectives_aer() -> str:
    """Alignment error rates of objectives at the last layer."""
    return _objectives("Alignment error rate at layer 3, %; lower is better", "AER")


def objectives_retrieval() -> str:
    """Translations found, of objectives, at the last layer."""
    return _objectives("Translations found at layer 3, %; higher is better", "retrieval")
