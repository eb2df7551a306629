"""Batches contain the drawn rows; a damaged row raises an error or becomes padding."""

import dataclasses
import shutil
from collections import Counter

import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows import mixture
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.report import report
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.data.tokenizer.layout import PAD


@pytest.fixture
def copy(store, tmp_path):
    """A copy of the rows of `store`, and a function that damages a row of the copy."""
    shutil.copytree(store.path.parent, tmp_path / "cache")
    copied = RowStore(tmp_path / "cache" / store.path.name)

    def damage(task, row):
        file = copied.file(task, 0)
        content = bytearray(file.read_bytes())
        size = len(content) // (copied.task(task).train.rows + copied.task(task).held_out.rows)
        content[row * size + 5] ^= 4
        file.write_bytes(content)

    return copied, damage


def test_languages_that_are_not_sampled_get_no_draws(tiny, store):
    tiny.data.sampled = "en,de=3"
    config = parse(tiny)
    counts = mixture.count_draws(store, config.objectives.mmlm, config)
    weights = {
        f"text.{name}": factor * store.task(f"text.{name}").train.tokens ** config.data.alpha
        for name, factor in (("en", 1), ("de", 3))
    }
    total = sum(weights.values())
    assert set(counts) == set(weights)
    for name, weight in weights.items():
        assert counts[name] == pytest.approx(BLOCK * weight / total, abs=1)
    names = {name for step in range(4) for name, _ in Batches(store, config).draw(
        "mmlm", step, np.arange(config.objectives.mmlm.batch_size))}  # fmt: skip
    assert names == set(weights)
    # No pair is in data.sampled, so all pairs are drawn.
    assert set(mixture.count_draws(store, config.objectives.tlm, config)) == {
        "pairs.en-de", "pairs.en-sw"
    }  # fmt: skip
    drawn = {line.split()[0]: line.split()[8] for line in report(store, config.data).split("\n")
             if line.startswith("text.")}  # fmt: skip
    assert drawn == {
        name: f"{100 * counts.get(name, 0) / BLOCK:.1f}%"
        for name in ("text.en", "text.de", "text.sw")
    }


def read_row(store, task, number):
    return store.read(task, "train", np.array([number]))["tokens"][0]


def test_the_mean_tokens_of_a_row_are_those_of_the_drawn_rows_without_padding(tiny, store):
    config = parse(tiny)
    for name in ("mmlm", "tlm"):
        options, mean = config.objectives_on()[name], 0.0
        for task, count in mixture.count_draws(store, options, config).items():
            rows = store.read(task, "train", np.arange(store.task(task).train.rows))["tokens"]
            mean += count / BLOCK * (rows != PAD).sum(1).mean()
        assert mixture.mean_tokens_per_row(store, options, config) == pytest.approx(mean)


def test_a_batch_contains_the_drawn_rows(tiny, store):
    batches = Batches(store, parse(tiny))
    for step in (0, 3, 400):
        for name in ("mmlm", "tlm"):
            batch = batches.read(name, step, np.arange(16))
            rows, languages = batch["tokens"], batch["languages"]
            for row, (task, number) in zip(
                rows, batches.draw(name, step, np.arange(16)), strict=True
            ):
                assert np.array_equal(
                    row, store.read(task, "train", np.array([number]))["tokens"][0]
                )
            of_sides = [[batches.corpus.languages[side] for side in pair] for pair in languages]
            tasks = [task for task, _ in batches.draw(name, step, np.arange(16))]
            expected = [task.partition(".")[2].split("-") for task in tasks]
            assert of_sides == [[pair[0], pair[-1]] for pair in expected]
            part = Batches(store, parse(tiny)).read(name, step, np.array([9, 2]))
            assert list(part) == ["tokens", "languages"]
            for field, values in part.items():
                assert np.array_equal(values, batch[field][[9, 2]])


