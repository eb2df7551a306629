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

_UPLOAD_INTERVAL = 60.0
"""Seconds between uploads. Objects of buckets cannot grow, so each upload sends the whole file."""


class GrowingFiles:
    """Files in one folder, to which a process appends lines.

    If the folder is in a bucket, the files grow in a temporary local folder and are uploaded from
    there.

    Args:
      folder: the folder of the files; it need not exist yet.

    Attributes:
      folder: the argument `folder`.
      local_folder: the local folder in which the files grow; `folder` itself, if it is local.
    """

    def __init__(self, folder: AnyPath):
        self.folder, self._sent, self._last = folder, dict[Path, int](), time.monotonic()
        is_url = isinstance(folder, Url)
        self.local_folder = Path(tempfile.mkdtemp(prefix="xlj-")) if is_url else Path(str(folder))

    def path(self, name: str) -> Path:
        """Returns the local path of a file; if only the bucket has the file, downloads it first.

        Raises:
          OSError: if the server of the bucket does not respond.
        """
        path = self.local_folder / name
        if isinstance(self.folder, Url) and not path.exists():
            remote = self.folder / name
            if remote.is_file():
                path.write_bytes(remote.read_bytes())
        return path

    def send(self, now: bool = False) -> None:
        """Uploads the files that have grown; does nothing for a local folder.

        Args:
          now: True uploads the files at once. False uploads them only if the last upload was at
            least 60 seconds ago, and ignores a failed upload, which the next call retries.

        Raises:
          ConfigError: if an upload with `now=True` fails.
        """
        if not isinstance(self.folder, Url):
            return
        if not now:
            if time.monotonic() - self._last >= _UPLOAD_INTERVAL:
                self._last = time.monotonic()
                with contextlib.suppress(ConfigError):
                    self.send(now=True)
            return
        for path in sorted(self.local_folder.rglob("*")):
            if path.is_file() and self._sent.get(path) != (size := path.stat().st_size):
                url = self.folder / path.relative_to(self.local_folder).as_posix()
                with as_config_error(url):
                    storage.upload(path, url)
                self._sent[path] = size
        self._last = time.monotonic()

    def close(self) -> None:
        """Uploads the files that have grown, and removes the temporary local folder.

        Raises:
          ConfigError: if an upload fails.
        """
        try:
            self.send(now=True)
        finally:
            if isinstance(self.folder, Url):
                shutil.rmtree(self.local_folder, ignore_errors=True)
