"""Files of the hub are read at one commit, from a server that speaks its protocol, with faults."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import hub_server
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlj.config import ConfigError
from xlj.io import hub, storage
from xlj.io.hub import _File

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    "url, place",
    [
        ("hf://datasets/o/n@v1/a/b.txt", ("dataset", "o/n", "v1", "a/b.txt")),
        ("hf://datasets/o/n/a.txt", ("dataset", "o/n", "main", "a.txt")),
        ("hf://o/n", ("model", "o/n", "main", "")),
        ("hf://models/o/n@a%2Fb/x/", ("model", "o/n", "a/b", "x")),
        (
            "hf://datasets/o/n@refs/convert/parquet/x",
            ("dataset", "o/n", "refs/convert/parquet", "x"),
        ),
    ],
)
def test_a_url_is_a_repository_a_revision_and_a_path(url, place):
    assert hub._parse(url) == place


@pytest.mark.parametrize("url", ["hf://n/", "hf://datasets/o", "hf://o/n@/x"])
def test_other_urls_are_errors_that_show_the_form(url):
    with pytest.raises(ConfigError, match="expected hf://datasets/OWNER/NAME@REVISION/PATH"):
        storage.find_files(url)


def test_templates_are_pinned_wherever_the_url_is(monkeypatch):
    monkeypatch.setattr(hub, "_resolve", lambda place: {"main": "a" * 40, "v1": "b" * 40}[place[2]])
    text = "sts@hf://datasets/o/n/{language}.tsv|hf://datasets/o/n@v1/x[lang={language}]#a|b"
    expected = text.replace("o/n/", f"o/n@{'a' * 40}/").replace("o/n@v1", f"o/n@{'b' * 40}")
    assert hub.pinned(text) == expected == hub.pinned(expected)
    assert hub.without_revisions(text) == hub.without_revisions(expected)


def test_wildcards_match_as_in_a_shell_and_sizes_come_from_the_listing(monkeypatch):
    paths = ["a/en/0.txt", "a/en/1.txt", "a/en/sub/2.txt", "a/eng/3.txt", "a/[x]/4.txt", "b/en/5"]
    files = sorted(_File(path, number, path[::-1]) for number, path in enumerate(paths))
    place = hub._parse(f"hf://datasets/o/n@{COMMIT}")
    monkeypatch.setattr(hub, "_listings", {(place, ""): files})
    root = f"hf://datasets/o/n@{COMMIT}"

    def find(pattern):
        return [
            str(url).removeprefix(root + "/") for url in storage.find_files(f"{root}/{pattern}")
        ]

    assert find("a/en/*.txt") == paths[:2]
    assert find("a/en/**") == paths[:3] and find("**/2.txt") == [paths[2]]
    assert find("a/en?/*") == [paths[3]] and find("a/e*/[03].txt") == [paths[0], paths[3]]
    assert find("a/[[]x]/4.txt") == [paths[4]] and find("a/none/*") == find("a/en/0") == []
    (file,) = storage.find_files(f"{root}/a/en/1.txt")
    assert storage.identity(file) == [f"{root}/a/en/1.txt", 1, "txt.1/ne/a"]
    assert file.stat() == file.listed
    with pytest.raises(FileNotFoundError):
        storage.to_path(f"{root}/a/en/").stat()


def run(server, tmp_path, *command, path="", token="secret"):
    """Runs Python in a fresh process that uses the server."""
    variables = {
        "HF_ENDPOINT": server.url,
        "HF_TOKEN": token,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT)])),
    }
    return subprocess.run(
        [sys.executable, *command],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )


READ = """
import json, sys
from xlj.config import ConfigError
from xlj.io import hub, storage
import huggingface_hub
assert huggingface_hub.__version__.startswith(sys.argv[1]), huggingface_hub.__version__
files = storage.find_files("hf://datasets/o/n/data/en/*.txt")
errors = []
for name in ("o/other@main", "o/n@dev", "o/gone@main"):
    try:
        storage.find_files(f"hf://datasets/{name}/x.txt")
    except ConfigError as error:
        errors.append(str(error))
size = files[0].stat().st_size
with files[0].open() as file:
    file.seek(size - 1000)
    end = file.read().decode()
