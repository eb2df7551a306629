"""The search finds the fastest choice that fits with few programs, and reports if none fits."""

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
    config.objectives.mmlm.batch_size = rows
    config.train.steps = 10
    tlm = {"tlm": {"batch_size": pair_rows}}
    config.phases = {"pairs": {"start_step": 5, "objectives": tlm}} if pair_rows else {}
    config.update_from_flattened_dict(changes)
    return parse(config)


@pytest.fixture
def chips(monkeypatch):
    """Returns `chips(seconds, needed)`, which fakes compiled steps on 8 devices.

    The functions `seconds` and `needed` give the time and the memory of a choice. `chips` returns
    the topology, and a list to which each compilation appends its (choice, phase).
    """

    def fake_steps(seconds, needed, limit=10 * GIB, compiler_fails=False):
        compiled = []

        def of_phase(config, sizes, topology, phase):
            choice = search.Choice(
                config.mesh.fsdp, config.model.remat, config.train.gradient_accumulation_steps, config.mesh.gather
            )
            compiled.append((choice, phase))
            peak = needed(choice)
            if compiler_fails and peak > limit:
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
        return topology._replace(chip=chip), compiled

    return fake_steps


def needed(choice):
    return (
        (6 / choice.fsdp if choice.gather == "layer" else 5.8)
        + 40 / choice.accumulation * (1 if choice.remat == "none" else 0.25)
    ) * GIB


def seconds(choice):
    sent = 0 if choice.fsdp == 1 else 0.02 if choice.gather == "layer" else 0.001
    return 1.0 + 0.3 * (choice.remat == "all") + 0.01 * choice.accumulation + sent


@pytest.mark.parametrize("compiler_fails", [False, True])
def test_the_fastest_choice_that_fits_comes_first(chips, compiler_fails):
    config = config_of()
    topology, compiled = chips(seconds, needed, compiler_fails=compiler_fails)
    trials = search.search(config, expected_sizes(config), topology)
    choices = [
        search.Choice(fsdp, remat, parts, gather)
        for fsdp, gather in ((1, "layer"), (8, "step"), (8, "layer"))
        for remat in ("none", "all")
        for parts in (1, 2, 4, 8, 16, 32)
    ]
    fitting = [choice for choice in choices if needed(choice) <= 10 * GIB]
    assert trials[0].choice == min(fitting, key=seconds) == search.Choice(8, "none", 8)
    assert trials[0].fits and trials[0].figures.memory.peak == needed(trials[0].choice)
    fits = [trial.fits for trial in trials]
    assert fits == sorted(fits, reverse=True) and not all(fits)
    assert len(compiled) == len(set(compiled)) < len(choices), (
        "a program was compiled twice, or all were"
    )
    assert {phase for _, phase in compiled} == {1}, (
        "the search must use the phase with the most rows"
    )
    for trial in trials:
        assert trial.needed == pytest.approx(needed(trial.choice), rel=0.01)
    shown = table.trials(trials).splitlines()
    assert shown[1].endswith(
        "--config.mesh.fsdp=8 --config.model.remat=none --config.train.gradient_accumulation_steps=8 "
        "--config.mesh.gather=layer"
    )
    assert "does not fit" in shown[-1] and len(shown) == 1 + len(trials)
    assert trials[0].record()["figures"] == {"peak": needed(trials[0].choice)}


def test_the_flags_of_a_choice_set_it_in_a_config(chips):
    choice = search.Choice(4, "all", 2, "step")
    config = schema.default()
    for flag in choice.flags().split():
        key, _, value = flag.removeprefix("--config.").partition("=")
        config.update_from_flattened_dict({key: int(value) if value.isdigit() else value})
    expected = choice.of(config_of())
    assert config.mesh.fsdp == expected.mesh.fsdp == 4 and expected.mesh.replica == 0
    assert config.model.remat == expected.model.remat
    assert config.mesh.gather == expected.mesh.gather == "step"
    assert config.train.gradient_accumulation_steps == expected.train.gradient_accumulation_steps == 2
    assert dataclasses.replace(expected, mesh=config_of().mesh) != config_of()


def test_a_short_search_ends_at_the_first_choice_that_fits(chips):
    config = config_of()
    topology, compiled = chips(seconds, needed)
    trials = search.search(config, expected_sizes(config), topology, try_all=False)
    assert trials[0].choice == search.Choice(1, "none", 16)
    assert {choice.fsdp for choice, _ in compiled} == {1}


@pytest.mark.parametrize("slope", [0.5, 30, 90, 700, 2000])
def test_four_programs_suffice_to_find_the_most_rows_that_fit(chips, slope):
    """With 13 possible numbers of microbatches, for any memory per row."""

    def needed(choice):
        return (1 + slope / choice.accumulation) * GIB

    config = config_of(rows=8 * 4096, pair_rows=0)
    topology, compiled = chips(seconds, needed, compiler_fails=True)
    trials = search.search(config, expected_sizes(config), topology, try_all=False)
    fitting = [parts for parts in search.microbatch_counts(config, 8) if 1 + slope / parts <= 10]
    assert trials[0].choice == search.Choice(1, "none", fitting[0])
    assert len(compiled) <= 4


def test_if_no_choice_fits_the_smallest_comes_first(chips):
    config = config_of()
    topology, _ = chips(seconds, lambda choice: needed(choice) + 20 * GIB, compiler_fails=True)
    trials = search.search(config, expected_sizes(config), topology)
    assert not any(trial.fits for trial in trials)
    assert trials[0].needed == min(trial.needed for trial in trials)


def test_choices_whose_state_does_not_fit_are_not_compiled(chips):
    config = config_of(**{"data.vocabulary_size": 400_000})
    topology, compiled = chips(seconds, needed, limit=2**22)
    trials = search.search(config, expected_sizes(config), topology)
    assert not compiled and len(trials) == 6 and not any(trial.fits for trial in trials)
    assert trials[0].choice.fsdp == 8 and trials[-1].needed > trials[0].needed > 2**22


def test_batch_size_that_devices_cannot_share_are_an_error(chips):
    topology, _ = chips(seconds, needed)
    config = config_of(pair_rows=12)
    with pytest.raises(
        ConfigError, match=r"objectives.tlm.batch_size=12 is not divisible by 8 devices"
    ):
        search.search(config, expected_sizes(config), topology)


def test_numbers_of_microbatches_divide_every_batch():
    assert search.microbatch_counts(config_of(96 * 8, 64 * 8), 8) == [1, 2, 4, 8, 16, 32]
    assert search.microbatch_counts(config_of(96 * 8, 0), 8)[:6] == [1, 2, 3, 4, 6, 8]
    assert search.microbatch_counts(config_of(8, 0), 8) == [1]


def test_the_needed_memory_is_parsed_from_the_compilers_message():
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 16.45G of 15.75G hbm."
    )
    assert DoesNotFit(message).needed == pytest.approx(16.45 * GIB)
    assert DoesNotFit("Used 900.0M of 15.75G").needed == pytest.approx(900 * 2**20)
    assert DoesNotFit("no more memory").needed == 0
