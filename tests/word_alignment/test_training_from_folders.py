"""The recipes of word alignment train encoders of Hugging Face folders for `xlj align`."""

import dataclasses
import importlib
import json

import jax
import pytest
from modern_tokenizers import MODERN, write_folder

import xlj
from xlj import align, phrasebook
from xlj.checkpoints import reading, writing
from xlj.config import Config, Model
from xlj.config.families import options_of
from xlj.conversion.exporting import export
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.models import encoder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_device")]
EXAMPLES = [phrasebook.pair(phrasebook.draw(5, k), "en", "de") for k in range(60)]


def line(pair):
    sides = (" ".join(w.form for w in side.words) for side in (pair.source, pair.target))
    return "\t".join([*sides, " ".join(f"{i}-{j}" for i, j in sorted(pair.alignment))]) + "\n"


@pytest.fixture(params=["xlm_r", "modernbert"])
def folder(request, vocabulary, tmp_path):
    """A Hugging Face folder of a random encoder, and pairs with links in `pairs.en-de.tsv`."""
    if request.param == "modernbert":
        lines = [text for pair in EXAMPLES for text in line(pair).split("\t")[:2]]
        written = write_folder(
            tmp_path / "vocabulary", "modernbert", MODERN["modernbert"](lines, 400)
        )
        vocabulary = Vocabulary.load(written / "tokenizer.json")
    sizes = {"layers": 3, "hidden": 32, "heads": 2, "intermediate": 64, "positions": 66}
    model = Model(**options_of(request.param) | sizes, init_std=0.2)
    params = jax.jit(encoder.init, static_argnums=(1, 2, 3))(
        jax.random.key(0), model, vocabulary.size, 1
    )
    config = dataclasses.replace(Config(), model=model)
    writing.write_params(tmp_path / "start", params, config, vocabulary, ["en", "de"])
    export(str(tmp_path / "start"), tmp_path / "folder")
    (tmp_path / "pairs.en-de.tsv").write_text("".join(map(line, EXAMPLES)), "utf-8")
    return tmp_path / "folder"


def recipe(name, folder):
    config = importlib.import_module(name).get_config()
    config.init_from, config.data.cache = str(folder), str(folder.parent / "rows")
    config.model.dtype, config.train.steps = "float32", 2
    config.train.log_every = config.train.eval_every = 1
    return config


def test_pairs_and_links_train_an_aligner(folder, tmp_path, call):
    pairs = f"{tmp_path}/pairs.{{language}}.tsv"
    config = recipe("finetune.word_links", folder)
    config.task.update({"train": pairs, "dev": pairs, "languages": "en-de", "length": 64})
    xlj.fine_tune(config, tmp_path / "links")

    config = recipe("align_adapt", folder)
    config.objectives.tlm.batch_size, config.train.checkpoint_every = 0, 1
    config.data.update({"parallel": f"{tmp_path}/pairs.{{pair}}.tsv#1|2", "pairs": "en-de"})
    config.data.update({"pair_length": 64, "held_out_share": 0.2})
    config.optimizer.learning_rate, config.optimizer.warmup_steps = 1e-2, 1
    metrics = {line["step"]: line for line in xlj.pretrain(config, tmp_path / "pairs").metrics}

    def aligned(run):
        flags = f"--input={tmp_path}/pairs.en-de.tsv", "--gold"
        return json.loads(call(align.main, f"--checkpoint={tmp_path}/{run}", *flags).out)

    assert aligned("links/seed-0")["method"] == "word_links"
    best = max((1, 2), key=lambda step: (metrics[step]["eval/word_alignment/agreement"], step))
    assert reading.best(tmp_path / "pairs").step == best
    scores = aligned("pairs")
    assert (scores["method"], scores["encode"]) == ("argmax", "apart")
    assert scores["layer"] == metrics[best]["eval/word_alignment/layer"]
    assert aligned(f"pairs/checkpoints/{best}") == scores
    export(str(tmp_path / "pairs"), tmp_path / "exported")
    assert aligned("exported") == scores
