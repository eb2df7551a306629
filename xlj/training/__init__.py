"""The one train loop, from a prepared run to its end: state, step, evaluation, metrics."""
