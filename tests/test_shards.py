"""With --shard, embed, align and mine write the same results as one process."""

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


def joined(folder, name):
    """Writes the two files of a kind into one file; returns its path."""
    path = folder / f"whole-{name}"
    path.write_text("".join((folder / name.replace(".", f"{k}.")).read_text() for k in (0, 1)))
    return path


def test_vectors_of_shards_equal_those_of_one_run_also_after_damage(folder, checkpoint, call):
    output, flags = folder / "out", [f"--checkpoint={checkpoint}", "--layer=2"]
    shared = [*flags, f"--input={folder}/en*.txt", f"--output={output}"]
    assert (
        "parts of other shards that are still missing"
        in call(embed.main, *shared, "--shard=1/2").err
    )
    assert not (output / "manifest.json").exists()
    call(embed.main, *shared, "--shard=2/2")
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["parts"] == len(manifest["files"]) > 4
    rows = [np.load(output / each["file"]) for each in manifest["files"]]
    assert [len(part) for part in rows] == [each["rows"] for each in manifest["files"]]
    call(embed.main, *flags, f"--input={joined(folder, 'en.txt')}", f"--output={folder}/w.npy")
    np.testing.assert_allclose(np.concatenate(rows), np.load(folder / "w.npy"), atol=1e-5)
    damaged_part = output / manifest["files"][3]["file"]
    content, other_time = damaged_part.read_bytes(), (output / "part-00000.npy").stat().st_mtime_ns
    damaged_part.write_bytes(content[:-1])
    call(embed.main, *shared, "--shard=2/2")
    assert (
        damaged_part.read_bytes() == content
        and (output / "part-00000.npy").stat().st_mtime_ns == other_time
    )
    with pytest.raises(ConfigError, match="parts of another job; .*: layer;"):
        call(embed.main, *shared, "--shard=1/2", "--layer=1")
    with pytest.raises(ConfigError, match="3/2 is not I/N"):
        call(embed.main, *shared, "--shard=3/2")


def test_links_of_shards_equal_those_of_one_run(folder, checkpoint, call):
    output, flags = folder / "out", [f"--checkpoint={checkpoint}", "--layer=2"]
    for shard in ("1/3", "3/3", "2/3"):
        shard_flags = [f"--input={folder}/pairs*.tsv", f"--output={output}", f"--shard={shard}"]
        call(align.main, *flags, *shard_flags)
    files = json.loads((output / "manifest.json").read_text())["files"]
    assert sum(each["pairs"] for each in files) == 40
    actual = "".join((output / each["file"]).read_text() for each in files)
    expected = ""
    for k in (0, 1):
        file_flags = [f"--input={folder}/pairs{k}.tsv", f"--output={folder}/links"]
        call(align.main, *flags, *file_flags)
        expected += (folder / "links").read_text()
    assert actual == expected
    named = [f"--input={folder}/pairs*.tsv", "--columns=src,tgt", f"--output={folder}/named"]
    call(align.main, *flags, *named, "--shard=1/1")
    parts = sorted((folder / "named").glob("*.links"))
    assert "".join(part.read_text() for part in parts) == expected
    with pytest.raises(ConfigError, match="another job; .*: output_format, words;"):
        call(align.main, *flags, *shard_flags, "--output_format=words", "--words=whitespace")
    with pytest.raises(ConfigError, match="--shard writes only links"):
        call(align.main, *flags, *shard_flags, "--html=x")


def test_mined_pairs_of_shards_equal_those_of_one_run(folder, checkpoint, call):
    output = folder / "out"
    flags = [f"--checkpoint={checkpoint}", "--layer=2", "--threshold=0"]
    sides = [f"--source={folder}/en*.txt", f"--target={folder}/de*.txt"]
    assert not call(mine.main, *flags, *sides, f"--output={output}", "--shard=1/2").out
    printed = json.loads(call(mine.main, *flags, *sides, f"--output={output}", "--shard=2/2").out)
    call(mine.main, *flags, *sides, f"--output={folder}/pairs.tsv")
    assert (output / "pairs.tsv").read_text() == (folder / "pairs.tsv").read_text()
    assert printed["pairs"] == len((folder / "pairs.tsv").read_text().splitlines()) > 10


def test_a_faiss_index_finds_most_pairs_and_reports_its_recall(folder, checkpoint, call):
    pytest.importorskip("faiss", reason="pip install faiss-cpu")
    flags = [f"--checkpoint={checkpoint}", "--layer=2", "--threshold=0"]
    flags += [f"--source={folder}/en*.txt", f"--target={folder}/de*.txt"]
    exact = json.loads(call(mine.main, *flags, f"--output={folder}/a.tsv").out)
    printed = call(mine.main, *flags, f"--output={folder}/b.tsv", "--search=faiss").out
    assert json.loads(printed) == exact | {
        "recall_at_4": 1.0,
        "pairs": json.loads(printed)["pairs"],
    }
    a, b = (set((folder / f"{x}.tsv").read_text().splitlines()) for x in "ab")
    assert len(a & b) > 0.8 * len(a)
    with pytest.raises(ConfigError, match="--index needs --search=faiss"):
        call(mine.main, *flags, f"--output={folder}/b.tsv", "--index=Flat")