model = hub.download("hf://o/model")
print(json.dumps({
    "files": [[str(file), *file.listed] for file in files],
    "whole": files[0].read_bytes().decode(),
    "end": end,
    "errors": errors,
    "model": sorted(str(path.relative_to(model)) for path in model.rglob("*") if path.is_file()),
}))
"""


def check_reading(tmp_path, version, path=""):
    """Reads with huggingface_hub of a version, from a server with faults that pass."""
    contents = {f"data/{x}/{i:04d}.txt": f"{x} {i} ".encode() * 3000 for x in ("en", "de")
                for i in range(1100)}  # fmt: skip
    weights = {"config.json": b"{}", "model.safetensors": b"x" * 20_000, "1_Pooling/config.json":
               b"{}", "pytorch_model.bin": b"1", "onnx/model.onnx": b"1"}  # fmt: skip
    with hub_server.hub() as server:
        server.token = "secret"
        commit = server.push("datasets/o/n", contents)
        server.push("models/o/model", weights)
        first = ("revision/main", 429), ("/tree/", 500), ("cursor", 503)
        second = ("hub:/datasets", 500), ("files:", "cut"), ("files:", "slow")
        server.faults = [*first, *second, ("/o/gone", 403), ("/model/resolve", 500)]
        process = run(server, tmp_path, "-c", READ, version, path=path)
        assert process.returncode == 0, process.stderr
        read = json.loads(process.stdout)
        names = [f"data/en/{i:04d}.txt" for i in range(1100)]
        assert [file[:2] for file in read["files"]] == [
            [f"hf://datasets/o/n@{commit}/{name}", len(contents[name])] for name in names
        ]
        assert read["whole"] == contents[names[0]].decode()
        assert read["end"] == read["whole"][-1000:]
        other, revision, forbidden = read["errors"]
        assert "the hub has no dataset o/other, or it is private; if it is, log in with" in other
        assert "the dataset o/n has no revision dev" in revision
        assert "the token may not read the dataset o/gone; log in" in forbidden
        assert read["model"] == ["1_Pooling/config.json", "config.json", "model.safetensors"]
        assert server.faults == [] and server.leaks == []
        ranges = {asked for host, _, _, asked in server.requests if host == "files" and asked}
        assert f"bytes={len(read['whole']) - 1000}-" in {r.rpartition("-")[0] + "-" for r in ranges}
        assert sum("/tree/" in path for _, _, path, _ in server.requests) == 5  # 2 pages, 2 faults
        denied = run(server, tmp_path, "-c", READ, version, path=path, token="wrong")
        assert "or it is private" in denied.stderr and server.leaks == []


@pytest.mark.slow
def test_files_and_models_are_read_in_spite_of_faults(tmp_path):
    check_reading(tmp_path, "")


@pytest.mark.extra
@pytest.mark.parametrize("major", ["1", "2"])
def test_both_major_versions_of_huggingface_hub_read_alike(tmp_path, major):
    wanted = f"huggingface_hub>=1.31,=={major}.*"
    install = [sys.executable, "-m", "pip", "install", "-q", f"--target={tmp_path / 'lib'}", wanted]
    subprocess.run(install, check=True)
    check_reading(tmp_path, f"{major}.", path=str(tmp_path / "lib"))


def parquet(lines):
    out = io.BytesIO()
    pq.write_table(pa.table({"text": lines}), out, row_group_size=100)
    return out.getvalue()


@pytest.mark.slow
def test_rows_are_of_one_commit_although_the_branch_moves(tmp_path):
    def files(version):
        return {f"{x}/{i}.parquet": parquet([f"{x} {version} line {i} {j}" for j in range(300)])
                for x in ("en", "de") for i in range(2)}  # fmt: skip

    def prepare(revision):
        mono = f"hf://datasets/o/n{revision}/{{language}}/*.parquet#text"
        process = run(
            server, tmp_path, "-m", "xlj.prepare", "--config=xlm_r_base:tiny",
            "--config.data.languages=en,de", f"--config.data.mono={mono}",
            f"--config.data.exclude=hf://datasets/o/n{revision}/en/0.parquet#text",
            "--config.data.vocabulary_size=300", "--config.data.unit_bytes=2048",
            f"--config.data.cache={tmp_path}",
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        (line,) = (line for line in process.stdout.splitlines() if line.startswith("rows: "))
        return Path(line.removeprefix("rows: ")), process.stdout

    with hub_server.hub() as server:
        first = server.push("datasets/o/n", files("first"))
        server.after = lambda path: server.push("datasets/o/n", files("second"))
        folder, report = prepare("@main")
        second = server.branches["datasets/o/n", "main"]
        assert second != first
        assert [p for _, _, p, _ in server.requests if "/revision/" in p] == [
            "/api/datasets/o/n/revision/main"
        ]
        assert not any(second in path for _, _, path, _ in server.requests)
        recipe = json.loads((folder / "manifest.json").read_text())["recipe"]
        sources = recipe["tasks"]["text.en"][1]
        assert all(f"hf://datasets/o/n@{first}/en/" in str(source) for source in sources)
        assert "dropped from text: 300 in data.exclude" in report
        assert prepare(f"@{first}")[0] == folder
        assert prepare("")[0] != folder
