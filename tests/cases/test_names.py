"""names.tsv translates commands that were written before keys and modules had their names.

Each line has an old text and the new text, in the order in which they are replaced: an old text is
replaced before its beginning, which may be another old text.
"""

import importlib
import re
from pathlib import Path

from xlj.config import schema

NAMES = [
    line.split("\t")
    for line in Path(__file__).with_name("names.tsv").read_text("utf-8").splitlines()
]


def test_each_new_name_exists():
    keys = {path for path, _ in schema.keys()}
    for old, new in NAMES:
        if new.startswith("--config."):
            name = new.removeprefix("--config.").partition("=")[0]
            assert name in keys and old.removeprefix("--config.").partition("=")[0] not in (
                keys - {"model.attention"}
            )
        elif name := re.match(r"from (\S+) import (\w+)", new):
            package = importlib.import_module(name[1])
            assert hasattr(package, name[2]) or importlib.util.find_spec(f"{name[1]}.{name[2]}")
        else:
            assert importlib.util.find_spec(new)


def test_longer_texts_are_replaced_first():
    old = [name for name, _ in NAMES]
    for place, name in enumerate(old):
        assert not [other for other in old[:place] if name.startswith(other)], name
