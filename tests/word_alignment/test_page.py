"""The alignment page shows pairs, links and gold links; text of the data never becomes markup."""

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from xlj.word_alignment.aligner import PairLinks
from xlj.word_alignment.gold_alignments import parse
from xlj.word_alignment.page import _SCRIPT, Page
from xlj.word_alignment.sentence_pairs import Pair

BAD = [
    "</script><script>alert(1)</script>",
    '<script type="application/json" id="data">',
    "<!--",
    "&lt;",
    "\"'",
    "\u2028",
    "x\x00",
]


def page_of(pairs, with_gold, title="pairs.tsv, aligned"):
    file = io.BytesIO()
    with Page(file, title, {"method": "argmax", "layer": 2}, with_gold) as page:
        for pair, links, confidences in pairs:
            links = np.array(links, np.int32).reshape(-1, 2)
            page.add(pair, PairLinks(links, np.array(confidences, np.float32)))
    return file.getvalue().decode()


def data_of(text):
    (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(data)


def test_the_page_has_pairs_links_and_gold_links():
    pair = Pair("", ["a", "b"], ["x"], parse("1-0 0p0 1p0", ""))
    empty = Pair("", [], ["x"], parse("", ""))
    text = page_of([(pair, [[0, 0]], [0.123456]), (empty, [], [])], True)
    assert data_of(text) == [
        [["a", "b"], ["x"], [[0, 0, 0.1235]], [[1, 0]], [[0, 0]]],
        [[], ["x"], [], [], []],
    ]
    assert "method argmax, layer 2" in text and "most errors first" in text
    text_without_gold = page_of([(pair._replace(gold=None), [[0, 0]], [0.5])], False)
    assert data_of(text_without_gold) == [[["a", "b"], ["x"], [[0, 0, 0.5]]]]
    assert "most errors first" not in text_without_gold and data_of(page_of([], False)) == []


@pytest.mark.parametrize("title", ["pairs", *BAD])
def test_text_of_the_data_never_becomes_markup(title):
    plain = page_of([(Pair("", ["a"], ["b"]), [[0, 0]], [0.5])], False)
    text = page_of([(Pair("", BAD, BAD), [[0, 0]], [0.5])], False, title)
    assert data_of(text)[0][:2] == [BAD, BAD]
    for tag in ("<script", "</script", "<!--", "<"):
        assert text.count(tag) == plain.count(tag)


def test_the_page_allows_only_its_own_script_and_fetches_nothing():
    text = page_of([], False)
    (script,) = re.findall("<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert not re.search(r"(src|href)=|url\(|@import|innerHTML|eval", text.replace("-src", ""))


def test_a_page_that_an_error_interrupts_lacks_its_end():
    file = io.BytesIO()
    with pytest.raises(KeyError), Page(file, "t", {}, False):
        raise KeyError
    assert not file.getvalue().endswith(b"</html>\n")


@pytest.mark.skipif(not shutil.which("node"), reason="needs node to run the page's script")
def test_long_pairs_are_wrapped_into_as_few_bands_as_fit():
    script = _SCRIPT.read_text("utf-8")
    gap = int(re.findall(r"GAP = (\d+)", script)[0])
    functions = script[script.index("function rows") : script.index("function draw")]
    long, short, room = [40, 10, 60, 30, 80, 20, 50, 10, 90, 40], [30, 500, 20], 240
    code = f"const GAP = {gap}; {functions} const sides = {[long, short]}; "
    code += f"const count = bands(sides, {room}); console.log(JSON.stringify([count, "
    code += "...sides.map(side => rows(side, count)), bands([[30], [30, 40]], 240)]))"
    process = subprocess.run(["node", "-e", code], capture_output=True, text=True, timeout=60)
    count, *rows, one = json.loads(process.stdout)
    assert one == 1 and count > 1 and [len(side) for side in rows] == [count, count]
    for lengths, side in zip((long, short), rows, strict=True):
        assert [word for row in side for word in row] == list(range(len(lengths)))
        for row in side:
            assert len(row) <= 1 or sum(lengths[word] + gap for word in row) < room
