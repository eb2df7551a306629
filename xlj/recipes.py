"""Lists the recipes, or the recipes that fit your languages, text, pairs and hardware.

    python -m xlj.recipes
    python -m xlj.recipes --for=languages=3,words=20M,pairs=20k,hardware=24GB

The list is sorted by what you start with. It has what each recipe trains, what it needs, and how
long it takes. `--for` prints the recipes that fit, with their steps, their time, what to expect,
the measured run behind these numbers, and the command (docs/which_recipe.md).

If the docstring of a recipe has a measured time, the command prints this time. Otherwise it
estimates the time on one H100. The estimate divides the operations of the encoder's matrix products
by a quarter of the GPU's peak rate.
"""

import ast
import math
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xlj.cli import command
from xlj.cli.parser import Parser
from xlj.config import durations, recipes, registered

if TYPE_CHECKING:  # types only: --help needs no table
    from xlj.tools.choosing.cases import Case

STARTS = (
    "nothing",
    "your text",
    "your text and a released model",
    "a large corpus",
    "a large corpus and a released model",
)
"""What a pretraining recipe starts with."""
_OTHER_TITLES = {"finetune": "fine-tuning: xlj finetune", "sweeps": "sweeps: xlj sweep"}
_OPERATIONS = 0.25 * 989e12  # per second: a quarter of the bfloat16 peak of an H100


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "--for",
        dest="wishes",
        metavar="KEY=VALUE,...",
        help="print only recipes that fit. languages: their number, or names such as en,de,sw; "
        "words: words of text; pairs: sentence pairs; hardware: cpu, the memory of one GPU such as "
        "24GB, or pod (several GPUs or TPUs); start: none, english or multilingual (a released "
        "model); aim: encoder, aligner, sentences (vectors) or adapt (add languages). A key that "
        "is left out excludes no recipe",
    )


@command.entry("recipes", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Prints a few lines for each recipe."""
    if flags.wishes is not None:
        _print_fitting(flags.wishes)
        return
    titles = [*(f"start with {start}: xlj train" for start in STARTS), *_OTHER_TITLES.values()]
    title_of = {name: _title(name) for name in recipes.names()}
    for title in titles:
        print(f"\n{title} --config=NAME\n")
        for name in title_of:
            if title_of[name] == title:
                print(f"  {name}")
                for line in _lines(name):
                    _print_filled(line)


def _title(name: str) -> str:
    """Returns the title above a recipe in the list."""
    folder = name.rpartition("/")[0]
    return _OTHER_TITLES.get(folder) or f"start with {start_of(recipes.read(name))}: xlj train"


def start_of(config: ConfigDict) -> str:
    """Returns what a pretraining recipe starts with, one of `STARTS`.

    A recipe for a large corpus names the corpus in its templates, such as
    data/cc100/{language}.txt.xz.
    """
    templates = [config.data[key.removeprefix("data.")] for key in _sources(config)]
    if all(text.startswith("phrasebook:") for text in templates):
        return STARTS[0]
    is_large = any(re.match(r"data/\w+/", text) for text in templates)
    return STARTS[1 + 2 * is_large + bool(config.init_from)]


def _print_filled(text: str) -> None:
    first, more = " " * 6, " " * 8
    print(textwrap.fill(text, 80, initial_indent=first, subsequent_indent=more))


def _print_fitting(wishes: str) -> None:
    """Prints the recipes that fit, and those that one missing thing excludes."""
    from xlj.tools.choosing import request as requests

    request = requests.parse(wishes)
    cases = requests.choose(request)
    print("1 recipe fits\n" if len(cases) == 1 else f"{len(cases) or 'no'} recipes fit\n")
    for case in cases:
        print(f"  {case.recipe}")
        amounts = [f"{requests.count(case)} languages"]
        amounts += [f"{case.words:,} words of text or more"] * bool(case.words)
        amounts += [f"{case.pairs:,} sentence pairs or more"] * bool(case.pairs)
        amounts += ["a released model"] * (case.start != "none")
        _print_filled(f"for: {', '.join([*amounts, requests.hardware(case)])}")
        _print_filled(f"steps: {case.steps}")
        _print_filled(f"time: {case.time}")
        _print_filled(f"expect: {case.expect}")
        page = f"docs/{case.page}"
        _print_filled(f"measured: {page}" if case.is_measured else f"planned, not measured: {page}")
        print(f"{command_line(case, request.names, request.words)}\n")
    if nearly := requests.nearly(request):
        print("one thing is missing for:\n")
        for case, missing in nearly:
            print(f"  {case.recipe}: {missing}")


def command_line(case: "Case", names: Sequence[str], words: int | None = None) -> str:
    """Returns the command of a case for languages, with a flag on each line.

    Args:
      words: words of text; None for the fewest of the case.
    """
    from xlj.tools.choosing.cases import MOST_STEPS, WORDS_PER_STEP

    first, *others = names or ("en", "de", "sw")
    new = [name for name in names if name != "en"] or ("ha", "yo")  # en is replayed
    values: dict[str, Sequence[str]] = {
        "LANGUAGES": [first, *others],
        "PAIRS": [f"{first}-{name}" for name in others],
        "NEW": new,
        "EACH": [f"en-{name}" for name in new],
        "STEPS": [str(min(MOST_STEPS, (words or case.words) // WORDS_PER_STEP))],
    }
    parts = []
    for word in case.command:
        flag, _, value = word.partition("=")
        parts.append(f"{flag}={','.join(values[value])}" if value in values else word)
    return " " * 6 + " \\\n          ".join([f"xlj {' '.join(parts[:2])}", *parts[2:]])


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
        epochs = durations.read(config.train.steps).amount
        takes = takes or f"{epochs:g} epochs, {config.task.seeds} seeds"
        needs = f"an encoder (init_from), {config.task.train}"
    else:
        takes, needs = takes or _estimate(config), _needs(config)
    yield f"needs: {needs}"
    yield f"takes: {takes}"


def _needs(config: ConfigDict) -> str:
    """Returns the names of the text and of the model that a run reads."""
    needs = [config.init_from] if config.init_from else []
    for key in _sources(config):
        text = config.data[key.removeprefix("data.")]
        if not text.startswith("phrasebook:"):
            needs.append(f"{text or 'your text'} ({key})")
    return ", ".join(needs) or "nothing else"


def _sources(config: ConfigDict) -> list[str]:
    """Returns the keys of the templates of the text that a run reads first."""
    return list(dict.fromkeys(kind.source for kind, _ in _rows(config)))


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
