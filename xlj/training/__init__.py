"""The one train loop: state, step, optimizer, evaluation, metrics."""
