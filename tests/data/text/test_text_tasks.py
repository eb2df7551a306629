"""Templates match their source files, and sources yield clean text in order."""

import dataclasses
import json
import random
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from xlj.config import ConfigError
from xlj.data.text import held_out, sources
from xlj.data.text.cleaning import clean, line_hashes
from xlj.data.text.text_tasks import describe_unused_files, text_tasks
from xlj.data.text.text_units import ReadOptions, UnitReader, read_excluded_lines

PLAIN = ReadOptions("error", "")


def read(task, reading=PLAIN, size=1 << 20) -> list[tuple[str, ...]]:
    readers = [UnitReader(unit, i, reading) for i, unit in enumerate(task.units(size))]
    chunks = [chunk for reader in readers for chunk in reader.chunks()]
    for chunk in chunks:
        for column, hashes in zip(chunk.columns, chunk.hashes, strict=True):
            assert np.array_equal(hashes, line_hashes(column))
    return [row for chunk in chunks for row in zip(*chunk.columns, strict=True)]


def test_templates_are_read_in_order_and_lines_are_cleaned(config, write):
    write("en.txt", "one \t line\r\n\r\n  next\u00a0document\u2028still\r\n")
    write("more.en.gz", "third")
    tasks = text_tasks(
        config(languages=("en",), mono=("@more.{language}.gz", "@{language}.txt")).data
    )
    assert [t.name for t in tasks] == ["text.en"]
    expected = ["third", "", "one line", "", "next document still", ""]
    assert [line for (line,) in read(tasks[0])] == expected


def test_pairs_are_read_from_one_file_or_from_two(config, write):
    write("en-de.tsv", "a\tb\r\n c \td\n")
    write("en-de.en", "e\n\nf\n")
    write("en-de.de.gz", "g\n\ni")
    templates = ("@{source}-{target}.tsv", "@{pair}.{source}|@{pair}.{target}.gz")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=templates).data)
    assert task.languages == ("en", "de")
    assert read(task) == [("a", "b"), ("c", "d"), ("e", "g"), ("", ""), ("f", "i")]


def test_pairs_are_read_from_lines_with_bars_and_from_a_translation_memory(config, write):
    """Formats of fast_align and OPUS."""
    unit = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'
    units = unit.format("en-US", "a &amp; b", "de", "c") + unit.format("de", "d", "en-US", "e")
    write("en-de.tmx", f"<tmx><header srclang='en'/><body>{units}</body></tmx>")
    write("en-de.txt", "f ||| g\nh ||| i\tj\n")
    templates = ("@{pair}.tmx#{source}|{target}", "@{pair}.txt")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=templates).data)
    assert read(task) == [("a & b", "c"), ("e", "d"), ("f", "g"), ("h ||| i", "j")]
    write("en-de.tmx", "<tmx><body></tmx>")
    with pytest.raises(ConfigError, match="en-de.tmx: not valid XML"):
        read(task)


def test_one_error_names_all_missing_sources(config, write):
    write("en.txt", "a")
    with pytest.raises(ConfigError) as error:
        text_tasks(
            config(languages=("en", "de", "fr"), mono=("@{language}.txt", "@x/{language}.gz")).data
        )
    message = str(error.value)
    for part in (
        "languages=de",
        "/de.txt",
        "languages=fr",
        "/fr.txt",
        "x/{language}.gz",
        "x/en.gz",
    ):
        assert part in message
    assert "languages=en " not in message


def test_lines_that_are_not_utf8_are_skipped_on_both_sides(config, write):
    write("x.en", b"a\n\xff\nc\nd\n")
    write("x.de", b"e\nf\n\xfe\nh\n")
    fields = {"pairs": ("en-de",), "parallel": ("@x.{source}|@x.{target}",)}
    (task,) = text_tasks(config(**fields).data)
    (unit,) = task.units(1000)
    reader = UnitReader(unit, 0, ReadOptions("skip", ""))
    (chunk,) = reader.chunks()
    assert list(zip(*chunk.columns, strict=True)) == [("a", "e"), ("d", "h")]
    assert reader.dropped == {"invalid UTF-8": 2} and reader.lines == 4
    with pytest.raises(ConfigError, match=r"x\.en or \S*x\.de: line 2 is not UTF-8"):
        read(task)


