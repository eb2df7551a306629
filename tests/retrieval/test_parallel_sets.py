"""Sets of parallel files are read in the layouts of FLORES, NTREX and files of two columns."""

import gzip

import pytest

from xlj.config import ConfigError
from xlj.retrieval import parallel_sets

LINES = {"eng_Latn": ["One.", "Two."], "deu_Latn": ["Eins.", "Zwei."], "zho_Hans": ["一。", "二。"]}
SORTED = sorted(LINES)


def write(folder, names):
    """Writes the lines of each language into the file of its name; returns the folder."""
    folder.mkdir(exist_ok=True)
    for language, name in names.items():
        content = "".join(f"{line}\n" for line in LINES[language]).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


@pytest.mark.parametrize(
    "layout, codes",
    [
        ("{}.devtest", {}),
        ("{}.dev.gz", {}),
        ("dev.{}", {}),
        ("newstest2019-{kind}.{}.txt", {"eng_Latn": "eng", "deu_Latn": "sr-Cyrl"}),
        ("some-{}.txt", {}),
    ],
)
def test_layouts_and_templates(tmp_path, layout, codes, capsys):
    codes = {name: codes.get(name, name) for name in LINES}
    names = {
        name: layout.format(code, kind="src" if code == "eng" else "ref")
        for name, code in codes.items()
    }
    folder = write(tmp_path / "set", names)
    if layout.startswith("some"):
        texts = parallel_sets.read(folder / "some-{language}.txt")
    else:
        (folder / "newstest2019-ref-2.spa.txt").write_text("x\n")
        texts = parallel_sets.read(folder)
        assert "not in the set are 1 of 4 files: 'newstest2019-ref-2.spa" in capsys.readouterr().err
    assert texts == {code: LINES[name] for name, code in codes.items()}
    assert list(texts) == sorted(codes.values())
    order = [codes["zho_Hans"], codes["eng_Latn"]]
    source = folder / "some-{language}.txt" if layout.startswith("some") else folder
    assert list(parallel_sets.read(source, order)) == order


def test_ids_beside_the_sentences_are_left_out(tmp_path, capsys):
    folder = write(tmp_path, {"eng_Latn": "eng_Latn.dev", "deu_Latn": "deu_Latn.dev"})
    numbered = [f"{k + 7}\t{line}\n" for k, line in enumerate(LINES["deu_Latn"])]
    (folder / "deu_Latn.dev").write_text("".join(numbered), "utf-8")
    assert parallel_sets.read(folder)["deu_Latn"] == LINES["deu_Latn"]
    assert "reading --columns=2" in capsys.readouterr().err


def write_pairs(folder, **others):
    english = others.pop("english", {})
    for language, lines in others.items():
        rows = zip(english.get(language, LINES["eng_Latn"]), lines, strict=True)
        text = "".join("\t".join(row) + "\n" for row in rows)
        (folder / f"en-{language.replace('_', '-')}.tsv").write_text(text, "utf-8")
    return folder


def test_files_of_two_columns_share_the_first_language(tmp_path):
    write_pairs(tmp_path, zh_CN=LINES["zho_Hans"], de=LINES["deu_Latn"])
    texts = parallel_sets.read(tmp_path)
    assert list(texts) == ["en", "de", "zh-CN"] and parallel_sets.pivot_of(list(texts)) == "en"
    assert [*texts.values()] == [LINES["eng_Latn"], LINES["deu_Latn"], LINES["zho_Hans"]]
    assert list(parallel_sets.read(tmp_path, ["zh-CN", "de"])) == ["zh-CN", "de"]
    assert list(parallel_sets.read(tmp_path, ["de", "en"])) == ["de", "en"]


def test_the_pivot_is_english_by_its_codes():
    assert parallel_sets.pivot_of(SORTED) == "eng_Latn"
    assert parallel_sets.pivot_of(["deu", "eng-GB", "eng"]) == "eng"
    assert parallel_sets.pivot_of(["deu", "en-GB"]) == "en-GB"
    assert parallel_sets.pivot_of(["de", "fr"]) == ""


@pytest.mark.parametrize(
    "prepare, languages, message",
    [
        (lambda f: f / "none", [], "none is not a folder"),
        (lambda f: write(f / "x", {}), [], "has no files named as in FLORES"),
        (lambda f: f / "{language}.txt", [], "has no files named as in FLORES"),
        (
            lambda f: write(f / "x", {"eng_Latn": "eng_Latn.dev"}),
            [],
            "has files of eng_Latn; expected at least two languages",
        ),
        (
            lambda f: write(f / "x", {name: f"{name}.dev" for name in LINES}),
            ["eng_Latn", "fra_Latn"],
            "has no file for fra_Latn; it has deu_Latn, eng_Latn, zho_Hans",
        ),
        (
            lambda f: write(
                write(f / "x", {"eng_Latn": "eng_Latn.dev"}), {"eng_Latn": "eng_Latn.devtest"}
            ),
            [],
            r"two files of eng_Latn, eng_Latn\.dev and eng_Latn\.devtest; name the files of one",
        ),
        (
            lambda f: write_pairs(f, de=["Eins.", " "]),
            [],
            r"en-de\.tsv:2: a sentence is blank; expected two sentences with a tab",
        ),
        (
            lambda f: write_pairs(f, de=["Eins.", "a\tb"]),
            [],
            r"en-de\.tsv:2: 3 columns; expected two sentences",
        ),
        (
            lambda f: write_pairs(
                f, de=LINES["deu_Latn"], fr=["a", "b"], english={"fr": ["One.", "Other."]}
            ),
            [],
            r"en-fr\.tsv:2: the first column differs from .*en-de\.tsv:2",
        ),
    ],
)
def test_errors_name_the_place(tmp_path, prepare, languages, message):
    with pytest.raises(ConfigError, match=message):
        parallel_sets.read(prepare(tmp_path), languages)


def test_blank_and_missing_lines_are_errors(tmp_path):
    folder = write(tmp_path / "x", {name: f"{name}.dev" for name in LINES})
    (folder / "eng_Latn.dev").write_text("One.\n\nTwo.\n")
    with pytest.raises(ConfigError, match=r"eng_Latn\.dev:2: a sentence is blank; expected a sen"):
        parallel_sets.read(folder)
    (folder / "eng_Latn.dev").write_text("One.\nTwo.\nThree.\n")
    with pytest.raises(
        ConfigError, match=r"eng_Latn\.dev has 3 sentences, but .*deu_Latn\.dev has 2"
    ):
        parallel_sets.read(folder)
    (folder / "deu_Latn.dev").write_text("Eins.\n")
    with pytest.raises(ConfigError, match=r"deu_Latn\.dev has fewer than two sentences"):
        parallel_sets.read(folder)
