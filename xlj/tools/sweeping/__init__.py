"""Sweeps: many runs of one recipe. Files in configs/sweeps/ return a `Sweep`, often of a `grid`."""

from xlj.tools.sweeping.definition import Sweep, grid

__all__ = ["Sweep", "grid"]
