"""The real model, and the libraries and data that tests compare it with."""

import importlib
import os
from pathlib import Path

import make_folder
import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


def _require(is_there, reason):
    """Skips the test without its model or library. `.ci/run` has both, so there it fails."""
    if not is_there:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def e5():
    """The folder of multilingual-e5-small."""
    folder = make_folder.FOLDER
    make = "python tests/real/make_folder.py"
    _require(make_folder.is_complete(folder), f"there is no model at {folder}; run {make}")
    return folder


def _library(name):
    is_there = importlib.util.find_spec(name) is not None
    _require(is_there, f"needs {name} (pip install '.[parity,peers]')")
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def transformers():
    return _library("transformers")


@pytest.fixture(scope="session")
def sentence_transformers():
    return _library("sentence_transformers")


@pytest.fixture(scope="session")
def data():
    """The folder of evaluation sets, which are not a part of the repository."""
    if not DATA.is_dir():
        pytest.skip(f"there is no real data at {DATA}")
    return DATA
