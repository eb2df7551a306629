"""The pictures of the documentation match the code that draws them, and fit any screen."""

import importlib
import re
import xml.etree.ElementTree as etree
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/pictures"
TEXT, RECT = "{http://www.w3.org/2000/svg}text", "{http://www.w3.org/2000/svg}rect"


@pytest.fixture(scope="module")
def maker():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("make_pictures")


@pytest.fixture(scope="module")
def drawn(maker):
    return {name: draw() for name, draw in maker.PICTURES.items()}


def test_picture_files_match_the_code_that_draws_them(drawn):
    files = {file.stem: file.read_text("utf-8") for file in FOLDER.glob("*.svg")}
    assert files == drawn, "run python docs/make_pictures.py"


def test_each_picture_is_on_a_page(drawn):
    pages = [ROOT / "README.md", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    files = [*(f"{name}.svg" for name in drawn), *(f.name for f in FOLDER.glob("*.png"))]
    assert not [name for name in files if f"pictures/{name}" not in text]
    assert not [f.name for f in FOLDER.glob("*.png") if f.stat().st_size > 200_000]


def test_pictures_are_readable_in_light_and_dark_mode_and_on_a_phone(drawn):
    for name, text in drawn.items():
        root = etree.fromstring(text)
        width = float(root.get("viewBox").split()[2])
        assert root.find("{*}title").text, name
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), name
        if name != "logo":  # it has colours of its own
            assert width <= 420 and "prefers-color-scheme: dark" in text, name
            # Left-aligned text must end inside the picture; letter widths are estimates.
            for element in root.iter(TEXT):
                classes = element.get("class", "").split()
                if element.get("x") and not {"middle", "end"} & set(classes):
                    letter = 5.4 if "small" in classes else 6.1
                    end = float(element.get("x")) + len(element.text) * letter
                    assert end <= width, (name, element.text)


def test_upright_labels_end_below_the_line_above_them(drawn):
    for name, text in drawn.items():
        texts = list(etree.fromstring(text).iter(TEXT))
        lines = [
            tuple(float(element.get(axis)) for axis in "xy")
            for element in texts
            if element.get("x") and not {"middle", "end"} & set(element.get("class", "").split())
        ]
        for element in texts:
            if place := re.match(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
                right, bottom = map(float, place.groups())
                top = bottom - sum(11 if c in "<>m" else 7.5 for c in element.text)  # wide font
                above = [(x, y) for x, y in lines if x < right and top < y + 4 and y < bottom]
                assert not above, (name, element.text)


def grids(text):
    """Returns which squares of the grids of a picture are filled, bool [grids, length, length]."""
    squares = {}
    for rect in etree.fromstring(text).iter(RECT):
        if rect.get("width") == rect.get("height") == "21":
            squares[float(rect.get("y")), float(rect.get("x"))] = rect.get("class") == "see"
    rows = sorted({y for y, _ in squares})
    columns = {y: sorted(x for top, x in squares if top == y) for y in rows}
    length = len(columns[rows[0]])
    filled = np.array([[squares[y, x] for x in columns[y]] for y in rows])
    return filled.reshape(-1, length, length)


def blocks(*sizes):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return ids[:, None] == ids


def test_grids_show_which_tokens_each_token_attends_to(drawn):
    """The expected grids are written by hand, without the code that draws them."""
    (text,), (pair,) = grids(drawn["mmlm"]), grids(drawn["tlm"])
    assert (text == blocks(5, 4)).all() and pair.all()
    (crossed,) = grids(drawn["camlm"])
    side, selected = np.repeat([0, 1], [5, 4]), np.isin(np.arange(9), [2, 7])
    expected = ~selected & np.where(selected[:, None], side[:, None] != side, side[:, None] == side)
    assert (crossed == expected).all()
    generating, predicting = grids(drawn["btmlm"])
    assert (generating == (np.arange(10) < 8)).all() and predicting.all()


def test_arrows_between_subpackages_point_down_and_imply_all_imports(maker):
    layers = importlib.import_module("pictures.layers")
    graph = layers.imports()
    levels = layers.levels_of(graph)
    assert all(
        levels[subpackage] > levels[other]
        for subpackage, others in graph.items()
        for other in others
    )
    drawn = layers.find_direct_imports(graph)
    assert ("commands", "cli") in drawn and ("commands", "api") not in drawn
    reached = {subpackage: set() for subpackage in graph}
    for subpackage in graph:  # from the bottom up
        below = {other for importer, other in drawn if importer == subpackage}
        reached[subpackage] = below.union(*(reached[other] for other in below))
    assert all(others <= reached[subpackage] for subpackage, others in graph.items())


def test_a_plot_needs_exactly_one_table_with_distinct_column_names(maker, tmp_path, monkeypatch):
    plots = importlib.import_module("pictures.plots")
    for corner in ("gold set", "no such table"):
        with pytest.raises(ValueError, match=re.escape(f"begin with {corner!r}, not one")):
            plots.table("experiments/aligner.md", corner)
    (tmp_path / "a.md").write_text("| a | layer 1 | layer 1 |\n|---|---|---|\n| b | 1 | 2 |\n")
    monkeypatch.setattr(plots, "PAGES", tmp_path)
    with pytest.raises(ValueError, match="a.md: the table 'a' has two columns of the same name"):
        plots.table("a.md", "a")


def test_numbers_of_plots_are_those_of_the_tables(maker):
    plots = importlib.import_module("pictures.plots")
    numbers = plots.table("experiments/objectives.md", "AER")["+ MMLM, TLM + DWA"]
    assert numbers["layer 3"] == plots.Number(50.5, 7.0) and len(numbers) == 3
    questions = plots.table("experiments/zero_shot.md", "questions, F1")["quickstart"]
    assert questions["seven others"] == plots.Number(23.9) and len(questions) == 9
    scores = plots.table("experiments/objectives.md", "retrieval")["+ MMLM, CAMLM, then BTMLM too"]
    assert (scores["layer 3"].value, scores["centred, layer 3"].value) == (13.1, 16.8)
    speeds = plots.table("benchmarks.md", "train step | ms")
    assert speeds["XLM-R base, MMLM, 32 x 512, layers unrolled"]["tokens/s"].value == 335_000
