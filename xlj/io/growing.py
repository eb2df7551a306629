"""Files that grow a line at a time, in a folder of this machine or in a bucket."""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import storage
from xlj.io.atomic import as_config_error
from xlj.io.storage import AnyPath, Url

_BETWEEN = 60.0  # seconds between sendings: objects do not grow, so each sends all of a file again


class GrowingFiles:
    """The files of a folder that somebody appends to. Those of a bucket grow in a folder of this
    machine, from which they are sent.

    Args:
      folder: where they are or will be.

    Attributes:
      folder: as it was given.
      here: the folder of this machine in which they grow.
    """

    def __init__(self, folder: AnyPath):
        self.folder, self._sent, self._last = folder, dict[Path, int](), time.monotonic()
        is_url = isinstance(folder, Url)
        self.here = Path(tempfile.mkdtemp(prefix="xlj-")) if is_url else Path(str(folder))

    def path(self, name: str) -> Path:
        """Where a file grows; an `OSError` if its server cannot be asked for what is there."""
        path = self.here / name
        if isinstance(self.folder, Url) and not path.exists():
            there = self.folder / name
            if there.is_file():
                path.write_bytes(there.read_bytes())
        return path

    def send(self, now: bool = False) -> None:
        """Sends files of a bucket that have grown: `now`, with a `ConfigError` if one cannot be
        sent, or if the last sending was some time ago; then what fails is sent the next time."""
        if not isinstance(self.folder, Url):
            return
        if not now:
            if time.monotonic() - self._last >= _BETWEEN:
                self._last = time.monotonic()
                with contextlib.suppress(ConfigError):
                    self.send(now=True)
            return
        for path in sorted(self.here.rglob("*")):
            if path.is_file() and self._sent.get(path) != (size := path.stat().st_size):
                url = self.folder / path.relative_to(self.here).as_posix()
                with as_config_error(url):
                    storage.send(path, url)
                self._sent[path] = size
        self._last = time.monotonic()

    def close(self) -> None:
        """Sends what is left; raises as `send`."""
        try:
            self.send(now=True)
        finally:
            if isinstance(self.folder, Url):
                shutil.rmtree(self.here, ignore_errors=True)
