"""--compute=bfloat16 changes little, and --text prints how much."""

import json

import numpy as np
import pytest

import xlj
from xlj import align, embed, mine, phrasebook, retrieve
from xlj.config import ConfigError


@pytest.fixture
def texts(tmp_path):
    """A folder with en.txt and de.txt, which are translations, and their pairs."""
    pairs = [phrasebook.pair(phrasebook.draw(1, k), "en", "de") for k in range(12)]
    english, german = ([getattr(p, side).text for p in pairs] for side in ("source", "target"))
    (tmp_path / "en.txt").write_text("\n".join(english), "utf-8")
    (tmp_path / "de.txt").write_text("\n".join(german), "utf-8")
    rows = (f"{e}\t{g}" for e, g in zip(english, german, strict=True))
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), "utf-8")
    return tmp_path


def cosines_of(printed):
    """Returns the name, the mean and the least cosine of each row of a printed table."""
    rows = [
        line.split() for line in printed.split("\n") if line.strip()[:6] in ("en.txt", "de.txt")
    ]
    return {name: (float(mean), float(least)) for name, _, mean, least in rows}


def test_bfloat16_changes_vectors_a_little_and_text_measures_it(call, checkpoint, texts):
    common = [f"--checkpoint={checkpoint}", f"--input={texts}/en.txt", "--layer=2"]
    call(embed.main, *common, f"--output={texts}/exact.npy")
    narrow = ["--compute=bfloat16", "--text", texts / "en.txt", texts / "de.txt"]
    printed = call(embed.main, *common, f"--output={texts}/narrow.npy", *narrow).err
    exact, vectors = (np.load(texts / f"{name}.npy") for name in ("exact", "narrow"))
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = (exact * vectors).sum(1) / norms
    assert 0.99 < cosines.min() and (exact != vectors).any(1).all()
    rows = cosines_of(printed)
    assert rows.keys() == {"en.txt", "de.txt"}
    np.testing.assert_allclose(rows["en.txt"], (cosines.mean(), cosines.min()), atol=6e-5)
    assert "Worst line: " in printed

    lines = (texts / "en.txt").read_text("utf-8").split("\n")
    loaded = xlj.load(checkpoint, compute="bfloat16").embed(lines, layer=2)
    np.testing.assert_array_equal(loaded, vectors)
    loaded = xlj.load(checkpoint, compute="float32").embed(lines, layer=2)
    np.testing.assert_array_equal(loaded, exact)


def test_other_commands_compute_in_bfloat16(call, checkpoint, texts):
    common = [f"--checkpoint={checkpoint}", "--compute=bfloat16", "--text", texts / "de.txt"]
    sides = [f"--source={texts}/en.txt", f"--target={texts}/de.txt"]
    printed = call(retrieve.main, *common, *sides)
    assert json.loads(printed.out)["sentences"] == 12 and cosines_of(printed.err)
    pairs = [f"--input={texts}/pairs.tsv", f"--output={texts}/shards", "--shard=1/1"]
    printed = call(align.main, *common, *pairs)
    (cosines,) = cosines_of(printed.err).values()
    assert 0.99 < cosines[1] <= 1
    mined = ["--threshold=0", f"--output={texts}/mined", "--shard=1/1"]
    printed = call(mine.main, *common, *sides, *mined)  # loads the model twice
    assert printed.err.count("Worst line: ") == 1
    with pytest.raises(ConfigError, match="differ from .*: compute;"):
        call(align.main, f"--checkpoint={checkpoint}", "--compute=float32", *pairs)


def test_flags_that_contradict_each_other_are_errors(call, checkpoint, texts):
    common = [f"--checkpoint={checkpoint}", f"--input={texts}/en.txt", f"--output={texts}/a.npy"]
    with pytest.raises(ConfigError, match="--text measures .*; set --compute=bfloat16 too"):
        call(embed.main, *common, "--text", texts / "de.txt")
    with pytest.raises(ConfigError, match="--compute needs --backend=jax"):
        call(embed.main, *common, "--backend=onnx", "--compute=bfloat16")
    with pytest.raises(ConfigError, match="the graph of the backend onnx has its own type"):
        xlj.load(checkpoint, backend="onnx", compute="bfloat16")
