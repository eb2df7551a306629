"""What `xlj.convert` says before it reads a model."""

import pytest

from xlj import convert
from xlj.config import ConfigError


def refused(monkeypatch, match, *arguments):
    monkeypatch.setattr("sys.argv", ["convert", *map(str, arguments)])
    with pytest.raises(ConfigError, match=match):
        convert.run(convert._flags())


@pytest.mark.parametrize("action", ["import", "export", "extend"])
def test_an_output_that_is_there_is_refused_first(tmp_path, monkeypatch, action):
    monkeypatch.chdir(tmp_path)
    more = {
        "import": ["--source=none"],
        "export": ["--checkpoint=none"],
        "extend": ["--checkpoint=none", "--text=none", "--pieces=3"],
    }[action]
    for output in (".", tmp_path):
        refused(monkeypatch, "is there already", action, *more, f"--output={output}")


def test_an_output_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(convert, "_import", full)
    refused(monkeypatch, r"--output=.*new cannot be written: no space left",
            "import", "--source=none", f"--output={tmp_path}/new")  # fmt: skip
