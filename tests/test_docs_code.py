"""The Python code of README.md and docs/*.md runs unchanged, on models of a few steps."""

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
from xlj.optimizers import Rates, make
from xlj.tools.sweeping import definition
from xlj.word_alignment import methods, sentence_pairs

pytestmark = pytest.mark.usefixtures("one_device")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    "README.md": 1, "align.md": 3, "align_documents.md": 1, "api.md": 3, "attention.md": 2,
    "configs.md": 2, "convert.md": 2, "crawl.md": 2, "data.md": 2, "embed.md": 1,
    "evaluate.md": 1, "finetune.md": 1, "index.md": 2, "models.md": 1,
    "own_objective.md": 2, "papers.md": 1, "phases.md": 1, "search.md": 1, "serve.md": 1,
    "sweep.md": 1, "tasks.md": 1, "train.md": 2,
}  # fmt: skip
"""The number of code blocks on each page.

Other tests run some of the blocks:

- README.md: test_tutorials
- code that loads a released encoder (README.md, index.md): real/test_real_figures
- align_documents.md: api/test_aligned_documents
- attention.md: models/attention/test_own_attention
- crawl.md: test_crawl_page
- embed.md, serve.md: retrieval/test_onnx_embedder
- models.md: families/test_own_family
- own_objective.md: objectives/test_own_objective
- search.md: api/test_mteb_model, with tasks made in memory
- tasks.md: tasks/test_own_task
- code that uses seqio: data/rows/test_building_seqio
- code that loads an exported folder with transformers: interop/test_task_heads,
  interop/test_hugging_face and interop/test_sentence_modules
"""


def code_of(page):
    """Returns the blocks of Python code of a page, fenced and indented."""
    text = page.read_text("utf-8")
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n(?:\n(?= {4}))*)+", plain)
    begins = re.compile(r"(import|from|def) \w+|\w+ = \w+[.(]")
    return fenced + [code for block in indented if begins.match(code := textwrap.dedent(block))]


def test_the_number_of_code_blocks_of_each_page_is_known():
    assert {page.name: len(blocks) for page in PAGES if (blocks := code_of(page))} == BLOCKS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a test; modules in it can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_code_that_uses_an_encoder_runs(checkpoint, folder):
    encoder, runs, hook = code_of(ROOT / "docs/api.md")
    (folder / "runs").mkdir()
    (folder / "runs/quickstart").symlink_to(checkpoint)
    *lines, last = encoder.strip().splitlines()
    namespace = {"english": ["a cat", "two dogs", "no"], "german": ["eine Katze", "ein Hund"]}
    exec("\n".join([*lines, f"filled = {last}"]), namespace)
    assert namespace["vectors"].shape == (2, 32) and namespace["vectors"].dtype == np.float32
    assert len(namespace["links"]) == 1
    assert namespace["nearest"].targets.indices.shape == (3, 1)
    pairs = namespace["pairs"]
    assert len(pairs.sources) == len(pairs.targets) == len(pairs.scores)
    assert [len(pieces) for pieces in namespace["filled"]] == [3, 3]


def test_code_of_the_home_page_runs(checkpoint, folder, monkeypatch):
    """Training is replaced; the code then loads a checkpoint that other tests use too."""
    _, code = code_of(ROOT / "docs/index.md")
    started = []
    monkeypatch.setattr(xlj, "pretrain", lambda *call: started.append(call), raising=False)
    (folder / "runs").mkdir()
    (folder / "runs/quickstart").symlink_to(checkpoint)
    namespace = {}
    exec(code, namespace)
    ((config, workdir),) = started
    assert config.train.steps == 2_000 and workdir == "runs/quickstart"
    assert namespace["vectors"].shape == (2, 32) and len(namespace["links"]) == 1
    assert (folder / "quickstart/model.safetensors").is_file()


@pytest.mark.slow
def test_code_that_pretrains_and_fine_tunes_runs(tiny, folder, monkeypatch):
    """Of the two recipes on the page, one has a smaller model here, and the other fewer steps."""
    recipe_names = []

    def recipe(name):
        recipe_names.append(name)
        config = recipes.read(name)
        if name == "quickstart":
            return ml_collections.ConfigDict(tiny)
        config.task.languages = config.task.test_languages = config.task.dev_languages = "en"
        config.train.steps, config.train.eval_every = "0.05ep", "100%"
        return config

    monkeypatch.setattr(xlj, "recipe", recipe, raising=False)
    code = code_of(ROOT / "docs/api.md")[1]
    assert "config.train.steps = 500" in code
    namespace = {"xlj": xlj}
    exec(code.replace("config.train.steps = 500", "config.train.steps = 2"), namespace)
    assert recipe_names == ["quickstart", "finetune/udpos:phrasebook"]
    run, results = namespace["run"], namespace["results"]
    assert (run.step, run.finished, run.checkpoint.name) == (2, True, "2")
    assert set(results.runs[0].test["word_class_f1"]) == {"en"}


