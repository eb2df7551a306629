"""Metrics that agree with the official ones: answers, tags, mined pairs, labels, correlations. They
use plain Python and NumPy. All but correlations are between 0 and 1."""
