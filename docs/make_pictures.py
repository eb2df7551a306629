"""Draws the pictures of the documentation, docs/pictures/*.svg: python docs/make_pictures.py"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

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


def main() -> None:
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
