"""The record of an adaptation as a table and as Markdown."""

from xlj.evaluation import adaptation_record

BEFORE = {"pieces_per_word": {"yo": 3.614, "en": 1.5}, "accuracy_percent": {"en-yo": 1.04}}
AFTER = {
    "accuracy_percent": {"en-yo": 71.26},
    "nats_per_character": {"yo": 1.23456},
    "pieces_per_word": {"yo": 1.6, "en": 1.49},
}
ROWS = [
    ["measure", "of", "before", "after"],
    ["pieces per word", "yo", "3.61", "1.60"],
    ["pieces per word", "en", "1.50", "1.49"],
    ["held-out loss, nats per character", "yo", "", "1.235"],
    ["translations found (accuracy@1), %", "en-yo", "1.0", "71.3"],
]


def test_the_table_has_a_row_for_each_measure_and_language():
    assert adaptation_record.table(BEFORE, AFTER) == ROWS


def test_markdown_describes_the_adaptation():
    record = {
        "source": "DIR/base",
        "request": {"languages": ["yo", "sw"], "replay": ["en"]},
        "pieces": [{"language": "yo", "pieces": 1000}, {"language": "sw", "pieces": 0}],
        "before": BEFORE,
        "after": AFTER,
    }
    text, blank, head, rule, *rows = adaptation_record.markdown(record).split("\n")
    assert text == (
        "Adapted from `DIR/base` to yo, sw, with text of en. "
        "Pieces added to the vocabulary: 1,000 for yo, 0 for sw."
    )
    assert (blank, rule) == ("", "| --- | --- | --- | --- |")
    assert [head, *rows] == [f"| {' | '.join(row)} |" for row in ROWS]


def test_an_unfinished_record_has_no_scores():
    assert adaptation_record.sides({"before": BEFORE}) == {}
    assert adaptation_record.markdown({"request": {}, "before": BEFORE}) == ""
