"""Draws how a row becomes a batch, what the devices of a mesh hold, word links, and the logo."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as etree

from pictures.svg import WIDTH, Drawing
from xlj.io.markup import node

ALIGNMENT = Path(__file__).with_name("alignment.json")
"""Word links of multilingual-e5-small, which `make_pictures.py --encoder` wrote."""
EDGE = 12
INNER = WIDTH - 2 * EDGE


def way_of_a_row() -> str:
    """Draws the way from lines of text to the rows of a device."""
    drawing = Drawing("The way of a row: lines of text, pieces, packed rows, batch, devices")
    strips = (
        ("text", ["the cat sleeps"], ["it rains"], 150, "cleaned; held-out lines set aside"),
        ("pieces", ["▁the", "▁cat", "▁sleep", "s"], ["▁it", "▁rain", "s"], 48,
         "joined and cut, or packed, to data.length tokens"),
        ("row", ["<s>", "▁the", "▁cat", "▁sleep", "s", "</s>"], ["<s>", "…"], 42,
         "16-bit or 32-bit ids and a checksum, in shards on disk"),
    )  # fmt: skip
    y = 16.0
    for name, first, second, width, then in strips:
        drawing.text(EDGE, y + 17, name, "strong")
        classes = ["first"] * len(first) + ["second"] * len(second)
        drawing.tokens(78, y, width, [*first, *second], classes)
        drawing.path(f"M92,{y + 26} V{y + 49}", "arrow")
        drawing.text(104, y + 42, then, "soft small")
        y += 54
    drawing.text(EDGE, y + 17, "shards", "strong")
    for place, (language, colour) in enumerate(
        (("text.en", "first"), ("text.de", "second"), ("text.sw", ""))
    ):
        drawing.label(78 + place * 110, y, 104, 26, language, colour)
    drawing.path(f"M92,{y + 28} V{y + 51}", "arrow")
    drawing.text(104, y + 44, "drawn by (seed, step): shares ~ tokens^data.alpha", "soft small")
    y += 56
    drawing.text(EDGE, y + 17, "batch", "strong")
    colours = ["first", "second", "first", "", "second", "first", "first", "second"]
    for place, colour in enumerate(colours):
        drawing.box(78 + place * 41, y, 38, 26, colour)
    drawing.path(f"M92,{y + 28} V{y + 51}", "arrow")
    drawing.text(104, y + 44, "split over all devices, a few steps ahead", "soft small")
    y += 56
    drawing.text(EDGE, y + 17, "devices", "strong")
    for device in range(4):
        x = 78 + device * 82
        drawing.box(x - 2, y, 81, 62, "")
        for row in range(2):
            drawing.box(x + 2 + row * 38, y + 5, 34, 22, colours[2 * device + row])
        drawing.text(x + 38, y + 48, f"device {device}", "middle small")
    drawing.text(78, y + 80, "Masks are drawn here, from a random key for each row.", "soft small")
    return drawing.render()


def mesh() -> str:
    """Draws what each device of a mesh of 2 x 4 holds, and what the devices exchange."""
    replicas, shards = 2, 4
    rows = 32 // (replicas * shards)
    drawing = Drawing(
        "A mesh of 2 replicas and 4 fsdp shards: each device has a quarter of the parameters and "
        "an eighth of the rows"
    )
    title = f"mesh.fsdp={shards} on {replicas * shards} devices, 32 rows a step"
    drawing.text(EDGE, 22, title, "strong")
    left, top, width, height = 78, 62, 84, 88
    for replica in range(replicas):
        y = top + replica * (height + 34)
        drawing.text(EDGE, y + 34, "replica", "soft")
        drawing.text(EDGE, y + 50, str(replica), "strong")
        for shard in range(shards):
            x = left + shard * width
            drawing.box(x, y, width - 6, height, "")
            for part in range(shards):
                held = "see" if part == shard else "faded"
                drawing.box(x + 6 + part * 17, y + 8, 15, 24, held, 2)
            drawing.text(x + 39, y + 50, "¼ state", "middle small")
            start = (replica * shards + shard) * rows
            drawing.label(x + 6, y + 60, width - 18, 22, f"{start}–{start + rows - 1}", "second")
    for shard in range(shards):
        x = left + shard * width + 39
        drawing.text(x, top - 8, f"fsdp {shard}", "middle soft")
        drawing.path(f"M{x},{top + height + 2} V{top + height + 31}", "arrow")
        drawing.path(f"M{x},{top + height + 31} V{top + height + 2}", "arrow")
    y = top + 2 * height + 34
    parts = {"see": "its part of parameters and AdamW moments", "second": "its rows"}
    for colour, text in parts.items():
        y += 12
        drawing.box(EDGE, y, 16, 14, colour, 3)
        drawing.text(EDGE + 24, y + 11.5, text, "soft small")
        y += 10
    drawing.lines(
        EDGE,
        y + 30,
        "Across (fsdp, within a host or a slice): kernels are gathered",
        "when needed, and their gradients are reduced and scattered.",
        "Down (replica): one all-reduce of the gradients a step.",
    )
    return drawing.render()


def alignment() -> str:
    """Draws word links of a trained encoder. The thickness of a link shows the confidence."""
    example = json.loads(ALIGNMENT.read_text("utf-8"))
    drawing = Drawing("An English sentence and its German translation, their words linked")
    middles = []
    for y, words in ((22, example["source"]), (118, example["target"])):
        widths = [7.4 * len(word) + 8 for word in words]
        x = (WIDTH - sum(widths)) / 2
        middles.append([])
        for word, width in zip(words, widths, strict=True):
            middles[-1].append(x + width / 2)
            drawing.text(x + width / 2, y, word, "middle")
            x += width
    for i, j, share in example["links"]:
        start, end = middles[0][i], middles[1][j]
        curve = f"M{start:.1f},30 C{start:.1f},66 {end:.1f},66 {end:.1f},102"
        drawing.path(curve, "link", 1 + 3 * share)
    return drawing.render()


def logo() -> str:
    """Draws the logo: two lines of words with links between them."""
    places = (14, 32, 50)
    links = ((0, 0), (1, 2), (2, 1))
    root = node(
        "svg",
        node("title", "xlj"),
        node("rect", width=64, height=64, rx=14, fill="#3949ab"),
        *(
            node("line", x1=places[i], y1=17, x2=places[j], y2=47, stroke="#ffb74d", stroke_width=4)
            for i, j in links
        ),
        *(node("circle", cx=x, cy=y, r=6.5, fill="#ffffff") for y in (17, 47) for x in places),
        xmlns="http://www.w3.org/2000/svg",
        viewBox="0 0 64 64",
        width=64,
        height=64,
    )
    return etree.tostring(root, encoding="unicode") + "\n"