def test_phrasebook_templates_yield_text_and_pairs(config, monkeypatch, tmp_path):
    stub = types.ModuleType("xlj.phrasebook")
    stub.__file__ = str(tmp_path / "phrasebook" / "__init__.py")
    stub.LANGUAGES = ("en", "de")
    stub.text_lines = lambda language: iter(["one", "", f"two {language}"])
    stub.pair_lines = lambda pair: iter([("a", pair)] * 5000)
    monkeypatch.setattr("xlj.data.text.sources.phrasebook", stub)
    fields = {"mono": ("phrasebook:{language}",), "parallel": ("phrasebook:{pair}",)}
    good = config(languages=("en", "de"), pairs=("en-de",), **fields)
    first, _, pairs = text_tasks(good.data)
    assert [line for (line,) in read(first)] == ["one", "", "two en", ""]
    assert read(pairs) == [("a", "en-de")] * 5000
    with pytest.raises(ConfigError, match="languages=sw.*phrasebook:sw"):
        text_tasks(config(languages=("en", "sw"), mono=("phrasebook:{language}",)).data)


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("size", [7, 100, 1000, 100_000])
def test_units_contain_every_line_once(config, write, ending, size):
    lines = [f"{'é' * (i * i % 37)} {i}" if i % 11 else "" for i in range(500)]
    write("en.txt", "\ufeff" + "\n".join(lines) + ending)
    write("more/en.txt", "last")
    text = ("@{language}.txt", "@more/{language}.txt")
    (task,) = text_tasks(config(languages=("en",), mono=text).data)
    units = task.units(size)
    total = sum(part.size for unit in units for part in unit)
    assert total == sum(path.stat().st_size for source in task.sources for path in source.paths)
    if size < 1000:
        assert len(units) == pytest.approx(total / size, rel=0.1)
    actual = [line for (line,) in read(task, size=size) if line]
    assert actual == [clean(line) for line in [*lines, "last"] if line]


def test_empty_files_contain_no_text(config, write):
    for name in ("1.en-de.tsv", "3.en-de.tsv", "1.en.txt", "1.en.jsonl"):
        write(name, "")
    write("2.en-de.tsv", "a\tb\n")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@*.{pair}.tsv",)).data)
    assert len(task.sources) == 3 and len(task.units(100)) == 1
    assert read(task) == [("a", "b")]
    mono = ("@*.{language}.txt", "@*.{language}.jsonl#text")
    (task,) = text_tasks(config(languages=("en",), mono=mono).data)
    assert set(read(task)) <= {("",)}


def test_small_files_share_a_unit(config, write):
    for i in range(40):
        write(f"en/{i:02}.txt", "x" * 99 + "\n")
    write("en/99.txt.gz", "y" * 3000)
    (task,) = text_tasks(config(languages=("en",), mono=("@{language}/*",)).data)
    units = task.units(1000)
    assert [len(unit) for unit in units][:6] == [6] * 6 and len(units) == 7
    assert len(read(task, size=1000)) == 41 * 2


