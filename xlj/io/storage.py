"""The one way to storage: paths of this machine and URLs, in the same words.

`place` gives a `Path` or a `Url`, which has those methods of a `Path` that xlj uses. What a URL
cannot do is replaced here: a file is mapped by being read, a folder is there without being made, a
lock is an object that only one can make. Text is read from https, http, gs and s3; rows are read
from buckets (gs, s3) and written there, and workdirs may be in gs. Buckets need
`pip install 'xlj[cloud]'`.
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
_told: "dict[Url, Stat]" = {}  # of files, when they were matched last


class Stat(NamedTuple):
    """The size of a file in bytes, and what changes whenever its content does: the server's tag of
    it, or a time."""

    st_size: int
    version: str


@dataclasses.dataclass(frozen=True, order=True)
class Url:
    """A file or folder at a URL, in the words of `pathlib.Path`; errors are `OSError`s."""

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
        """What follows the last slash; of a web page without what follows `?`."""
        path = self.url.partition("?")[0] if self._home is web else self.url
        return path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The name's last ending, with its dot."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The name without its last ending."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> "Url":
        """The folder that it lies in."""
        return Url(self.url.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> "Url":
        """The same with another last ending."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "Url":
        """Itself."""
        return self

    def stat(self) -> Stat:
        """What is told of the file; a `FileNotFoundError` if there is none."""
        return Stat(*self._home.stat(self.url))

    def is_file(self) -> bool:
        """Whether there is such a file."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def exists(self) -> bool:
        """Whether there is such a file: buckets have no folders."""
        return self.is_file()

    def is_dir(self) -> bool:
        """False: buckets have no folders."""
        return False

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """The file, to be read; bytes come in large pieces whatever `buffering` says."""
        assert mode == "rb", f"files at URLs are read, or written whole, but not opened for {mode}"
        return io.BufferedReader(self._home.Reader(self.url), self._home.BLOCK_BYTES)

    def read_bytes(self) -> bytes:
        """All of the file."""
        with self.open() as file:
            return file.read()

    def read_range(self, start: int, stop: int) -> bytes:
        """Its bytes [start, stop)."""
        found = buckets.read_range(self.url, start, stop)
        if len(found) != stop - start:
            raise OSError(f"{self.url} ends before its byte {stop:,}")
        return found

    def sizes(self) -> dict[str, int]:
        """Bytes of the files in this folder, by name; of many as fast as of one."""
        return buckets.sizes(self.url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing, since a folder of a bucket is there with its first file; but an `OSError` if
        the bucket cannot be asked."""
        self.is_file()

    def unlink(self, missing_ok: bool = False) -> None:
        """Deletes the file."""
        buckets.delete(self.url, missing_ok)

    @property
    def _home(self) -> Any:
        return _SCHEMES[self.url.partition(":")[0]]


AnyPath = Path | Url
"""Where something is: here, or at a URL."""


def place(named: str | AnyPath) -> AnyPath:
    """The place of a path, with `~` for the home folder, or of a URL; a `ConfigError` if URLs of
    its kind are not read."""
    if isinstance(named, Url):
        return named
    scheme = scheme_of(named)
    if not scheme:
        return Path(named).expanduser()
    if scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ConfigError(f"{named}: only {known} and paths of this machine can be read")
    return Url(str(named))


def matching(pattern: str) -> list[AnyPath]:
    """The files that a path or URL stands for, in order; `*`, `?`, `[...]` and `**` match as in a
    shell, but not on web servers, which list nothing.

    Raises:
      ConfigError: if a server cannot be asked.
    """
    path = place(pattern)
    if isinstance(path, Url):
        try:
            found = _matching(path.url)
            _told.update(found)
            return [*found]
        except OSError as error:
            raise ConfigError(f"{path}: it cannot be read ({error})") from error
    return [*matching_here(path)]


def matching_here(path: Path) -> list[Path]:
    """As `matching`, of files of this machine."""
    if path.is_file() or not glob.has_magic(str(path)):
        return [path] if path.is_file() else []
    found = map(Path, glob.glob(str(path), recursive=True))
    return sorted(match for match in found if match.is_file())


def _matching(url: str) -> dict[Url, Stat]:
    """The files in order, and what is told of each, without asking once more."""
    if _SCHEMES[url.partition(":")[0]] is web:
        if "*" in url:
            raise ConfigError(f"{url}: a web server does not list its files; name each of them")
    elif glob.has_magic(url):
        return {Url(found): Stat(*told) for found, told in buckets.matching(url).items()}
    try:
        return {Url(url): Url(url).stat()}
    except FileNotFoundError:
        return {}


def below(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """The files below a folder that match, in order."""
    if isinstance(folder, Url):
        return [*_matching(f"{folder}/{pattern}")]
    return [*sorted(folder.glob(pattern))]


def identity(path: AnyPath) -> list[str | int]:
    """What tells a file of text from another without reading it: its absolute path, size in bytes,
    and the time of its last change in ns, or what its server says instead of a time. Of a URL it is
    what was told when `matching` found it: text is listed once, however often that is read."""
    if isinstance(path, Url):
        return [str(path), *(_told.get(path) or path.stat())]
    found = path.stat()
    return [f"{path.absolute()}", found.st_size, found.st_mtime_ns]


def size(path: AnyPath) -> int:
    """The size in bytes of a file of text, as `identity` says it."""
    return path.stat().st_size if isinstance(path, Path) else int(identity(path)[1])


def changed(path: AnyPath) -> float:
    """When a file was last written, so that the latest of several is known."""
    return path.stat().st_mtime if isinstance(path, Path) else buckets.changed(path.url)


def can_seek(path: AnyPath) -> bool:
    """Whether a file is read from anywhere: not from web servers that know no ranges."""
    return isinstance(path, Path) or path._home.can_seek(path.url)


def mapped(path: AnyPath, dtype: np.dtype | str) -> np.ndarray:
    """The records of a file, [records]: mapped into memory, or of a URL all read."""
    if isinstance(path, Url):
        return np.frombuffer(path.read_bytes(), dtype)
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))


def is_there(path: AnyPath) -> bool:
    """Whether there is a file or a folder of that name; a folder of a bucket is there if something
    is in it."""
    return path.exists() or (isinstance(path, Url) and bool(buckets.listed(path.url)))


def move_folder(path: AnyPath, target: AnyPath, first: str) -> None:
    """Moves a folder within its disk or bucket. In a bucket, where that takes a while, what is at
    the old place has no file `first` as soon as something is missing of it."""
    if isinstance(path, Url):
        buckets.move_below(path.url, str(target), first)
    else:
        path.rename(str(target))


def remove_folder(path: AnyPath) -> None:
    """Deletes a folder and all below, if it is there."""
    if isinstance(path, Url):
        buckets.delete_below(path.url)
    else:
        shutil.rmtree(path, ignore_errors=True)


def send(file: Path, url: Url) -> None:
    """Sends a file of this machine: it appears under `url` whole, or not at all if this process is
    killed before."""
    buckets.send(file, url.url)


@contextlib.contextmanager
def lock(folder: AnyPath, name: str = ".lock", wait: bool = True) -> Iterator[None]:
    """Nobody else holds the lock of this folder meanwhile; who comes waits, and says so, or without
    `wait` gets a `BlockingIOError`. It ends with the process; in a bucket a minute after it, if it
    was killed."""
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
            print(f"another process is at work in {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
