"""Durations in tokens and passes become the numbers of steps that plain loops count."""

import dataclasses

import ml_collections
import pytest

from xlj.checkpoints import compatibility, reading
from xlj.config import ConfigError, as_tree, parse
from xlj.config.schema import unresolved
from xlj.training import schedule
from xlj.training.duration_steps import resolve, with_steps_of
from xlj.training.schedule import Schedule, batch_size

pytestmark = pytest.mark.usefixtures("one_device")

PHASES = {
    "late": {
        "start_step": "100_000tok",
        "data": {"alpha": 0.0},
        "objectives": {"mmlm": {"batch_size": 8}},
        "optimizer": {"schedule": "wsd", "warmup_steps": "2e4tok", "decay_steps": "30_000tok"},
    },
    "last": {
        "start_step": "2e5tok",
        "objectives": {"tlm": {"batch_size": 0}},
        "optimizer": {"learning_rate": 1.0},
    },
}


def tokens_of_steps(store, phases, sizes):
    """Returns the mean number of text tokens in each step, from the mean row of each language
    weighted by its share m^alpha.

    Args:
      phases: (steps, alpha, rows of text, rows of pairs) of each phase.
      sizes: the batch sizes of the first steps, as shares of a full batch.
    """
    means = {}
    for kind in ("text", "pairs"):
        for alpha in {alpha for _, alpha, *_ in phases}:
            weights = [task.train.tokens**alpha for task in store.tasks(kind)]
            rows = [task.train.tokens / task.train.rows for task in store.tasks(kind)]
            mean = sum(w * row for w, row in zip(weights, rows, strict=True)) / sum(weights)
            means[kind, alpha] = mean
    tokens = [
        text * means["text", alpha] + pairs * means["pairs", alpha]
        for steps, alpha, text, pairs in phases
        for _ in range(steps)
    ]
    return [n * size for n, size in zip(tokens, [*sizes, *[1] * len(tokens)], strict=False)]


def fewest(tokens, target):
    """Returns the smallest number of steps whose tokens reach a target."""
    total = 0.0
    for count, step_tokens in enumerate(tokens):
        if total >= target:
            return count
        total += step_tokens
    raise AssertionError


@pytest.fixture
def uneven(store, monkeypatch):
    """`store` with fewer tokens in two tasks, as if their rows were nearly empty."""
    emptier = {"text.de": 10, "pairs.en-sw": 5}

    def tasks(kind, of_kind=store.tasks):
        result = []
        for task in of_kind(kind):
            tokens = task.train.tokens // emptier.get(task.name, 1)
            train = dataclasses.replace(task.train, tokens=tokens)
            result.append(dataclasses.replace(task, train=train))
        return tuple(result)

    monkeypatch.setattr(store, "tasks", tasks)
    return store


