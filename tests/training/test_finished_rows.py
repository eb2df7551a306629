"""A run from finished rows needs no text, and equals the run that builds them."""

import shutil

import pytest

from xlj.checkpoints import reading
from xlj.checkpoints.reading import CheckpointError
from xlj.config import parse
from xlj.training import loop, start


@pytest.fixture
def from_text(tiny, corpus, store, tmp_path):
    """`tiny` for two steps, with finished rows of text that can be deleted."""
    shutil.copytree(corpus, tmp_path / "text")
    tiny.data.mono = f"{tmp_path}/text/mono/{{language}}.txt"
    tiny.data.parallel = f"{tmp_path}/text/pairs/{{pair}}.tsv"
    tiny.model.layers, tiny.train.steps, tiny.train.eval_every = 1, 2, 2
    return tiny


def train(config, workdir):
    """Does what `xlj.train` does, in this process."""
    loop.train(start.prepare(parse(config), workdir))
    meta = reading.find(workdir).meta
    return meta["step"], meta["digests"], meta["rows"]


@pytest.mark.slow
def test_rows_alone_train_to_the_same_checkpoint_and_resume_either_way(from_text, store, tmp_path):
    alone = from_text.copy_and_resolve_references()
    alone.data.rows, alone.data.cache = str(store.path), "/nowhere"
    alone.data.mono = alone.data.parallel = alone.data.languages = alone.data.pairs = ""
    begun = train(from_text, tmp_path / "text_first")
    assert train(alone, tmp_path / "rows_first") == begun

    from_text.train.steps = alone.train.steps = 4
    ended = train(from_text, tmp_path / "rows_first")
    shutil.rmtree(tmp_path / "text")
    assert train(alone, tmp_path / "text_first") == ended
    assert (begun[0], ended[0]) == (2, 4)


def test_a_model_to_start_from_must_have_the_vocabulary_of_the_rows(
    tiny, store, checkpoint, tmp_path
):
    tiny.data.rows, tiny.data.cache, tiny.init_from = str(store.path), "/nowhere", str(checkpoint)
    tiny.model.layers, tiny.model.positions = 3, 130
    with pytest.raises(CheckpointError, match=rf"another vocabulary than data\.rows={store.path}"):
        start.prepare(parse(tiny), tmp_path / "run")
