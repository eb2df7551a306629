"""docs/papers.md lists each table and figure of the papers, and its commands are valid."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from planned_batches import PlannedBatches

from xlj import retrieve
from xlj.cli import alignment_flags, command, configs
from xlj.config import parse
from xlj.data.rows.store import Corpus
from xlj.objectives import operations
from xlj.tools.sweeping import definition
from xlj.training.run_flops import RunFlops

ROOT = Path(__file__).parents[1]


def write_out_loops(text):
    """Replaces each shell loop over one command by the commands, in code marks or indented, and
    `xlj NAME` by `python -m xlj.NAME`."""

    def commands_of(match):
        mark, name, values, line = match.groups()
        lines = [re.sub(rf"\${{?{name}\b}}?", value, line) for value in values.split()]
        return " ".join(f"`{line}`" for line in lines) if mark else "    " + "\n    ".join(lines)

    loop = r"(?:(`)|^ {4})for (\w+) in ([^;]+);\s+do\s+([^;`]+?)(?:;|\n)\s*done`?"
    written_out = re.sub(loop, commands_of, text, flags=re.MULTILINE)
    return re.sub(r"(?m)(`|^ {4})xlj (\w+)", r"\1python -m xlj.\2", written_out)


PAGE = write_out_loops((ROOT / "docs/papers.md").read_text("utf-8"))
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
TABLES_AND_FIGURES = {"ERNIE-M": (16, 6), "XLM-E": (7, 4), "XLM-Align": (19, 2), "MetaXLM": (15, 6)}
"""How many tables and figures each paper has."""


def commands(text=PAGE):
    """The distinct commands in some text, without line breaks."""
    lines = re.findall(r"`(python -m xlj\.[^`]*)`", text)
    lines += re.findall(r"^    (python -m xlj\.(?:.*\\\n)*.*)", text, re.MULTILINE)
    return list(dict.fromkeys(line.replace("\\\n", " ") for line in lines))


def recipes_of_papers():
    """Returns (name, tiny variant) of the pretraining recipes in the commands.

    Of recipes whose tiny variants have the same config, it returns only the first.
    """
    recipes = {}
    for name, variant in re.findall(r"xlj\.train --config=configs/(\w+)\.py(?::([\w,]+))?", PAGE):
        tiny = ",".join(filter(None, [variant, "tiny"]))
        config = importlib.import_module(name).get_config(tiny)
        recipes.setdefault(config.to_json(sort_keys=True), (name, tiny))
    return list(recipes.values())


def rows(section):
    """Returns the cells of each row of a section's table, without the header."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines]


@pytest.mark.parametrize("paper", TABLES_AND_FIGURES)
def test_every_table_and_figure_has_a_row_that_states_what_to_run(paper):
    numbers_by_kind = {"Table": [], "Figure": []}
    for shown, _, run, _ in rows(paper):
        for kind, numbers in re.findall(r"(Table|Figure)s? ([\d, to]*\d)", shown):
            first, *last = map(int, re.findall(r"\d+", numbers))
            numbers_by_kind[kind] += range(first, (last or [first])[-1] + 1)
        anchors = [re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in SECTIONS]
        linked = [anchor for anchor in anchors if f"(#{anchor})" in run]
        instruction = (
            commands(run) or linked or re.search(r"nothing to run|of (each task of )?Table", run)
        )
        assert instruction, f"{paper}, {shown}: {run}"
    tables, figures = TABLES_AND_FIGURES[paper]
    assert sorted(numbers_by_kind["Table"]) == list(range(1, tables + 1))
    assert sorted(numbers_by_kind["Figure"]) == list(range(1, figures + 1))


@pytest.fixture
def resolve(monkeypatch, tmp_path):
    """Parses a command line like the command itself, but reads none of its input files."""
    (tmp_path / "DIR").mkdir()

    def resolve(words):
        assert words[:2] == ["python", "-m"]
        parsers, module = [], importlib.import_module(words[2])
        with monkeypatch.context() as context:
            context.setattr(command, "run", lambda parser, *_: parsers.append(parser))
            module.main(words[3:])
        flags = parsers[0].read(words[3:])
        if parsers[0].schema:
            assert configs.load(flags.config, flags.overrides, parsers[0].schema)
        elif words[2] == "xlj.sweep":
            for run in definition.make_runs(
                definition.read(flags.config, tmp_path), tmp_path, flags.overrides
            ):
                resolve(run.command())
        elif words[2] in ("xlj.align", "xlj.retrieve"):
            with monkeypatch.context() as context:
                context.chdir(tmp_path)
                {"xlj.align": alignment_flags, "xlj.retrieve": retrieve}[words[2]].check(flags)

    monkeypatch.chdir(ROOT)
    return resolve


@pytest.mark.parametrize("line", commands())
def test_every_command_is_valid(line, resolve):
    resolve(shlex.split(line))


@pytest.mark.slow
def test_operation_counts_are_those_of_the_recipes(monkeypatch):
    for recipe, _, *shown in rows("Operation counts (FLOPs)"):
        name, _, variant = recipe.strip("`").partition(":")
        config = parse(importlib.import_module(name).get_config(variant))
        own, electra, six_nd = _operations(config, 250_002)
        with monkeypatch.context() as context:  # ELECTRA's count needs no traced program
            context.setattr(operations, "of_step", lambda *_: 0)
            expected = (own, electra, _operations(config, 30_522).electra, six_nd)
        assert shown == [f"{count:.2e}".replace("e+", "e") for count in expected], recipe


def _operations(config, size):
    names = {name for pair in config.data.pairs for name in pair.split("-", 1)}
    languages = tuple(sorted(names | set(config.data.languages)))
    batches = PlannedBatches(config, Corpus(size, languages, (1,) * len(languages)))
    return RunFlops(config, batches).until(config.train.steps)
