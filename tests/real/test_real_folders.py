"""The folder is imported and exported bit for bit, and adapted in a few steps."""

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from plain_sentences import LINES
from safetensors import safe_open

import xlj
from xlj import phrasebook
from xlj.io import json_file

pytestmark = pytest.mark.real


def run(*arguments):
    """Runs a command in a process of its own, because training needs 6 GiB; returns its output."""
    environment = os.environ | {"XLA_FLAGS": ""}  # one device
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return done.stdout


def library_vectors(library, folder):
    """Returns the vectors of sentence-transformers, and the names of its modules."""
    model = library.SentenceTransformer(str(folder), device="cpu")
    return model.encode(list(LINES)), [type(module).__name__ for module in model]


def test_an_adapted_model_has_the_modules_of_the_first(e5, sentence_transformers, tmp_path, capfd):
    """Other tests adapt models of 32 dimensions, none of them with sentence modules."""
    for language in ("en", "sw"):
        lines = itertools.islice(phrasebook.text_lines(language), 200)
        (tmp_path / f"{language}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    run(
        "xlj.adapt", f"--from={e5}", "--languages=sw", "--replay=en", "--steps=3",
        f"--mono={tmp_path}/{{language}}.txt", f"--config.data.cache={tmp_path}/rows",
        "--config.data.length=64", "--config.objectives.mmlm.batch_size=8",
        f"--output={tmp_path}/out",
    )  # fmt: skip
    record = json_file.read_object(tmp_path / "out/adaptation.json")
    assert record["step"] == 3 and {*record["after"]["nats_per_character"]} == {"en", "sw"}

    model = tmp_path / "out/model"
    assert json_file.read_object(model / "config.json")["pad_token_id"] == 1
    capfd.readouterr()
    vectors, modules = library_vectors(sentence_transformers, model)
    printed = "".join(capfd.readouterr())
    assert "MISSING" not in printed and "UNEXPECTED" not in printed, printed
    assert modules == ["Transformer", "Pooling", "Normalize"]
    np.testing.assert_allclose(xlj.load(model).embed(LINES), vectors, rtol=0, atol=1e-5)
    before, _ = library_vectors(sentence_transformers, e5)
    cosines = (vectors * before).sum(1)
    assert 0.9 < cosines.min() and cosines.max() < 1 - 1e-6


def digests(folder):
    """Returns the SHA-256 of each tensor by name. XLM-R's table of positions has two rows
    more, before those of the tokens."""
    found = {}
    with safe_open(folder / "model.safetensors", framework="np") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            rows = tensor[-512:] if name == "embeddings.position_embeddings.weight" else tensor
            found[name] = hashlib.sha256(rows).hexdigest()
    return found


def test_an_import_and_its_export_have_the_same_bits(e5, tmp_path):
    """Only here do a table of 512 positions and XLM-R's pieces belong to one model."""
    checkpoint, exported = tmp_path / "checkpoint", tmp_path / "exported"
    printed = run("xlj.convert", "import", f"--source={e5}", f"--output={checkpoint}")
    assert "197 tensors used" in printed
    run("xlj.convert", "export", f"--checkpoint={checkpoint}", f"--output={exported}")
    after = digests(exported)
    assert {"pooler.dense.weight", "pooler.dense.bias"} == {*after} - {*(before := digests(e5))}
    assert before == {name: after[name] for name in before}
    for name in ("tokenizer.json", "modules.json"):
        assert (exported / name).read_bytes() == (e5 / name).read_bytes()
    config = json_file.read_object(exported / "config.json")
    assert (config["model_type"], config["pad_token_id"]) == ("xlm-roberta", 1)
