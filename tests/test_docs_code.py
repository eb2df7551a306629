"""The Python code of the pages beside the tutorials runs as it stands, on models of a few steps."""

import json
import re
import sys
import textwrap
import types
from pathlib import Path

import ml_collections
import numpy as np
import pytest

import xlj
from xlj.config import families, optimizers, parse, recipes, record, variants
from xlj.config.schema import unresolved
from xlj.optimizers import make, schedules
from xlj.sweeping import definition
from xlj.word_alignment import methods, sentence_pairs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PIECES = {
    "README.md": 1, "align.md": 3, "api.md": 3, "configs.md": 2, "convert.md": 2,
    "data.md": 2, "finetune.md": 1, "index.md": 1, "own_objective.md": 2, "papers.md": 1,
    "phases.md": 1,
    "sweep.md": 1, "tasks.md": 1, "train.md": 2,
}  # fmt: skip
"""How many a page has. Those of README.md are run by test_tutorials, those of own_objective.md by
objectives/test_own_objective, that of tasks.md by tasks/test_own_task, seqio's by
data/rows/test_building_seqio, and what transformers makes of an exported folder by
interop/test_task_heads, test_hugging_face and test_sentence_modules."""


def code_of(page):
    """Each block of Python of a page, fenced or indented."""
    text = page.read_text("utf-8")
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n(?:\n(?= {4}))*)+", plain)
    begins = re.compile(r"(import|from|def) \w+|\w+ = \w+[.(]")
    return fenced + [code for block in indented if begins.match(code := textwrap.dedent(block))]


def test_every_piece_of_code_is_known():
    assert {page.name: len(found) for page in PAGES if (found := code_of(page))} == PIECES