def test_records_of_json_and_parquet_are_read(config, write, tmp_path):
    records = [
        {"text": "one\ntwo", "meta": {"de": "eins", "en": "one"}},
        {"text": None, "meta": {"de": "zwei", "en": "two\nlines"}, "more": 1},
    ]
    content = "\n".join(map(json.dumps, records)) + "\n"
    write("a/en.jsonl", content)
    write("a/en.2.jsonl.gz", content)
    pq.write_table(pa.Table.from_pylist(records * 3), tmp_path / "en.parquet", row_group_size=2)
    mono = {"languages": ("en",)}
    for source, times in (("@a/{language}*#text", 2), ("@{language}.parquet#text", 3)):
        (task,) = text_tasks(config(**mono, mono=(source,)).data)
        for size in (20, 1000):
            actual = [line for (line,) in read(task, size=size)]
            assert [line for line in actual if line] == ["one", "two"] * times
            assert all(actual[i + 2] == "" for i, line in enumerate(actual) if line == "one")
    assert len(task.units(1)) == 3
    pairs = {"pairs": ("en-de",)}
    for source in ("@a/{source}.jsonl", "@{source}.parquet"):
        (task,) = text_tasks(config(**pairs, parallel=(f"{source}#meta.en|meta.de",)).data)
        assert read(task)[:2] == [("one", "eins"), ("two lines", "zwei")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"languages": ("en",), "mono": ("@{lang}.txt",)},
            r"unknown placeholder \{lang\}.*language",
        ),
        ({"languages": ("en", "de"), "mono": ("@en.txt",)}, r"same source; use \{language\}"),
        (
            {"languages": ("en", "en2"), "mono": ("@{language}*.txt",)},
            "en2.txt twice, for en and for",
        ),
        (
            {"languages": ("en",), "mono": ("@en.txt", "@e*.txt")},
            "en.txt twice, for en and for en; change a template",
        ),
        ({"languages": ("en",), "mono": ("@en.txt|@en.txt",)}, "must name one file"),
        (
            {"languages": ("en",), "mono": ("@en.json",)},
            r"en\.json: set the field .* text, .*json#FIELD$",
        ),
        (
            {"languages": ("en",), "mono": ("@en.txt#text",)},
            "en.txt: .*data.mono=.*#text has a part after #, which is only for .jsonl and",
        ),
        ({"languages": ("en",), "mono": ("@en.tar",)}, "en.tar: this is tar, .* unpack it"),
        ({"languages": ("en",), "mono": ("@en.csv",)}, "en.csv: this is CSV"),
        (
            {"pairs": ("en-de",), "parallel": ("@en.tmx",)},
            r"en\.tmx: set the languages .*tmx#SOURCE.TARGET",
        ),
        ({"languages": ("en",), "mono": ("tfds:wiki",)}, "tfds:wiki#FIELD$"),
        ({"pairs": ("en-de",), "parallel": ("seqio:task#a",)}, r"seqio:task#FIELD\|FIELD"),
        ({"pairs": ("en-de",), "parallel": ("@{source}.txt|@{target}.txt",)}, "de.txt is missing"),
        ({"pairs": ("en-de",), "parallel": ("@{source}*.txt|@{target}*.txt",)}, "is missing"),
        ({"pairs": ("en-de",), "parallel": ("@e*.txt|@en.txt",)}, "match 2 files and 1 files"),
        ({"pairs": ("en",), "parallel": ("@{pair}",)}, "two languages with a hyphen"),
        ({"pairs": ("en-en",), "parallel": ("@{pair}",)}, "two languages with a hyphen"),
        ({}, "no data"),
    ],
)
def test_missing_text_is_reported_before_any_work(config, write, fields, message):
    for name in ("en.txt", "en2.txt", "en.json", "en.tar", "en.csv", "en.tmx"):
        write(name, "a")
    with pytest.raises(ConfigError, match=message):
        text_tasks(config(**fields).data)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", "a\tb\nab\n", r"x\.tsv: line 2 has 0 tabs"),
        ("x.tsv", "a\tb\n" * 40 + "a\tb\tc\n", r"x\.tsv: line 41 has 2 tabs"),
        ("x.tsv.gz", "a\tb\na\tb\tc\n", r"x\.tsv\.gz: line 2 has 2 tabs"),
        ("x.tsv", b"a\tb\n" * 30 + b"\xe9t\xe9\tx\n", r"x\.tsv: line 31 is not UTF-8"),
        ("x.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', r"x\.jsonl: line 2 has no field b"),
        ("x.jsonl", '{"a": "x", "b": 3}\n', r"x\.jsonl: line 1: field b is not a string"),
        (
            "x.jsonl",
            '{"a": "x", "b": "y"}\n' * 9 + "{\n",
            r"x\.jsonl: line 10: this record: not valid JSON",
        ),
        ("x.parquet", "PAR1", r"x\.parquet: cannot open this file as Parquet"),
    ],
)
def test_unreadable_records_are_reported_with_their_place(config, write, name, content, message):
    write(name, content)
    fields = "#a|b" if "tsv" not in name else ""
    (task,) = text_tasks(config(pairs=("en-de",), parallel=(f"@{name}{fields}",)).data)
    with pytest.raises(ConfigError, match=message):
        read(task, size=60)


