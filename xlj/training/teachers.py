"""Finds the teachers whose vectors rows contain, and completes the keys that describe them."""

import dataclasses

from xlj.checkpoints import stored_models
from xlj.checkpoints.reading import Checkpoint
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, ConfigError
from xlj.data.rows.request import hash_json
from xlj.data.rows.stored_vectors import StoredVectors
from xlj.objectives.sentence_distillation.options import Teaching

VERSION = 1
"""Version of the computation of vectors, a part of their digest."""


def width_of(source: StoredModel) -> int:
    """Returns the number of dimensions of the sentence vectors of a model."""
    width = source.model.hidden
    if source.sentence is None:
        return width
    width = source.sentence.width(width)
    return min(width, source.sentence.settings.get("truncate_dim") or width)


def digest_of(source: StoredModel, prompt: str) -> str:
    """Returns a hash of everything that determines a teacher's vectors, 16 hex digits.

    Args:
      prompt: text that begins each sentence; empty for the default prompt of the modules.
    """
    sentence = source.sentence and source.sentence.record()
    return hash_json([VERSION, source.digest(), source.vocabulary().digest, sentence, prompt])


def adopt(config: Config, earliest: Checkpoint | None) -> Config:
    """Sets the keys `width` and `teacher_digest` of the objectives that distil sentence vectors.

    With `data.rows`, the rows contain the vectors, and no teacher is read.

    Args:
      config: has the sizes of the run's model.
      earliest: the earliest checkpoint of a resumed run, whose keys are used if the teacher is the
        same path; None in a new run.

    Raises:
      ConfigError: if a teacher does not exist, has another digest than the config names, or vectors
        of another size than the student.
    """
    taught = {n: x for n, x in config.objectives_on().items() if isinstance(x, Teaching)}
    if not taught:
        return config
    options = dict(config.objectives.options)
    for name, active in taught.items():
        path, hidden = active.path(name), config.model.hidden
        if config.data.rows:  # `open_rows` compares the width
            values = active.dense or hidden, active.teacher_digest
        else:
            values = _recorded(earliest, name, active) or _read(active, f"{path}.teacher")
        width, digest = values
        if active.teacher_digest not in ("", digest):
            raise ConfigError(
                f"{path}.teacher={active.teacher} has the digest {digest}, not "
                f"{path}.teacher_digest={active.teacher_digest}; name the same teacher and prompt, "
                "or leave the digest empty"
            )
        active.check_width(path, width, hidden)
        declared = options[name]
        assert isinstance(declared, Teaching)
        options[name] = dataclasses.replace(declared, width=width, teacher_digest=digest)
    objectives = dataclasses.replace(config.objectives, options=options)
    return dataclasses.replace(config, objectives=objectives)


def _read(options: Teaching, key: str) -> tuple[int, str]:
    """Returns the width and the digest of the teacher that the key names."""
    if not StoredVectors.is_path(options.teacher):
        source = stored_models.find(options.teacher, key)
        return width_of(source), digest_of(source, options.teacher_prompt)
    if options.teacher_prompt:
        raise ConfigError(f"{key}={options.teacher} is a file of vectors; remove teacher_prompt")
    stored = StoredVectors(options.teacher, key)
    return stored.width, stored.digest()


def _recorded(earliest: Checkpoint | None, name: str, options: Teaching) -> tuple[int, str] | None:
    """Returns the width and the digest in the config of a run, if it has the same teacher."""
    if earliest is None:
        return None
    recorded = earliest.config()["objectives"].get(name, {})
    keys = ("teacher", "teacher_prompt")
    if any(recorded.get(key) != getattr(options, key) for key in keys):
        return None
    return recorded["width"], recorded["teacher_digest"]
