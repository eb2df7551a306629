"""Checkpoints: written, read, verified, compared with a run; and models on disk to start from."""

import os

# Orbax opens files through epath, which brings TensorFlow into the process unless it is told.
os.environ.setdefault("EPATH_USE_TF", "0")
