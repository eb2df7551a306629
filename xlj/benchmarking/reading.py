"""The speed of reading rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlj.benchmarking.timing import Size, median_seconds
from xlj.config import Config
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows, with_rows


def read(config: Config, size: Size) -> None:
    """Batches of finished rows, their checks included."""
    config = with_rows(config)
    batches = Batches(prepare_rows(config), config)
    steps = 50
    for name, (_, length) in batches.shapes(0).items():
        slots = np.arange(4096)  # slots beyond a batch are the next steps' rows

        def call(name: str = name, slots: Any = slots) -> None:
            for step in range(steps):
                batches.read(name, step, slots)

        seconds = median_seconds(call, size.repeats)
        rate = steps * len(slots) * length / seconds / 1e6
        print(f"read {name}: {rate:.0f} million tokens/s", flush=True)
