"""Charts have correct geometry: ticks, points of curves and sizes of bars."""

import math

import pytest

from xlj.tools.reporting.charts import (
    HEIGHT,
    WIDTH,
    Series,
    choose_ticks,
    draw_bars,
    draw_curves,
    format_number,
)


def elements(chart, tag):
    return [element for element in chart.iter() if element.tag == tag]


@pytest.mark.parametrize("low, high", [(0, 1), (2.31, 9.77), (-3, 4), (0, 125_000), (1e-6, 3e-6)])
def test_ticks_are_round_and_within(low, high):
    values = choose_ticks(low, high, 5)
    assert 3 <= len(values) <= 7 and values == sorted(values)
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in values)
    step = (values[1] - values[0]) / 10 ** math.floor(math.log10(values[1] - values[0]) + 1e-9)
    assert min(abs(step - round_) for round_ in (1, 2, 2.5, 5)) < 1e-6
    assert choose_ticks(low, low, 5) == [low]


@pytest.mark.parametrize(
    "value, text",
    [
        (12_000, "12,000"),
        (3.14159, "3.142"),
        (0.00012, "0.00012"),
        (0, "0"),
        (2.5e9, "2.5G"),
        (-1, "-1"),
        (1e20, "1e+20"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_short(value, text):
    assert format_number(value) == text


def test_a_curve_runs_through_its_points_and_stays_inside():
    chart = draw_curves([Series(0, "a", [(0, 9.0), (50, 4.0), (100, 5.0)])], "step")
    (line,) = elements(chart, "polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y1 - y0) / (y1 - y2) == pytest.approx(5, rel=0.02)  # down by 5, up by 1
    marks = [(float(c.get("cx")), float(c.get("cy"))) for c in elements(chart, "circle")]
    assert marks == points
    assert elements(chart, "circle")[1][0].text == "a: 4 at 50"


def test_values_that_are_not_finite_are_left_out():
    chart = draw_curves(
        [Series(0, "a", [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)])], "step"
    )
    assert len(elements(chart, "circle")) == 2
    assert (
        draw_curves([Series(0, "a", [(0, math.nan)])], "step") is None
        and draw_curves([], "step") is None
    )
    assert draw_bars({"en": {0: math.nan}}, ["a"]) is None and draw_bars({}, []) is None
    assert len(elements(draw_bars({"en": {0: math.nan, 1: 2.0}}, ["a", "b"]), "rect")) == 1


def test_bars_are_as_high_as_their_values_and_do_not_overlap():
    groups = {"en": {0: 4.0, 2: 1.0}, "de": {0: 2.0}, "sw": {2: -1.0}}
    chart = draw_bars(groups, ["a", "b", "c"])
    boxes = {box[0].text: {k: float(box.get(k)) for k in ("x", "y", "width", "height")}
             for box in elements(chart, "rect")}  # fmt: skip
    unit = boxes["c, en: 1"]["height"]
    heights = {name: round(box["height"] / unit, 1) for name, box in boxes.items()}
    assert heights == {"a, en: 4": 4, "c, en: 1": 1, "a, de: 2": 2, "c, sw: -1": 1}
    assert boxes["c, sw: -1"]["y"] == pytest.approx(boxes["c, en: 1"]["y"] + unit, abs=0.2)
    starts = sorted((box["x"], box["width"]) for box in boxes.values())
    assert all(
        x + width <= after for (x, width), (after, _) in zip(starts, starts[1:], strict=False)
    )


def test_many_languages_make_a_wide_chart():
    chart = draw_bars({f"l{i}": {run: 1.0 for run in range(5)} for i in range(100)}, list("abcde"))
    (svg,) = elements(chart, "svg")
    assert float(svg.get("viewBox").split()[2]) > 100 * 5 * 10 and "style" in svg.attrib
