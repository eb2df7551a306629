"""A teacher that is a file of vectors: of another library, or of a service."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.config.paths import local_path
from xlj.data.text.cleaning import clean
from xlj.io import files
from xlj.io.progress import Advance
from xlj.io.quoting import quoted, shortened


class StoredVectors:
    """Vectors in a file NAME.npy, [sentences, width], of the lines of the file NAME.txt.

    Lines are compared after they are cleaned as the text of a run (`cleaning.clean`). Of equal
    lines, the first counts.

    Args:
      path: the path of NAME.npy.
      key: the config key that set the path, for errors.

    Raises:
      ConfigError: if a file is missing or damaged, or the files have different lengths.
    """

    def __init__(self, path: str, key: str):
        self._key, self._file = f"{key}={path}", local_path(key, path)
        self._lines_file = self._file.with_suffix(".txt")
        for file in (self._file, self._lines_file):
            if not file.is_file():
                raise ConfigError(
                    f"{self._key}: {file} does not exist; vectors in NAME.npy need their sentences "
                    "in NAME.txt, one per line"
                )
        try:
            self._vectors = np.load(self._file, "r", allow_pickle=False)
        except ValueError as error:
            raise ConfigError(f"{self._key} is no array ({shortened(str(error))})") from None
        if self._vectors.ndim != 2 or self._vectors.dtype.kind != "f":
            raise ConfigError(
                f"{self._key} has the shape {list(self._vectors.shape)} and the type "
                f"{self._vectors.dtype}; expected floats [sentences, width]"
            )

    @staticmethod
    def is_path(teacher: str) -> bool:
        """Whether a teacher is a file of vectors."""
        return teacher.endswith(".npy")

    @property
    def width(self) -> int:
        """The number of dimensions."""
        return int(self._vectors.shape[1])

    def digest(self) -> str:
        """Returns a hash of both files, 16 hex digits."""
        return "".join(_hash(file)[:8] for file in (self._file, self._lines_file))

    def embed(self, sentences: Sequence[str], progress: Advance = bool) -> np.ndarray:
        """Returns the vectors of sentences, float32 [sentences, width].

        Raises:
          ConfigError: if a sentence is not in NAME.txt.
        """
        missing = next((each for each in sentences if each not in self._places), None)
        if missing is not None:
            raise ConfigError(
                f"{self._key}: {self._lines_file} has no line {quoted(shortened(missing))}, which "
                "the teacher reads; add its vector, or remove the sentence from the text"
            )
        places = [self._places[sentence] for sentence in sentences]
        progress(len(places))
        return np.asarray(self._vectors[places], np.float32)

    @cached_property
    def _places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        count = 0
        for count, line in enumerate(files.lines(self._lines_file), 1):
            places.setdefault(clean(line), count - 1)
        if count != len(self._vectors):
            raise ConfigError(
                f"{self._key} has {len(self._vectors):,} vectors, but {self._lines_file} has "
                f"{count:,} lines"
            )
        return places


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
