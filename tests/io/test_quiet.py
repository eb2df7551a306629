"""Libraries that are imported only when they read data."""

import re
import sys
from pathlib import Path

import pytest

from xlj.config import ConfigError
from xlj.io import quiet
from xlj.io.quiet import import_quietly, require


def test_installed_libraries_are_not_imported():
    require("this", "x")
    assert "this" not in sys.modules


@pytest.mark.parametrize("check", [require, import_quietly])
@pytest.mark.parametrize(
    "python, reason",
    [
        (
            (3, 13, 1),
            "is not installed; pip install no-such-library, or write the data to files",
        ),
        (
            (3, 14, 0),
            "cannot be installed on Python 3.14 and later (seqio needs tensorflow-text, which has "
            "no release for these versions); use a Python version before 3.14, or write the data "
            "to files",
        ),
    ],
)
def test_the_error_names_the_source_the_reason_and_a_remedy(check, python, reason, monkeypatch):
    monkeypatch.setattr(sys, "version_info", python)
    with pytest.raises(ConfigError) as error:
        check("no_such_library", "seqio:task#text")
    assert str(error.value) == f"reading seqio:task#text needs no_such_library, which {reason}"


def test_a_library_that_cannot_be_imported_names_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot be imported .*named 'no_such_library'"):
        import_quietly("needs_more")


def test_setup_installs_seqio_only_for_the_python_versions_that_the_error_names():
    setup = (Path(__file__).parents[2] / "setup.py").read_text("utf-8")
    first = ".".join(map(str, quiet.FIRST_WITHOUT_SEQIO))
    marked = re.findall(rf"\"([a-z-]+)[^\"]*; python_version < '{first}'\"", setup)
    assert marked == ["seqio", "tensorflow", "tensorflow-datasets"]