def test_a_missing_column_is_reported_before_any_work(config, tmp_path):
    pq.write_table(pa.table({"doc": ["x"], "number": [3]}), tmp_path / "en.parquet")
    for field, message in (
        ("text", "no column text; columns are doc, number"),
        ("number", "column number must contain strings, not"),
    ):
        source = (f"@{{language}}.parquet#{field}",)
        (task,) = text_tasks(config(languages=("en",), mono=source).data)
        with pytest.raises(ConfigError, match=message):
            task.units(1000)


def test_files_of_languages_that_are_not_requested_are_reported(config, write):
    for name in ("en.txt", "de.txt", "fr.txt", "fr-en.tsv"):
        write(name, "a")
    data = config(languages=("en",), mono=("@{language}.txt", "phrasebook:{language}")).data
    (note,) = describe_unused_files(data, text_tasks(data))
    assert (
        "data.mono=" in note
        and "2 files of languages or pairs that are not in data.languages; these files are not "
        "read: de.txt, fr.txt"
        in note
    )
    data = config(languages=("en", "de", "fr"), mono=("@{language}.txt",)).data
    assert not describe_unused_files(data, text_tasks(data))
    data = config(pairs=("en-de",), parallel=("@{source}.txt|@{target}.txt",)).data
    (note,) = describe_unused_files(data, text_tasks(data))
    assert note.endswith(
        "also matches 1 files of languages or pairs that are not in data.pairs; "
        "these files are not read: fr.txt"
    )


