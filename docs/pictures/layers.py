"""Draws the layers of xlj from the imports in the code.

Each subpackage is above all subpackages that it imports. Imports that follow from other imports
(commands import cli, which imports api) are not drawn.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pictures.svg import WIDTH, Drawing

RULES = Path(__file__).parents[2] / "tests" / "test_architecture.py"
"""The test that defines the layers and the imports that they allow."""
HEIGHT, BOX, GAP = 40, 24, 8
SWEEPS = 24

Node = str | tuple[str, str, int]
"""A subpackage, or the point where the line between two subpackages crosses a level."""


def imports() -> dict[str, set[str]]:
    """Returns the subpackages that each subpackage imports, in the order of the layers."""
    spec = importlib.util.spec_from_file_location("architecture_rules", RULES)
    assert spec and spec.loader
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    imports_by_subpackage: dict[str, set[str]] = {subpackage: set() for subpackage in rules.LAYERS}
    for module, file in rules.MODULES.items():
        subpackage = rules.subpackage_of(module)
        for name, _ in rules.imports_of(file):
            if module != "xlj" and name.split(".")[0] == "xlj":
                imports_by_subpackage[subpackage] |= {rules.subpackage_of(name)} - {subpackage}
    return imports_by_subpackage


def levels_of(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Returns the level of each subpackage: one above the highest subpackage that it imports."""
    levels: dict[str, int] = {}
    for subpackage in graph:  # from the bottom up
        levels[subpackage] = 1 + max((levels[other] for other in graph[subpackage]), default=-1)
    return levels


def find_direct_imports(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Returns the imports (subpackage, imported subpackage) that do not follow from other
    imports."""
    below: dict[str, set[str]] = {}
    for subpackage, others in graph.items():
        below[subpackage] = others.union(*(below[other] for other in others))
    return [
        (subpackage, other)
        for subpackage, others in graph.items()
        for other in sorted(others)
        if not any(other in below[third] for third in others)
    ]


def _width(node: Node) -> float:
    return 7.6 * len(node) + 14 if isinstance(node, str) else 10


def _spread_apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Moves nodes of a row apart, so that they do not overlap and stay on the picture.

    Args:
      wanted: the desired middles of the nodes, in order.
      widths: the widths of the nodes.

    Returns:
      Middles near the desired middles, in the same order.
    """

    def pushed(wanted: Sequence[float], widths: Sequence[float], edge: float) -> list[float]:
        places: list[float] = []
        for place, width in zip(wanted, widths, strict=True):
            places.append(max(place, edge + width / 2))
            edge = places[-1] + width / 2 + GAP
        return places

    def mirrored(places: Sequence[float]) -> list[float]:
        return [WIDTH - place for place in reversed(places)]

    def both(wanted: Sequence[float], edge: float) -> tuple[list[float], list[float]]:
        to_right = pushed(wanted, widths, edge)
        return to_right, mirrored(pushed(mirrored(wanted), widths[::-1], edge))

    middle = [(one + other) / 2 for one, other in zip(*both(wanted, -float(WIDTH)), strict=True)]
    onto, _ = both(middle, GAP)
    return mirrored(pushed(mirrored(onto), widths[::-1], GAP))


def _place_nodes(rows: list[list[Node]], lines: Iterable[tuple[Node, Node]]) -> dict[Node, float]:
    """Returns the middle of each node, near the middles of the node's neighbours.

    It sweeps over the levels several times, down and up.
    """
    neighbours: dict[Node, list[Node]] = {}
    for one, other in lines:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    places: dict[Node, float] = {}
    for row in rows:
        step = WIDTH / (len(row) + 1)
        places |= {node: step * (i + 1) for i, node in enumerate(row)}

    def mean(near: Callable[[int], bool]) -> Callable[[Node], float]:
        def of(node: Node) -> float:
            own = [places[other] for other in neighbours.get(node, []) if near(level[other])]
            # `fsum` is exact. `sum` rounds differently in Python 3.12 and later.
            return math.fsum(own) / len(own) if own else places[node]

        return of

    level = {node: number for number, row in enumerate(rows) for node in row}
    for sweep in range(SWEEPS):
        order = range(len(rows)) if sweep % 2 else reversed(range(len(rows)))
        for number in order:
            above = sweep % 2 == 0
            side = mean(lambda n, at=number, up=above: n > at if up else n < at)
            every = mean(lambda n: True)
            row = sorted(rows[number], key=lambda node: (side(node), str(node)))
            rows[number] = row
            middles = _spread_apart([every(node) for node in row], [_width(node) for node in row])
            places |= dict(zip(row, middles, strict=True))
    return places


def layers() -> str:
    """Returns the drawing."""
    graph = imports()
    graph.pop("remote_code")  # nothing imports it, and it imports nothing of xlj
    levels, drawn = levels_of(graph), find_direct_imports(graph)
    top = max(levels.values())
    rows: list[list[Node]] = [
        [subpackage for subpackage in graph if levels[subpackage] == level]
        for level in range(top + 1)
    ]
    chains: list[list[Node]] = []
    for subpackage, other in drawn:
        between: list[Node] = [
            (subpackage, other, n) for n in range(levels[subpackage] - 1, levels[other], -1)
        ]
        for node in between:
            rows[node[2]].append(node)
        chains.append([subpackage, *between, other])
    lines = [pair for chain in chains for pair in itertools.pairwise(chain)]
    places = _place_nodes(rows, lines)
    heights = {node: 14 + HEIGHT * (top - n) for n, row in enumerate(rows) for node in row}
    drawing = Drawing("The layers of xlj: each subpackage and what it imports, from top to bottom")
    for chain in chains:
        commands = f"M{places[chain[0]]:.0f},{heights[chain[0]] + BOX}"
        for one, other in itertools.pairwise(chain):
            start, end = heights[one] + BOX, heights[other]
            middle = (start + end) / 2
            a, b = places[one], places[other]
            commands += f" C{a:.0f},{middle} {b:.0f},{middle} {b:.0f},{end}"
            if not isinstance(other, str):
                commands += f" V{end + BOX}"
        drawing.path(commands, "line")
    for subpackage in graph:
        width = _width(subpackage)
        drawing.label(
            places[subpackage] - width / 2, heights[subpackage], width, BOX, subpackage, "first"
        )
    return drawing.render()
