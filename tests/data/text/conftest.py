"""Configs that read files in a temporary folder."""

import gzip

import pytest

from xlj.config import Config, Data, Objectives
from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM

OBJECTIVES = Objectives(
    options={"mmlm": MultilingualMLM(batch_size=1), "tlm": TranslationLM(batch_size=1)}
)
"""Objectives that read rows of text and of pairs."""


@pytest.fixture
def config(tmp_path):
    """Returns a function that makes a config of fields of `data`; `@` is a temporary folder."""

    def make(**fields) -> Config:
        fields = {"cache": str(tmp_path / "cache"), "vocabulary_size": 100, **fields}
        fields = {
            k: v.replace("@", f"{tmp_path}/") if k == "cache" else v for k, v in fields.items()
        }
        for name in ("mono", "parallel"):
            templates = fields.get(name, ())
            fields[name] = tuple(t.replace("@", f"{tmp_path}/") for t in templates)
        return Config(data=Data(**fields), objectives=OBJECTIVES)

    return make


@pytest.fixture
def write(tmp_path):
    def to(name: str, content: str | bytes) -> None:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)

    return to
