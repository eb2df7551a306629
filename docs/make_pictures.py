"""Draws the pictures of the documentation, docs/pictures/*.svg.

python docs/make_pictures.py
python docs/make_pictures.py --encoder=build/real/e5  # first aligns the pair of alignment.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pictures import attention, layers, objectives, plots, system

FOLDER = Path(__file__).with_name("pictures")

PICTURES: Mapping[str, Callable[[], str]] = {
    "mmlm": attention.masked_text,
    "tlm": attention.translation,
    "camlm": attention.cross_attention,
    "btmlm": attention.back_translation,
    "rtd": objectives.replaced_tokens,
    "dwa": objectives.word_alignment,
    "xlco": objectives.contrast,
    "retrieval": objectives.retrieval,
    "word_hmm": objectives.word_hmm,
    "way_of_a_row": system.way_of_a_row,
    "mesh": system.mesh,
    "layers": layers.layers,
    "alignment": system.alignment,
    "logo": system.logo,
    "zero_shot_udpos": plots.zero_shot_udpos,
    "zero_shot_xquad": plots.zero_shot_xquad,
    "zero_shot_xnli": plots.zero_shot_xnli,
    "minilm_udpos": plots.minilm_udpos,
    "minilm_translations": plots.minilm_translations,
    "adaptation": plots.adaptation,
    "speed_h100": plots.speed_h100,
    "aligners": plots.aligners,
    "objectives_aer": plots.objectives_aer,
    "objectives_retrieval": plots.objectives_retrieval,
}
"""The function that draws each picture, by the name of the picture's file."""


PAIR = ("She has not read the book yet", "Sie hat das Buch noch nicht gelesen")
"""The pair of alignment.svg."""


def write_links(encoder: Path) -> None:
    """Writes the words of `PAIR` and the encoder's links, which alignment.svg shows, as JSON.

    A link is [index of the source word, index of the target word, confidence from 0 to 1].
    """
    import xlj

    model = xlj.load(encoder)
    options: Any = {"method": "argmax", "together": False}
    (links,), (soft,) = model.align(PAIR, **options), model.soft_align(PAIR, **options)
    source, target = (side.split() for side in PAIR)
    with_confidences = [[i, j, round(float(soft[i, j]), 3)] for i, j in links]
    content = {"source": source, "target": target, "links": with_confidences}
    system.ALIGNMENT.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, help="the folder of multilingual-e5-small")
    flags = parser.parse_args()
    if flags.encoder:
        write_links(flags.encoder)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
