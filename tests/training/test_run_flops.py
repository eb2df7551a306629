"""Operations of a run by each convention equal published and hand-computed counts."""

import pytest
from planned_batches import PlannedBatches

from xlj import config as schema
from xlj.config import parse
from xlj.data.rows.store import Corpus
from xlj.training.run_flops import RunFlops


def flops(size, length, steps=10, phases=None, model=(), generator=4, **rows):
    """Returns the operations of a run. `rows` is the number of rows of `length` tokens of each
    objective; `size` is the number of pieces in the vocabulary."""
    config = schema.default()
    config.data.mono = config.data.parallel = "a"
    config.data.languages, config.data.pairs = "en,de", "en-de"
    config.data.length = config.data.pair_length = length
    config.model.update(model)
    config.model.positions = length + 2
    config.train.steps, config.phases = steps, phases or {}
    for name, count in rows.items():
        config.objectives[name].batch_size = count
    if "mrtd" in rows:
        config.objectives.generator.layers = generator
    config = parse(config)
    return RunFlops(config, PlannedBatches(config, Corpus(size, ("en", "de"), (1, 1))))


BASE = {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072}
LARGE = {"layers": 24, "hidden": 1024, "heads": 16, "intermediate": 4096}
SMALL = {"layers": 2, "hidden": 2, "heads": 1, "intermediate": 4}


def test_electras_counts_equal_the_published_ones():
    """ELECTRA's Table 8 has 6.4e19 for BERT-Base and 3.2e21 for RoBERTa."""
    bert = flops(30_522, 512, 1_000_000, mmlm=256, model=BASE).until(1_000_000)
    assert bert.electra == pytest.approx(6.428335104e19, rel=1e-12)
    roberta = flops(50_265, 512, 500_000, mmlm=8000, model=LARGE).until(500_000)
    assert roberta.electra == pytest.approx(3.187221435776e21, rel=1e-12)


def test_counts_of_mmlm_equal_numbers_computed_by_hand():
    counts = flops(10, 8, model=SMALL, mmlm=3).of_step(0)
    # 24 tokens; per layer and token 8 * 4 + 4 * 8 + 4 * 16 + 20 * 2 + 9 * 4 + 5 + 10 * 8 = 289
    assert counts.electra == 2 * 24 * (2 * 289 + 102 + 0.15625 * 146)
    assert counts.six_nd == 6 * 24 * 2 * (4 * 4 + 2 * 2 * 4)
    # Per layer and token, 2 * 32 for linear maps and 2 * 2 * 8 * 2 for attention. A row has one
    # prediction.
    assert counts.xlj == 3 * (2 * 24 * (2 * 32 + 2 * 2 * 8 * 2) + 2 * 3 * (2 * 2 + 2 * 10))


def test_counts_of_mrtd_equal_numbers_computed_by_hand():
    counts = flops(10, 8, model=SMALL, generator=1, mrtd=3).of_step(0)
    assert counts.electra == 2 * 24 * (3 * 289 + 2 * 102 + 0.15625 * 146 + 30)
    assert counts.six_nd == 6 * 24 * 3 * 32
    head = 2 * 3 * (2 * 2 + 2 * 10)  # computed once more, for the samples
    assert counts.xlj == 3 * (3 * 24 * 128 + head + 24 * 2 * 2 * (2 + 1)) + head


def test_a_generator_counts_only_for_objectives_that_have_one():
    both = flops(10, 8, model=SMALL, generator=1, mrtd=3, mmlm=3).of_step(0)
    detecting = flops(10, 8, model=SMALL, generator=1, mrtd=3).of_step(0)
    masking = flops(10, 8, model=SMALL, mmlm=3).of_step(0)
    assert both == tuple(a + b for a, b in zip(detecting, masking, strict=True))


def test_the_counts_of_phases_add_up():
    later = {"start_step": 4, "objectives": {"tlm": {"batch_size": 6}}}
    run = flops(10, 8, model=SMALL, mmlm=3, phases={"later": later})
    first, second = run.of_step(3), run.of_step(4)
    assert first == run.of_step(0) and second == tuple(3 * count for count in first)
    assert run.until(0) == (0, 0, 0) and run.until(4) == tuple(4 * count for count in first)
    assert run.until(10) == tuple(22 * count for count in first)
    assert str(run.until(10)).startswith(f"{22 * first.xlj:.3g} in matrix products (")
