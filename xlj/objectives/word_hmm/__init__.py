"""Word alignment with a hidden Markov model of translation (ours)."""
