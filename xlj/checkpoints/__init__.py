"""Checkpoints: writing, reading, verifying and comparing them; stored models to start from."""

import os

# Orbax opens files through epath, which imports TensorFlow unless this is set.
os.environ.setdefault("EPATH_USE_TF", "0")
