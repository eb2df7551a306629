"""Metrics that agree with official scripts, for answers, tags, mined pairs, labels and
correlations.

They need only Python and NumPy. Metrics except correlations are between 0 and 1.
"""
