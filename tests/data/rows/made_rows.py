"""Synthetic text and its rows, used by several tests of building rows."""

import dataclasses
import json
import os
import random
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from decoding import decode

from xlj.config import Config, Objectives
from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary

LINES = 20_000  # more than one unit of work, more than one shard


OBJECTIVES = Objectives(
    options={"mmlm": MultilingualMLM(batch_size=1), "tlm": TranslationLM(batch_size=1)}
)
"""Objectives that read rows of text and of pairs."""


def sentences(language: str, count: int) -> list[str]:
    """Lines of random words; each ends with a unique number, by which tests find it."""
    rng = random.Random(language)
    lexicon = ["".join(rng.choices("abdefgiklmnoprstu", k=rng.randint(2, 7))) for _ in range(300)]
    return [f"{' '.join(rng.choices(lexicon, k=rng.randint(2, 9)))} q{i}z" for i in range(count)]


def folders(store: RowStore) -> list[Path]:
    """The folder of the store, and the folders that it refers to."""
    return [store.path, *((store.path / task.folder).resolve() for task in store.manifest.tasks)]


def files(store: RowStore) -> dict[str, bytes]:
    return {
        str(file.relative_to(store.path.parent)): file.read_bytes()
        for folder in folders(store)
        for file in folder.rglob("*")
        if file.is_file()
    }


def examples(store: RowStore, task: str, split: str) -> list[str]:
    """Decodes each example; a tab separates the sides of a pair."""
    vocabulary = Vocabulary.load(store.vocabulary_file)
    texts = []
    rows = store.read(task, split, np.arange(store.task(task).split(split).rows))
    for row in np.concatenate(list(rows.values()), axis=1):
        ids = row[row != PAD]
        for example in np.split(ids, np.flatnonzero(ids == BOS)[1:]):
            sides = np.split(example, np.flatnonzero(example == EOS)[:-1] + 1)
            texts.append("\t".join(decode(vocabulary, side) for side in sides))
    return texts


@contextmanager
def in_this_process(workers):
    """Runs jobs in this process."""

    def run(doing, jobs):
        for job in jobs:
            job()

    yield run


PREPARE_ROWS = "from xlj.data.rows.preparing import prepare_rows\nprepare_rows(config)"


def start(folder: Path, code: str, config: Config, *arguments: Path) -> subprocess.Popen:
    """Runs code as a separate script, in which `config` is this config."""
    data = json.dumps(dataclasses.asdict(config.data))
    lines = [
        "import json, sys",
        "from xlj.config import Config, Data, Objectives",
        "from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM",
        f"fields = json.loads({data!r})",
        "fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}",
        "if __name__ == '__main__':",
        "    on = {'mmlm': MultilingualMLM(batch_size=1), 'tlm': TranslationLM(batch_size=1)}",
        "    config = Config(data=Data(**fields), objectives=Objectives(options=on))",
        textwrap.indent(textwrap.dedent(code), "    "),
    ]
    (folder / "run.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, folder / "run.py", *arguments], env=environment)


def wait_for(condition, run, seconds: float = 60):
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert run is None or run.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return result
