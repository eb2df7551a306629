"""`xlj.recipes --for`, its table of cases, and docs/which_recipe.md."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlj import adapt
from xlj import config as schema
from xlj import recipes as recipe_list
from xlj.cli import configs
from xlj.config import ConfigError, recipes
from xlj.tools.choosing import request as requests
from xlj.tools.choosing.cases import CASES, GPU, LARGE_GPU, POD

DOCS = Path(__file__).parents[1] / "docs"


def chosen(text):
    return [case.recipe for case in requests.choose(requests.parse(text))]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("languages=3,words=1M,pairs=0,start=none,hardware=24GB", ["xlm_tiny:modern"]),
        ("languages=3,words=50M,pairs=0,start=none,aim=encoder,hardware=80GB",
         ["one_gpu:text", "xlm_tiny:modern"]),
        ("languages=5 words=1B pairs=1M start=none aim=sentences hardware=80GB",
         ["one_gpu:base", "one_gpu", "one_gpu"]),
        ("languages=100,words=2B,pairs=0,start=none,hardware=pod,aim=encoder",
         ["xlm_r_base", "mmbert_small"]),
        ("words=0,pairs=8k,start=none,aim=aligner", ["aligner"]),
        ("words=0,pairs=0", ["quickstart"]),
        ("languages=yo,words=81k,pairs=6644,start=multilingual,aim=adapt",
         ["adapt", "adapt:sentences"]),
        ("languages=en,de,words=2M,start=english,pairs=0", ["meta_xlm_minilm"]),
        ("languages=2,words=0,pairs=0,start=english", []),
    ],
)  # fmt: skip
def test_the_recipes_that_fit_need_no_more_than_there_is(text, expected):
    assert chosen(text) == expected


def test_a_request_is_read_with_units_names_and_blanks():
    read = requests.parse(" languages=en,de,sw, words=1.5M\tpairs=20_000 hardware=80gb ")
    assert read == requests.Request(("en", "de", "sw"), 3, 1_500_000, 20_000, LARGE_GPU)
    read = requests.parse("aim=aligner,languages=3,hardware=pod,start=english,words=2b")
    assert read == requests.Request((), 3, 2 * 10**9, None, POD, "aligner", "english")
    assert requests.parse("hardware=cpu").hardware == 0


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cannot read ''; write KEY=VALUE, for example languages=3,"),
        ("3", "cannot read '3'; write KEY=VALUE"),
        ("words=5M,3k", "cannot read '3k'; write KEY=VALUE"),
        ("laguages=3", "unknown key 'laguages'; the keys are languages, .*; did you mean lang"),
        ("words=5M,words=3M", "words is repeated"),
        ("languages=0", "languages=0: expected a number, such as 3"),
        ("languages=", "languages=: expected a number or names, such as 3 or en,de,sw"),
        ("languages=en,3", "languages=en,3: expected a number or names"),
        ("words=-1", "words=-1: expected a number, such as 3, 20k, 5M or 1.5B"),
        ("pairs=0.5", "pairs=0.5: expected a number"),
        ("hardware=gpu", "hardware=gpu: expected cpu, the memory of one GPU such as 24GB, or pod"),
        ("start=xlm-r", "start=xlm-r: expected none, english or multilingual"),
        ("aim=align", "aim=align: expected encoder, .*; did you mean aligner?"),
    ],
)
def test_errors_of_a_request_say_what_was_expected(call, text, message):
    with pytest.raises(ConfigError, match=f"--for: {message}"):
        call(recipe_list.main, f"--for={text}")


@given(text=st.text("languages=words,pairs 0123kMB.", max_size=40))
def test_any_text_is_a_request_or_an_error(text):
    try:
        requests.choose(requests.parse(text))
    except ConfigError as error:
        assert str(error).startswith("--for: ")


def test_the_command_prints_each_case_and_what_is_missing_for_others(call):
    text = "languages=de,en,sw,words=5M,pairs=41k,hardware=24GB,start=none,aim=encoder"
    printed = call(recipe_list.main, f"--for={text}").out
    assert max(map(len, printed.split("\n"))) <= 80
    words = " ".join(printed.split())
    for expected in (
        "for: 2 to 20 languages, 1,000,000 words of text or more, 40,000 sentence pairs or more, "
        "a CPU steps: 1,000 time: 87 minutes, 2 busy cores expect: 8 languages: MMLM 9.77",
        "measured: docs/experiments/real_text.md xlj train --config=xlm_tiny \\ "
        "--config.data.languages=de,en,sw \\ --config.data.mono='corpus/{language}.txt' \\ "
        "--config.data.pairs=de-en,de-sw \\",
        "one thing is missing for: one_gpu: 20,000,000 words of text one_gpu:text: 20,000,000",
    ):
        assert expected in words
    assert "quickstart" not in words and "xlm_r_base" not in words
    printed = call(recipe_list.main, "--for=languages=2,words=0,pairs=0,start=english").out
    assert printed.startswith("no recipes fit\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.recipe)
def test_the_command_of_a_case_is_valid_and_its_page_exists(case):
    command = recipe_list.command_line(case, ()).replace("\\\n", " ")
    program, name, *flags = shlex.split(command)
    assert program == "xlj" and name == case.command[0]
    if name == "adapt":
        assert adapt.main.parser().read(flags).languages == ("ha", "yo")
    else:
        config, *overrides = flags
        configs.load(config.removeprefix("--config="), overrides, schema)
    assert name == "adapt" or f"--config={case.recipe}" in flags
    page, _, anchor = case.page.partition("#")
    headings = [
        line.lstrip("# ").lower().replace(" ", "-").replace(",", "").replace(":", "")
        for line in (DOCS / page).read_text("utf-8").split("\n")
        if line.startswith("#")
    ]
    assert not anchor or anchor in headings
    assert set(case.aims) <= set(requests.AIMS) and case.start in requests.STARTS
    assert case.hardware in (0, GPU, LARGE_GPU, POD)


def test_planned_steps_are_those_of_the_recipes():
    for case in CASES:
        config = recipes.read(case.recipe)
        if not case.is_measured and case.steps != "20 passes":
            steps = str(config.train.steps).replace("_000_000_000_000tok", "T tokens")
            assert case.steps.rpartition("at most ")[2].replace(",", "") == steps


def test_one_gpu_takes_fewer_steps_for_less_text(call):
    for words, steps in (("20M", 4_000), ("100M", 20_000), ("2B", 50_000)):
        printed = call(recipe_list.main, f"--for=words={words},pairs=0,hardware=24GB").out
        assert f"--config.train.steps={steps}\n" in printed


def test_the_page_has_the_table():
    spec = importlib.util.spec_from_file_location("maker", DOCS / "make_which_recipe.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    page = maker.FILE.read_text("utf-8")
    assert page == maker.render(page), "run python docs/make_which_recipe.py"
    table = page.partition(maker.BEGIN)[2].partition(maker.END)[0]
    assert table.count("\n| `") == len(CASES)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.is_measured], ids=lambda case: case.recipe
)
def test_numbers_of_a_measured_case_are_on_its_page(case):
    """The fewest words and pairs are rounded. Pages write numbers below ten as words too."""
    page = (DOCS / case.page.partition("#")[0]).read_text("utf-8")
    numbers = re.findall(r"\d[\d.,]*\d|\d", f"{case.steps}; {case.time}; {case.expect}")
    assert not [number for number in numbers if not re.search(rf"\b{re.escape(number)}\b", page)]
