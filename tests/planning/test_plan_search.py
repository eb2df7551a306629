"""The search finds the fastest choice that fits with few programs, and reports if none does."""

import dataclasses
import types

import jax
import pytest

from xlj import config as schema
from xlj.config import ConfigError, parse
from xlj.planning import search, table, topologies
from xlj.planning.programs import DoesNotFit
from xlj.training.memory import expected_sizes

GIB = 2**30


def config_of(rows=1024, pair_rows=256, **changes):
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.pairs, config.data.parallel = "en-de", "phrasebook:{pair}"
    config.model.layers, config.model.hidden, config.model.heads = 2, 64, 2
    config.objectives.mmlm.batch_rows = rows
    config.train.steps = 10
    tlm = {"tlm": {"batch_rows": pair_rows}}
    config.phases = {"pairs": {"start_step": 5, "objectives": tlm}} if pair_rows else {}
    config.update_from_flattened_dict(changes)
    return parse(config)


@pytest.fixture
def chips(monkeypatch):
    """`chips(seconds, needed)`: compiled steps that take as much as these functions of a choice
    say, on 8 devices; it returns the list of what was compiled."""

    def made(seconds, needed, limit=10 * GIB, stops=False):
        tried = []

        def of_phase(config, sizes, topology, phase):
            choice = search.Choice(
                config.mesh.fsdp, config.model.remat, config.train.accumulation, config.mesh.gather
            )
            tried.append((choice, phase))
            peak = needed(choice)
            if stops and peak > limit:
                raise DoesNotFit(f"Used {peak / GIB:.2f}G of {limit / GIB:.2f}G hbm")
            memory = types.SimpleNamespace(fits=peak <= limit, peak=peak, limit=limit, working=peak)
            return types.SimpleNamespace(
                memory=memory,
                step_seconds=seconds(choice),
                bottleneck="memory",
                mfu=0.1,
                record=lambda: {"peak": peak},
            )

        monkeypatch.setattr(search, "of_phase", of_phase)
        monkeypatch.setattr(topologies.Topology, "devices", lambda self: jax.devices()[:8])
        topology = topologies.parse("h100:1x8")
        chip = topology.chip._replace(memory=limit)
        return topology._replace(chip=chip), tried

    return made


def needed(choice):
    return (
        (6 / choice.fsdp if choice.gather == "layer" else 5.8)
        + 40 / choice.accumulation * (1 if choice.remat == "none" else 0.25)
    ) * GIB


def seconds(choice):
    sent = 0 if choice.fsdp == 1 else 0.02 if choice.gather == "layer" else 0.001
    return 1.0 + 0.3 * (choice.remat == "all") + 0.01 * choice.accumulation + sent


@pytest.mark.parametrize("stops", [False, True])
def test_the_fastest_that_fits_comes_first(chips, stops):
    config = config_of()
    topology, tried = chips(seconds, needed, stops=stops)
    trials = search.search(config, expected_sizes(config), topology)
    every = [
        search.Choice(fsdp, remat, parts, gather)
        for fsdp, gather in ((1, "layer"), (8, "step"), (8, "layer"))
        for remat in ("none", "all")
        for parts in (1, 2, 4, 8, 16, 32)
    ]
    fitting = [choice for choice in every if needed(choice) <= 10 * GIB]
    assert trials[0].choice == min(fitting, key=seconds) == search.Choice(8, "none", 8)
    assert trials[0].fits and trials[0].figures.memory.peak == needed(trials[0].choice)
    fits = [trial.fits for trial in trials]
    assert fits == sorted(fits, reverse=True) and not all(fits)
    assert len(tried) == len(set(tried)) < len(every), "programs are compiled again, or all are"
    assert {phase for _, phase in tried} == {1}, "the phase with the most rows decides"
    for trial in trials:
        assert trial.needed == pytest.approx(needed(trial.choice), rel=0.01)
    shown = table.trials(trials).splitlines()
    assert shown[1].endswith(
        "--config.mesh.fsdp=8 --config.model.remat=none --config.train.accumulation=8 "
        "--config.mesh.gather=layer"
    )
    assert "does not fit" in shown[-1] and len(shown) == 1 + len(trials)
    assert trials[0].record()["figures"] == {"peak": needed(trials[0].choice)}


