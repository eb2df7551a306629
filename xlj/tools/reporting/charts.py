"""Line and bar charts as inline SVG. The CSS of the page sets the colour of each run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from xlj.io.markup import node

Point = tuple[float, float]

WIDTH, HEIGHT = 460, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 10, 40
_BAR, _GAP = 11, 14  # the width of a bar, and the gap between groups of bars


@dataclasses.dataclass(frozen=True)
class Series:
    """The points of one run in a chart.

    Attributes:
      run: the index of the run on the page, which selects the colour.
      label: the name of the run, for tooltips.
      points: (x, y) in order of x.
      faint: whether the line is thin, without marks, and drawn behind the other lines.
    """

    run: int
    label: str
    points: Sequence[Point]
    faint: bool = False


def draw_curves(series: Sequence[Series], x_label: str) -> Element | None:
    """Draws a line for each series over an x axis of whole numbers.

    Tooltips show the run and the value of a point. Returns None if no series has a finite point.

    Args:
      series: the lines.
      x_label: the title of the x axis.
    """
    finite = {id(s): [p for p in s.points if all(map(math.isfinite, p))] for s in series}
    all_points = [point for points in finite.values() for point in points]
    if not all_points:
        return None
    xs, ys = zip(*all_points, strict=True)
    x_ticks = [tick for tick in choose_ticks(min(xs), max(xs), 5) if float(tick).is_integer()]
    y_ticks = choose_ticks(min(ys), max(ys), 5)
    low, high = min(min(ys), y_ticks[0]), max(max(ys), y_ticks[-1])
    left, right = min(xs), max(xs)

    def place(point: Point) -> Point:
        x, y = point
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        inner = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + across * inner[0], 1), round(_TOP + (1 - up) * inner[1], 1)

    elements = [_rule(place((left, tick))[1], WIDTH, tick) for tick in y_ticks]
    for tick in x_ticks:
        x = place((tick, low))[0]
        elements.append(node("text", format_number(tick), x=x, y=HEIGHT - 22, class_="across"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    elements.append(node("text", x_label, x=middle, y=HEIGHT - 5, class_="across"))
    for s in sorted(series, key=lambda s: not s.faint):
        elements.append(_curve(s, finite[id(s)], place))
    return _svg(WIDTH, elements)


def _curve(series: Series, points: Sequence[Point], place) -> Element:
    kind = "faint" if series.faint else "clear"
    line = " ".join(f"{x:g},{y:g}" for x, y in map(place, points))
    marks = [node("polyline", node("title", series.label), points=line)] if points else []
    if not series.faint or len(points) == 1:
        for point in points:
            x, y = place(point)
            tooltip = f"{series.label}: {format_number(point[1])} at {format_number(point[0])}"
            marks.append(node("circle", node("title", tooltip), cx=x, cy=y, r=3))
    return node("g", *marks, class_=f"run{series.run} {kind}")


def draw_bars(groups: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> Element | None:
    """Draws grouped bars. Returns None if there is no finite value.

    Args:
      groups: for each name on the x axis, a mapping from the index of a run to its value.
      names: the names of the runs, for tooltips.
    """
    groups = {
        name: {run: value for run, value in group.items() if math.isfinite(value)}
        for name, group in groups.items()
    }
    values = [value for group in groups.values() for value in group.values()]
    if not values:
        return None
    runs = sorted({run for group in groups.values() for run in group})
    step: float = len(runs) * _BAR + _GAP
    width: float = max(WIDTH, _LEFT + _RIGHT + step * len(groups))
    step = (width - _LEFT - _RIGHT) / len(groups)
    bar = min(3 * _BAR, (step - _GAP) / len(runs))
    y_ticks = choose_ticks(min(0, *values), max(0, *values), 5)
    low, high = min(0, *values, *y_ticks), max(0, *values, *y_ticks)

    def height(value: float) -> float:
        inner = HEIGHT - _TOP - _BOTTOM
        return _TOP + inner * (1 - (value - low) / ((high - low) or 1))

    elements = [_rule(height(tick), width, tick) for tick in y_ticks]
    for place, (name, group) in enumerate(groups.items()):
        start = _LEFT + step * (place + 0.5) - bar * len(runs) / 2
        for i, run in enumerate(runs):
            if run not in group:
                continue
            y, zero = height(group[run]), height(0)
            box = {"x": f"{start + i * bar:.1f}", "y": f"{min(y, zero):.1f}"}
            size = {"width": f"{max(bar - 1, 1):.1f}", "height": f"{abs(zero - y):.1f}"}
            tooltip = node("title", f"{names[run]}, {name}: {format_number(group[run])}")
            elements.append(node("rect", tooltip, class_=f"run{run}", **box, **size))
        middle = _LEFT + step * (place + 0.5)
        elements.append(node("text", name, x=f"{middle:.1f}", y=HEIGHT - 22, class_="across"))
    return _svg(width, elements)


def choose_ticks(low: float, high: float, about: int) -> list[float]:
    """Returns about `about` round numbers from `low` to `high`, but at least one number."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + i) * step, 12) for i in range(count + 1)] or [low]


def format_number(value: float) -> str:
    """Formats a number briefly: 2.5G, 12,000, 3.142, 0.00012."""
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if power <= abs(value) < 1e15:
            return f"{value / power:.4g}{letter}"
    if abs(value) >= 1e15 or 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"


def _rule(y: float, width: float, tick: float) -> Element:
    y = round(y, 1)
    line = node("line", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y)
    return node("g", line, node("text", format_number(tick), x=_LEFT - 6, y=y + 4, class_="up"))


def _svg(width: float, elements: Sequence[Element]) -> Element:
    size = {"viewBox": f"0 0 {width:g} {HEIGHT}"}
    if width > WIDTH:  # a wide chart scrolls and is not scaled down
        size["style"] = f"width:{width:g}px"
    return node("div", node("svg", *elements, role="img", **size), class_="wide")
