"""A plan's figures follow from the compiled step. The tests compile it for eight CPU devices."""

import json

import jax
import pytest
from references import flops as reference

from xlj import config as schema
from xlj.config import parse
from xlj.sharding import devices
from xlj.tools.planning import figures, table, topologies
from xlj.tools.planning.chips import SHARES
from xlj.tools.planning.collectives import Collective
from xlj.training.memory import expected_sizes


def topology(patch):
    """A topology of this machine's devices."""
    patch.setattr(topologies.Topology, "devices", lambda self: jax.devices()[: self.size])
    return topologies.parse("h100:1x8")


@pytest.fixture
def cpu_topology(monkeypatch):
    return topology(monkeypatch)


def config_of(**changes):
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.pairs, config.data.parallel = "en-de", "phrasebook:{pair}"
    config.data.vocabulary_size = 2 * 16_384
    config.data.length = config.data.pair_length = 64
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = 2, 64, 2, 128
    model.positions, model.dropout, model.attention_dropout = 66, 0.0, 0.0
    config.objectives.mmlm.batch_size = 32
    config.objectives.masking.rate = 0.2
    config.train.steps = 100
    config.mesh.fsdp = 4
    config.phases = {
        "alpha": {"start_step": 10, "data": {"alpha": 0.5}},
        "pairs": {"start_step": 40, "objectives": {"tlm": {"batch_size": 16}}},
        "again": {"start_step": 70, "data": {"alpha": 0.7}},
    }
    config.update_from_flattened_dict(changes)
    return parse(config)


def test_phases_that_change_only_alpha_share_a_step():
    phases = figures.distinct_phases(config_of())
    names = {number: [phase.name for phase in same_step] for number, same_step in phases.items()}
    assert names == {0: ["", "alpha"], 2: ["pairs", "again"]}


@pytest.fixture(scope="module")
def plan():
    """(config, first phase, second phase) of a run."""
    config = config_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "unroll_count", lambda turns: 1)  # loops as on chips
        return config, *figures.of_run(config, expected_sizes(config), topology(patch))


@pytest.mark.slow
def test_phases_have_the_steps_and_rows_of_the_run(plan):
    _, first, second = plan
    assert (first.start, first.steps, second.start, second.steps) == (0, 40, 40, 60)
    assert first.rows == {"mmlm": (32, 64)}
    assert second.rows == {"mmlm": (32, 64), "tlm": (16, 64)}


def operations(config):
    """The operations of the first phase."""
    return reference.mlm(config.model, 32_768, 32, 64, 0.2)


def test_products_of_the_program_match_the_operations_of_the_model(plan):
    config, first, _ = plan
    assert first.counts.xlj == operations(config)
    # The program computes the model's products, and the logits once more in the backward pass.
    # Their sum over vectors is a product with 8 rows of ones.
    recomputed = 2 * 32 * 13 * (64 + 8) * 32_768  # a row has 13 predictions
    expected = operations(config) + recomputed
    assert sum(first.products.values()) * 8 == pytest.approx(expected, rel=1e-6)


def test_memory_of_the_parts_follows_from_the_parameters(plan):
    memory = plan[1].memory
    parameters = memory.parameters
    assert memory.optimizer == pytest.approx(2 * parameters, rel=0.01)
    kernels = 4 * (2 * (4 * 64 * 64 + 2 * 64 * 128) + 64 * 64 + 32_768 * 64 + 66 * 64) / 4
    head_bias = 4 * 32_768  # the head's bias; norms and other biases add some thousand bytes
    assert kernels + head_bias <= parameters <= 1.05 * (kernels + head_bias)
    parts = memory.parameters + memory.optimizer + memory.objectives + memory.rows + memory.working
    assert parts <= memory.peak and memory.rows > 4 * 64 * 2


