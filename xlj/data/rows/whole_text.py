"""Facts about the whole text that each unit of work depends on: its size, what is held out, the
vocabulary. They are kept, so that they are found once."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from xlj.data.rows.recipe import Recipe
from xlj.data.text import held_out
from xlj.data.text.checking import Size, refuse_empty
from xlj.data.text.held_out import Rule
from xlj.data.text.text_tasks import Block, TextTask
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file

Sizes = Mapping[str, Size]
"""By the name of the task."""


def measure(recipe: Recipe) -> dict[str, Size]:
    """The size of each task: of files it is known, other sources are counted; a `ConfigError` if a
    task has no text, or it cannot be read."""
    file = recipe.text_folder / "sizes.json"
    counted: dict[str, Any] = json_file.read_object(file) if file.is_file() else {}
    sizes: dict[str, Size] = {**counted, **recipe.text.sizes}
    for task in recipe.text.tasks:
        if task.name not in sizes:
            sizes[task.name] = counted[task.name] = _count(task)
            refuse_empty(task, sizes[task.name])
            atomic.write(file, json.dumps(counted).encode())
    return sizes


def hold_out(recipe: Recipe, sizes: Sizes) -> dict[str, Rule]:
    """The rule of each language. Pairs are read once to find the companions, so that what is held
    out with one pair is not trained on in another, nor in text."""
    lines = _by_language(recipe, sizes, 0)
    wanted = recipe.data.held_out_lines
    rules = {name: Rule(n, held_out.threshold(wanted, n)) for name, n in lines.items()}
    files: dict[str, list[Path]] = {name: [] for name in rules}
    for task in recipe.text.tasks:
        if task.kind == "pairs" and wanted:
            written = [
                recipe.text_folder / f"{task.name}.{name}.companions" for name in task.languages
            ]
            if not all(file.is_file() for file in written):
                blocks = _read(task, "holding out", max(sizes[task.name][0]))
                found = held_out.find_companions(blocks, [rules[name] for name in task.languages])
                for file, companions in zip(written, found, strict=True):
                    held_out.write_companions(file, companions)
            for name, file in zip(task.languages, written, strict=True):
                files[name].append(file)
    return {name: dataclasses.replace(rules[name], files=tuple(files[name])) for name in rules}


def vocabulary_of(recipe: Recipe, sizes: Sizes, rules: Mapping[str, Rule]) -> Vocabulary:
    """The vocabulary, given or trained; a trained one serves all recipes with the same text."""
    if recipe.vocabulary is not None:
        return recipe.vocabulary
    data, file = recipe.data, recipe.vocabulary_file
    if not file.is_file():
        sentences, characters = (_by_language(recipe, sizes, which) for which in (0, 1))
        sentences = {name: number for name, number in sentences.items() if number}
        wanted, weights = vocabulary_training.balance(
            sentences, characters, data.vocabulary_alpha, data.vocabulary_lines
        )
        blocks = (
            (task.languages, block)
            for task in tqdm(recipe.text.tasks, desc="sampling text", unit="task")
            for block in task.blocks()
        )
        model = vocabulary_training.train(
            vocabulary_training.sample(blocks, rules, wanted, sentences),
            weights,
            data.vocabulary_size,
            data.vocabulary_coverage,
            data.vocabulary_type,
        )
        file.parent.mkdir(exist_ok=True)
        atomic.write(file, model)
    return Vocabulary.load(file)


def _count(task: TextTask) -> Size:
    size = np.zeros((2, len(task.languages)), np.int64)
    for block in _read(task, "counting"):
        size += [[sum(map(count, lines)) for lines in block] for count in (bool, len)]
    return size.tolist()


def _by_language(recipe: Recipe, sizes: Sizes, which: int) -> dict[str, int]:
    """Sentences (0) or characters (1) of each language, over all its text and pairs."""
    totals: Counter[str] = Counter()
    for task in recipe.text.tasks:
        totals.update(dict.fromkeys(task.languages, 0))
        for name, number in zip(task.languages, sizes[task.name][which], strict=True):
            totals[name] += number
    return dict(totals)


def _read(task: TextTask, doing: str, total: int | None = None) -> Iterator[Block]:
    """The blocks of a task, with a bar that counts their lines."""
    with tqdm(desc=f"{doing} {task.name}", total=total, unit="line", unit_scale=True) as bar:
        for block in task.blocks():
            yield block
            bar.update(len(block[0]))
