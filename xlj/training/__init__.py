"""The one train loop: state, step, optimizer, partitioning, checkpoints, evaluation, metrics."""

import os

# Orbax opens files through epath, which brings TensorFlow into the process unless it is told.
os.environ.setdefault("EPATH_USE_TF", "0")
