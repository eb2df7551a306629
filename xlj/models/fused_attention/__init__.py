"""Attention as Pallas kernels: no array of [length, length] in memory, forward and backward."""
