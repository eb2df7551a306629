"""A run from finished rows needs no text, and equals the run that builds the rows."""

import shutil

import pytest

from xlj.checkpoints import reading
from xlj.checkpoints.reading import CheckpointError
from xlj.config import parse
from xlj.training import loop, start

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def from_text(tiny, corpus, store, tmp_path):
    """`tiny` for two steps, with finished rows and a copy of the text that can be deleted."""
    shutil.copytree(corpus, tmp_path / "text")
    tiny.data.mono = f"{tmp_path}/text/mono/{{language}}.txt"
    tiny.data.parallel = f"{tmp_path}/text/pairs/{{pair}}.tsv"
    tiny.model.layers, tiny.train.steps, tiny.train.eval_every = 1, 2, 2
    return tiny


def train(config, workdir):
    """Trains in this process, and returns the step, digests and rows of the checkpoint."""
    loop.train(start.prepare(parse(config), workdir))
    meta = reading.find(workdir).meta
    return meta["step"], meta["digests"], meta["rows"]


@pytest.mark.slow
def test_runs_from_text_and_from_rows_agree_and_can_resume_each_other(from_text, store, tmp_path):
    no_text = from_text.copy_and_resolve_references()
    no_text.data.rows, no_text.data.cache = str(store.path), "/nowhere"
    no_text.data.mono = no_text.data.parallel = no_text.data.languages = no_text.data.pairs = ""
    first = train(from_text, tmp_path / "text_first")
    assert train(no_text, tmp_path / "rows_first") == first

    from_text.train.steps = no_text.train.steps = 4
    last = train(from_text, tmp_path / "rows_first")
    shutil.rmtree(tmp_path / "text")
    assert train(no_text, tmp_path / "text_first") == last
    assert (first[0], last[0]) == (2, 4)


def test_the_model_of_init_from_must_have_the_vocabulary_of_the_rows(
    tiny, store, checkpoint, tmp_path
):
    tiny.data.rows, tiny.data.cache, tiny.init_from = str(store.path), "/nowhere", str(checkpoint)
    tiny.model.layers, tiny.model.positions = 3, 130
    with pytest.raises(CheckpointError, match=rf"another vocabulary than data\.rows={store.path}"):
        start.prepare(parse(tiny), tmp_path / "run")
