"""Writes, reads, verifies and compares checkpoints; finds models from which a run can start."""

import os

# Orbax opens files through epath, which imports TensorFlow unless EPATH_USE_TF is 0.
os.environ.setdefault("EPATH_USE_TF", "0")
