"""embed, align and mine with --shard: the same results as without, also after a kill."""

import json

import numpy as np
import pytest

from xlj import align, embed, mine, phrasebook
from xlj.config import ConfigError
from xlj.io import file_ranges


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two text files per side and two files of pairs, in ranges of a few lines."""
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 400)
    monkeypatch.setattr(file_ranges.split_files, "__defaults__", (400,))
    for k in (0, 1):
        drawn = [phrasebook.pair(phrasebook.draw(9, k * 20 + n), "en", "de") for n in range(20)]
        both = [(pair.source.text, pair.target.text) for pair in drawn]
        texts = {f"en{k}.txt": [a for a, _ in both], f"de{k}.txt": [b for _, b in both]}
        texts |= {f"pairs{k}.tsv": ["\t".join(pair) for pair in both]}
        texts[f"pairs{k}.tsv"].insert(0, "src\ttgt")
        for name, lines in texts.items():
            (tmp_path / name).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    return tmp_path


def whole(folder, name):
    """Returns the contents of all files that match, joined."""
    path = folder / f"whole-{name}"
    path.write_text("".join((folder / name.replace(".", f"{k}.")).read_text() for k in (0, 1)))
    return path


def test_vectors_in_parts_are_those_at_once(folder, checkpoint, call):
    output, flags = folder / "out", [f"--checkpoint={checkpoint}", "--layer=2"]
    shared = [*flags, f"--input={folder}/en*.txt", f"--output={output}"]
    assert (
        "parts of other shards that are still missing"
        in call(embed.main, *shared, "--shard=1/2").err
    )
    assert not (output / "manifest.json").exists()
    call(embed.main, *shared, "--shard=2/2")
    content = json.loads((output / "manifest.json").read_text())
    assert content["parts"] == len(content["files"]) > 4
    rows = [np.load(output / each["file"]) for each in content["files"]]
    assert [len(part) for part in rows] == [each["rows"] for each in content["files"]]
    call(embed.main, *flags, f"--input={whole(folder, 'en.txt')}", f"--output={folder}/w.npy")
    np.testing.assert_allclose(np.concatenate(rows), np.load(folder / "w.npy"), atol=1e-5)
    lost = output / content["files"][3]["file"]
    kept, others = lost.read_bytes(), (output / "part-00000.npy").stat().st_mtime_ns
    lost.write_bytes(kept[:-1])
    call(embed.main, *shared, "--shard=2/2")
    assert lost.read_bytes() == kept and (output / "part-00000.npy").stat().st_mtime_ns == others
    with pytest.raises(ConfigError, match="parts of another job; .*: layer;"):
        call(embed.main, *shared, "--shard=1/2", "--layer=1")
    with pytest.raises(ConfigError, match="3/2 is not I/N"):
        call(embed.main, *shared, "--shard=3/2")


def test_links_in_parts_are_those_at_once(folder, checkpoint, call):
    output, flags = folder / "out", [f"--checkpoint={checkpoint}", "--layer=2"]
    for shard in ("1/3", "3/3", "2/3"):
        some = [f"--input={folder}/pairs*.tsv", f"--output={output}", f"--shard={shard}"]
        call(align.main, *flags, *some)
    files = json.loads((output / "manifest.json").read_text())["files"]
    assert sum(each["pairs"] for each in files) == 40
    made = "".join((output / each["file"]).read_text() for each in files)
    wanted = ""
    for k in (0, 1):
        one = [f"--input={folder}/pairs{k}.tsv", f"--output={folder}/links"]
        call(align.main, *flags, *one)
        wanted += (folder / "links").read_text()
    assert made == wanted
    with pytest.raises(ConfigError, match="--shard writes only links"):
        call(align.main, *flags, *some, "--scores=x")


def test_pairs_of_shards_are_those_at_once(folder, checkpoint, call):
    output = folder / "out"
    flags = [f"--checkpoint={checkpoint}", "--layer=2", "--threshold=0"]
    sides = [f"--source={folder}/en*.txt", f"--target={folder}/de*.txt"]
    assert not call(mine.main, *flags, *sides, f"--output={output}", "--shard=1/2").out
    printed = json.loads(call(mine.main, *flags, *sides, f"--output={output}", "--shard=2/2").out)
    call(mine.main, *flags, *sides, f"--output={folder}/pairs.tsv")
    assert (output / "pairs.tsv").read_text() == (folder / "pairs.tsv").read_text()
    assert printed["pairs"] == len((folder / "pairs.tsv").read_text().splitlines()) > 10


def test_an_index_finds_the_pairs_and_says_how_many_of_the_nearest(folder, checkpoint, call):
    pytest.importorskip("faiss", reason="pip install faiss-cpu")
    flags = [f"--checkpoint={checkpoint}", "--layer=2", "--threshold=0"]
    flags += [f"--source={folder}/en*.txt", f"--target={folder}/de*.txt"]
    exact = json.loads(call(mine.main, *flags, f"--output={folder}/a.tsv").out)
    found = call(mine.main, *flags, f"--output={folder}/b.tsv", "--search=faiss").out
    assert json.loads(found) == exact | {"recall_at_4": 1.0, "pairs": json.loads(found)["pairs"]}
    a, b = (set((folder / f"{x}.tsv").read_text().splitlines()) for x in "ab")
    assert len(a & b) > 0.8 * len(a)
    with pytest.raises(ConfigError, match="--index needs --search=faiss"):
        call(mine.main, *flags, f"--output={folder}/b.tsv", "--index=Flat")
