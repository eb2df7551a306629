"""Attention as Pallas kernels, forward and backward, without [length, length] arrays in memory."""
