"""A common interface for local paths and URLs.

`place` returns a `Path` or a `Url`; the latter has those methods of a `Path` that xlj uses. Other
functions replace what URLs cannot do: a file is read instead of memory-mapped, a folder exists
without being created, a lock is an object that only one process can create. Text is read from
https, http, gs and s3. Rows are read from and written to buckets (gs, s3), and workdirs may be in
gs. Buckets need `pip install 'xlj[cloud]'`.
"""

import contextlib
import dataclasses
import fcntl
import glob
import io
import posixpath
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.paths import scheme_of
from xlj.io import buckets, web

_SCHEMES: dict[str, ModuleType] = {"https": web, "http": web, "gs": buckets, "s3": buckets}
_listed_stats: "dict[Url, Stat]" = {}  # of files, from the last time they were matched


class Stat(NamedTuple):
    """Facts about a file.

    Attributes:
      st_size: bytes.
      version: changes whenever the content does: the server's ETag, or a time.
    """

    st_size: int
    version: str


@dataclasses.dataclass(frozen=True, order=True)
class Url:
    """A file or folder at a URL, with the interface of `pathlib.Path`; errors are `OSError`s."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, below: str) -> "Url":
        base = self.url.rstrip("/")
        while below.startswith("../"):
            base, below = base.rpartition("/")[0], below.removeprefix("../")
        return Url(f"{base}/{below}")

    @property
    def name(self) -> str:
        """The part after the last slash; for a web page, without the part from `?` on."""
        path = self.url.partition("?")[0] if self._home is web else self.url
        return path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last ending of the name, with its dot."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The name without its last ending."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> "Url":
        """The folder that contains it."""
        return Url(self.url.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> "Url":
        """Returns the URL with another last ending."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "Url":
        """Returns itself."""
        return self

    def stat(self) -> Stat:
        """Returns size and version of the file; raises `FileNotFoundError` if it does not exist."""
        return Stat(*self._home.stat(self.url))

    def is_file(self) -> bool:
        """Whether the file exists."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def exists(self) -> bool:
        """Whether the file exists; buckets have no folders."""
        return self.is_file()

    def is_dir(self) -> bool:
        """Returns False: buckets have no folders."""
        return False

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Opens the file for reading; bytes come in large pieces, whatever `buffering` is."""
        assert mode == "rb", f"files at URLs are read, or written whole, but not opened for {mode}"
        return io.BufferedReader(self._home.Reader(self.url), self._home.BLOCK_BYTES)

    def read_bytes(self) -> bytes:
        """Returns the whole content."""
        with self.open() as file:
            return file.read()

    def read_range(self, start: int, stop: int) -> bytes:
        """Returns the bytes [start, stop)."""
        content = buckets.read_range(self.url, start, stop)
        if len(content) != stop - start:
            raise OSError(f"{self.url} ends before its byte {stop:,}")
        return content

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of the files in this folder, by name, with one request."""
        return buckets.sizes(self.url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing, since a folder of a bucket exists with its first file.

        Raises:
          OSError: if the bucket does not respond.
        """
        self.is_file()

    def unlink(self, missing_ok: bool = False) -> None:
        """Deletes the file."""
        buckets.delete(self.url, missing_ok)

    @property
    def _home(self) -> Any:
        return _SCHEMES[self.url.partition(":")[0]]


AnyPath = Path | Url
"""A local path or a URL."""


def place(named: str | AnyPath) -> AnyPath:
    """Converts a path, with `~` for the home folder, or a URL.

    Raises:
      ConfigError: if URLs of its kind are not supported.
    """
    if isinstance(named, Url):
        return named
    scheme = scheme_of(named)
    if not scheme:
        return Path(named).expanduser()
    if scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ConfigError(f"{named}: only {known} and local paths are supported")
    return Url(str(named))


def matching(pattern: str) -> list[AnyPath]:
    """Returns the files that match a path or URL, sorted.

    `*`, `?`, `[...]` and `**` match as in a shell, except on web servers, which cannot list files.

    Raises:
      ConfigError: if a server does not respond.
    """
    path = place(pattern)
    if isinstance(path, Url):
        try:
            stats = _matching(path.url)
            _listed_stats.update(stats)
            return [*stats]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error})") from error
    return [*matching_local(path)]


