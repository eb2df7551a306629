"""Draws are exact: counts per block, each row once per epoch, and slices equal the whole batch."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xlj.data.rows import draws
from xlj.data.rows.draws import BLOCK, Sampler, SamplingPhase, draws_per_block, sampling_rates
from xlj.io import hashing


def permute(indices, size, key):
    like = np.ones(len(indices), np.int64)
    return hashing.permute(indices, size * like, (key * like).astype(np.uint64))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 1000, 65_537, 300_000])
def test_permutation_is_a_bijection_and_depends_on_the_key(size):
    indices = np.arange(size)
    images = permute(indices, size, key=5)
    assert np.array_equal(np.sort(images), indices)
    assert np.array_equal(permute(indices[::-1], size, 5), images[::-1])
    if size > 50:
        assert (permute(indices, size, key=6) != images).mean() > 0.9
        assert abs(np.corrcoef(indices, images)[0, 1]) < 5 / size**0.5


def test_the_permutation_never_changes():
    # Batches of old runs must stay reproducible: these values may never change.
    assert permute(np.arange(10), 10, 0).tolist() == PINNED


PINNED = [3, 8, 9, 5, 7, 4, 1, 2, 6, 0]


def test_rates_follow_the_formula():
    p = sampling_rates({"en": 1000, "sw": 10, "empty": 0}, 0.7)
    assert p["sw"] / p["en"] == pytest.approx(0.01**0.7)
    assert sum(p.values()) == pytest.approx(1) and "empty" not in p


TOKENS = st.dictionaries(
    st.integers(0, 99).map("l{}".format), st.integers(1, 10**12), min_size=1, max_size=60
)


@given(TOKENS, st.floats(0, 1))
@example({"big": 10**12} | {f"tiny{i}": 1 for i in range(100)}, 1.0)
def test_blocks_follow_the_rates_for_any_order_of_tasks(tokens, alpha):
    p = sampling_rates(tokens, alpha)
    assert sum(p.values()) == pytest.approx(1) and p.keys() == tokens.keys()
    counts = draws_per_block(p)
    assert sum(counts.values()) == BLOCK and min(counts.values()) >= 1
    rare = sum(BLOCK * share < 1 for share in p.values())
    for task, count in counts.items():
        assert abs(count - BLOCK * p[task]) <= 1 + rare
        assert rare or abs(count - BLOCK * p[task]) < 1
    assert draws_per_block(dict(reversed(p.items()))) == counts


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_blocks_are_within_one_of_the_rates_and_at_least_one(alpha):
    tokens = {f"l{i}": 3**i for i in range(20)}
    p = sampling_rates(tokens, alpha)
    counts = draws_per_block(p)
    assert sum(counts.values()) == BLOCK
    feasible = sum(max(1, int(BLOCK * p[task])) for task in p) <= BLOCK
    assert feasible == (alpha < 1)  # at alpha 1, ten languages are rarer than one draw per block
    for task, count in counts.items():
        assert count >= 1
        assert abs(count - BLOCK * p[task]) <= (1 if feasible else 2) or count == 1


def stream(rows=(1000, 37, 1), alphas=((0, 0.7),), batch_size=(24,), seed=3, warmup=()):
    tasks = [f"t{i}" for i in range(len(rows))]
    phases = []
    for (start, alpha), size in zip(alphas, batch_size, strict=True):
        counts = draws_per_block(sampling_rates(dict(zip(tasks, rows, strict=True)), alpha))
        batches = ((0, size),) if start or not warmup else (*warmup[0], (warmup[1], size))
        phases.append(SamplingPhase(start, batches, tuple(counts[t] for t in tasks)))
    return Sampler("mmlm", seed, tasks, rows, phases), phases


def all_draws(a_stream, steps, sizes):
    drawn = [a_stream.draw(step, np.arange(size)) for step, size in zip(steps, sizes, strict=True)]
    return tuple(np.concatenate([getattr(d, part) for d in drawn]) for part in ("tasks", "rows"))


@st.composite
def short_runs(draw):
    """(rows of each task, alphas by step, batch sizes, sizes of warm-up batches by step, steps,
    constants of `draws`)."""
    rows = draw(st.lists(st.integers(1, 400), min_size=1, max_size=4))
    starts = sorted(draw(st.sets(st.integers(1, 40), max_size=2)))
    alphas = [(start, draw(st.sampled_from([0.0, 0.5, 1.0]))) for start in (0, *starts)]
    sizes = [draw(st.integers(1, 100)) for _ in alphas]
    constants = {"BLOCK": 64, "_MIN_RUNS": draw(st.sampled_from([4, 64])), "_MIN_PIECE": 4}
    grow = draw(st.lists(st.integers(1, 100), max_size=starts[0] if starts else 30))
    return rows, alphas, sizes, grow, draw(st.integers(1, 60)), constants


LONG_RUN = ([500, 37, 1], [(0, 1.0), (21, 0.0)], [24, 40], [3, 3, 6, 9, 9, 21], 60)
"""A run in which every task reaches its second epoch, batches grow and rates change."""


@given(short_runs(), st.integers(0, 2**31 - 1))
@example((*LONG_RUN, {"BLOCK": 64, "_MIN_RUNS": 4, "_MIN_PIECE": 4}), 0)
@example(
    ([5000, 370, 1], [(0, 1.0), (701, 0.1)], [24, 40], [], 1500, {}), 3
)  # blocks of the usual size
def test_epochs_contain_each_row_once_and_blocks_have_exact_counts(run, seed):
    rows, alphas, sizes, grow, steps, constants = run
    warmup = ([(step, size) for step, size in enumerate(grow)], len(grow)) if grow else ()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(draws, name, value)
        a_stream, phases = stream(rows, alphas, sizes, seed, warmup)
        batches = [sizes[sum(start <= step for start, _ in alphas) - 1] for step in range(steps)]
        batches = [*grow, *batches[len(grow) :]][:steps]
        tasks, drawn = all_draws(a_stream, range(steps), batches)
        block = draws.BLOCK
        begins = [sum(batches[: phase.start_step]) for phase in phases]
        for phase, begin, end in zip(phases, begins, [*begins[1:], len(tasks)], strict=True):
            for first in range(begin, end - block + 1, block):
                counts = np.bincount(tasks[first : first + block], minlength=len(rows))
                assert tuple(counts) == phase.counts
        for task, size in enumerate(rows):
            task_rows = drawn[tasks == task]
            assert (task_rows < size).all()
            epochs = np.arange(len(task_rows)) // size
            assert len(np.unique(epochs * size + task_rows)) == len(task_rows)
        step = steps // 2
        slots = np.arange(batches[step])[::-3]
        again = stream(rows, alphas, sizes, seed, warmup)[0].draw(step, slots)
        before = sum(batches[:step])
        assert np.array_equal(again.rows, drawn[before + slots])
        assert np.array_equal(again.tasks, tasks[before + slots])


def test_slices_equal_the_whole_in_any_order():
    a_stream, _ = stream()
    whole = a_stream.draw(77, np.arange(24))
    other, _ = stream()
    for part in (np.arange(8, 16), np.array([23, 0, 5])):
        some = other.draw(77, part)
        for field in ("tasks", "rows", "ahead"):
            assert np.array_equal(getattr(whole, field)[part], getattr(some, field))


def test_another_seed_gives_other_batches():
    one, two = stream(seed=1)[0].draw(5, np.arange(24)), stream(seed=2)[0].draw(5, np.arange(24))
    assert not np.array_equal(one.rows, two.rows)


def test_far_steps_do_not_overflow():
    a_stream, _ = stream()
    actual = a_stream.draw(2**33, np.arange(24))
    sizes = np.array([1000, 37, 1])[actual.tasks]
    assert (actual.rows >= 0).all() and (actual.rows < sizes).all()
