"""The pictures of the documentation are what the code draws, and read on any screen."""

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


def test_the_files_are_what_the_code_draws(drawn):
    files = {file.stem: file.read_text("utf-8") for file in FOLDER.glob("*.svg")}
    assert files == drawn, "run python docs/make_pictures.py"


def test_each_picture_is_on_a_page(drawn):
    pages = [ROOT / "README.md", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    files = [*(f"{name}.svg" for name in drawn), *(f.name for f in FOLDER.glob("*.png"))]
    assert not [name for name in files if f"pictures/{name}" not in text]
    assert not [f.name for f in FOLDER.glob("*.png") if f.stat().st_size > 200_000]


def test_pictures_read_in_light_and_dark_and_on_a_phone(drawn):
    for name, text in drawn.items():
        root = etree.fromstring(text)
        width = float(root.get("viewBox").split()[2])
        assert root.find("{*}title").text, name
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), name
        if name != "logo":  # one of its own colours
            assert width <= 420 and "prefers-color-scheme: dark" in text, name
            # Text that begins at the left ends on the picture: a letter has about 5.6 units.
            for element in root.iter(TEXT):
                classes = element.get("class", "").split()
                if element.get("x") and not {"middle", "end"} & set(classes):
                    letter = 5.4 if "small" in classes else 6.1
                    end = float(element.get("x")) + len(element.text) * letter
                    assert end <= width, (name, element.text)


def grids(text):
    """The grids of a picture, bool [length, length] each: which squares are filled."""
    squares = {}
    for rect in etree.fromstring(text).iter(RECT):
        if rect.get("width") == rect.get("height") == "21":
            squares[float(rect.get("y")), float(rect.get("x"))] = rect.get("class") == "see"
    rows = sorted({y for y, _ in squares})
    columns = {y: sorted(x for top, x in squares if top == y) for y in rows}
    length = len(columns[rows[0]])
    every = np.array([[squares[y, x] for x in columns[y]] for y in rows])
    return every.reshape(-1, length, length)


def blocks(*sizes):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return ids[:, None] == ids


def test_grids_show_who_sees_what(drawn):
    """By hand, not by the code that draws them."""
    (text,), (pair,) = grids(drawn["mmlm"]), grids(drawn["tlm"])
    assert (text == blocks(5, 4)).all() and pair.all()
    (crossed,) = grids(drawn["camlm"])
    side, selected = np.repeat([0, 1], [5, 4]), np.isin(np.arange(9), [2, 7])
    wanted = ~selected & np.where(selected[:, None], side[:, None] != side, side[:, None] == side)
    assert (crossed == wanted).all()
    generating, predicting = grids(drawn["btmlm"])
    assert (generating == (np.arange(10) < 8)).all() and predicting.all()


def test_the_drawing_of_layers_goes_down(maker):
    layers = importlib.import_module("pictures.layers")
    graph = layers.imports()
    levels = layers.levels_of(graph)
    assert all(levels[room] > levels[other] for room, others in graph.items() for other in others)
    drawn = layers.find_direct_imports(graph)
    assert ("commands", "cli") in drawn and ("commands", "api") not in drawn
    reached = {room: set() for room in graph}
    for room in graph:  # from the bottom up
        below = {other for one, other in drawn if one == room}
        reached[room] = below.union(*(reached[other] for other in below))
    assert all(others <= reached[room] for room, others in graph.items())


def test_a_table_of_a_plot_is_one_with_named_columns(maker, tmp_path, monkeypatch):
    plots = importlib.import_module("pictures.plots")
    for corner in ("gold set", "no such table"):
        with pytest.raises(ValueError, match=re.escape(f"begin with {corner!r}, not one")):
            plots.table("experiments/aligner.md", corner)
    (tmp_path / "a.md").write_text("| a | layer 1 | layer 1 |\n|---|---|---|\n| b | 1 | 2 |\n")
    monkeypatch.setattr(plots, "PAGES", tmp_path)
    with pytest.raises(ValueError, match="a.md: the table 'a' has two columns of the same name"):
        plots.table("a.md", "a")


def test_numbers_of_a_plot_are_those_of_the_table(maker):
    plots = importlib.import_module("pictures.plots")
    numbers = plots.table("experiments/objectives.md", "AER")["+ MMLM, TLM + DWA"]
    assert numbers["layer 3"] == plots.Number(50.5, 7.0) and len(numbers) == 3
    questions = plots.table("experiments/zero_shot.md", "questions, F1")["quickstart"]
    assert questions["seven others"] == plots.Number(23.9) and len(questions) == 9
    found = plots.table("experiments/objectives.md", "retrieval")["+ MMLM, CAMLM, then BTMLM too"]
    assert (found["layer 3"].value, found["centred, layer 3"].value) == (13.1, 16.8)
    speeds = plots.table("benchmarks.md", "train step | ms")
    assert speeds["XLM-R base, MMLM, 32 x 512, layers unrolled"]["tokens/s"].value == 335_000
