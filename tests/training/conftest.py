"""A run that many tests begin from, and runs on fewer devices."""

import shutil

import jax
import pytest

from xlj.config import parse
from xlj.training import loop


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory):
    """Where the run below is kept, once a test has made it."""
    return tmp_path_factory.mktemp("trained") / "run"


@pytest.fixture
def trained(tiny, store, trained_once, tmp_path):
    """The workdir, of the test alone, of a finished run of `tiny` with its checkpoints of steps 2
    and 4; `tiny` is then its config."""
    tiny.train.steps, tiny.train.keep_checkpoints = 4, 9
    if not trained_once.exists():
        loop.train(parse(tiny), trained_once, store)
    shutil.copytree(trained_once, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def devices(monkeypatch):
    """Says how many devices runs of this process see from then on."""
    every = jax.devices()

    def see(count):
        monkeypatch.setattr(jax, "devices", lambda *_: every[:count])

    return see