def test_the_minimum_time_of_a_step_is_that_of_its_slowest_part(plan, cpu_topology):
    (config, first, _), chip = plan, cpu_topology.chip
    assert first.memory.fits and first.memory.limit == chip.memory
    bytes_per_link = sum(each.fast / each.links for each in first.collectives)
    assert first.seconds == {
        "products": sum(first.products.values()) / chip.float32,  # products with full precision
        "memory": sum(first.traffic.values()) / chip.bandwidth,
        "fast links": bytes_per_link / chip.fast,
        "slow links": 0,
    }
    assert {each.kind for each in first.collectives} >= {"all-gather", "all-reduce", "all-to-all"}
    assert first.step_seconds == max(first.seconds.values())
    assert first.tokens_per_second == 32 * 64 / first.step_seconds
    mfu = operations(config) / 8 / chip.flops / first.step_seconds
    assert first.trains and first.mfu == mfu
    assert first.days == 40 * first.step_seconds / 86_400


def test_the_estimate_is_the_sum_of_kernels_and_links(plan, cpu_topology):
    _, first, _ = plan
    assert set(first.estimate) == {*SHARES, "launches", "links"}
    assert first.estimate["links"] == first.seconds["fast links"] > 0
    assert first.estimated_seconds == sum(first.estimate.values()) > first.step_seconds
    # These products take less time than their traffic. The estimate omits collectives' traffic.
    memory_seconds = first.estimate["memory"] * SHARES["memory"]
    assert 0.5 * first.seconds["memory"] < memory_seconds < first.seconds["memory"]


def test_figures_are_recorded_and_printed(plan, cpu_topology):
    _, first, second = plan
    record = json.loads(json.dumps(first.record()))
    assert record["mfu"] == first.mfu and record["memory"]["fits"] is True
    assert record["traffic"] == first.traffic and record["estimate"] == first.estimate
    assert record["estimated_seconds"] == first.estimated_seconds
    text = table.table([first, second], "tiny", cpu_topology)
    assert "steps 0 to 40: mmlm 32 x 64" in text and "steps 40 to 100: mmlm 32 x 64, tlm" in text
    assert f"limited by {first.bottleneck} (" in text and "DOES NOT FIT" not in text
    assert text.count(" GB  ") >= 20
    estimate_line = (
        f"{1e3 * first.estimated_seconds:.1f} ms, from rates measured on an H100 (products"
    )
    assert estimate_line in text and f" {32 * 64 / first.estimated_seconds:,.0f} tokens/s;" in text
    seconds = 40 * first.estimated_seconds + 60 * second.estimated_seconds
    assert text.endswith(f" days; estimate {seconds / 86_400:,.1f} days")


def test_a_step_without_gradients_has_no_mfu(cpu_topology):
    """The first steps of InfoXLM only fill a queue. The counts assume training nevertheless."""
    config = config_of(**{"objectives.mmlm.weight": 0.0, "phases": {}})
    phase = figures.of_phase(config, expected_sizes(config), cpu_topology, 0)
    assert phase.mfu is None and phase.record()["mfu"] is None and not phase.record()["trains"]
    assert "at most               no MFU" in table.table([phase], "tiny", cpu_topology)


@pytest.mark.slow
def test_known_phases_are_not_compiled_and_programs_are_saved(cpu_topology, tmp_path, monkeypatch):
    config = config_of()
    sizes, known_figures = expected_sizes(config), object()
    compiled = []
    real = figures.compile_phase
    monkeypatch.setattr(figures, "compile_phase", lambda *a: compiled.append(a[-1]) or real(*a))
    phases = figures.of_run(config, sizes, cpu_topology, {0: known_figures}, tmp_path)
    assert phases[0] is known_figures and compiled == [2]
    (program_file,) = tmp_path.iterdir()
    assert program_file.name == "phase-2.txt" and program_file.read_text().startswith("HloModule")


def test_seconds_of_collectives_follow_from_their_bytes_and_links(cpu_topology, monkeypatch):
    config = config_of()
    sent = [Collective("all-reduce", 16, 4, 1, 8e9, 1), Collective("all-gather", 4, 1, 3, 6e9, 2)]
    monkeypatch.setattr(figures, "collectives", lambda *a: sent)
    phase = figures.of_phase(config, expected_sizes(config), cpu_topology, 0)
    fast = 2 * 8e9 * 3 / 4 + 6e9 * 3 / 4 / 3
    assert phase.seconds["fast links"] == pytest.approx(fast / cpu_topology.chip.fast)
    slow = 2 * 8e9 * 3 / 4 / 4
    assert phase.seconds["slow links"] == pytest.approx(slow / cpu_topology.chip.slow)
    assert phase.bottleneck == "slow links"