def matching_local(path: Path) -> list[Path]:
    """Returns the local files that match, as `matching`."""
    if path.is_file() or not glob.has_magic(str(path)):
        return [path] if path.is_file() else []
    matches = map(Path, glob.glob(str(path), recursive=True))
    return sorted(match for match in matches if match.is_file())


def _matching(url: str) -> dict[Url, Stat]:
    """Returns the files, sorted, with size and version of each, without further requests."""
    if _SCHEMES[url.partition(":")[0]] is web:
        if "*" in url:
            raise ConfigError(f"{url}: a web server does not list its files; name each file")
    elif glob.has_magic(url):
        return {Url(match): Stat(*stat) for match, stat in buckets.matching(url).items()}
    try:
        return {Url(url): Url(url).stat()}
    except FileNotFoundError:
        return {}


def below(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """Returns the files below a folder that match, sorted."""
    if isinstance(folder, Url):
        return [*_matching(f"{folder}/{pattern}")]
    return [*sorted(folder.glob(pattern))]


def identity(path: AnyPath) -> list[str | int]:
    """Returns facts that identify a text file without reading it.

    These are its absolute path, its size in bytes, and its modification time in ns, or its version
    on the server. For a URL they date from the last call of `matching`, since text is listed once,
    however often it is read.
    """
    if isinstance(path, Url):
        return [str(path), *(_listed_stats.get(path) or path.stat())]
    stat = path.stat()
    return [f"{path.absolute()}", stat.st_size, stat.st_mtime_ns]


def size(path: AnyPath) -> int:
    """Returns the size in bytes of a text file, as in `identity`."""
    return path.stat().st_size if isinstance(path, Path) else int(identity(path)[1])


def last_modified(path: AnyPath) -> float:
    """Returns when a file was last written, in seconds, to find the latest of several files."""
    return path.stat().st_mtime if isinstance(path, Path) else buckets.last_modified(path.url)


def can_seek(path: AnyPath) -> bool:
    """Whether a file can be read from any position; some web servers do not support this."""
    return isinstance(path, Path) or path._home.can_seek(path.url)


def memory_map(path: AnyPath, dtype: np.dtype | str) -> np.ndarray:
    """Returns the records of a file, [records]: memory-mapped, or read from a URL."""
    if isinstance(path, Url):
        return np.frombuffer(path.read_bytes(), dtype)
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))


def exists(path: AnyPath) -> bool:
    """Whether a file or folder exists; a folder of a bucket exists if it contains a file."""
    return path.exists() or (isinstance(path, Url) and bool(buckets.list_below(path.url)))


def move_folder(path: AnyPath, target: AnyPath, first: str) -> None:
    """Moves a folder within its disk or bucket.

    Moving takes time in a bucket. The file `first` is therefore removed from the old folder before
    any other file, so that a partial folder can be recognized.
    """
    if isinstance(path, Url):
        buckets.move_below(path.url, str(target), first)
    else:
        path.rename(str(target))


def remove_folder(path: AnyPath) -> None:
    """Deletes a folder and its content, if it exists."""
    if isinstance(path, Url):
        buckets.delete_below(path.url)
    else:
        shutil.rmtree(path, ignore_errors=True)


def send(file: Path, url: Url) -> None:
    """Uploads a local file; it appears under `url` complete, or not at all."""
    buckets.send(file, url.url)


@contextlib.contextmanager
def lock(folder: AnyPath, name: str = ".lock", wait: bool = True) -> Iterator[None]:
    """Holds the lock of a folder during the block.

    If another process holds it, prints a message and waits; with `wait=False`, raises
    `BlockingIOError`. The lock ends with the process; in a bucket up to a minute later, if the
    process was killed.
    """
    if isinstance(folder, Url):
        with buckets.lock(f"{folder}/{name}", wait):
            yield
        return
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            print(f"another process is using {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
