"""The one train loop: state, step, optimizer, partitioning, checkpoints, evaluation, metrics."""
