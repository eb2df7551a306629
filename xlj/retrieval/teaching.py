"""Loads the teachers whose sentence vectors are stored with the rows of a run."""

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from xlj.checkpoints import stored_models
from xlj.config import Config
from xlj.data.rows.stored_vectors import StoredVectors
from xlj.data.rows.vectors import Embed
from xlj.inference import pretrained
from xlj.io.progress import Advance
from xlj.objectives.sentence_distillation.options import Teaching
from xlj.retrieval import embedder
from xlj.sharding import meshes


def teachers_of(config: Config) -> Callable[[str], Embed]:
    """Returns a function that loads the teacher of a kind of rows of a config.

    The function prints how the teacher computes vectors. The teacher uses all local devices, and
    its vectors do not depend on their number.
    """

    @functools.cache
    def open_teacher(path: str, key: str, prompt: str) -> Embed:
        if StoredVectors.is_path(path):
            return StoredVectors(path, key).embed
        source = stored_models.find(path, key)
        on_devices = pretrained.of(source, meshes.local_devices())
        of_teacher = embedder.by_modules(on_devices, prompt or None, whole_batches=True)
        how = source.sentence.report() if source.sentence else "mean of the last layer"
        begins = f", prompt {of_teacher.prompt!r}" if of_teacher.prompt else ""
        print(f"teacher: {path} ({how}{begins})", file=sys.stderr, flush=True)

        def embed(sentences: Sequence[str], progress: Advance = bool) -> np.ndarray:
            return np.concatenate([part[0] for part in of_teacher.stream(sentences, progress)])

        return embed

    def load(kind: str) -> Embed:
        options = next(
            options
            for options in config.objectives_on().values()
            if isinstance(options, Teaching) and options.rows == kind
        )
        return open_teacher(options.teacher, "teacher", options.teacher_prompt)

    return load
