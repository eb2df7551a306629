"""An objective of a user, outside xlj: registered, selected by a config, used like any other."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from xlj import align, convert, embed
from xlj import config as schema
from xlj.checkpoints import reading
from xlj.checkpoints.reading import CheckpointError
from xlj.config import ConfigError, objectives, parse
from xlj.data.rows.store import Corpus
from xlj.inference import pretrained
from xlj.sharding import meshes
from xlj.training import loop, start, state

ROOT = Path(__file__).parents[2]

# An objective whose state evolves and has its own sharding rule. The general rule shards its head.
OBJECTIVE_CODE = """
import dataclasses
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from xlj.config import ConfigError, Options, option, register
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.objectives.objective import Loss, LossSums, Objective
from xlj.models.segments import whole_examples


@register("mine")
@dataclasses.dataclass(frozen=True)
class Mine(Options):
    rows = "text"
    implementation = f"{__name__}:objective"
    state_keys = ("momentum",)
    momentum: float = option(0.5, "momentum of the centre", low=0, high=1)
    layer: int = option(0, "layer that is read", low=0)

    def check(self, path, config):
        if self.momentum == 1:
            raise ConfigError(f"{path}.momentum=1 never moves")


def objective(name, options, model, corpus):
    def vectors(params, rows, rngs):
        inputs = whole_examples(model, rows["tokens"], rows["languages"])
        return encoder.apply(params, model, inputs, rngs, layers=options.layer or model.layers)

    def count(rows):
        return {name: (rows["tokens"][:, 0] != PAD).astype(jnp.float32)}

    def loss(params, state, rows, rngs):
        first = vectors(params, rows, rngs)[:, 0] - state["centre"]
        logits = first @ params["mine_head"]["kernel"]
        language, real = rows["languages"][:, 0], count(rows)[name]
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), language[:, None], 1)[:, 0]
        return {name: LossSums(losses * real, real, (logits.argmax(1) == language) * real)}

    def update(state, params, rows):
        now = jax.lax.stop_gradient(vectors(params, rows, None)[:, 0].mean(0))
        return {"centre": options.momentum * state["centre"] + (1 - options.momentum) * now}

    def head(rng):
        return {"kernel": 0.02 * jax.random.normal(rng, (model.hidden, len(corpus.languages)))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=lambda rows, rngs: {**rows, "tokens": rows["tokens"].astype(jnp.int32)},
        count=count,
        loss=loss,
        parts={"mine_head": head},
        rules=((r"centre", PartitionSpec()),),
        init_state=lambda params: {"centre": jnp.zeros(model.hidden)},
        update=update,
    )
"""

CONFIG_CODE = """
from xlj import align, convert, embed
from xlj import config as schema


def get_config(variant=""):
    config = schema.default(objective_modules="my_objective")
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.objectives.mine.batch_size = 16
    return config
