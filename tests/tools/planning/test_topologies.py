"""Topologies are parsed from names; errors name the expected form, or the package to install."""

import math

import pytest

from xlj.config import ConfigError
from xlj.tools.planning import topologies
from xlj.tools.planning.chips import CHIPS


@pytest.mark.parametrize(
    "name, size", [("h100:8x8", 64), ("a100:1x1", 1), ("v5e:4x4", 16), ("v5p:4x4x8", 128)]
)
def test_a_name_gives_the_chip_and_the_number_of_devices(name, size):
    topology = topologies.parse(name)
    assert topology.size == size and topology.chip is CHIPS[name.partition(":")[0]]


@pytest.mark.parametrize(
    "name, message",
    [
        ("v4:4x4", "expected a100, h100, h200, b200, rtx4090, v5e, v5p, v6e"),
        ("h100", "expected hosts x GPUs per host, e.g. h100:8x8"),
        ("h100:8", "expected hosts x GPUs per host"),
        ("h100:0x8", "expected hosts x GPUs per host"),
        ("h100:8x8x8", "expected hosts x GPUs per host, e.g. h100:8x8"),
        ("v5e:4x4x4", "expected the two sides of a torus, e.g. v5e:4x4"),
        ("v5p:4x4", "expected the three sides of a torus, e.g. v5p:4x4x4"),
        ("v5e:4*4", "expected the two sides of a torus"),
    ],
)
def test_invalid_names_are_errors(name, message):
    with pytest.raises(ConfigError, match=message):
        topologies.parse(name)


def test_the_error_for_a_missing_compiler_has_its_install_command(monkeypatch):
    def raise_unknown_backend(*arguments, **named):
        raise RuntimeError("Unknown backend cuda\nmore of it")

    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", raise_unknown_backend)
    with pytest.raises(ConfigError, match=r"Unknown backend cuda.*pip install -e '.\[cuda\]'"):
        topologies.parse("h100:1x8").devices()
    with pytest.raises(ConfigError, match=r"pip install -e '.\[tpu\]'"):
        topologies.parse("v5e:4x4").devices()


def test_rates_of_products_depend_on_type_and_precision():
    h100, v5e = CHIPS["h100"], CHIPS["v5e"]
    assert h100.rate("bf16") == 2 * h100.rate("f32") > h100.rate("f32 highest") == 67e12
    assert v5e.rate("bf16") == v5e.rate("f32") == pytest.approx(6 * v5e.rate("f32 highest"))
    for chip in CHIPS.values():
        assert 10 < chip.flops / chip.bandwidth < 1000 and chip.fast > chip.slow
        assert math.log2(chip.memory) > 33
