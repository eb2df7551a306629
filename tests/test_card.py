"""`xlj.card`: the rows of the test sets of a folder, the file of scores, and the model card."""

import gzip
import json

import numpy as np
import pytest

import xlj
from xlj import card, phrasebook
from xlj.api import data_sets
from xlj.config import ConfigError
from xlj.conversion import exporting
from xlj.evaluation import metrics
from xlj.interop import model_card


def write(file, lines):
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)


@pytest.fixture(scope="module")
def pairs():
    drawn = [phrasebook.pair(phrasebook.draw(3, n), "en", "de") for n in range(16)]
    return list(dict.fromkeys((pair.source.text, pair.target.text) for pair in drawn))


@pytest.fixture(scope="module")
def data(pairs, tmp_path_factory):
    """A folder with a set of each kind."""
    folder = tmp_path_factory.mktemp("data")
    english, german = zip(*pairs, strict=True)
    write(folder / "tatoeba/tatoeba.deu-eng.deu.gz", german)
    write(folder / "tatoeba/tatoeba.deu-eng.eng.gz", english)
    ntrex = [f"{a}\t{b}" for a, b in pairs]
    write(folder / "parallel/ntrex/test/en-de.tsv.gz", ntrex)
    write(folder / "parallel/ntrex/test/en-fr.tsv.gz", [f"{a}\t{a} So." for a in english])
    rated = [f"{n % 4}\tx\t{a}\t{b}" for n, (a, b) in enumerate(pairs)]
    write(folder / "sts/test/de.tsv.gz", ["score\tgenre\tsentence1\tsentence2", *rated])
    write(folder / "alignment/de-en.made.test.tsv.gz",
          ["src\ttgt\tgold", *(f"{b}\t{a}\t0-0" for a, b in pairs)])  # fmt: skip
    for language, side in (("zh", german), ("en", english)):
        rows = [f"{language}-{n}\t{text}" for n, text in enumerate(side)]
        write(folder / f"bucc2018/zh-en.dev.{language}.gz", rows)
    write(folder / "bucc2018/zh-en.dev.gold.gz", [f"zh-{n}\ten-{n}" for n in range(5)])
    documents = [json.dumps({"_id": f"d{n}", "text": text}) for n, text in enumerate(german)]
    write(folder / "made/corpus.jsonl", documents)
    queries = [json.dumps({"_id": f"q{n}", "text": text}) for n, text in enumerate(english)]
    write(folder / "made/queries.jsonl", queries)
    write(folder / "made/qrels/dev.tsv", [f"q{n}\td{n}\t1" for n in range(len(pairs))])
    return folder


ROWS = [
    *("tatoeba-deu", "ntrex-de", "ntrex-fr", "bucc-zh-en", "sts-de", "aer-de-en.made.test"),
    "search-made-dev",
]


