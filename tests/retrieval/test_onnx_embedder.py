"""The ONNX backend computes the vectors of JAX, with the same commands, without JAX."""

import json
import re
import subprocess
import sys
import threading
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import xlj
from xlj import convert, phrasebook
from xlj.config import ConfigError
from xlj.inference import onnx_model as backend
from xlj.interop.onnx_names import FILES

pytest.importorskip("onnx", reason="pip install '.[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install '.[onnx]'")


def sentences(language, count):
    return [phrasebook.pair(phrasebook.draw(1, k), "en", language) for k in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Files en.txt and de.txt: lines that are translations. A line is blank, and one is long."""
    folder = tmp_path_factory.mktemp("texts")
    pairs = sentences("de", 24)
    for name, side in (("en", "source"), ("de", "target")):
        lines = [getattr(pair, side).text for pair in pairs]
        lines[3] += " " + " ".join(lines)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint, texts, tmp_path_factory):
    """A folder with graphs of float32 and int8, with mean pooling."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    arguments = ["export", f"--checkpoint={checkpoint}", f"--output={folder}", "--pooling=mean"]
    arguments += ["--format=onnx", "--int8", "--text", texts / "en.txt", texts / "de.txt"]
    assert convert.main([str(argument) for argument in arguments]) == 0
    return folder


def test_vectors_equal_those_of_jax(exported, texts):
    lines = [*(texts / "de.txt").read_text("utf-8").splitlines(), "", "A cat sleeps."]
    jax_model, onnx_model = xlj.load(exported), xlj.load(exported, backend="onnx")
    for options in ({}, {"layer": 3, "pooling": "text"}, {"pooling": "first", "layer": 3}):
        with pytest.warns(UserWarning, match="truncated because they are too long .*: 1$"):
            expected = jax_model.embed(lines, normalize=True, **options)
        with pytest.warns(UserWarning, match="truncated because they are too long .*: 1$"):
            vectors = onnx_model.embed(lines, normalize=True, batch_size=5, **options)
        np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=0)
    encoded = onnx_model.encode(lines[:2], truncate_dim=7, device="cpu")
    np.testing.assert_allclose(encoded, jax_model.encode(lines[:2], truncate_dim=7), atol=1e-4)
    found = onnx_model.retrieve(lines[4:13], lines[4:13])
    np.testing.assert_array_equal(found.targets.indices[:, 0], range(9))
    assert len(onnx_model.mine(lines[4:13], lines[4:13])[0]) == 9
    int8 = xlj.load(exported, backend="onnx-int8")
    assert onnx_model.digest == backend.digest(exported, "float32")
    assert int8.digest != onnx_model.digest and "int8" not in repr(onnx_model)
    cosines = onnx_model.similarity_pairwise(encoded, int8.encode(lines[:2], truncate_dim=7))
    assert (cosines > 0.99).all() and (cosines < 1).any()


def code_of(page):
    text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return code


@pytest.fixture
def folder(exported, tmp_path, monkeypatch):
    """The current folder, in which the exported folder has the name of the pages."""
    monkeypatch.chdir(tmp_path)
    Path("exported").symlink_to(exported)


def test_code_of_the_page_runs(folder):
    namespace = {"xlj": xlj}
    exec(code_of("embed.md"), namespace)
    assert namespace["vectors"].shape == (2, 32)


def test_the_server_of_the_page_answers(folder, monkeypatch):
    servers = []
    with monkeypatch.context() as patch:
        patch.setattr(ThreadingHTTPServer, "serve_forever", lambda server: servers.append(server))
        exec(code_of("serve.md").replace("8080", "0"), namespace := {})
    threading.Thread(target=servers[0].serve_forever, daemon=True).start()
    connection = HTTPConnection(*servers[0].server_address, timeout=30)
    texts = ["A cat sleeps.", "Good morning!"]
    answers = []
    for body in (json.dumps({"inputs": texts}), "{", '{"inputs": [3]}', "{}"):
        connection.request("POST", "/", body)
        answer = connection.getresponse()
        answers.append((answer.status, json.loads(answer.read())))
        connection.close()
    servers[0].shutdown()
    servers[0].server_close()
    expected = namespace["model"].encode(texts)
    assert answers[0][0] == 200
    np.testing.assert_allclose(answers[0][1], expected, rtol=1e-6)
    assert [status for status, _ in answers[1:]] == [400] * 3
    assert "not a string" in answers[2][1]["error"]


