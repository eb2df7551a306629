"""A sentence encoder with a Dense module."""

import shutil

import numpy as np

from xlj.interop.sentence_modules import Dense, SentenceModules, write


def with_dense(folder, path):
    """Copies a folder of `--pooling=mean` with hidden vectors of 32 numbers, and gives the copy the
    modules of LaBSE."""
    shutil.copytree(folder, path)
    (path / "modules.json").unlink()
    shutil.rmtree(path / "1_Pooling")
    rng, dense = np.random.default_rng(0), Dense(32, 24, "Tanh")
    weights = {"kernel": rng.normal(0, 0.3, (32, 24)), "bias": rng.normal(0, 0.3, 24)}
    weights = {f"sentence/0/{name}": x.astype(np.float32) for name, x in weights.items()}
    write(path, SentenceModules(("cls",), steps=(dense, None), length=30), weights, 32)
    return path
