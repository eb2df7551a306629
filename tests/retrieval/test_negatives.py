"""`xlj mine --negatives`: negatives equal a plain search, and are examples that training reads."""

import importlib.util
import json
from collections import Counter

import numpy as np
import pytest

import xlj
from xlj import mine
from xlj.config import ConfigError
from xlj.data.text.examples import Reader
from xlj.retrieval import negatives
from xlj.retrieval.negatives import Examples, Rule
from xlj.retrieval.search import neighbours


def plain(examples, queries, passages, rule):
    """Negatives and counts, query by query."""
    found, counts = [], Counter()
    for query, vector, positives in zip(examples.queries, queries, examples.positives, strict=True):
        cosines = passages @ vector
        lowest = min(cosines[place] for place in positives)
        order = [
            place
            for place in np.argsort(-cosines, kind="stable")
            if place not in positives and examples.passages[place] != query
        ]
        kept = []
        for rank, place in enumerate(order[: rule.last], 1):
            if rank < rule.first:
                counts[negatives.NEAREST] += 1
            elif cosines[place] > lowest - rule.margin:
                counts[negatives.MARGIN] += 1
            elif cosines[place] > rule.relative_margin * lowest:
                counts[negatives.RELATIVE] += 1
            elif len(kept) == rule.count:
                counts[negatives.SURPLUS] += 1
            else:
                kept.append(int(place))
        found.append(kept)
    return found, counts


def test_negatives_equal_a_plain_search():
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(200, 6)).astype(np.float32)
    positives = [[n, 150 + n] if n % 3 == 0 else [n] for n in range(40)]
    queries = passages[:40] + 0.3 * rng.normal(size=(40, 6)).astype(np.float32)
    passages, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (passages, queries))
    names = [f"passage {n}" for n in range(200)]
    names[120] = "query 5"  # a passage that equals a query
    examples = Examples([f"query {n}" for n in range(40)], names, positives)
    rule = Rule(4, 60, 5, 0.1, 0.8)
    count = negatives.searched(examples, rule)
    found, cosines, counts = negatives.mine(
        examples, 3 * queries, 2 * passages, lambda x: neighbours(x, passages, count), rule
    )
    expected, expected_counts = plain(examples, queries, passages, rule)
    assert [[place for place, _ in each] for each in found] == expected
    assert counts == expected_counts and len(counts) == 4
    assert any(not each for each in expected) and any(len(each) == 5 for each in expected)
    for query, of, values in zip(queries, positives, cosines, strict=True):
        np.testing.assert_allclose(values, passages[of] @ query, rtol=1e-5)


