"""The step of a phase is compiled once, whatever comes between its steps."""

import ml_collections
import pytest

from xlj.config import parse
from xlj.distributed.preemption import Interrupted
from xlj.training import loop, start


@pytest.fixture
def built(monkeypatch):
    """The jitted steps that each call of `train` made, by phase."""
    made = []

    def jitted_steps(*arguments):
        made.append(original(*arguments))
        return made[-1]

    original = loop.jitted_steps
    monkeypatch.setattr(loop, "jitted_steps", jitted_steps)
    return made


def test_a_phase_is_compiled_once_over_evaluation_checkpoints_and_resume(
    tiny, store, tmp_path, built
):
    """Of each step's executables: one more would be there for a state that lies in another way on
    the mesh, as `restart_sums`, a restored checkpoint or a batch might."""
    tiny.objectives.tlm.batch_rows = 0
    tiny.model.layers = 1
    tiny.phases = ml_collections.ConfigDict(
        {"late": {"start_step": 6, "objectives": {"mmlm": {"weight": 2.0}}}}
    )
    tiny.train.steps = 9
    tiny.train.eval_every = 2
    config = parse(tiny)

    def stop_at_4(state, check):
        if int(state.progress.step) == 4:
            raise Interrupted
        return {}

    begun = loop.train(start.prepare(config, tmp_path, store), [stop_at_4])
    assert (begun.step, begun.finished) == (4, False)
    ended = loop.train(start.prepare(config, tmp_path, store))
    assert (ended.step, ended.finished) == (9, True)
    sizes = [[step._cache_size() for step in steps] for steps in built]
    assert sizes == [[1, 0], [1, 1]]