def test_the_flags_give_the_choice(chips):
    choice = search.Choice(4, "all", 2, "step")
    config = schema.default()
    for flag in choice.flags().split():
        key, _, value = flag.removeprefix("--config.").partition("=")
        config.update_from_flattened_dict({key: int(value) if value.isdigit() else value})
    wanted = choice.of(config_of())
    assert config.mesh.fsdp == wanted.mesh.fsdp == 4 and wanted.mesh.replica == 0
    assert config.model.remat == wanted.model.remat
    assert config.mesh.gather == wanted.mesh.gather == "step"
    assert config.train.accumulation == wanted.train.accumulation == 2
    assert dataclasses.replace(wanted, mesh=config_of().mesh) != config_of()


def test_the_first_that_fits_ends_a_short_search(chips):
    config = config_of()
    topology, tried = chips(seconds, needed)
    trials = search.search(config, expected_sizes(config), topology, try_all=False)
    assert trials[0].choice == search.Choice(1, "none", 16)
    assert {choice.fsdp for choice, _ in tried} == {1}


@pytest.mark.parametrize("slope", [0.5, 30, 90, 700, 2000])
def test_a_few_programs_find_the_most_rows_that_fit(chips, slope):
    """For 13 numbers of microbatches and any memory per row."""

    def needed(choice):
        return (1 + slope / choice.accumulation) * GIB

    config = config_of(rows=8 * 4096, pair_rows=0)
    topology, tried = chips(seconds, needed, stops=True)
    trials = search.search(config, expected_sizes(config), topology, try_all=False)
    fitting = [parts for parts in search.microbatch_counts(config, 8) if 1 + slope / parts <= 10]
    assert trials[0].choice == search.Choice(1, "none", fitting[0])
    assert len(tried) <= 4


def test_if_nothing_fits_the_smallest_comes_first(chips):
    config = config_of()
    topology, _ = chips(seconds, lambda choice: needed(choice) + 20 * GIB, stops=True)
    trials = search.search(config, expected_sizes(config), topology)
    assert not any(trial.fits for trial in trials)
    assert trials[0].needed == min(trial.needed for trial in trials)


def test_a_state_that_does_not_fit_is_not_compiled(chips):
    config = config_of(**{"data.vocabulary_size": 400_000})
    topology, tried = chips(seconds, needed, limit=2**22)
    trials = search.search(config, expected_sizes(config), topology)
    assert not tried and len(trials) == 6 and not any(trial.fits for trial in trials)
    assert trials[0].choice.fsdp == 8 and trials[-1].needed > trials[0].needed > 2**22


def test_batches_that_cannot_be_shared_are_named(chips):
    topology, _ = chips(seconds, needed)
    config = config_of(pair_rows=12)
    with pytest.raises(
        ConfigError, match=r"objectives.tlm.batch_rows=12 is not divisible by 8 devices"
    ):
        search.search(config, expected_sizes(config), topology)


def test_numbers_of_microbatches_divide_every_batch():
    assert search.microbatch_counts(config_of(96 * 8, 64 * 8), 8) == [1, 2, 4, 8, 16, 32]
    assert search.microbatch_counts(config_of(96 * 8, 0), 8)[:6] == [1, 2, 3, 4, 6, 8]
    assert search.microbatch_counts(config_of(8, 0), 8) == [1]


def test_what_a_compiler_says_is_needed_is_read():
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 16.45G of 15.75G hbm."
    )
    assert DoesNotFit(message).needed == pytest.approx(16.45 * GIB)
    assert DoesNotFit("Used 900.0M of 15.75G").needed == pytest.approx(900 * 2**20)
    assert DoesNotFit("no more memory").needed == 0
