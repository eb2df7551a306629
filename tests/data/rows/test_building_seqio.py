"""Rows are built from text of TFDS and seqio; text of a config is also a seqio Task or Mixture."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from made_rows import examples, sentences, start

from xlj.config import Data
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import report

pytestmark = pytest.mark.seqio

USERS_MODULE = """
import seqio, tensorflow as tf

def dataset(split, shuffle_files, seed=None):
    texts = [f"first line {i}\\nsecond line {i}" for i in range(3000)]
    return tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": texts[::-1]})

string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
seqio.TaskRegistry.add("users.task", source=seqio.FunctionDataSource(dataset, ["train"]),
                       preprocessors=[], output_features={"inputs": string, "targets": string})
seqio.TaskRegistry.add("users.other", source=seqio.FunctionDataSource(
                           lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensors(
                               {"inputs": "other line", "targets": ""}), ["train"]),
                       preprocessors=[], output_features={"inputs": string, "targets": string})
seqio.MixtureRegistry.add("users.mixture", [("users.task", 1), ("users.other", 9)])
"""


STORE_TFDS = """
import importlib.resources.abc, sys
# TFDS 4.9.10 needs this backport to write (not to read) and does not declare it.
sys.modules.setdefault("importlib_resources", importlib.resources)
import tensorflow as tf, tensorflow_datasets as tfds
texts = [f"tfds line {i}\\nand more {i}" for i in range(2000)]
data = tf.data.Dataset.from_tensor_slices({"doc": {"body": texts}})
tfds.dataset_builders.store_as_tfds_dataset(
    "tiny", version="1.0.0", data_dir=sys.argv[1], split_datasets={"train": data},
    features=tfds.features.FeaturesDict({"doc": {"body": tfds.features.Text()}}))
"""


@pytest.mark.slow
def test_rows_are_built_from_seqio_and_tfds_sources(config, text, tmp_path, monkeypatch):
    (tmp_path / "users_module.py").write_text(USERS_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    subprocess.run([sys.executable, "-c", STORE_TFDS, tmp_path / "tfds"], check=True)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    store = prepare_rows(
        config(
            tmp_path / "cache",
            languages=("xx",),
            mono=("seqio:users.mixture#inputs", "tfds:tiny:1.0.0#doc.body"),
            pairs=("xx-yy",),
            parallel=("seqio:users.task#inputs|targets",),
            seqio_modules=("users_module",),
            held_out_share=0.0,
        )
    )
    texts = examples(store, "text.xx", "train")
    assert len(texts) == 5001  # documents are not joined; each Task of a Mixture is read once
    assert "other line" in texts
    assert "first line 17 second line 17" in texts and "tfds line 1999 and more 1999" in texts
    pairs = examples(store, "pairs.xx-yy", "train")
    assert len(pairs) == 3000
    assert "first line 0 second line 0\tfirst line 2999 second line 2999" in pairs
    assert store.task("text.xx").text.sentences == 10_001
    assert "held-out rows" not in report(store, Data(alpha=0.7))  # the config requests none
    assert not list(tmp_path.rglob("companions/*"))


TASKS = """
import itertools, seqio
from xlj.data.rows.preparing import register_seqio
from xlj.data.rows.request import request_of
from xlj.data.text.text_units import ReadOptions, UnitReader
register_seqio(config)
for task in request_of(config).tasks:
    of = seqio.get_mixture_or_task("xlj." + task.name.replace("-", "_"))
    units = task.units(config.data.unit_bytes)
    assert len(units) > 2 and len(of.source.list_shards("train")) == len(units)
    parts = []
    for i, unit in enumerate(units):
        chunks = UnitReader(unit, i, ReadOptions.of(config.data)).chunks()
        parts.append([row for chunk in chunks for row in zip(*chunk.columns, strict=True)])
    for shard in (None, seqio.ShardInfo(1, 3)):
        data = of.get_dataset(None, "train", shuffle=False, shard_info=shard)
        names = ("text",) if len(task.languages) == 1 else ("source", "target")
        actual = [tuple(e[n].decode() for n in names) for e in data.as_numpy_iterator()]
        expected = parts if shard is None else parts[1::3]
        assert actual == list(itertools.chain(*expected)), (task.name, shard)
"""


@pytest.mark.slow
def test_each_seqio_task_yields_the_text_of_the_rows(config, tmp_path):
    assert start(tmp_path, TASKS, config(tmp_path, unit_bytes=100_000)).wait() == 0


MIXTURE = """
import seqio
from xlj.data.rows.preparing import register_seqio
names = register_seqio(config)
assert names == ["xlj.text.xx", "xlj.text.yy", "xlj.pairs.xx_yy", "xlj.text", "xlj.pairs"], names
assert register_seqio(config) == names
def draw(name, count):
    mixture = seqio.get_mixture_or_task(name)
    data = mixture.get_dataset(None, "train", shuffle=False, num_epochs=None, seed=1).take(count)
    return [{k: v.decode() for k, v in e.items()} for e in data.as_numpy_iterator()]
json.dump((draw("xlj.text", 20_000), draw("xlj.pairs", 500)), open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_the_mixture_draws_the_texts_of_the_rows_at_their_rates(built, config, text, tmp_path):
    few = text / "few"
    few.mkdir()
    (few / "xx.txt").write_text((text / "xx.txt").read_text())
    (few / "yy.txt").write_text("\n".join(sentences("yy", 1500)))
    few_config = config(tmp_path, mono=(f"{few}/{{language}}.txt",), held_out_share=0.0, length=256)
    few_config = dataclasses.replace(
        few_config, data=dataclasses.replace(few_config.data, alpha=0.5)
    )
    store = prepare_rows(few_config)
    assert start(tmp_path, MIXTURE, few_config, tmp_path / "drawn").wait() == 0
    lines, pairs = json.loads((tmp_path / "drawn").read_bytes())
    tokens = [task.train.tokens for task in store.tasks("text")]
    share = tokens[0] ** 0.5 / (tokens[0] ** 0.5 + tokens[1] ** 0.5)
    assert 0.7 < share < 0.85
    first = set((few / "xx.txt").read_text().split("\n"))
    assert np.mean([line["text"] in first for line in lines]) == pytest.approx(share, abs=0.015)
    known = set(examples(store, "pairs.xx-yy", "train"))
    drawn = {f"{pair['source']}\t{pair['target']}".replace("\u00a0", " ") for pair in pairs}
    assert len(drawn) == 500 and drawn <= known
    every = " ".join(examples(store, "text.yy", "train"))
    drawn_lines = {line["text"] for line in lines if line["text"] and line["text"] not in first}
    assert len(drawn_lines) == 1500
    assert (
        sum(line in every for line in drawn_lines) > 1350
    )  # the others are cut at the end of a row
