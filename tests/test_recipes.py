"""Every recipe builds and traces; its tiny variant trains."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from xlj import objectives
from xlj.config import KINDS, parse, phase_configs
from xlj.data.corpus import Corpus
from xlj.data.sources import split_pair
from xlj.keys import lookup
from xlj.objectives.rows import Rows
from xlj.training import partitioning, state
from xlj.training.step import make_train_step

ROOT = Path(__file__).parents[1]
RECIPES = sorted(path.name for path in (ROOT / "configs").glob("*.py"))


def load(name, *variant):
    sys.path.insert(0, str(ROOT / "configs"))
    try:
        spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "configs" / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.get_config(*variant)
    finally:
        sys.path.pop(0)


def with_sources(config):
    """A recipe that leaves its text to the user, given some."""
    if not config.data.mono:
        config.data.mono, config.data.languages = "DIR/{language}.txt", "en,de"
        config.data.parallel, config.data.pairs = "DIR/{pair}.tsv", "en-de"
    return config


def corpus_of(config):
    """What the rows of a config would say of themselves."""
    pairs = [name for pair in config.data.pairs for name in split_pair(pair, config.data.languages)]
    languages = tuple(dict.fromkeys([*config.data.languages, *pairs]))
    return Corpus(config.data.vocabulary_size, languages, (1,) * len(languages))


@pytest.mark.parametrize("variant", ["", "tiny"])
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_build_and_trace(name, variant):
    config = parse(with_sources(load(name, variant)))
    corpus = corpus_of(config)
    mesh = partitioning.make_mesh(config, jax.devices()[:1])
    state.sharding(config, corpus, mesh)
    for _, phase in phase_configs(config):
        built = objectives.build(phase, corpus)
        batch = {}
        for name, objective in built.items():
            rows = phase.objectives.active()[name].batch_rows
            length = lookup(config, KINDS[objective.kind].length)
            batch[name] = Rows(
                jax.ShapeDtypeStruct((rows, length), jnp.uint32),
                jax.ShapeDtypeStruct((rows, 2), jnp.int32),
            )
        before = jax.eval_shape(lambda: state.init(config, corpus))
        after = jax.eval_shape(make_train_step(phase, built, mesh), before, batch)
        assert jax.tree.structure(after) == jax.tree.structure(before)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_base_and_large_have_the_papers_sizes():
    for name, millions in (("xlm_r_base.py", 278), ("xlm_r_large.py", 560)):
        config = parse(load(name))
        shapes = jax.eval_shape(lambda c=config: state.init(c, corpus_of(c))).params
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes)) / 1e6
        assert count == pytest.approx(millions, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_tiny_variants_take_a_step(name, tmp_path, rows_folder):
    command = [sys.executable, "-m", "xlj.train", f"--config=configs/{name}:tiny"]
    command += [f"--workdir={tmp_path}", f"--config.data.cache={rows_folder}"]
    command += ["--config.train.steps=1", "--config.optimizer.warmup_steps=0"]
    environment = dict(os.environ, XLA_FLAGS="")
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "held-out loss" in result.stdout and (tmp_path / "checkpoints" / "1").is_dir()