def test_the_card_has_the_loss_of_int8(exported):
    """By language, with the worst text and line."""
    card = (exported / "README.md").read_text("utf-8")
    for name in ("en.txt", "de.txt"):
        (row,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
        mean, least = (float(cell) for cell in row.split("|")[3:5])
        assert 0.9 < least <= mean <= 1
    assert "Worst line: " in card


ONE_PROCESS = """
import json, sys
sys.modules["jax"] = None  # importing JAX fails
from xlj import embed, mine, retrieve
for arguments in json.loads(sys.argv[1]):
    code = {"embed": embed, "mine": mine, "retrieve": retrieve}[arguments[0]].main(arguments[1:])
    assert code == 0, arguments
assert not [name for name in sys.modules if name.startswith("jax.")]
"""


def test_commands_compute_the_same_without_jax(exported, texts, tmp_path, call):
    """embed, its shards, which resume, retrieve, and mine, in a process that cannot import JAX."""
    from xlj import embed, mine, retrieve

    text = f"--input={texts}/en.txt"
    sides = [f"--source={texts}/en.txt", f"--target={texts}/de.txt"]

    lines = [(texts / f"{x}.txt").read_text("utf-8").splitlines() for x in ("en", "de")]
    records = [{"query": a, "pos": b} for a, b in list(zip(*lines, strict=True))[4:20]]
    text_of_records = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "examples.jsonl").write_text(text_of_records, "utf-8")

    def arguments(backend):
        common = [f"--checkpoint={exported}", f"--backend={backend}"]
        shard = ["embed", *common, text, f"--output={tmp_path}/{backend}", "--shard=1/1"]
        return [
            ["embed", *common, text, f"--output={tmp_path}/{backend}.npy"],
            shard,
            shard,
            ["retrieve", *common, *sides, f"--output={tmp_path}/{backend}.txt"],
            ["retrieve", *common, *sides, "--similarity=margin"],
            [
                "mine",
                "--negatives",
                *common,
                f"--examples={tmp_path}/examples.jsonl",
                f"--output={tmp_path}/{backend}.jsonl",
                "--relative_margin=2",
                "--margin=-1",
            ],
        ]

    for name, *rest in arguments("jax"):
        call({"embed": embed, "mine": mine, "retrieve": retrieve}[name].main, *rest)
    command = [sys.executable, "-c", ONE_PROCESS, json.dumps(arguments("onnx"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected, vectors = (np.load(tmp_path / f"{name}.npy") for name in ("jax", "onnx"))
    np.testing.assert_allclose(vectors, expected, atol=1e-4, rtol=0)
    (part,) = (tmp_path / "onnx").glob("*.npy")
    np.testing.assert_array_equal(np.load(part), vectors)
    assert (tmp_path / "jax.txt").read_text() == (tmp_path / "onnx.txt").read_text()
    mined = [
        [json.loads(line)["neg"] for line in (tmp_path / f"{x}.jsonl").read_text().splitlines()]
        for x in ("jax", "onnx")
    ]
    assert mined[0] == mined[1] and all(mined[0])
    manifests = [json.loads((tmp_path / x / "manifest.json").read_text()) for x in ("jax", "onnx")]
    assert manifests[0]["checkpoint"] != manifests[1]["checkpoint"]
    with pytest.raises(ConfigError, match="differ from .*: backend, checkpoint;"):
        call(embed.main, *arguments("onnx")[1][1:], "--backend=onnx-int8")


def test_graphs_that_cannot_be_used_are_errors(exported, checkpoint, tmp_path, monkeypatch):
    load = lambda folder, backend="onnx", **options: xlj.load(folder, backend=backend, **options)  # noqa: E731
    model = load(exported)
    with pytest.raises(ConfigError, match=r"layer 3 only; set --layer=3, or export"):
        model.embed("A cat.", layer=2)
    with pytest.raises(ConfigError, match="on the CPU only"):
        load(exported, device="gpu")
    with pytest.raises(ConfigError, match="one of jax, onnx, onnx-int8"):
        load(exported, "tensorrt")
    with pytest.raises(ConfigError, match="has no onnx/model.onnx; write it with: xlj convert"):
        load(checkpoint)
    folder = tmp_path / "other"
    (folder / "onnx").mkdir(parents=True)
    file = folder / FILES["float32"]
    file.write_bytes((exported / FILES["float32"]).read_bytes()[:1000])
    with pytest.raises(ConfigError, match="model.onnx is damaged: "):
        load(folder)
    import onnx

    foreign = onnx.load(exported / FILES["float32"])
    del foreign.metadata_props[:]
    onnx.save(foreign, file)
    with pytest.raises(ConfigError, match="was not written by this release of xlj"):
        load(folder)
    # int8 products of processors without VNNI may overflow.
    for flags, expected in (("avx2", "uint8"), ("avx2 avx512_vnni", "int8"), ("avx_vnni", "int8")):
        cpu = tmp_path / "cpuinfo"
        cpu.write_text(f"processor: 0\nflags\t\t: sse {flags}\n")
        monkeypatch.setattr(backend, "_CPU", cpu)
        assert load(exported, "onnx-int8").model.file == exported / FILES[expected]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"pip install -e '.\[onnx\]'"):
        load(exported)


def test_flags_of_graphs_that_contradict_each_other_are_errors(call, tmp_path):
    arguments = "export", "--checkpoint=none", f"--output={tmp_path}/new"
    with pytest.raises(ConfigError, match="--int8 needs --format=onnx"):
        call(convert.main, *arguments, "--int8")
    with pytest.raises(ConfigError, match="--text measures what int8 weights change"):
        call(convert.main, *arguments, "--format=onnx", "--text=none")
