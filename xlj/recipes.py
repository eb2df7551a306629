"""Lists the recipes: what each trains, what it needs, and how long it takes.

    python -m xlj.recipes

If the docstring of a recipe has a measured time, the command prints this time. Otherwise it
estimates the time on one H100. The estimate divides the operations of the encoder's matrix products
by a quarter of the GPU's peak rate.
"""

import ast
import math
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from xlj.cli import command
from xlj.config import durations, recipes, registered

_OPERATIONS = 0.25 * 989e12  # per second: a quarter of the bfloat16 peak of an H100


@command.entry("recipes", __doc__, lambda parser: None)
def main(flags: Namespace) -> None:
    """Prints a few lines for each recipe."""
    for title, command_name, folder in (
        ("pretraining", "train", ""),
        ("fine-tuning", "finetune", "finetune"),
        ("sweeps", "sweep", "sweeps"),
    ):
        print(f"\n{title}: xlj {command_name} --config=NAME\n")
        for name in recipes.names():
            if name.rpartition("/")[0] == folder:
                print(f"  {name}")
                for line in _lines(name):
                    print(
                        textwrap.fill(line, 80, initial_indent=" " * 6, subsequent_indent=" " * 8)
                    )


def _lines(name: str) -> Iterator[str]:
    source = (recipes.folder() / f"{name}.py").read_text("utf-8")
    doc = ast.get_docstring(ast.parse(source)) or ""
    yield doc.split("\n")[0]
    measured = re.search(r"^Takes ([^.]+)\.", doc, re.M)
    takes = " ".join(measured[1].split()) if measured else ""
    if name.startswith("sweeps/"):
        yield from [f"takes: {takes}"] * bool(takes)
        return
    config = recipes.read(name)
    if name.startswith("finetune/"):
        takes = takes or f"{config.train.epochs:g} epochs, {config.train.seeds} seeds"
        needs = f"an encoder (init_from), {config.task.train}"
    else:
        takes, needs = takes or _estimate(config), _needs(config)
    yield f"needs: {needs}"
    yield f"takes: {takes}"


def _needs(config: ConfigDict) -> str:
    """Returns the names of the text and of the model that a run reads."""
    needs = [config.init_from] if config.init_from else []
    for key in dict.fromkeys(kind.source for kind, _ in _rows(config)):
        text = config.data[key.removeprefix("data.")]
        if not text.startswith("phrasebook:"):
            needs.append(f"{text or 'your text'} ({key})")
    return ", ".join(needs) or "nothing else"


def _rows(config: ConfigDict) -> list[tuple[Any, int]]:
    """Returns for each objective (kind of its rows, tokens that the first step reads)."""
    max_length = config.model.positions - 2  # an upper bound for rows with length `auto`
    rows_read = []
    for name, options in registered().items():
        if rows := config.objectives[name].batch_size:
            key = options.row_kind.length.removeprefix("data.")
            rows_read.append((options.row_kind, rows * (config.data[key] or max_length)))
    return rows_read


def _estimate(config: ConfigDict) -> str:
    """Estimates the time on one H100, with six operations per token and parameter of the layers."""
    model, duration = config.model, durations.read(config.train.steps)
    if duration.unit == "ep":
        return f"{duration.amount:g} passes over the text"
    of_step = sum(of_step for _, of_step in _rows(config)) if not duration.unit else 1
    tokens = duration.amount * of_step
    parameters = model.layers * model.hidden * (4 * model.hidden + 2 * model.intermediate)
    hours = 6 * parameters * tokens / _OPERATIONS / 3600
    if hours < 1:
        return "under an hour of one H100 (estimated)"
    shown = f"{math.ceil(hours)} hours" if hours < 48 else f"{hours / 24:,.0f} days"
    return f"about {shown} of one H100 (estimated)"


if __name__ == "__main__":
    raise SystemExit(main())
