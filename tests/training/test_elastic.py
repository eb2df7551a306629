"""A run resumes on another number of devices or another mesh with the same batches and masks."""

import numpy as np
import pytest
from test_resume import lines

from xlj.api import runs
from xlj.checkpoints import reading
from xlj.config import ConfigError, parse
from xlj.data.rows.preparing import prepare_rows
from xlj.sharding import meshes, trees
from xlj.training import loop, start


def train(tiny, store, workdir, steps):
    tiny.train.steps, tiny.optimizer.schedule = steps, "constant"
    return loop.train(start.prepare(parse(tiny), workdir, store))


def params(workdir):
    restored = reading.restore_params(reading.find(workdir), meshes.one_device())
    return trees.named_leaves(restored)


@pytest.mark.slow
@pytest.mark.parametrize("before, after", [((4, 2), (3, 1)), ((8, 8), (2, 1))])
def test_a_run_resumes_on_another_mesh_with_the_same_batches(
    tiny, store, tmp_path, devices, before, after
):
    """The parameters of the test are (devices, mesh.fsdp) before and after the resume. The state of
    an objective in one case is a queue and a momentum encoder."""
    tiny.objectives.mmlm.batch_size, tiny.objectives.tlm.batch_size = 24, 0
    if before == (8, 8):
        tiny.objectives.xlco.batch_size, tiny.objectives.xlco.queue = 24, 32
        store = prepare_rows(parse(tiny))
    for count, fsdp, workdir, steps in (
        (*before, "whole", 4),
        (*before, "resumed", 2),
        (*after, "resumed", 4),
    ):
        devices(count)
        tiny.mesh.fsdp = fsdp
        train(tiny, store, tmp_path / workdir, steps)
    whole = {line["step"]: line for line in lines(tmp_path / "whole")}
    resumed = {line["step"]: line for line in lines(tmp_path / "resumed")}
    for step, keys in ((0, "eval/"), (2, "train/"), (4, "")):  # one of the runs ended at step 2
        names = [name for name in whole[step] if name.startswith(keys)]
        assert names
        expected, actual = ([run[step][name] for name in names] for run in (whole, resumed))
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    expected_params = params(tmp_path / "whole")
    for name, leaf in params(tmp_path / "resumed").items():
        np.testing.assert_allclose(leaf, expected_params[name], rtol=1e-3, atol=2e-5, err_msg=name)


def test_batches_not_divisible_by_the_devices_are_refused_before_any_work(tiny, tmp_path, devices):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 4}\n')
    tiny.data.cache = f"{tmp_path}/rows"
    devices(3)
    with pytest.raises(
        ConfigError, match=r"mmlm\.batch_size=16 .* not divisible by 3 devices; use 2"
    ):
        runs.pretrain(parse(tiny), tmp_path / "run")
    assert {file.name for file in tmp_path.rglob("*")} == {"run", "metrics.jsonl"}
