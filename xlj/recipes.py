"""Lists the recipes: what each is, what it needs, and how long it takes.

    python -m xlj.recipes

The time is measured where a recipe's docstring says so. Else it is estimated, for one H100 at a
quarter of its peak, from the operations of the encoder's matrix products.
"""

import ast
import math
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterator

from ml_collections import ConfigDict

from xlj.cli import command
from xlj.config import ROW_KINDS, durations, recipes, registered

_OPERATIONS = 0.25 * 989e12  # of an H100 a second, in bfloat16


@command.entry("recipes", __doc__, lambda parser: None)
def main(flags: Namespace) -> None:
    """Prints some lines for each recipe."""
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
    """The text and the model that a run reads."""
    needs = [config.init_from] if config.init_from else []
    for key in dict.fromkeys(ROW_KINDS[kind].source for kind, _ in _rows(config)):
        text = config.data[key.removeprefix("data.")]
        if not text.startswith("phrasebook:"):
            needs.append(f"{text or 'your text'} ({key})")
    return ", ".join(needs) or "nothing else"


def _rows(config: ConfigDict) -> list[tuple[str, int]]:
    """(kind, tokens a step) of the rows that each objective reads from the first step on."""
    model_reads = config.model.positions - 2  # of a length that the text decides: at most
    found = []
    for name, options in registered().items():
        if rows := config.objectives[name].batch_rows:
            key = ROW_KINDS[options.rows].length.removeprefix("data.")
            found.append((options.rows, rows * (config.data[key] or model_reads)))
    return found


def _estimate(config: ConfigDict) -> str:
    """How long one H100 takes: six operations a parameter of the layers and a token."""
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
