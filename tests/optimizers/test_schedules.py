"""Learning rates of whole runs against tables worked out by hand."""

import numpy as np
import pytest

from xlj.config import Config, Optimizer, Train
from xlj.optimizers.schedules import learning_rate


@pytest.mark.parametrize(
    "options, rates",
    [
        # 3 steps up, then from the peak in step 3 down by a fifth a step: 0 where the run ends.
        ({"schedule": "linear"}, [10, 20, 30, 30, 24, 18, 12, 6, 0]),
        ({"schedule": "linear", "warmup_steps": 0}, [30 - 3.75 * step for step in range(9)]),
        ({"schedule": "constant"}, [10, 20, 30, 30, 30, 30, 30, 30, 30]),
        ({"schedule": "constant", "warmup_steps": 1}, [30] * 9),
        # The last 3 of 8 steps fall: step 5 still has the peak.
        ({"schedule": "wsd", "decay_steps": 3}, [10, 20, 30, 30, 30, 30, 20, 10, 0]),
        ({"schedule": "wsd", "decay_steps": 6}, [10, 20, 30, 25, 20, 15, 10, 5, 0]),
    ],
)
def test_every_step_of_a_run(options, rates):
    optimizer = Optimizer(**{"learning_rate": 30.0, "warmup_steps": 3} | options)
    config = Config(optimizer=optimizer, train=Train(steps=8))
    found = [learning_rate(config, step) for step in range(9)]
    assert {each.dtype for each in found} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found, rates, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(learning_rate(config, np.arange(9)), found)
