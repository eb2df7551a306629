"""Attention of a user, plugged in from outside xlj: checked, and trained with."""

import sys

import jax
import pytest

from xlj.config import ConfigError, parse
from xlj.config.user_code import function_of
from xlj.models.attention.attention_checks import check_attention
from xlj.training import loop, start

CODE = """
import jax
import jax.numpy as jnp

traced = set()

def attend(query, key, value, mask):
    traced.add(mask.window)
    visible = mask.of_queries(mask.query_segment_ids)
    output = jax.nn.dot_product_attention(query, key, value, mask=visible[:, None])
    return jnp.where(visible.any(-1)[:, :, None, None], output, 0)

def forgets_the_examples(query, key, value, mask):
    return jax.nn.dot_product_attention(query, key, value)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_attention.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    function_of.cache_clear()  # of another test's module
    yield __import__("own_attention")
    del sys.modules["own_attention"]


@pytest.mark.parametrize("window", [None, 20])
def test_the_checks_pass_for_a_users_attention(window, own_module):
    check_attention(jax.jit(own_module.attend), rows=1, length=60, window=window)


def test_the_checks_find_a_users_mistake(own_module):
    with pytest.raises(AssertionError, match="packed"):
        check_attention(own_module.forgets_the_examples, rows=1, length=60)


@pytest.mark.slow
def test_a_run_trains_with_a_users_attention(tiny, store, tmp_path, own_module, capsys):
    """Full and local layers use the function."""
    tiny.train.steps, tiny.train.eval_rows, tiny.model.attention_dropout = 2, 0, 0.0
    tiny.model.attention = "own_attention:attend"
    tiny.model.local_attention, tiny.model.full_attention_every = 8, 2
    tiny.model.absolute_positions, tiny.model.rotary_base = False, 100.0
    assert loop.train(start.prepare(parse(tiny), tmp_path / "run", store)).finished
    assert own_module.traced == {None, 4}
    printed = capsys.readouterr().out
    for kind in ("full", "local"):
        assert f"attention of {kind} layers, rows of " in printed
    assert "own_attention:attend in float32" in printed


def test_a_run_whose_attention_cannot_compute_a_layer_stops_before_any_work(
    tiny, store, tmp_path, own_module
):
    tiny.model.attention, tiny.model.attention_dropout = "own_attention:attend", 0.1
    with pytest.raises(ConfigError, match="cannot compute full attention: .* has no dropout"):
        start.prepare(parse(tiny), tmp_path / "run", store)
