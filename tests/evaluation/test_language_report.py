"""Averages, gaps, tables and plots of scores by language."""

import pytest

from xlj.evaluation import language_report


def test_average_and_gap_equal_values_by_hand():
    scores = {"de": 60.0, "en": 80.0, "sw": 50.0}
    assert language_report.average(scores) == pytest.approx(190 / 3)
    assert language_report.transfer_gap(scores) == pytest.approx(25)
    assert language_report.transfer_gap({"de": 60.0, "sw": 50.0}) is None
    assert language_report.transfer_gap({"en": 60.0}) is None


def test_the_table_has_a_column_for_each_language():
    rows = {"EM": {"de": 60.0, "en": 80.0}, "other": {"ar": 12.34}}
    assert language_report.table(rows) == (
        "|  | en | ar | de | average | gap |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| EM | 80.0 |  | 60.0 | 70.0 | 20.0 |\n"
        "| other |  | 12.3 |  | 12.3 |  |"
    )
    assert "gap" not in language_report.table({"F1": {"de": 1.0, "fr": 2.0}})


@pytest.mark.parametrize("panels", [1, 3])
def test_the_plot_has_a_panel_for_each_task(tmp_path, panels):
    pytest.importorskip("matplotlib")
    scores = {f"task {k}": {"en": 80.0, "de": 60.0 + k} for k in range(panels)}
    language_report.plot(scores, tmp_path / "scores.svg")
    svg = (tmp_path / "scores.svg").read_text("utf-8")
    assert all(f"<!-- task {k} -->" in svg for k in range(panels)) and "<!-- de -->" in svg
    with pytest.raises(ValueError):
        language_report.plot(scores, tmp_path / "scores.nothing")
