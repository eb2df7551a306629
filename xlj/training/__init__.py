"""The train loop and its parts: state, step, evaluation, metrics."""
