"""The command align-documents: flags, outputs, shards and resumption."""

import json

import pytest

from xlj import align_documents, phrasebook
from xlj.config import ConfigError
from xlj.io import tmx


@pytest.fixture
def folder(tmp_path):
    """Three documents in two languages. The last sentences of the second side are missing."""
    for k in range(3):
        drawn = [phrasebook.pair(phrasebook.draw(9, k * 40 + n), "en", "de") for n in range(24)]
        lines = [pair.source.text for pair in drawn], [pair.target.text for pair in drawn[:-2]]
        for language, side in zip(("en", "de"), lines, strict=True):
            text = "".join(f"{line}\n" for line in side)
            (tmp_path / f"{k}.{language}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "flags, error",
    [
        ([], "nothing to do: name a file for the pairs"),
        (["--output={}/o.tsv", "--threshold=1.5"], "--threshold=1.5: expected a confidence"),
        (["--output={}/o.tmx"], "set --languages, such as en,de"),
        (["--output={}/o.tmx", "--languages=en,en"], "two different languages"),
        (["--output={}/o.tsv", "--languages=en,de"], "--languages needs --output_format=tmx"),
        (["--output={}/0.de"], "--output={}/0.de would overwrite --target"),
        (["--output={}/o", "--ladder={}/o"], "--ladder={}/o would overwrite --output"),
        (["--output={}/o", "--shard=1/1", "--html={}/h"], "--html has no effect with --shard"),
        (["--ladder={}/l", "--shard=1/1"], "--shard needs a folder"),
        (["--output={}/o", "--source={}/0.en,{}/1.en"], "--source has 2 documents, but --target"),
    ],
)
def test_wrong_flags_are_refused_before_any_work(folder, call, flags, error):
    named = [f"--source={folder}/0.en", f"--target={folder}/0.de", "--checkpoint=none"]
    flags = [flag.replace("{}", str(folder)) for flag in flags]
    with pytest.raises(ConfigError) as raised:
        call(align_documents.main, *named, *flags)
    assert error.replace("{}", str(folder)) in str(raised.value)


@pytest.mark.slow
def test_outputs_of_one_run_equal_those_of_shards_also_after_damage(folder, call, checkpoint):
    flags = [f"--checkpoint={checkpoint}", "--layer=1", "--scores", "--threshold=0.2"]
    named = [f"--source={folder}/*.en", f"--target={folder}/*.de", f"--output={folder}/out"]
    for shard in ("2/2", "1/2"):
        printed = call(align_documents.main, *flags, *named, f"--shard={shard}")
    reports = [json.loads(line) for line in printed.out.splitlines()]
    assert [each["source_sentences"] for each in reports] == [24, 24]
    manifest = json.loads((folder / "out/manifest.json").read_text())
    assert [each["source"][-4:] for each in manifest["files"]] == ["0.en", "1.en", "2.en"]
    for k in range(3):
        files = [f"--source={folder}/{k}.en", f"--target={folder}/{k}.de"]
        outputs = [f"--output={folder}/p.tsv", f"--ladder={folder}/l", f"--html={folder}/h.html"]
        report = json.loads(call(align_documents.main, *flags, *files, *outputs).out)
        part = folder / f"out/part-0000{k}"
        assert (folder / "p.tsv").read_bytes() == part.with_suffix(".tsv").read_bytes()
        assert (folder / "l").read_bytes() == part.with_suffix(".ladder").read_bytes()
        rows = [line.split("\t") for line in (folder / "p.tsv").read_text().splitlines()]
        assert (
            len(rows)
            == report["pairs"] - report["left_out"]
            == manifest["files"][k]["pairs"] - (manifest["files"][k]["left_out"])
        )
        assert all(len(row) == 3 and float(row[2]) >= 0.2 for row in rows)
    page = (folder / "h.html").read_text()
    assert "<script" in page and page.count("\n[") > report["pairs"]
    damaged, before = folder / "out/part-00001.tsv", (folder / "out/part-00001.tsv").read_bytes()
    damaged.write_bytes(before[:-1])
    call(align_documents.main, *flags, *named, "--shard=2/2")
    assert damaged.read_bytes() == before
    with pytest.raises(ConfigError, match="parts of another job; .*: threshold;"):
        call(align_documents.main, *flags[:-1], *named, "--shard=1/2")


@pytest.mark.slow
def test_paragraphs_encoded_joins_and_tmx(folder, call, checkpoint):
    for language in ("en", "de"):
        lines = (folder / f"0.{language}").read_text().splitlines()
        paragraphs = [f"{' '.join(lines[k : k + 6])}\n" for k in range(0, len(lines), 6)]
        (folder / f"p.{language}").write_text("".join(paragraphs))
    files = [f"--source={folder}/p.en", f"--target={folder}/p.de", f"--checkpoint={checkpoint}"]
    more = ["--paragraphs", "--joins=encode", "--languages=en,de", f"--output={folder}/o.tmx"]
    report = json.loads(call(align_documents.main, *files, *more).out)
    assert report["source_sentences"] > 12
    assert len(list(tmx.read(folder / "o.tmx"))) == report["pairs"]
