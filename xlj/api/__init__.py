"""The Python API, which the commands use too: a trained encoder, and runs of a config."""
