"""Peak memory of import and export: how much more a large model needs than a very small one."""

import subprocess
import sys

import numpy as np
import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlj import phrasebook
from xlj.config import Model
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import to_hugging_face
from xlj.io import atomic
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.sharding.trees import named_leaves

_RUN = """
import sys
from xlj import convert
assert convert.main() == 0
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def peak_memory(*arguments):
    """Returns the peak memory of a process of `xlj.convert`, in MiB."""
    run = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout.split()[-1]) / 1024


def write_model(path, hidden, pieces):
    """Writes a Hugging Face folder with random weights; returns the size of the weights in MiB."""
    import jax

    text = {"en": [line for line, _ in zip(phrasebook.text_lines("en"), range(300), strict=False)]}
    trained = ModelProto.FromString(vocabulary_training.train(text, {"en": 1}, 300, 1.0))
    for number in range(pieces):
        trained.pieces.add(piece=f"\u2581new{number}", score=-100.0 - number)
    vocabulary = Vocabulary(trained.SerializeToString())
    model = Model(layers=4, hidden=hidden, heads=2, intermediate=4 * hidden, positions=42)

    def init(key):
        params = encoder.init(key, model, vocabulary.size, 0)
        return params | {"prediction_head": init_prediction(key, model, vocabulary.size)}

    rng = np.random.default_rng(0)
    leaves = {
        name: rng.standard_normal(leaf.shape, np.float32)
        for name, leaf in named_leaves(jax.eval_shape(init, jax.random.key(0))).items()
    }
    exported = to_hugging_face.plan(leaves, model, vocabulary, headless=False)
    with atomic.new_folder(path) as folder:
        to_hugging_face.write(folder, exported, leaves, model, vocabulary)
    return sum(leaf.nbytes for leaf in leaves.values()) / 2**20


@pytest.mark.slow
def test_import_and_export_hold_the_weights_in_memory_once(tmp_path):
    sizes, imported, exported = [], [], []
    for name, hidden in (("none", 8), ("large", 768)):
        sizes.append(write_model(tmp_path / name, hidden, 63_000))
        imported.append(
            peak_memory("import", f"--source={tmp_path}/{name}", f"--output={tmp_path}/{name}.ck")
        )
        exported.append(
            peak_memory(
                "export", f"--checkpoint={tmp_path}/{name}.ck", f"--output={tmp_path}/{name}.hf"
            )
        )
    weights = sizes[1] - sizes[0]
    assert weights > 280
    assert imported[1] - imported[0] < 1.5 * weights
    assert exported[1] - exported[0] < 1.5 * weights
    assert (tmp_path / "large.hf/model.safetensors").read_bytes() == (
        tmp_path / "large/model.safetensors"
    ).read_bytes()
