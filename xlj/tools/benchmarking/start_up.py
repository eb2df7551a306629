"""Measures the import time of xlj's commands and of other libraries."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from xlj.config import Config
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library

_PEERS = {
    "import xlj": ("import transformers", "transformers"),
    "import xlj.training.loop": ("from transformers import Trainer", "transformers"),
    "import xlj.word_alignment.aligner": ("import simalign", "simalign"),
    "import xlj.retrieval.embedder": ("import sentence_transformers", "sentence_transformers"),
}
"""By program that imports what a command of xlj needs: a program that imports another library for
the same work, and the name of that library."""


def measure_imports(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures the time of a new Python process that only imports what a command needs."""
    for program, (peer_program, name) in _PEERS.items():
        seconds, peer_seconds = _seconds(program, size.repeats), None
        if library(name):
            peer_seconds = _seconds(peer_program, size.repeats)
        yield Measurement("start", program, seconds, "s", peer_program, peer_seconds)


def _seconds(program: str, repeats: int) -> float:
    start = [sys.executable, "-c", program]
    return median_seconds(partial(subprocess.run, start, check=True, capture_output=True), repeats)
