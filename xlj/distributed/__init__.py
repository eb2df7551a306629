"""Runs of several processes: shared values, preemption, and guards that detect lost processes."""