def test_tokens_become_steps(tiny, uneven):
    """A batch warm-up has 2, 3, ... 7 of eight microbatches, each for the same number of steps. The
    learning rate has a warm-up. Two phases change shares and rows. The first of them starts a
    schedule that lasts to the end of the run."""
    tiny.objectives.mmlm.batch_size, tiny.objectives.tlm.batch_size = 16, 8
    tiny.train.gradient_accumulation_steps, tiny.train.first_microbatches = 8, 2
    tiny.train.batch_warmup, tiny.train.steps = "27_000tok", "300000tok"
    tiny.optimizer.warmup_steps = "40_000tok"
    tiny.phases = ml_collections.ConfigDict(PHASES)
    config, lines = resolve(parse(tiny), uneven)
    assert unresolved(config) == {}

    warmup, late, last = config.train.batch_warmup, *(p.start for p in config.schedule[1:])
    sizes = [(2 + step * 6 // warmup) / 8 for step in range(warmup)]
    phases = (late, 0.7, 16, 8), (last - late, 0.0, 8, 8), (5_000, 0.0, 8, 0)
    tokens = tokens_of_steps(uneven, phases, sizes)
    # With one step less, each size has fewer steps, and the warm-up reads too few tokens.
    shorter = [(2 + step * 6 // (warmup - 1)) / 8 for step in range(warmup - 1)]
    assert sum(tokens[:warmup]) >= 27_000 > tokens[warmup] * sum(shorter)
    assert late == fewest(tokens, 100_000)
    assert last == fewest(tokens, 200_000)
    steps = config.train.steps
    assert steps == fewest(tokens, 300_000)
    assert config.optimizer.warmup_steps == fewest(tokens, 40_000)
    late_optimizer = config.schedule[1].config.optimizer
    assert late_optimizer.warmup_steps == fewest(tokens[late:], 20_000)
    assert late_optimizer.decay_steps == fewest(tokens[:steps][::-1], 30_000)
    assert 0 < late_optimizer.decay_steps < steps - last < steps - late
    assert lines[-1] == (
        f"phases.late.optimizer.decay_steps=30_000tok: {late_optimizer.decay_steps} steps, about "
        f"{sum(tokens[steps - late_optimizer.decay_steps : steps]):,.0f} tokens"
    )
    assert len(lines) == 7
    # Before the rows are available, a resumed run takes its steps from the recorded config.
    early = with_steps_of(parse(tiny), as_tree(config))
    assert as_tree(early) == as_tree(config)
    assert (
        with_steps_of(parse(tiny), as_tree(parse(tiny).schedule[0].config) | {"phases": {}}) is None
    )


def test_passes_become_steps_with_train_fewest_steps_as_the_minimum(tiny, store):
    """The result is the smallest number of steps that reads every kind of rows of the last phase
    2.5 times. Rows that earlier phases read count too."""
    tiny.train.steps = "2.5ep"
    late = {"mmlm": {"batch_size": 0}, "tlm": {"batch_size": 8}, "camlm": {"batch_size": 24}}
    tiny.objectives.tlm.batch_size = 4
    tiny.phases = ml_collections.ConfigDict({"late": {"start_step": 3, "objectives": late}})
    rows = sum(task.train.rows for task in store.tasks("pairs"))
    resolved = resolve(parse(tiny), store)[0]
    assert resolved.train.steps == 3 + -(-(5 * rows / 2 - 3 * 4) // 32)
    assert Schedule(resolved, store).passes(0, resolved.train.steps)["pairs"] >= 2.5
    tiny.train.fewest_steps = 5_000
    assert resolve(parse(tiny), store)[0].train.steps == 5_000


@pytest.fixture
def few_rows(monkeypatch):
    """784 rows of text and 64 rows of pairs, of 10 tokens each. With batches of 16 rows, a step
    reads 1/49 of the text and 1/4 of the pairs."""

    def tokens(config, store):
        return 10 * sum(batch_size(config).values())

    def passes(config, store):
        available = {"text": 784, "pairs": 64}
        return {kind: rows / available[kind] for kind, rows in batch_size(config).items()}

    monkeypatch.setattr(schedule, "tokens_of_step", tokens)
    monkeypatch.setattr(schedule, "passes_of_step", passes)


def test_passes_of_a_schedule_count_the_rows_of_the_phase_in_which_they_are_read(tiny, few_rows):
    """The first schedule ends with its phase, which reads both kinds of rows. The second schedule
    has its warm-up in a phase without text, and its decay in a phase without pairs."""
    tiny.train.steps, tiny.optimizer.schedule, tiny.optimizer.decay_steps = 60, "wsd", "0.25ep"
    late = {"warmup_steps": "0.5ep", "decay_steps": "0.1ep"}
    on, off = {"batch_size": 16}, {"batch_size": 0}
    tiny.phases = {
        "late": {"start_step": 20, "objectives": {"mmlm": off}, "optimizer": late},
        "last": {"start_step": 50, "objectives": {"mmlm": on, "tlm": off}},
    }
    config, lines = resolve(parse(tiny), None)
    assert config.optimizer.decay_steps == 13  # 0.25 * 49 steps
    late = config.schedule[1].config.optimizer
    assert (late.warmup_steps, late.decay_steps) == (2, 5)  # 0.5 * 4 steps, 0.1 * 49 steps
    assert lines == [  # both kinds of rows in the first phase, then one kind
        "optimizer.decay_steps=0.25ep: 13 steps, about 4,160 tokens",
        "phases.late.optimizer.warmup_steps=0.5ep: 2 steps, about 320 tokens",
        "phases.late.optimizer.decay_steps=0.1ep: 5 steps, about 800 tokens",
    ]


def test_passes_of_a_batch_warmup_count_the_rows_of_the_first_phase(tiny, few_rows):
    """The batches of the warm-up have one of two microbatches. The second phase reads no text."""
    tiny.train.steps, tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps = (
        40,
        "0.1ep",
        2,
    )
    tiny.phases = {"late": {"start_step": 30, "objectives": {"mmlm": {"batch_size": 0}}}}
    config = resolve(parse(tiny), None)[0]
    assert config.train.batch_warmup == 10  # 0.1 * 49 / 0.5 steps


def test_a_pass_that_is_rounded_down_needs_no_further_step(tiny, few_rows):
    assert 49 * (1 / 49) < 1
    tiny.train.steps, tiny.objectives.tlm.batch_size = "1ep", 0
    assert resolve(parse(tiny), None)[0].train.steps == 49


def test_train_fewest_steps_delays_no_phase(tiny, few_rows):
    """A step reads 320 tokens."""
    tiny.train.steps, tiny.train.fewest_steps = "3000tok", 40
    tiny.phases = {"x": {"start_step": "1000tok", "data": {"alpha": 0.1}}}
    config = resolve(parse(tiny), None)[0]
    assert [phase.end for phase in config.schedule] == [4, 40]


def test_percentages_are_rounded_to_steps(tiny, store):
    """Intervals are rounded up, so that 30 % gives at most three evaluations."""
    tiny.train.steps, tiny.optimizer.warmup_steps = 44, "6%"
    tiny.train.eval_every, tiny.train.checkpoint_every = "30%", "1%"
    tiny.phases = {
        "late": {"start_step": 30, "optimizer": {"warmup_steps": "8%", "learning_rate": 1.0}}
    }
    config, lines = resolve(parse(tiny), store)
    assert (config.train.eval_every, config.train.checkpoint_every) == (14, 1)
    late = config.schedule[1].config.optimizer.warmup_steps
    assert (config.optimizer.warmup_steps, late) == (3, 4)  # 2.64, 3.52
    assert unresolved(config) == {} and sorted(lines) == [
        "optimizer.warmup_steps=6%: 3 steps",
        "phases.late.optimizer.warmup_steps=8%: 4 steps",
        "train.checkpoint_every=1%: 1 steps",
        "train.eval_every=30%: 14 steps",
    ]


def test_a_config_in_steps_is_not_changed(tiny):
    tiny.train.steps = "6"
    config = parse(tiny)
    assert config.train.steps == 6
    assert resolve(config, None) == (config, [])


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"train.steps": "1e30tok"},
            r"train\.steps=1e30tok needs more steps than the 2,147,483,647 available",
        ),
        ({"train.steps": "9000ep", "phases": {"x": {"start_step": 10**9, "data": {"alpha": 0}}}},
         r"phases\.x\.start_step is 1000000000; it must be a step after 0"),
        ({"optimizer.warmup_steps": "9ep"}, r"warmup_steps=9ep needs more steps than the 6 avail"),
        ({"phases": {"x": {"start_step": 2, "optimizer": {"warmup_steps": "9ep"}}}},
         r"phases\.x\.optimizer\.warmup_steps=9ep needs more steps than the 4 available, which "),
        ({"optimizer.schedule": "wsd", "optimizer.decay_steps": "1e6tok"},
         r"decay_steps=1e6tok needs more steps than the 6 available, which read [\d,.]+ tok"),
        ({"train.batch_warmup": "1e6tok", "train.gradient_accumulation_steps": 4},
         r"batch_warmup=\d+: the batch warm-up must end by step 6, where the first of phases"),
    ],
)  # fmt: skip
def test_durations_that_need_too_many_steps_are_refused(tiny, store, changes, message):
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        (tiny[section] if section else tiny)[name] = value
    with pytest.raises(ConfigError, match=message):
        resolve(parse(tiny), store)


@pytest.mark.parametrize(
    "start, message",
    [
        (
            "5k",
            r"phases\.x\.start_step is '5k'; it must be a number of steps, or a number with the "
            "unit tok",
        ),
        ("2ep", r"phases\.\*\.start_step are in passes and tokens; use one unit for all"),
    ],
)
def test_phase_starts_with_unknown_or_mixed_units_are_refused(tiny, start, message):
    tiny.phases = {
        "x": {"start_step": start, "data": {"alpha": 0.1}},
        "y": {"start_step": "3tok", "data": {"alpha": 0.2}},
    }
    with pytest.raises(ConfigError, match=message):
        parse(tiny)


def test_a_resumed_run_is_compared_in_steps(tiny, store, trained):
    """Durations that are not resolved yet are not compared with the checkpoint of step 4. A warm-up
    that the checkpoint did not have is an error that names the key."""
    tiny.train.steps = "0.02ep"
    latest = reading.latest(trained)
    compatibility.check_resumable(latest, with_steps_of(parse(tiny), latest.config()))
    tiny.optimizer.warmup_steps = "5000tok"
    resolved = resolve(parse(tiny), store)[0]
    assert resolved.optimizer.warmup_steps > 0
    with pytest.raises(reading.CheckpointError, match=r"optimizer\.warmup_steps: 0 -> \d"):
        compatibility.check_resumable(latest, resolved)
