"""The command align-documents: flags, outputs, shards and resumption."""

import json
import re

import numpy as np
import pytest

from xlj import align_documents, phrasebook
from xlj.cli import sentence_vectors
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
        (
            ["--output={}/1.de", "--source={}/*.en", "--target={}/*.de"],
            "--output={}/1.de would overwrite --target={}/1.de",
        ),
        (["--output={}/o", "--splitter=re:split"], "--splitter splits paragraphs; add --parag"),
        (
            ["--output={}/o", "--paragraphs", "--splitter=re:split"],
            "--splitter=re:split must take the arguments (paragraph)",
        ),
        (
            ["--output={}/o", "--paragraphs", "--splitter=no_module:split"],
            "--splitter=no_module:split: No module named 'no_module'",
        ),
        (
            ["--output={}/o", "--paragraphs", "--splitter=ast:literal_eval"],
            "0.en:1: the splitter ast:literal_eval failed: SyntaxError: ",
        ),
        (
            ["--output={}/o", "--source={}/0.en,{}/ids", "--target={}/0.de,{}/0.de"],
            "{}/0.en has no column of ids, but {}/ids has; align them by separate commands",
        ),
        (
            ["--output={}/o", "--source={}/0.en,{}/blank", "--target={}/0.de,{}/0.de"],
            "{}/blank has no sentence",
        ),
        (
            ["--output={}/o", "--source={}/0.en,{}/bad", "--target={}/0.de,{}/0.de"],
            "{}/bad:2: the line is not UTF-8",
        ),
    ],
)
def test_wrong_flags_are_refused_before_any_work(folder, call, flags, error):
    named = [f"--source={folder}/0.en", f"--target={folder}/0.de", "--checkpoint=none"]
    flags = [flag.replace("{}", str(folder)) for flag in flags]
    (folder / "ids").write_text("GEN 1:1\tOne is here.\nGEN 1:2\tTwo are here.\n")
    (folder / "blank").write_text("\n \n")
    (folder / "bad").write_bytes(b"A good line.\nA bad \xff line.\n")
    with pytest.raises(ConfigError) as raised:
        call(align_documents.main, *named, *flags)
    assert error.replace("{}", str(folder)) in str(raised.value)


class Letters:
    """An embedder: the vector of a sentence is the number of each of its letters."""

    truncated = 0

    def embed(self, texts, show_progress_bar=None):
        rows = [[text.lower().count(chr(97 + k)) for k in range(26)] for text in texts]
        return np.array([rows], np.float32)


def test_outputs_of_several_documents_contain_those_of_each(folder, call, monkeypatch):
    monkeypatch.setattr(sentence_vectors, "load_embedder", lambda flags: Letters())

    def run(source, target, ending, *more):
        sides = [f"--source={folder}/{source}", f"--target={folder}/{target}", "--checkpoint=none"]
        files = [f"--output={folder}/o.{ending}", f"--ladder={folder}/l", f"--html={folder}/h"]
        flags = [*sides, *files, "--scores", "--threshold=0.3", *more]
        report = json.loads(call(align_documents.main, *flags).out)
        return report, (folder / f"o.{ending}").read_text(), (folder / "l").read_text()

    for ending, more in (("tsv", []), ("jsonl", []), ("tmx", ["--languages=en,de"])):
        each = [run(f"{k}.en", f"{k}.de", ending, *more) for k in range(2)]
        report, pairs, ladder = run("[01].en", "[01].de", ending, *more)
        names = [[str(folder / f"{k}.{side}") for side in ("en", "de")] for k in range(2)]
        if ending == "tsv":
            assert pairs == "".join(text for _, text, _ in each)
        elif ending == "jsonl":
            expected = [
                json.loads(line) | {"source_document": source, "target_document": target}
                for (source, target), (_, text, _) in zip(names, each, strict=True)
                for line in text.splitlines()
            ]
            assert [json.loads(line) for line in pairs.splitlines()] == expected
        else:
            lists = [text.split("<tu>") for _, text, _ in each]
            assert pairs.count("<tu>") == sum(len(units) - 1 for units in lists) > 20
            assert pairs.count(f'"x-source-document">{names[1][0]}<') == len(lists[1]) - 1
            assert list(tmx.read(folder / "o.tmx"))
        rungs = [
            "\t".join([line, *map(json.dumps, pair)])
            for pair, (_, _, lines) in zip(names, each, strict=True)
            for line in lines.splitlines()
        ]
        assert ladder.splitlines() == rungs
    of_each = {pair[0]: report for pair, (report, _, _) in zip(names, each, strict=True)}
    assert [one["source"] for one in report["documents"]] == sorted(
        of_each, key=lambda name: of_each[name]["confidence"]
    )
    for one in report["documents"]:
        assert all(
            of_each[one["source"]][key] == one[key] for key in ("confidence", "kinds", "gaps")
        )
    for key in ("pairs", "left_out", "source_sentences"):
        assert report[key] == sum(one[key] for one in of_each.values())
    gaps = [one["gaps"] for one in of_each.values()]
    assert report["gaps"]["count"] == sum(one["count"] for one in gaps)
    assert report["gaps"]["longest"] == max(one["longest"] for one in gaps)
    assert report["worst"][0]["source_document"] in of_each
    page = (folder / "h").read_text()
    assert page.count("<option") == 3 + 1 + 2 and "2 pairs of documents" in page
    items = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    texts = {text: number for *_, source, _, number in items for _, text in source}
    for number in range(2):
        assert set((folder / f"{number}.en").read_text().splitlines()) == {
            text for text, of_document in texts.items() if of_document == number
        }


def own_split(paragraph):
    return f" {paragraph}".split(" and ")


def test_a_function_of_the_user_splits_paragraphs(folder, call, monkeypatch):
    monkeypatch.setattr(sentence_vectors, "load_embedder", lambda flags: Letters())
    (folder / "p").write_text("One is here and two are. Three and  \n")
    flags = [f"--source={folder}/p", f"--target={folder}/p", "--checkpoint=none", "--paragraphs"]
    flags += [f"--splitter={__name__}:own_split", f"--output={folder}/o.jsonl"]
    call(align_documents.main, *flags)
    records = [json.loads(line) for line in (folder / "o.jsonl").read_text().splitlines()]
    sentences = [sentence for record in records for sentence in record["source_sentences"]]
    assert sentences == ["One is here", "two are. Three and"]


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
