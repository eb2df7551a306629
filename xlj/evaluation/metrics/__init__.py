"""Scores that agree with the official ones: answers, tags, mined pairs, labels. Plain Python and
NumPy; all are shares between 0 and 1."""