def test_batches_grow_by_microbatches_and_draw_no_row_for_empty_slots(tiny, store):
    """Warm-up from one to four microbatches over nine steps, three steps of each size: slot s is in
    microbatch s mod 4. All draws in order equal those of a run with one row per step."""
    tiny.train.steps, tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps = 12, 9, 4
    tiny.objectives.tlm.batch_size = 8
    batches = Batches(store, parse(tiny))
    tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps, tiny.train.steps = 0, 1, 500
    tiny.objectives.mmlm.batch_size = tiny.objectives.tlm.batch_size = 1
    alone = Batches(store, parse(tiny))
    for name, rows in (("mmlm", 16), ("tlm", 8)):
        slots, drawn = np.arange(rows), []
        for step, size in enumerate([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4]):
            assert batches.shapes(step)[name][0] == rows
            batch = batches.read(name, step, slots)
            read, languages = batch["tokens"], batch["languages"]
            filled = slots % 4 < size
            assert ((read != PAD).any(1) == filled).all() and not languages[~filled].any()
            draws = batches.draw(name, step, slots)
            assert len(draws) == rows * size // 4
            for row, (task, number) in zip(read[filled], draws, strict=True):
                assert np.array_equal(
                    row, store.read(task, "train", np.array([number]))["tokens"][0]
                )
            part, empty = batches.read(name, step, slots[5:7]), batches.read(name, step, slots[3:4])
            assert np.array_equal(part["tokens"], read[5:7])
            assert np.array_equal(part["languages"], languages[5:7])
            assert np.array_equal(empty["tokens"], read[3:4])
            drawn += draws
        first = [alone.draw(name, step, slots[:1])[0][0] for step in range(len(drawn))]
        assert [task for task, _ in drawn] == first
        assert (batches.read(name, 11, slots)["tokens"] != PAD).any(1).all()


def test_alpha_weights_languages_by_tokens_and_each_phase_has_its_own_alpha(
    tiny, store, monkeypatch
):
    """The rate of a language is proportional to tokens^alpha, whatever its number of rows."""
    factors = {"text.en": 1, "text.de": 10, "text.sw": 300}

    def tasks(kind, of_kind=store.tasks):
        for task in of_kind(kind):
            tokens = task.train.tokens * factors.get(task.name, 1)
            train = dataclasses.replace(task.train, tokens=tokens)
            yield dataclasses.replace(task, train=train)

    monkeypatch.setattr(store, "tasks", lambda kind: [*tasks(kind)])
    tiny.data.alpha, tiny.train.steps = 0.5, 9_000
    begin = BLOCK // tiny.objectives.mmlm.batch_size
    tiny.phases = {"second": {"start_step": begin, "data": {"alpha": 0.25}}}
    batches = Batches(store, parse(tiny))
    for step, alpha in ((0, 0.5), (begin, 0.25)):
        actual = Counter(task for task, _ in batches.draw("mmlm", step, np.arange(BLOCK)))
        powers = {task.name: task.train.tokens**alpha for task in tasks("text")}
        assert actual.keys() == powers.keys() == factors.keys()
        for task, power in powers.items():
            assert abs(actual[task] - BLOCK * power / sum(powers.values())) <= 1


def test_a_damaged_row_stops_the_run_or_leaves_its_slot_empty(tiny, copy, capsys):
    store, damage = copy
    whole = Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))["tokens"]
    task, row = Batches(store, parse(tiny)).draw("mmlm", 7, np.array([11]))[0]
    damage(task, row)
    message = rf"00000\.rows: row {row} is damaged.*delete .*{task}.* xlj\.prepare"
    with pytest.raises(RowStoreError, match=message):
        Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))
    tiny.data.damaged_rows = "pad"
    batches = Batches(store, parse(tiny))
    actual = batches.read("mmlm", 7, np.arange(16))["tokens"]
    assert (actual[11] == PAD).all()
    assert np.array_equal(np.delete(actual, 11, 0), np.delete(whole, 11, 0))
    others = batches.read("mmlm", 7, np.arange(8))["tokens"]
    assert np.array_equal(others, whole[:8])
    output = capsys.readouterr().err
    assert output.startswith("step 7: ") and f"row {row} is damaged" in output
    assert output.count("padding replaces this row") == 1
