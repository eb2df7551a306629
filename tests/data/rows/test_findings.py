"""Notes and warnings about sources, one by one and joined into a line per group."""

import dataclasses
from types import SimpleNamespace

from xlj.data.rows import findings
from xlj.data.rows.store import Split, TaskRows, TextCounts

NONE = Split(rows=0, tokens=0, examples=0, sentences=0, sha256="", shards=())


def task(language, rows=10, held_out=1, sentences=100, **counts):
    text = TextCounts(sentences, 0, counts.pop("dropped", {}), 0, language, **counts)
    splits = [dataclasses.replace(NONE, rows=rows), dataclasses.replace(NONE, rows=held_out)]
    return TaskRows(f"text.{language}", "", "text", (language,), 64, (), *splits, text)


def found(*tasks):
    manifest = SimpleNamespace(tasks=tasks, recipe={"held_out_share": 0.02})
    return findings.find(SimpleNamespace(manifest=manifest))


def test_each_group_is_one_line_with_its_worst_sources_first():
    tasks = [task(f"a{n}", dropped={"stands before": 20 + n}) for n in range(8)]
    tasks += [task("empty", 0, 0, 0), task("tiny", 0, 0, 3), task("short", held_out=0)]
    notes = found(*tasks)
    assert findings.joined_lines(notes) == [
        "no training rows: 2 sources: text.tiny 3, text.empty",
        "short has no held-out rows: the text is too short for data.held_out_share=0.02",
        "warning: many dropped (repeated): 8 sources: text.a7 27.0%, text.a6 26.0%, text.a5 25.0%, "
        "text.a4 24.0%, text.a3 23.0%, text.a2 22.0%, and 2 more; data.duplicates=keep keeps them",
    ]
    assert len(findings.lines(notes)) == 11
    assert "text.empty has no training rows: 0 lines or pairs were read" in findings.lines(notes)


def test_lines_in_other_languages_are_counted_by_language():
    others = {"de": 5, "fr": 9}
    kept = task("en", other_languages=others)
    dropped = task("sw", other_languages=others, dropped={"another language": 14})
    lines = findings.lines(found(kept, dropped))
    assert lines[:2] == [
        "text.en: 14 of 100 are in other languages: fr 9, de 5; data.other_language=drop drops "
        "them",
        "text.sw: 14 of 100 are in other languages: fr 9, de 5",
    ]
    assert "dropped (another language); data.other_language=keep keeps them" in lines[2]
    joined = findings.joined_lines(found(kept, task("yo", other_languages={"en": 30})))
    assert joined == [
        "lines in other languages, by data.filter: 2 sources: text.yo 30.0% (most en), text.en "
        "14.0% (most fr); data.other_language=drop drops them"
    ]