@pytest.fixture
def at(tmp_path, monkeypatch):
    """A folder to be in, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_trained_encoder(checkpoint, at):
    encoder, runs, hook = code_of(ROOT / "docs/api.md")
    (at / "runs").mkdir()
    (at / "runs/quickstart").symlink_to(checkpoint)
    *lines, last = encoder.strip().splitlines()
    given = {"english": ["a cat", "two dogs", "no"], "german": ["eine Katze", "ein Hund"]}
    exec("\n".join([*lines, f"filled = {last}"]), given)
    assert given["vectors"].shape == (2, 32) and given["vectors"].dtype == np.float32
    assert len(given["links"]) == 1
    assert given["nearest"].targets.indices.shape == (3, 1)
    pairs = given["pairs"]
    assert len(pairs.sources) == len(pairs.targets) == len(pairs.scores)
    assert [len(pieces) for pieces in given["filled"]] == [3, 3]


def test_the_home_page(checkpoint, at, monkeypatch):
    """The run itself is a checkpoint that other tests use too."""
    (code,) = code_of(ROOT / "docs/index.md")
    started = []
    monkeypatch.setattr(xlj, "pretrain", lambda *call: started.append(call), raising=False)
    (at / "runs").mkdir()
    (at / "runs/quickstart").symlink_to(checkpoint)
    given = {}
    exec(code, given)
    ((config, workdir),) = started
    assert config.train.steps == 2_000 and workdir == "runs/quickstart"
    assert given["vectors"].shape == (2, 32) and len(given["links"]) == 1
    assert (at / "quickstart/model.safetensors").is_file()


@pytest.mark.slow
def test_runs(tiny, at, monkeypatch):
    """Of the recipes that the page names, one with a smaller model, the other with fewer steps."""
    asked = []

    def recipe(name):
        asked.append(name)
        config = recipes.read(name)
        if name == "quickstart":
            return ml_collections.ConfigDict(tiny)
        config.task.languages = config.task.test_languages = config.task.dev_languages = "en"
        config.train.epochs, config.train.evaluations = 0.05, 1
        return config

    monkeypatch.setattr(xlj, "recipe", recipe, raising=False)
    code = code_of(ROOT / "docs/api.md")[1]
    assert "config.train.steps = 500" in code
    given = {"xlj": xlj}
    exec(code.replace("config.train.steps = 500", "config.train.steps = 2"), given)
    assert asked == ["quickstart", "finetune/udpos:phrasebook"]
    run, results = given["run"], given["results"]
    assert (run.step, run.finished, run.checkpoint.name) == (2, True, "2")
    assert set(results.runs[0].test["word_class_f1"]) == {"en"}


def test_the_metrics_hook(at, monkeypatch):
    logged = []
    run = types.SimpleNamespace(log=lambda values, step: logged.append((step, values)))
    wandb = types.SimpleNamespace(run=None, init=lambda project: run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    hook = {}
    exec(code_of(ROOT / "docs/api.md")[2], hook)
    hook["log"](4, {"train/loss": 2.0})
    assert logged == [(4, {"train/loss": 2.0})]


def test_a_recipe_that_builds_on_another(at):
    code, _ = code_of(ROOT / "docs/train.md")
    (at / "mine.py").write_text(code, encoding="utf-8")
    config = recipes.read(str(at / "mine.py"))
    config.data.mono, config.data.languages = "phrasebook:{language}", "en,de"
    config.data.parallel, config.data.pairs = "phrasebook:{pair}", "en-de"
    config = parse(config)
    assert (config.model.layers, config.optimizer.learning_rate) == (6, 3e-4)


def test_an_optimizer_of_ones_own(at, tiny, monkeypatch):
    monkeypatch.setitem(optimizers._REGISTERED, "lion", None)  # so that it is taken out at the end
    del optimizers._REGISTERED["lion"]
    _, code = code_of(ROOT / "docs/train.md")
    (at / "my_lion.py").write_text(code, encoding="utf-8")
    tiny.objective_modules, tiny.optimizer.name = "my_lion", "lion"
    config = parse(tiny)
    params = {"layers": {"kernel": np.float32([1, 2])}}
    lion, done = make(config), {"finite": np.True_, "rates": schedules.rates(config, 0)}
    updates, _ = lion.update(params, lion.init(params), params, **done)
    rate, decay = config.optimizer.learning_rate, config.optimizer.weight_decay
    wanted = [-rate * (1 + decay), -rate * (1 + 2 * decay)]
    np.testing.assert_allclose(updates["layers"]["kernel"], wanted, rtol=1e-6)
    assert set(record(config)["objective_digests"]) == {"my_lion"}


def test_a_sweep(at):
    (code,) = code_of(ROOT / "docs/sweep.md")
    (at / "mine_sweep.py").write_text(code, encoding="utf-8")
    sweep = definition.read(at / "mine_sweep.py", at / "runs")
    assert sweep.config == "configs/quickstart.py" and len(sweep.runs) == 9
    assert {"optimizer.learning_rate": 0.002, "train.seed": 1} in sweep.runs


def test_alignments(checkpoint, at, capsys):
    soft, gold, own = code_of(ROOT / "docs/align.md")
    exec(gold, {})
    size, pairs = sentence_pairs.read_checked(at / "gold.tsv", "")
    assert size == 500 and all(pair.gold.sure for pair in pairs)
    (at / "runs").mkdir()
    (at / "runs/quickstart").symlink_to(checkpoint)
    (at / "pairs.tsv").write_text("the cat sleeps\tdie Katze\n", encoding="utf-8")
    exec(soft, {})
    assert re.fullmatch(r"\[(\s*\[[^\[\]]+\]){3}\]\s*", capsys.readouterr().out)
    given = {}
    exec(own, given)
    del methods.METHODS["gaussian"]
    assert len(given["links"]) == 1 and given["links"][0]


def test_the_mean_of_four_curves(at, capsys):
    (at / "DIR").mkdir()
    for pair, rates in (("en-de", (0.5, 0.25)), ("en-fr", (0.25, 0.75))):
        lines = "".join(json.dumps({"layer": i, "aer": x}) + "\n" for i, x in enumerate(rates))
        (at / f"DIR/aer-{pair}.jsonl").write_text(lines)
    exec(code_of(ROOT / "docs/papers.md")[0], {})
    assert capsys.readouterr().out == "[0.375, 0.5]\n"


def test_variants_and_phases(at):
    own, phases = code_of(ROOT / "docs/configs.md")
    with recipes.importable(ROOT / "configs"):
        import ernie_m_base
    given = {"variants": variants, "ernie_m_base": ernie_m_base}
    exec(own, given)
    given |= {"config": given["get_config"]("exp3,tiny"), "ml_collections": ml_collections}
    exec(phases, given)
    given["config"].train.steps = 3_000
    config = parse(given["config"])
    assert set(config.objectives.active()) == {"mmlm", "camlm"}
    assert [phase.start for phase in config.schedule] == [0, 1000, 2000]
    assert config.schedule[2].config.objectives.mmlm.mask_rate == 0.2


def test_phases_of_a_modern_recipe(tiny):
    (phases,) = code_of(ROOT / "docs/phases.md")
    tiny.objectives.tlm.batch_rows, tiny.data.languages = 0, "en,de,sw,zh"
    tiny.model.positions = 8194
    families.set_family(tiny, "modernbert")
    tiny.train.steps = "3e12tok"
    exec(phases, {"config": tiny, "ml_collections": ml_collections})
    context, decay = parse(tiny).schedule[1:]
    assert context.config.data.length == 8192 and decay.config.data.sampled == ()
    assert context.config.model.rotary_base == decay.config.model.rotary_base == 160_000
    assert decay.config.optimizer.learning_rate == 4e-4
    assert unresolved(parse(tiny)).keys() == {
        *(f"phases.{name}.start_step" for name in ("context", "decay")),
        "train.steps",
    }


def test_rows_of_a_store(store):
    code = code_of(ROOT / "docs/data.md")[0].replace("runs/rows/0123456789abcdef", str(store.path))
    *lines, last = code.strip().splitlines()
    given = {"np": np}
    exec("\n".join([*lines, f"read = {last}"]), given)
    assert given["read"].shape == (2, 32) and given["read"].dtype == np.uint16
