"""A plan's figures follow from the compiled step, here for eight CPU devices."""

import json

import jax
import pytest

from xlj import config as schema
from xlj.config import parse
from xlj.objectives.flops import TRAINED, of_layers, of_predictions
from xlj.planning import figures, table, topologies
from xlj.planning.chips import SHARES
from xlj.planning.collectives import Collective
from xlj.sharding import devices
from xlj.training.memory import expected_sizes


def topology(patch):
    """A topology of this machine's devices."""
    patch.setattr(topologies.Topology, "devices", lambda self: jax.devices()[: self.size])
    return topologies.parse("h100:1x8")


@pytest.fixture
def here(monkeypatch):
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
    config.objectives.mmlm.batch_rows = 32
    config.objectives.mmlm.mask_rate = 0.2
    config.train.steps = 100
    config.mesh.fsdp = 4
    config.phases = {
        "alpha": {"start_step": 10, "data": {"alpha": 0.5}},
        "pairs": {"start_step": 40, "objectives": {"tlm": {"batch_rows": 16}}},
        "again": {"start_step": 70, "data": {"alpha": 0.7}},
    }
    config.update_from_flattened_dict(changes)
    return parse(config)


def test_phases_that_change_alpha_alone_share_a_step():
    found = figures.distinct_phases(config_of())
    names = {number: [phase.name for phase in alike] for number, alike in found.items()}
    assert names == {0: ["", "alpha"], 2: ["pairs", "again"]}


@pytest.fixture(scope="module")
def planned():
    """(config, first phase, second phase) of a run."""
    config = config_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "unroll_count", lambda turns: 1)  # as chips loop
        return config, *figures.of_run(config, expected_sizes(config), topology(patch))


def test_phases_of_a_run(planned):
    _, first, second = planned
    assert (first.start, first.steps, second.start, second.steps) == (0, 40, 40, 60)
    assert first.rows == {"mmlm": (32, 64)}
    assert second.rows == {"mmlm": (32, 64), "tlm": (16, 64)}


def operations(config):
    """Parameters of the first phase, and the slots of its rows: 20 % of 62."""
    slots, model = 13, config.model
    return slots, TRAINED * (
        of_layers(model, 2, 32, 64) + of_predictions(model, 32_768, 32 * slots)
    )


def test_operations_are_those_of_the_model(planned):
    config, first, _ = planned
    slots, mmlm = operations(config)
    assert first.operations == mmlm and first.counts.xlj == mmlm.total
    # The program does the model's products, and the logits once more in the backward pass, whose
    # sum over vectors is a product with 8 rows of ones.
    again = 2 * 32 * slots * (64 + 8) * 32_768
    assert sum(first.products.values()) * 8 == pytest.approx(mmlm.total + again, rel=1e-6)


def test_memory_is_that_of_the_parameters_and_more(planned):
    memory = planned[1].memory
    parameters = memory.parameters
    assert memory.optimizer == pytest.approx(2 * parameters, rel=0.01)
    kernels = 4 * (2 * (4 * 64 * 64 + 2 * 64 * 128) + 64 * 64 + 32_768 * 64 + 66 * 64) / 4
    others = 4 * 32_768  # the head's bias; and some thousand bytes
    assert kernels + others <= parameters <= 1.05 * (kernels + others)
    parts = memory.parameters + memory.optimizer + memory.objectives + memory.rows + memory.working
    assert parts <= memory.peak and memory.rows > 4 * 64 * 2