@pytest.mark.parametrize(
    "templates",
    [
        ("@Books.{pair}.{source}|@Books.{pair}.{target}",),
        ("@Books.{source}-{target}.{source}|@Books.{source}-{target}.{target}",),
        ("@{pair}.tsv",),
        ("@{pair}.tsv#1|2",),
        ("@{pair}.jsonl#{source}|{target}",),
        ("@{pair}.jsonl#de|en",),
    ],
)
def test_files_of_a_pair_in_the_other_order_are_read_with_exchanged_sides(config, write, templates):
    """As OPUS names them: the codes of a pair are in the order of the alphabet."""
    write("Books.de-en.de", "eins\nzwei\n"), write("Books.de-en.en", "one\ntwo\n")
    write("de-en.tsv", "eins\tone\nzwei\ttwo\n")
    rows = [{"de": "eins", "en": "one"}, {"de": "zwei", "en": "two"}]
    write("de-en.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    data = config(pairs=("en-de",), parallel=templates).data
    (task,) = text_tasks(data)
    assert task.languages == ("en", "de") and read(task) == [("one", "eins"), ("two", "zwei")]
    (note,) = describe_unused_files(data, [task])
    assert "en-de has text in the other order, which xlj reads with exchanged sides: " in note
    if templates == ("@{pair}.tsv",):
        write("de-en.tsv", "1.5\teins\tone\n1.25\tzwei\ttwo\n")
        with pytest.raises(ConfigError, match=r"1 numbers .*de-en.tsv#2\|3$"):
            task.units(1000)
        write("de-en.tsv", "eins\tone\nzwei\ttwo\n")
    in_order = config(pairs=("de-en",), parallel=templates).data
    (task,) = text_tasks(in_order)
    assert read(task) == [("eins", "one"), ("zwei", "two")]
    assert not describe_unused_files(in_order, [task])
    with pytest.raises(ConfigError, match="data.pairs=en-de has no source"):
        text_tasks(config(pairs=("de-en", "en-de"), parallel=templates).data)


LEIPZIG = "".join(f"{n}\tsentence number {n}\n" for n in range(1, 4))
WIKIMATRIX = "".join(f"1.0{n}\tsentence {n}\tzeile {n}\tmore\n" for n in range(1, 4))


def test_columns_that_are_no_sentences_are_refused_unless_the_template_names_them(config, write):
    write("en.txt", LEIPZIG), write("en-de.tsv", WIKIMATRIX), write("en.2", "1.5\tx\n2.5\ty\n")
    write("de.2", "eins\nzwei\n")
    mono, pairs = {"languages": ("en",)}, {"pairs": ("en-de",)}
    for fields, message in (
        (mono | {"mono": ("@en.txt",)}, "1 numbers .3., 2 text .*data.mono=.*en.txt#2$"),
        (pairs | {"parallel": ("@{pair}.tsv",)}, r"data.parallel=.*en-de.tsv#SOURCE\|TARGET$"),
        (pairs | {"parallel": ("@{source}.2|@{target}.2",)}, "en.2: .* such as cut -f2$"),
    ):
        (task,) = text_tasks(config(**fields).data)
        with pytest.raises(ConfigError, match=message):
            task.units(1000)
    (task,) = text_tasks(config(**mono, mono=("@en.txt#2",)).data)
    assert read(task) == [*((f"sentence number {n}",) for n in range(1, 4)), ("",)]
    (task,) = text_tasks(config(**pairs, parallel=("@{pair}.tsv#3|2",)).data)
    assert read(task, size=20) == [(f"zeile {n}", f"sentence {n}") for n in range(1, 4)]
    write("en-de.tsv", WIKIMATRIX + "1.2\tx\n")
    (task,) = text_tasks(config(**pairs, parallel=("@{pair}.tsv#3|2",)).data)
    with pytest.raises(ConfigError, match="line 4 has 1 tabs; the template names the columns 3, 2"):
        read(task)


def test_ranges_of_ebible_join_a_verse_to_the_one_before(config, write):
    write("en", "a\nb\n\nc\n<range>\nd\n"), write("de", "A\n<range>\n\nC\nD\n<range>\n")
    data = config(pairs=("en-de",), parallel=("@en|@de",)).data
    joined = [("a b", "A"), ("", ""), ("", ""), ("c d", "C D"), ("", ""), ("", "")]
    (task,) = text_tasks(data)
    assert read(task) == joined
    write("en-de.tsv", "a\tA\nb\t<range>\nc\tC\n")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@{pair}.tsv",)).data)
    assert read(task) == [("a b", "A"), ("", ""), ("c", "C")]
    (task,) = text_tasks(config(languages=("en",), mono=("@{language}",)).data)
    (unit,) = task.units(1000)
    reader = UnitReader(unit, 0, PLAIN)
    (chunk,) = reader.chunks()
    assert chunk.columns == (["a", "b", "", "c", "d", ""],)
    assert reader.dropped == {"joined to the line before": 1}


def test_ranges_join_over_blocks_and_other_blocks_stay_the_same():
    """Chunks, and so rows, depend on the sizes of blocks."""
    blocks = [
        (["a", "b"], ["A", "B"]),
        (["c"], ["C"]),
        (["<range>", "d"], ["D", "E"]),
        (["f"], ["F"]),
    ]
    joined = list(sources._join_ranges(iter(blocks)))
    assert [tuple(map(list, block)) for block in joined] == [
        blocks[0],
        (["c", "", "d"], ["C D", "", "E"]),
        blocks[3],
    ]
    assert joined[0] is blocks[0] and joined[2] is blocks[3]
    assert list(sources._join_ranges(iter(()))) == []


def test_filtered_and_excluded_lines_are_dropped_and_counted(config, write, tmp_path, monkeypatch):
    (tmp_path / "own_filter.py").write_text(
        "def short(line):\n    return len(line) < 6\n"
        "def named(line):\n    return {'x': 'eng_Latn', 'this is long': 'fr'}.get(line, True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    write("en-de.tsv", "a\tb\nthis is long\tc\nTEST  line\tx\nd\ttest Line\nsame\tsame\n")
    write("eval.tsv", "test line\tein Test\n")
    data = config(
        pairs=("en-de",), parallel=("@{pair}.tsv",), exclude=(f"{tmp_path}/eval.tsv",)
    ).data
    (task,) = text_tasks(data)
    excluded = held_out.write_hashes(tmp_path, map(line_hashes, read_excluded_lines(data)))
    reader = UnitReader(task.units(99)[0], 0, ReadOptions("error", "own_filter:short", excluded))
    (chunk,) = reader.chunks()
    assert list(zip(*chunk.columns, strict=True)) == [("a", "b"), ("same", "same")]
    assert reader.dropped == {"data.filter": 3, "stands in data.exclude": 0}
    reader = UnitReader(task.units(99)[0], 0, ReadOptions("error", "", excluded))
    (chunk,) = reader.chunks()
    assert reader.dropped["stands in data.exclude"] == 2 and len(chunk.columns[0]) == 3
    others = ReadOptions("error", "own_filter:named", other_language="drop", languages=("en", "de"))
    reader = UnitReader(task.units(99)[0], 0, others)
    (chunk,) = reader.chunks()
    assert chunk.columns[0] == ["a", "d", "same"] and reader.other_languages == {
        "eng_Latn": 1,
        "fr": 1,
    }
    assert reader.dropped == {"another language": 2}
    kept = dataclasses.replace(others, other_language="keep")
    reader = UnitReader(task.units(99)[0], 0, kept)
    assert len(next(reader.chunks()).columns[0]) == 5 and not reader.dropped
    assert (
        reader.other_languages == {"eng_Latn": 1, "fr": 1} and kept.identity() != others.identity()
    )
    before = ReadOptions("error", "own_filter:short").identity()
    (tmp_path / "own_filter.py").write_text("def short(line):\n    return len(line) < 7\n")
    assert ReadOptions("error", "own_filter:short").identity() != before
    with pytest.raises(ConfigError, match="data.filter=no_such: no such module"):
        ReadOptions("error", "no_such:f").identity()


def test_a_compressed_file_is_one_unit(config, write, tmp_path):
    """Also a .zst file of many frames."""
    compress = zstandard.ZstdCompressor().compress
    numbers = random.Random(0).choices(range(10**9), k=4000)
    text = "".join(f"{n}\n" for n in numbers).encode()
    write("en.txt", text)
    write("en.txt.gz", text)
    write("en.txt.zst", b"".join(compress(text[i : i + 997]) for i in range(0, len(text), 997)))
    for name in ("@{language}.txt", "@{language}.txt.gz", "@{language}.txt.zst"):
        (task,) = text_tasks(config(languages=("en",), mono=(name,)).data)
        (file,) = task.sources
        is_split = name.endswith(".txt")
        assert (len(task.units(3000)) > 4) == is_split
        assert file.unsplittable(3000) == (0 if is_split else file.paths[0].stat().st_size)
        assert file.unsplittable(1 << 20) == 0
        assert [line for (line,) in read(task, size=3000) if line] == list(map(str, numbers))