def test_the_metrics_hook_runs(folder, monkeypatch):
    logged = []
    run = types.SimpleNamespace(log=lambda values, step: logged.append((step, values)))
    wandb = types.SimpleNamespace(run=None, init=lambda project: run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    hook = {}
    exec(code_of(ROOT / "docs/api.md")[2], hook)
    hook["log"](4, {"train/loss": 2.0})
    assert logged == [(4, {"train/loss": 2.0})]


def test_the_recipe_that_extends_another_is_valid(folder):
    code, _ = code_of(ROOT / "docs/train.md")
    (folder / "mine.py").write_text(code, encoding="utf-8")
    config = recipes.read(str(folder / "mine.py"))
    config.data.mono, config.data.languages = "phrasebook:{language}", "en,de"
    config.data.parallel, config.data.pairs = "phrasebook:{pair}", "en-de"
    config = parse(config)
    assert (config.model.layers, config.optimizer.learning_rate) == (6, 3e-4)


def test_the_custom_optimizer_computes_its_update(folder, tiny, monkeypatch):
    monkeypatch.setitem(optimizers._REGISTERED, "lion", None)  # restores the table at the end
    del optimizers._REGISTERED["lion"]
    _, code = code_of(ROOT / "docs/train.md")
    (folder / "my_lion.py").write_text(code, encoding="utf-8")
    tiny.objective_modules, tiny.optimizer.name = "my_lion", "lion"
    config = parse(tiny)
    params = {"layers": {"kernel": np.float32([1, 2])}}
    lion, rate, decay = make(config), np.float32(1e-3), np.float32(0.1)
    arguments = {"finite": np.True_, "rates": Rates(rate, decay)}
    updates, _ = lion.update(params, lion.init(params), params, **arguments)
    expected = [-rate * (1 + decay), -rate * (1 + 2 * decay)]
    np.testing.assert_allclose(updates["layers"]["kernel"], expected, rtol=1e-6)
    assert set(record(config)["objective_digests"]) == {"my_lion"}


def test_the_sweep_is_valid(folder):
    (code,) = code_of(ROOT / "docs/sweep.md")
    (folder / "mine_sweep.py").write_text(code, encoding="utf-8")
    sweep = definition.read(folder / "mine_sweep.py", folder / "runs")
    assert sweep.config == "configs/quickstart.py" and len(sweep.runs) == 9
    assert {"optimizer.learning_rate": 0.002, "train.seed": 1} in sweep.runs


def test_code_for_word_alignment_runs(checkpoint, folder, capsys):
    soft, gold, own = code_of(ROOT / "docs/align.md")
    exec(gold, {})
    size, pairs = sentence_pairs.read_checked(folder / "gold.tsv", "")
    assert size == 500 and all(pair.gold.sure for pair in pairs)
    (folder / "runs").mkdir()
    (folder / "runs/quickstart").symlink_to(checkpoint)
    (folder / "pairs.tsv").write_text("the cat sleeps\tdie Katze\n", encoding="utf-8")
    exec(soft, {})
    assert re.fullmatch(r"\[(\s*\[[^\[\]]+\]){3}\]\s*", capsys.readouterr().out)
    namespace = {}
    exec(own, namespace)
    del methods.METHODS["gaussian"]
    assert len(namespace["links"]) == 1 and namespace["links"][0]


def test_code_that_averages_error_rates_runs(folder, capsys):
    (folder / "DIR").mkdir()
    for pair, rates in (("en-de", (0.5, 0.25)), ("en-fr", (0.25, 0.75))):
        lines = "".join(json.dumps({"layer": i, "aer": x}) + "\n" for i, x in enumerate(rates))
        (folder / f"DIR/aer-{pair}.jsonl").write_text(lines)
    exec(code_of(ROOT / "docs/papers.md")[0], {})
    assert capsys.readouterr().out == "[0.375, 0.5]\n"


def test_code_that_compares_two_systems_runs(capsys):
    exec(code_of(ROOT / "docs/evaluate.md")[0], {})
    difference, low, high = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert 0 < low < difference < high and difference == 0.167


def test_code_for_variants_and_phases_gives_a_valid_config(folder):
    own, phases = code_of(ROOT / "docs/configs.md")
    with recipes.importable(ROOT / "configs"):
        import ernie_m_base
    namespace = {"variants": variants, "ernie_m_base": ernie_m_base}
    exec(own, namespace)
    namespace |= {"config": namespace["get_config"]("exp3,tiny"), "ml_collections": ml_collections}
    exec(phases, namespace)
    namespace["config"].train.steps = 3_000
    config = parse(namespace["config"])
    assert set(config.objectives.active()) == {"mmlm", "camlm"}
    assert [phase.start for phase in config.schedule] == [0, 1000, 2000]
    assert config.schedule[2].config.objectives.masking.rate == 0.2


def test_code_for_phases_of_a_modern_recipe_gives_a_valid_config(tiny):
    (phases,) = code_of(ROOT / "docs/phases.md")
    tiny.objectives.tlm.batch_size, tiny.data.languages = 0, "en,de,sw,zh"
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


def test_code_that_reads_rows_of_a_store_runs(store):
    code = code_of(ROOT / "docs/data.md")[0].replace("runs/rows/0123456789abcdef", str(store.path))
    *lines, last = code.strip().splitlines()
    namespace = {"np": np}
    exec("\n".join([*lines, f"read = {last}"]), namespace)
    assert namespace["read"].shape == (2, 32) and namespace["read"].dtype == np.uint16