def test_the_least_time_is_that_of_the_slowest_part(planned, here):
    (config, first, _), chip = planned, here.chip
    assert first.memory.fits and first.memory.limit == chip.memory
    sent = sum(each.fast / each.links for each in first.collectives)
    assert first.seconds == {
        "products": sum(first.products.values()) / chip.float32,  # no bit is left out
        "memory": sum(first.traffic.values()) / chip.bandwidth,
        "fast links": sent / chip.fast,
        "slow links": 0,
    }
    assert {each.kind for each in first.collectives} >= {"all-gather", "all-reduce", "all-to-all"}
    assert first.step_seconds == max(first.seconds.values())
    assert first.tokens_per_second == 32 * 64 / first.step_seconds
    done = operations(config)[1].total
    assert first.trains and first.mfu == done / 8 / chip.flops / first.step_seconds
    assert first.days == 40 * first.step_seconds / 86_400


def test_the_estimate_is_that_of_kernels_and_links(planned, here):
    _, first, _ = planned
    assert set(first.estimate) == {*SHARES, "launches", "links"}
    assert first.estimate["links"] == first.seconds["fast links"] > 0
    assert first.estimated_seconds == sum(first.estimate.values()) > first.step_seconds
    # Products here take less time than their traffic, which is less an exchange's own.
    shares = first.estimate["memory"] * SHARES["memory"]
    assert 0.5 * first.seconds["memory"] < shares < first.seconds["memory"]


def test_figures_are_recorded_and_printed(planned, here):
    _, first, second = planned
    record = json.loads(json.dumps(first.record()))
    assert record["mfu"] == first.mfu and record["memory"]["fits"] is True
    assert record["traffic"] == first.traffic and record["estimate"] == first.estimate
    assert record["estimated_seconds"] == first.estimated_seconds
    text = table.table([first, second], "tiny", here)
    assert "steps 0 to 40: mmlm 32 x 64" in text and "steps 40 to 100: mmlm 32 x 64, tlm" in text
    assert f"limited by {first.bottleneck} (" in text and "DOES NOT FIT" not in text
    assert text.count(" GB  ") >= 20
    estimated = f"{1e3 * first.estimated_seconds:.1f} ms, from rates measured on an H100 (products"
    assert estimated in text and f" {32 * 64 / first.estimated_seconds:,.0f} tokens/s;" in text
    about = 40 * first.estimated_seconds + 60 * second.estimated_seconds
    assert text.endswith(f" days; estimate {about / 86_400:,.1f} days")


def test_a_step_without_gradients_has_no_mfu(here):
    """InfoXLM's first steps fill a queue; the counts assume training all the same."""
    config = config_of(**{"objectives.mmlm.weight": 0.0, "phases": {}})
    found = figures.of_phase(config, expected_sizes(config), here, 0)
    assert found.mfu is None and found.record()["mfu"] is None and not found.record()["trains"]
    assert "at most               no MFU" in table.table([found], "tiny", here)


def test_known_phases_are_not_compiled_and_programs_are_saved(here, tmp_path, monkeypatch):
    config = config_of()
    sizes, known = expected_sizes(config), object()
    compiled = []
    real = figures.compile_phase
    monkeypatch.setattr(figures, "compile_phase", lambda *a: compiled.append(a[-1]) or real(*a))
    found = figures.of_run(config, sizes, here, {0: known}, tmp_path)
    assert found[0] is known and compiled == [2]
    (kept,) = tmp_path.iterdir()
    assert kept.name == "phase-2.txt" and kept.read_text().startswith("HloModule")


def test_what_is_slow_between_hosts_and_on_few_links_takes_its_time(here, monkeypatch):
    config = config_of()
    sent = [Collective("all-reduce", 16, 4, 1, 8e9, 1), Collective("all-gather", 4, 1, 3, 6e9, 2)]
    monkeypatch.setattr(figures, "collectives", lambda *a: sent)
    found = figures.of_phase(config, expected_sizes(config), here, 0)
    fast = 2 * 8e9 * 3 / 4 + 6e9 * 3 / 4 / 3
    assert found.seconds["fast links"] == pytest.approx(fast / here.chip.fast)
    slow = 2 * 8e9 * 3 / 4 / 4
    assert found.seconds["slow links"] == pytest.approx(slow / here.chip.slow)
    assert found.bottleneck == "slow links"
