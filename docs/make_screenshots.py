"""Takes the screenshots of the documentation: python docs/make_screenshots.py runs/quickstart

The script aligns sentences of the phrasebook with a trained encoder. It writes the alignment page
and the report of the run, and takes a screenshot of the top of each page. Requirements: Chromium
(Debian: `apt-get install chromium`) and Pillow.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from xlj import phrasebook

FOLDER = Path(__file__).with_name("pictures")
PAIRS = 200
"""The number of pairs to align."""
WIDTH, SCALE, COLOURS = 1040, 1.25, 128
"""The width of a screenshot in CSS pixels, image pixels per CSS pixel, and the number of
colours."""


def words(sentence: phrasebook.Sentence) -> list[str]:
    """Returns the words of a sentence of the phrasebook."""
    return [sentence.text[start:end] for start, end in sentence.spans]


def write_gold(file: Path) -> None:
    """Writes sentence pairs with gold links, as `xlj.align --gold` reads them."""
    with file.open("w", encoding="utf-8") as lines:
        for index in range(PAIRS):
            pair = phrasebook.pair(phrasebook.draw(2026, index), "en", "de")
            links = " ".join(f"{i}-{j}" for i, j in sorted(pair.alignment))
            sides = (" ".join(words(side)) for side in (pair.source, pair.target))
            lines.write("\t".join([*sides, links]) + "\n")


def run(command: str, *arguments: str) -> None:
    """Runs a command of xlj."""
    subprocess.run([sys.executable, "-m", command, *arguments], check=True)


def take(browser: str, page: Path, picture: Path, height: int) -> None:
    """Takes a screenshot of the top of a page, with light colours and a small palette."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [
                browser,
                *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--no-first-run", "--disable-background-networking", "--disable-sync"),
                f"--user-data-dir={folder}/profile",
                f"--force-device-scale-factor={SCALE}",
                f"--window-size={WIDTH},{height}",
                f"--screenshot={shot}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        with Image.open(shot) as image:
            image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workdir", type=Path, help="the workdir of a finished run of configs/quickstart.py"
    )
    parser.add_argument("--browser", default=shutil.which("chromium") or "chromium")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_gold(folder / "gold.tsv")
        links, curves = folder / "alignments.html", folder / "report.html"
        gold = f"--input={folder}/gold.tsv", "--gold", f"--html={links}"
        run("xlj.align", f"--checkpoint={flags.workdir}", *gold)
        run("xlj.report", str(flags.workdir), f"--output={curves}")
        take(flags.browser, links, FOLDER / "alignment_page.png", 640)
        take(flags.browser, curves, FOLDER / "report.png", 800)


if __name__ == "__main__":
    main()