def test_the_command_writes_examples_for_each_language(checkpoint, call, tmp_path):
    for language in ("en", "de"):
        records = [
            {"query": f"{n} cats {language}", "pos": [f"{n % 15} dogs {language}", f"{n} horses"]}
            for n in range(20)
        ]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / f"{language}.jsonl").write_text(text, "utf-8")
        (tmp_path / f"{language}.txt").write_text(f"3 cats {language}\n5 birds\n6 mice\n", "utf-8")
    flags = [
        "--negatives", f"--checkpoint={checkpoint}", f"--examples={tmp_path}/{{language}}.jsonl",
        f"--corpus={tmp_path}/{{language}}.txt", "--languages=en,de", "--ranks=2-9", "--count=3",
        f"--output={tmp_path}/{{language}}.mined.jsonl", "--relative_margin=2", "--margin=-1",
    ]  # fmt: skip
    lines = [json.loads(line) for line in call(mine.main, *flags).out.splitlines()]
    assert [line["language"] for line in lines] == ["en", "de"]
    if importlib.util.find_spec("faiss"):
        flags[flags.index(f"--output={tmp_path}/{{language}}.mined.jsonl")] = (
            f"--output={tmp_path}/{{language}}.faiss.jsonl"
        )
        printed = call(mine.main, *flags, "--search=faiss", "--index=Flat").out.splitlines()
        for line, of_faiss in zip(lines, map(json.loads, printed), strict=True):
            recall = of_faiss.pop("recall_at_4")  # some texts have equal vectors
            assert of_faiss == line and 0.5 < recall <= 1
            exact, faiss = (
                [json.loads(x) for x in path.read_text("utf-8").splitlines()]
                for path in (
                    tmp_path / f"{line['language']}.{name}.jsonl" for name in ("mined", "faiss")
                )
            )
            scores = [[record["neg_scores"] for record in x] for x in (exact, faiss)]
            np.testing.assert_allclose(*scores, atol=1e-5)
    encoder = xlj.load(checkpoint)
    for line in lines:
        language = line["language"]
        assert (line["queries"], line["passages"], line["negatives"]) == (20, 38, 60)
        assert line["dropped"] == {negatives.NEAREST: 20, negatives.SURPLUS: 20 * 5}
        mined = (tmp_path / f"{language}.mined.jsonl").read_text("utf-8").splitlines()
        records = [json.loads(record) for record in mined]
        assert len(records) == 20
        for n, record in enumerate(records):
            assert record["pos"] == [f"{n % 15} dogs {language}", f"{n} horses"]
            assert len(record["neg"]) == 3 and not {*record["pos"], record["query"]} & {
                *record["neg"]
            }
            query, *texts = encoder.embed([record["query"], *record["pos"], *record["neg"]])
            cosines = texts @ query / np.linalg.norm(texts, axis=1) / np.linalg.norm(query)
            scores = [*record["pos_scores"], *record["neg_scores"]]
            np.testing.assert_allclose(scores, cosines, atol=2e-3)
            assert record["neg_scores"] == sorted(record["neg_scores"], reverse=True)
            assert len(Reader(3, True).examples(record)) == 2  # training reads it


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--examples=*.jsonl", "--output=en.jsonl"], "would overwrite .*en.jsonl"),
        (["--examples=en.jsonl#q|p", "--output=en.jsonl"], "would overwrite .*en.jsonl"),
        (["--examples=en.jsonl", "--corpus=c.txt", "--output=c.txt"], "overwrite --corpus=c.txt"),
        (
            ["--examples={language}.jsonl", "--languages=en,de", "--output=de.jsonl{language}"],
            "de.jsonl: line 2: field p is not a text",
        ),
        (["--examples=empty.jsonl", "--output=new"], "empty.jsonl: no record is an example"),
        (["--examples=all.jsonl[lang=fr]", "--output=new"], "no record is an example"),
    ],
)
def test_inputs_are_checked_before_any_work(call, tmp_path, monkeypatch, flags, message):
    """The checkpoint does not exist, so an error about the inputs comes first."""
    monkeypatch.chdir(tmp_path)
    flags = [flag.replace("{language}.jsonl", "{language}.jsonl#q|p") for flag in flags]
    good = '{"q": "a", "p": ["b", "c"], "query": "a", "pos": "b", "lang": "en"}\n'
    texts = {"en.jsonl": good, "de.jsonl": f'{good}{{"q": "a", "p": 1}}\n', "c.txt": "d\n"}
    texts |= {"empty.jsonl": "", "all.jsonl": good}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        call(mine.main, "--negatives", "--checkpoint=none", *flags)
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == texts


@pytest.mark.parametrize("flag", ["examples=a", "count=7", "ranks=1-100", "margin=0"])
def test_flags_of_negatives_are_refused_without_it(call, flag):
    with pytest.raises(ConfigError, match=f"--{flag.partition('=')[0]} needs --negatives"):
        call(mine.main, "--checkpoint=none", "--source=a", "--target=b", f"--{flag}")


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--source=a"], "--source has no effect with --negatives"),
        (["--examples=no.jsonl"], "needs --examples=FILES and --output"),
        (["--examples=a", "--output=b", "--ranks=0-3"], "--ranks=0-3: use two ranks from 1"),
        (["--examples=a", "--output=b", "--ranks=5"], "--ranks=5: use two ranks"),
        (["--examples=a{language}", "--output=b"], "belong together: use all three or none"),
        (["--examples=a", "--output=b", "--margin=nan"], "--margin=nan is not a finite number"),
        (["--examples=no.jsonl", "--output=b"], "--examples=no.jsonl: no such file"),
    ],
)
def test_bad_flags_are_errors(checkpoint, call, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        call(mine.main, "--negatives", f"--checkpoint={checkpoint}", *flags)
