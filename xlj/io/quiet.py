"""Libraries that write to stderr whatever is set, kept quiet; TensorFlow is imported that way."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xlj.config import ConfigError


def import_quietly(name: str) -> Any:
    """A module that imports TensorFlow, which writes to stderr as it starts whatever is set; a
    `ConfigError` with the reason if it cannot be imported."""
    if name in sys.modules:
        return sys.modules[name]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with quiet():
            return importlib.import_module(name)
    except Exception as error:  # protobuf raises its own kind on versions that do not go together
        mend = "; pip install 'sentencepiece<0.2.3'" if "sentencepiece_model" in str(error) else ""
        raise ConfigError(
            f"reading this data needs {name}, which cannot be imported here "
            f"({type(error).__name__}: {error}){mend}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Drops what the block's libraries write to stderr past Python."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