"""


def unregister(name, module):
    objectives._REGISTERED.pop(name, None)
    sys.modules.pop(module, None)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The objective's file, importable as `my_objective` during the test."""
    file = tmp_path / "my_objective.py"
    file.write_text(OBJECTIVE_CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield file
    unregister("mine", "my_objective")


def config_with_objective(tiny, modules="my_objective", name="mine"):
    """`tiny` with MMLM and the user's objective."""
    config = schema.default(objective_modules=modules)
    for path in ("data", "model", "optimizer", "train"):
        config[path].update(tiny[path])
    config.objectives.mmlm.batch_size = 16
    config.objectives[name].batch_size = 16
    config.data.parallel = config.data.pairs = ""
    return config


def train(config, folder, steps):
    config.train.steps = steps
    return loop.train(start.prepare(parse(config), folder))


def digests_of(folder, step):
    return reading.find(folder / "checkpoints" / str(step)).meta["digests"]


@pytest.mark.slow
def test_an_own_objective_trains_evaluates_and_resumes_bit_for_bit(tiny, module, tmp_path):
    config = config_with_objective(tiny)
    config.train.eval_every = 2
    train(config, tmp_path / "whole", 4)
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").open()]
    assert [line["step"] for line in lines if "eval/mine/en/loss" in line] == [0, 2, 4]
    losses = [line["train/mine/loss"] for line in lines if "train/mine/loss" in line]
    assert len(losses) == 2 and all(np.isfinite(losses))
    assert "eval/mine/perplexity" not in lines[-1]
    # Resumes from the checkpoint of step 2, after the module was removed from sys.modules.
    resumed = tmp_path / "resumed"
    (resumed / "checkpoints").mkdir(parents=True)
    shutil.copytree(tmp_path / "whole/checkpoints/2", resumed / "checkpoints/2")
    first = digests_of(resumed, 2)
    unregister("mine", "my_objective")
    resumed_config = config_with_objective(tiny)
    resumed_config.train.eval_every = 2
    train(resumed_config, resumed, 4)
    assert digests_of(resumed, 4) == digests_of(tmp_path / "whole", 4) != first
    assert {"objectives", "params"} <= digests_of(resumed, 4).keys()


def test_an_own_objective_is_sharded_by_its_rules(tiny, module):
    config = config_with_objective(tiny)
    config.mesh.fsdp = 2
    parsed = parse(config)
    corpus = Corpus(400, ("en", "de", "sw"), (3, 2, 1))
    mesh = meshes.make_mesh(parsed, jax.devices()[:4])
    shardings = state.sharding(parsed, corpus, mesh)
    assert shardings.params["mine_head"]["kernel"].spec == jax.sharding.PartitionSpec("fsdp", None)
    assert shardings.objectives["mine"]["centre"].spec == jax.sharding.PartitionSpec()
    module.write_text(
        OBJECTIVE_CODE.replace('rules=((r"centre", PartitionSpec()),),', ""), encoding="utf-8"
    )
    unregister("mine", "my_objective")
    with pytest.raises(ValueError, match="no sharding rule matches the array .*centre"):
        state.sharding(parse(config_with_objective(tiny)), corpus, mesh)


@pytest.mark.slow
def test_the_checkpoint_of_an_own_objective_can_be_used_without_its_module(
    tiny, module, tmp_path, call
):
    """Without the module, the encoder still embeds, aligns, can be exported and initialises
    runs."""
    run, vectors = tmp_path / "run", tmp_path / "a.npy"
    train(config_with_objective(tiny), run, 2)
    module.unlink()
    unregister("mine", "my_objective")
    assert "mine_head" in pretrained.load(run).params
    (tmp_path / "lines").write_text("a b\nc\n", encoding="utf-8")
    call(embed.main, f"--checkpoint={run}", f"--input={tmp_path}/lines", f"--output={vectors}")
    assert np.load(vectors).shape == (2, 32) and np.isfinite(np.load(vectors)).all()
    (tmp_path / "pairs").write_text("a b\tc d\n", encoding="utf-8")
    alignments = call(align.main, f"--checkpoint={run}", f"--input={tmp_path}/pairs", "--output=-")
    assert "-" in alignments.out
    output = call(convert.main, "export", f"--checkpoint={run}", f"--output={tmp_path}/hf").out
    assert "not exported: mine_head/kernel" in output
    tiny.init_from, tiny.data.parallel, tiny.data.pairs = str(run), "", ""
    tiny.objectives.tlm.batch_size = 0
    assert loop.train(start.prepare(parse(tiny), tmp_path / "next")).finished


@pytest.mark.slow
def test_a_run_does_not_resume_with_changed_code(tiny, module, tmp_path):
    train(config_with_objective(tiny), tmp_path / "run", 2)
    recorded = json.loads((tmp_path / "run/config.json").read_text("utf-8"))
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    assert recorded["objective_digests"] == {"my_objective": digest}
    assert reading.find(tmp_path / "run").config()["objective_digests"] == {"my_objective": digest}
    module.write_text(OBJECTIVE_CODE + "# another\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="the recorded code of my_objective.*other code"):
        train(config_with_objective(tiny), tmp_path / "run", 4)


def test_keys_of_an_own_objective_are_checked_like_all_others(tiny, module):
    config = config_with_objective(tiny)
    config.objectives.mine.momentum = 1.0
    with pytest.raises(ConfigError, match=r"objectives\.mine\.momentum=1 never moves"):
        parse(config)
    config.objectives.mine.momentum, config.objectives.mine.layer = 0.5, 9
    with pytest.raises(ConfigError, match=r"objectives\.mine\.layer=9 is beyond"):
        parse(config)
    config.objectives.mine.batch_size = 0
    with pytest.raises(ConfigError, match=r"objectives\.mine\.layer is set to 9 but has no"):
        parse(config)


@pytest.mark.slow
def test_the_command_line_accepts_keys_of_an_own_objective(module):
    (module.parent / "my_config.py").write_text(CONFIG_CODE, encoding="utf-8")

    def check(*arguments):
        command = [sys.executable, "-m", "xlj.train", f"--config={module.parent}/my_config.py"]
        return subprocess.run(
            [*command, *arguments, "--check"], cwd=ROOT, capture_output=True, text=True
        )

    process = check("--config.objectives.mine.weight=2")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["objectives"]["mine"]["weight"] == 2
    (module.parent / "my_config.py").write_text(CONFIG_CODE.replace(
        '(objective_modules="my_objective")', "()").replace(
        "config.objectives.mine.batch_size = 16", ""), encoding="utf-8")  # fmt: skip
    process = check(
        "--config.objective_modules=my_objective", "--config.objectives.mine.batch_size=8"
    )
    assert json.loads(process.stdout)["objectives"]["mine"]["batch_size"] == 8, process.stderr
    process = check("--config.objective_modules=my_objective", "--config.objectives.mine.wait=2")
    assert process.returncode == 2 and "did you mean objectives.mine.weight" in process.stderr


@pytest.mark.parametrize("module_name", ["no_such_module", "my_broken"])
def test_a_module_that_cannot_be_imported_is_named(module, module_name):
    (module.parent / "my_broken.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"objective_modules: {module_name} cannot be imported"):
        schema.default(objective_modules=module_name)


def test_a_name_can_be_registered_only_once(module):
    schema.default(objective_modules="my_objective")
    (module.parent / "my_second.py").write_text(OBJECTIVE_CODE, encoding="utf-8")
    with pytest.raises(ConfigError, match="my_objective has already registered an objective mine"):
        schema.default(objective_modules="my_second")
    sys.modules.pop("my_second", None)
    assert list(objectives.registered())[-1] == "mine"
    code = OBJECTIVE_CODE.replace('register("mine")', 'register("mmlm")')
    (module.parent / "my_third.py").write_text(code, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mlm\.options has already registered an objective mmlm"):
        schema.default(objective_modules="my_third")


def test_no_file_of_xlj_mentions_an_own_objective():
    for file in (ROOT / "xlj").rglob("*.py"):
        assert not re.search(r"\bmine_head\b|my_objective|language_id\b", file.read_text("utf-8"))


@pytest.mark.slow
def test_the_objective_in_the_docs_trains(tiny, tmp_path, monkeypatch):
    page = (ROOT / "docs/own_objective.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "language_id.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        config = config_with_objective(tiny, "language_id", "language_id")
        config.objectives.mmlm.batch_size = 0
        config.train.eval_every = 2
        train(config, tmp_path / "run", 2)
        lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
        assert "eval/language_id/de/accuracy" in lines[-1]
    finally:
        unregister("language_id", "language_id")
