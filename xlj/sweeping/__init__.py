"""Sweeps: many runs of one recipe. A file of configs/sweeps/ makes a `Sweep`, often of a `grid`."""

from xlj.sweeping.definition import Sweep, grid

__all__ = ["Sweep", "grid"]
