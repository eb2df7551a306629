"""Files that grow line by line, in a local folder or in a bucket."""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import storage
from xlj.io.atomic import as_config_error
from xlj.io.storage import AnyPath, Url

_BETWEEN = 60.0  # seconds between uploads: objects cannot grow, so each upload sends a whole file


class GrowingFiles:
    """The files of a folder that a process appends to.

    Files of a bucket grow in a local folder, from which they are uploaded.

    Args:
      folder: the folder of the files; it may not exist yet.

    Attributes:
      folder: the same.
      here: the local folder in which the files grow.
    """

    def __init__(self, folder: AnyPath):
        self.folder, self._sent, self._last = folder, dict[Path, int](), time.monotonic()
        is_url = isinstance(folder, Url)
        self.here = Path(tempfile.mkdtemp(prefix="xlj-")) if is_url else Path(str(folder))

    def path(self, name: str) -> Path:
        """Returns the local path of a file; raises `OSError` if its server does not respond."""
        path = self.here / name
        if isinstance(self.folder, Url) and not path.exists():
            remote = self.folder / name
            if remote.is_file():
                path.write_bytes(remote.read_bytes())
        return path

    def send(self, now: bool = False) -> None:
        """Uploads files of a bucket that have grown.

        With `now`, uploads them at once, and raises a `ConfigError` if that fails. Otherwise,
        uploads them only if the last upload was some time ago; failures are retried the next time.
        """
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
        """Uploads the remaining files; raises as `send`."""
        try:
            self.send(now=True)
        finally:
            if isinstance(self.folder, Url):
                shutil.rmtree(self.here, ignore_errors=True)
