"""Runs that cannot fit into memory are refused before any work; errors name sizes and keys."""

import jax
import pytest

from xlj.config import ConfigError, parse
from xlj.sharding import meshes
from xlj.training import memory


def check(config):
    config = parse(config)
    memory.check_fits(config, memory.expected_sizes(config), meshes.make_mesh(config))


def test_runs_that_fit_pass_and_expected_sizes_equal_those_of_rows(tiny, store):
    check(tiny)
    (result, lengths), (expected, expected_lengths) = (
        memory.sizes_of_rows(store, parse(tiny)),
        memory.expected_sizes(parse(tiny)),
    )
    assert lengths == expected_lengths == [{"text": 32, "pairs": 48}]
    assert result.vocabulary_size == expected.vocabulary_size
    assert set(result.languages) == set(expected.languages)
    assert set(result.paired) == set(expected.paired)


@pytest.mark.parametrize(
    "key, value, message",
    [
        (
            "model.hidden",
            10**9,
            r"states of optimizer and objectives take [\d,.]+ GiB on each device, which has "
            r"[\d,.]+ GiB; the largest tensor is params/.*Lower model\.hidden=1000000000",
        ),
        ("model.layers", 10**9, "model.layers=1000000000"),
        ("model.positions", 10**12, "model.positions=1000000000000"),
        ("data.vocabulary_size", 10**12, "a vocabulary of 1000000000000 ids"),
        (
            "objectives.tlm.batch_size",
            10**11 // 8 * 8,
            r"token ids of a step take [\d,.]+ GiB.*lower objectives\.tlm\.batch_size=100000000000",
        ),
    ],
)
def test_runs_that_cannot_fit_are_refused(tiny, key, value, message):
    tiny.update_from_flattened_dict({key: value})
    with pytest.raises(ConfigError, match=message):
        check(tiny)


def test_a_sharded_state_fits_where_a_whole_one_does_not(tiny, monkeypatch):
    tiny.model.hidden, tiny.model.intermediate = 64, 256
    sizes = {}
    for fsdp in (1, 8):
        tiny.mesh.fsdp = fsdp
        config = parse(tiny)
        corpus, mesh = memory.expected_sizes(config).corpus, meshes.make_mesh(config)
        sizes[fsdp] = sum(memory.state_bytes(config, corpus, mesh).values())
    monkeypatch.setattr(memory, "_device_memory", lambda mesh: (sizes[1] + sizes[8]) / 2)
    check(tiny)
    tiny.mesh.fsdp = 1
    with pytest.raises(ConfigError, match=r"raise mesh\.fsdp=1"):
        check(tiny)


def test_a_step_that_runs_out_of_memory_is_an_error_with_advice(tiny):
    message = r"ran out of memory \(RESOURCE_EXHAUSTED: 9 GiB\).*accumulation=1, "
    with pytest.raises(ConfigError, match=message):
        with memory.explain_out_of_memory(parse(tiny)):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB\nand a table")
    with pytest.raises(jax.errors.JaxRuntimeError), memory.explain_out_of_memory(parse(tiny)):
        raise jax.errors.JaxRuntimeError("INTERNAL: another")
