"""How long programs take to begin."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from xlj.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.benchmarking.peers import library
from xlj.config import Config

_BESIDE = {
    "import xlj": ("import transformers", "transformers"),
    "import xlj.training.loop": ("from transformers import Trainer", "transformers"),
    "import xlj.word_alignment.aligner": ("import simalign", "simalign"),
    "import xlj.retrieval.embedder": ("import sentence_transformers", "sentence_transformers"),
}
"""What a program imports, and what does the same elsewhere."""


def each_import(config: Config, size: Size) -> Iterator[Measurement]:
    """New processes of Python that import what a program needs, and end."""
    for ours, (theirs, name) in _BESIDE.items():
        seconds, peer = _seconds(ours, size.repeats), None
        if library(name):
            peer = _seconds(theirs, size.repeats)
        yield Measurement("start", ours, seconds, "s", theirs, peer)


def _seconds(program: str, repeats: int) -> float:
    start = [sys.executable, "-c", program]
    return median_seconds(partial(subprocess.run, start, check=True, capture_output=True), repeats)
