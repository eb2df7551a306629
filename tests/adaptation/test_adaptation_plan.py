"""Shares of languages, numbers of steps and costs of an adaptation."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from xlj.adaptation import plan
from xlj.config import parse
from xlj.data.rows import draws
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.vocabulary import Fertility
from xlj.training import state


def with_shares(config, names):
    return dataclasses.replace(config, data=dataclasses.replace(config.data, sampled=names))


@pytest.mark.parametrize("share", [0.1, 0.45])
def test_replayed_languages_get_the_requested_share_of_the_draws(tiny, store, share):
    config = parse(tiny)
    names = plan.choose_sampled(store, config, ["sw"], ["en", "de"], share)
    config = with_shares(config, names)
    counts = draws.count_draws(store, config.objectives.mmlm, config)
    assert counts["text.en"] + counts["text.de"] == pytest.approx(share * BLOCK, abs=3)
    natural = draws.count_draws(store, parse(tiny).objectives.mmlm, parse(tiny))
    ratio = natural["text.en"] / natural["text.de"]
    assert counts["text.en"] / counts["text.de"] == pytest.approx(ratio, rel=1e-3)
    pairs = draws.count_draws(store, config.objectives.tlm, config)
    assert set(pairs) == {"pairs.en-de", "pairs.en-sw"}


def test_without_replayed_languages_all_text_is_drawn(tiny, store):
    assert plan.choose_sampled(store, parse(tiny), ["en", "sw"], [], 0.3) == ()


def test_counted_passes_equal_the_passes_of_the_batches(tiny, store):
    tiny.train.steps = 40
    tiny.phases = {"more": {"start_step": 30, "objectives": {"mmlm": {"batch_size": 32}}}}
    config = with_shares(parse(tiny), ("sw", "en=0.5"))
    batches, rows = Batches(store, config), 0
    for step in range(40):
        count, _ = batches.shapes(step)["mmlm"]
        languages = batches.read("mmlm", step, np.arange(count))["languages"]
        rows += int((languages[:, 0] == store.manifest.languages.index("sw")).sum())
    available_rows = store.task("text.sw").train.rows
    assert plan.count_passes(config, store, ["sw"]) == pytest.approx(rows / available_rows, rel=0.1)


def test_passes_count_the_text_of_all_new_languages(tiny, store):
    """Draws of both languages, divided by the rows of both languages."""
    tiny.train.steps = 40
    config = parse(tiny)
    rows = [store.task(f"text.{name}").train.rows for name in ("sw", "de")]
    each = [plan.count_passes(config, store, [name]) for name in ("sw", "de")]
    expected = np.average(each, weights=rows)
    assert plan.count_passes(config, store, ["sw", "de"]) == pytest.approx(expected)


def test_a_run_is_no_longer_than_twenty_passes(tiny, store):
    tiny.train.steps, tiny.objectives.mmlm.batch_size = 5000, 64
    config = parse(tiny)
    steps = plan.choose_steps(config, store, ["sw"])
    assert 20 < steps < 5000
    shortened = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))
    assert 19.5 < plan.count_passes(shortened, store, ["sw"]) <= 20
    tiny.train.steps = steps - 1
    assert plan.choose_steps(parse(tiny), store, ["sw"]) == steps - 1


@pytest.mark.parametrize("objective", ["mmlm", "tlm"])
def test_no_run_warns_about_the_number_of_steps_that_is_chosen(tiny, store, objective):
    """Also if pairs, not text, are few."""
    tiny.train.steps, tiny.objectives[objective].batch_size = 5000, 256
    config = parse(tiny)
    steps = plan.choose_steps(config, store, ["sw"])
    for chosen, warns in ((steps, False), (steps + 2, objective == "tlm")):
        planned = plan.with_steps(config, chosen)
        lines = plan.give_advice({}, store, planned, [], 10**9)
        assert bool(lines) == warns, lines
        assert not warns or f"Add text, or set --steps={steps} to read them 20 times" in lines[0]
    tiny.objectives[objective].batch_size = 10**6
    assert plan.choose_steps(parse(tiny), store, ["sw"]) == 1


def test_another_number_of_steps_keeps_the_proportions(tiny):
    tiny.train.steps, tiny.train.eval_every, tiny.train.checkpoint_every = 1000, 500, 20
    tiny.train.log_every = 50
    tiny.optimizer.schedule = "wsd"
    tiny.optimizer.warmup_steps, tiny.optimizer.decay_steps = 50, 200
    tiny.phases = {"more": {"start_step": 500, "objectives": {"mmlm": {"batch_size": 32}}}}
    config = plan.with_steps(parse(tiny), 300)
    assert (config.train.steps, config.train.eval_every, config.train.checkpoint_every) == (
        300,
        60,
        20,
    )
    assert config.train.log_every == 15
    assert (config.optimizer.warmup_steps, config.optimizer.decay_steps) == (15, 60)
    assert config.phases["more"]["start_step"] == 150
    assert config.phases["more"]["objectives"] == {"mmlm": {"batch_size": 32}}
    longer = plan.with_steps(parse(tiny), 4000)
    assert (longer.optimizer.warmup_steps, longer.train.eval_every) == (200, 500)
    explicit = ("train.eval_every", "train.log_every", "optimizer.warmup_steps")
    with_explicit_keys = plan.with_steps(parse(tiny), 300, explicit)
    assert (
        with_explicit_keys.train.eval_every,
        with_explicit_keys.train.log_every,
        with_explicit_keys.train.checkpoint_every,
    ) == (
        *(500, 50),
        20,
    )
    assert (
        with_explicit_keys.optimizer.warmup_steps,
        with_explicit_keys.optimizer.decay_steps,
    ) == (50, 60)


def test_a_run_of_few_steps_evaluates_and_logs_after_each_step(tiny):
    tiny.train.steps, tiny.train.log_every = 1000, 50
    tiny.phases = {"more": {"start_step": 100, "objectives": {"mmlm": {"batch_size": 32}}}}
    config = plan.with_steps(parse(tiny), 4)
    train = config.train
    assert (train.eval_every, train.checkpoint_every, train.log_every) == (1, 1, 1)
    assert config.phases["more"]["start_step"] == 1


@pytest.mark.parametrize(
    "seconds, shown",
    [
        (1, "1 minute"),
        (89, "1 minute"),
        (91, "2 minutes"),
        (3599, "60 minutes"),
        (3600, "1.0 hours"),
    ],
)
def test_the_time_is_shown_in_minutes_or_hours(seconds, shown):
    time, _, _ = str(plan.Cost(1e15, seconds, 2**31, 9)).partition(" of training steps")
    assert time == f"about {shown}"


def test_memory_is_parameters_gradients_and_moments(tiny, store, monkeypatch):
    config = parse(tiny)
    measure, speeds = plan._operations_per_second, []

    def recorded(hidden, dtype):
        speeds.append(measure(hidden, dtype))
        return speeds[-1]

    monkeypatch.setattr(plan, "_operations_per_second", recorded)
    cost = plan.estimate_cost(config, store)
    shapes = jax.eval_shape(lambda: state.init(config, Corpus.of(store), 0)).params
    parameters = sum(4 * leaf.size for leaf in jax.tree.leaves(shapes))
    assert 4 * parameters <= cost.bytes < 4.01 * parameters + 1000
    assert cost.parameters == sum(leaf.size for leaf in jax.tree.leaves(shapes["layers"]))
    # Steps have half the speed of a matrix product on each of the 8 devices.
    assert cost.seconds == pytest.approx(2 * cost.operations / (8 * speeds[0]))
    assert str(plan.Cost(1e15, 7200, 2**31, 9)) == (
        "about 2.0 hours of training steps for 1e+15 operations, at half the speed of a matrix "
        "product on this machine, plus the time of compiling, evaluations and measures; at least "
        "2.00 GiB of memory per device, and more for activations"
    )


def test_the_speed_of_a_product_is_a_median_without_the_first_call(monkeypatch):
    """The first call compiles. A multiply-add is two operations."""
    durations = np.array([900, 1, 70, 2, 3, 4])
    clock = iter(np.stack([0 * durations, durations], 1).ravel().tolist())
    monkeypatch.setattr(plan, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(plan.devices, "platform", lambda: "cpu")
    assert plan._operations_per_second(8, "float32") == 2 * 4096 * 8 * 32 / 3


def test_advice_contains_numbers(tiny, store):
    counts = {"sw": Fertility(2_345, 5_000, 0)}
    lines = plan.give_advice(counts, store, parse(tiny), ["sw"], 10**9)
    task = store.task("text.sw")
    assert lines[0].startswith(
        f"sw has {task.text.sentences:,} lines (2,345 words), which is little"
    )
    held_out = task.held_out.sentences
    assert lines[1].startswith(f"sw has {held_out} held-out lines")
    assert lines[1].endswith("to hold out about 80, add --config.data.held_out_share=0.2")
    assert not any(
        "words" in line for line in plan.give_advice({}, store, parse(tiny), ["sw"], 10**9)
    )
    enough = {"sw": Fertility(2_000_000, 1, 0)}
    tiny.data.held_out_share = 0.2
    assert plan.give_advice(enough, store, parse(tiny), ["sw"], 10_000_000) == []
    tiny.optimizer.learning_rate = 4e-4
    (small,) = plan.give_advice(enough, store, parse(tiny), ["sw"], 9_999_999)
    assert "9,999,999 parameters" in small and "learning_rate=0.0005 instead of 0.0004" in small
    (small,) = plan.give_advice(enough, store, parse(tiny), ["sw"], 999_999)
    assert "learning_rate=0.001 instead" in small
    tiny.optimizer.learning_rate = 5e-4
    assert plan.give_advice(enough, store, parse(tiny), ["sw"], 1_000_000) == []