def test_the_card_has_the_scores_of_all_sets(call, checkpoint, data, pairs, tmp_path, monkeypatch):
    output = tmp_path / "README.md"
    output.write_text("---\nlicense: mit\nlanguage:\n- en\n---\n# Own\n\nOwn text.\n")
    arguments = [checkpoint, f"--data={data}", f"--output={output}"]
    printed = call(card.main, *arguments, "--prompt=Satz: ", "--query_prompt=Frage: was? ")
    assert [line.split(" ")[0] for line in printed.out.splitlines()] == ROWS
    records = json.loads((tmp_path / "scores.json").read_text())
    about, text = records.pop("about"), output.read_text()
    assert list(records) == ROWS and about["prompt"] == "Satz: " and about["dimensions"] == 32

    encoder = xlj.load(checkpoint)
    english, german = (encoder.embed([f"Satz: {pair[side]}" for pair in pairs]) for side in (0, 1))
    cosines, lines = encoder.similarity(german, english), np.arange(len(pairs))
    into, out = (100 * (found.argmax(1) == lines).mean() for found in (cosines, cosines.T))
    row = records["tatoeba-deu"]
    assert (row["into English"], row["from English"]) == pytest.approx((into, out), abs=0.006)
    gold = [n % 4 for n in range(len(pairs))]
    expected = 100 * metrics.spearman(np.diag(cosines).tolist(), gold)
    assert records["sts-de"]["Spearman"] == pytest.approx(expected, abs=0.006)
    queries = encoder.embed([f"Frage: was? {pair[0]}" for pair in pairs])
    ranks = [
        1 + int((row > row[n]).sum())
        for n, row in enumerate(encoder.similarity(queries, encoder.embed([b for _, b in pairs])))
    ]
    mean = 100 * np.mean(1 / np.log2(np.array(ranks) + 1))
    assert records["search-made-dev"]["ndcg@100"] == pytest.approx(mean, abs=0.006)
    links = [
        [tuple(link) for link in of_pair] for of_pair in encoder.align([p[::-1] for p in pairs])
    ]
    precision = sum((0, 0) in found for found in links) / sum(map(len, links))
    made = records["aer-de-en.made.test"]
    assert made["precision"] == pytest.approx(100 * precision, abs=0.006)

    assert text.startswith("---\nlicense: mit") and "Own text.\n\n<!-- scores of xlj card" in text
    for piece in (
        "| licence of the model | mit |", "sentences of sets whose sides are alike: `Satz: `",
        "query: `Frage: was? `", "32 dimensions; layer 2", "| training data | not stated |",
        "### NTREX-128",
        f"| deu | {len(pairs)} | {into:.1f} |", "| mean of 2 |  |", "### Word alignment",
    ):  # fmt: skip
        assert piece in text, piece
    assert "Not measured" not in text

    again = call(card.main, *arguments, "--prompt=Satz: ", "--query_prompt=Frage: was? ")
    assert not again.out and output.read_text() == text  # all rows are in the file of scores

    trained = {"tasks": {"mmlm.en": {"sentences": 3, "tokens": 9}}, "languages": ["en", "yo"]}
    trained["config"] = {"data": {"alpha": 0.5}}
    monkeypatch.setattr(exporting, "card_arguments", lambda _: (trained, None, None, ""))
    other = call(card.main, *arguments, "--only=tatoeba-*")
    assert (
        other.out.startswith("tatoeba-deu") and "measured with another model or prom" in other.err
    )
    text = output.read_text()
    assert "Not measured: NTREX-128, BUCC 2018" in text and "| languages | en, yo |" in text
    assert "### Training data\n\n| text | sentences or pairs | tokens |" in text


def test_a_checkpoint_gets_no_further_file(call, checkpoint, data):
    (folder,) = (folder.parent for folder in checkpoint.rglob("meta"))
    for model in (folder, "/nowhere"):
        with pytest.raises(ConfigError, match="name the file of the card with --output=FILE"):
            call(card.main, model, f"--data={data}")


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--data=/nowhere"], "--data=/nowhere: there is no such folder"),
        (["--only=sts-xx"], "--only: no row matches 'sts-xx'; the rows are tatoeba-deu"),
        (["--output=/nowhere/README.md"], "--output=/nowhere/README.md: the folder"),
    ],
)
def test_wrong_flags_are_errors(call, checkpoint, data, tmp_path, flags, message):
    with pytest.raises(ConfigError) as error:
        call(card.main, checkpoint, f"--data={data}", f"--output={tmp_path / 'a'}", *flags)
    assert message in str(error.value)


def test_a_folder_without_sets_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there is no test set; expected tatoeba/"):
        data_sets.find(tmp_path)


def test_a_section_replaces_the_earlier_one():
    text = model_card.with_section("# A\n", "first")
    assert text == "# A\n\n<!-- scores of xlj card -->\nfirst\n<!-- end of scores -->\n"
    changed = model_card.with_section(f"{text}\nAfter.\n", "second\n")
    assert changed == text.replace("first", "second") + "\nAfter.\n"
    with pytest.raises(ConfigError, match="without '<!-- end of scores -->'"):
        model_card.with_section(text.replace("<!-- end", ""), "third")
