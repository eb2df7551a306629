"""Several processes that are one run: what they agree on, preemption, and the guard of each."""
