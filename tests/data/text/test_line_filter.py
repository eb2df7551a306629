"""The filter of the user judges lines, scores them, or names their language."""

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.data.text.line_filter import FILTER, LOW_SCORE, OTHER_LANGUAGE, judge

LINES = [("good",), ("bad",), ("",), ("Satz",), ("low",)]


def dropped(verdicts):
    return {why: np.flatnonzero(rows).tolist() for why, rows in verdicts.dropped.items()}


@pytest.mark.parametrize(
    "true, false", [(True, False), (1, 0), ("a".startswith, None), (object, [])]
)
def test_other_values_say_whether_a_line_is_good(true, false):
    verdicts = judge(lambda x: false if x == "bad" else true, LINES, ("en",), 0.0, True)
    assert dropped(verdicts) == {FILTER: [1], LOW_SCORE: [], OTHER_LANGUAGE: []}
    assert not verdicts.others


@pytest.mark.parametrize("of", [float, np.float32, lambda score: ("eng_Latn", score)])
def test_lines_with_a_lower_score_are_dropped(of):
    scores = {"low": 0.25, "bad": 0.0}
    verdicts = judge(lambda x: of(scores.get(x, 0.5)), LINES, ("en",), 0.5, True)
    assert dropped(verdicts) == {FILTER: [], LOW_SCORE: [1, 4], OTHER_LANGUAGE: []}


def test_believed_languages_are_counted_and_dropped_only_on_request():
    believed = {"Satz": "deu_Latn", "bad": "", "low": "srp_Latn", "good": "srp_Cyrl"}
    for drops_others in (False, True):
        verdicts = judge(lambda x: believed[x], LINES, ("sr_Cyrl",), 0.0, drops_others)
        assert verdicts.others == {"deu_Latn": 1, "und": 1, "srp_Latn": 1}
        assert dropped(verdicts)[OTHER_LANGUAGE] == ([1, 3, 4] if drops_others else [])


def test_a_pair_counts_once_for_its_first_side_and_reason():
    believed = {"Satz": ("fr", 0.9), "good": ("en", 0.1), "low": ("de", 0.9)}
    pairs = [("good", "Satz"), ("low", "Satz"), ("", "good"), ("low", "")]
    verdicts = judge(lambda x: believed[x], pairs, ("en", "de"), 0.5, True)
    assert dropped(verdicts) == {FILTER: [], LOW_SCORE: [0, 2], OTHER_LANGUAGE: [1, 3]}
    assert verdicts.others == {"fr": 1, "de": 2, "en": 1}
    assert not judge(lambda x: believed[x], pairs, (), 0.0, True).others


@pytest.mark.parametrize("score", [float("nan"), -0.1, ("en", "much")])
def test_a_score_that_is_no_number_is_an_error_that_shows_the_line(score):
    with pytest.raises(ConfigError, match="for the line 'good'; a score must be a number of at"):
        judge(lambda _: score, LINES, ("en",), 0.0, False)
