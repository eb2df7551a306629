"""A common interface for local paths and URLs.

`to_path` converts a text to a `Path` or a `Url`. A `Url` has the methods of a `Path` that xlj uses.
For other operations, this module has functions that accept both, such as `memory_map` and `lock`.

- Text can be read from https, http, gs, s3 and hf (the Hugging Face hub).
- Rows can be read from and written to buckets of gs and s3. A folder of a bucket needs no creation.
- Workdirs (folders of checkpoints and metrics) can be in buckets of gs.

Buckets need `pip install -e '.[cloud]'`, the hub needs `pip install -e '.[hub]'`.

`describe` has one line for an error of the storage that the user can fix; it names the file.
"""

import contextlib
import dataclasses
import difflib
import errno
import fcntl
import glob
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
from xlj.io import buckets, hub, web

_SCHEMES: dict[str, ModuleType] = {
    "https": web,
    "http": web,
    "gs": buckets,
    "s3": buckets,
    "hf": hub,
}


class Stat(NamedTuple):
    """Size and version of a file at a URL.

    Attributes:
      st_size: size in bytes.
      version: a text that changes when the content changes: the ETag, or else a generation number
        or the time of the last change, or else an empty text.
    """

    st_size: int
    version: str


@dataclasses.dataclass(frozen=True, order=True)
class Url:
    """A file or folder at a URL, with some methods of `pathlib.Path`; these raise `OSError`s.

    `read_range`, `sizes`, `mkdir` and `unlink` are for buckets. The other methods also work for web
    servers and the hub.

    Attributes:
      url: the text of the URL.
      listed: size and version of the file, if `find_files` has listed it. Other processes get it
        with the URL, so one listing serves all of them.
    """

    url: str
    listed: Stat | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, below: str) -> "Url":
        base = self.url.rstrip("/")
        while below.startswith("../"):
            base, below = base.rpartition("/")[0], below.removeprefix("../")
        return Url(f"{base}/{below}")

    @property
    def name(self) -> str:
        """The part after the last slash; for a web server, without `?` and the query after it."""
        path = self.url.partition("?")[0] if self._backend is web else self.url
        return path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last ending of the name, including the dot."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The name without its last ending."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> "Url":
        """The folder that contains the file or folder."""
        return Url(self.url.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> "Url":
        """Returns the URL with `suffix` in place of the last ending."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "Url":
        """Returns the URL itself, since every URL is absolute."""
        return self

    def stat(self) -> Stat:
        """Returns size and version of the file; raises `FileNotFoundError` if it does not exist."""
        return Stat(*self._backend.stat(self.url))

    def is_file(self) -> bool:
        """Whether the file exists."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def exists(self) -> bool:
        """Whether a file exists at the URL; a bucket has no folders."""
        return self.is_file()

    def is_dir(self) -> bool:
        """Returns False: buckets have no folders."""
        return False

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Opens the file for reading; reads in large blocks and ignores `buffering`."""
        assert mode == "rb", f"a file at a URL can only be opened with mode rb, not {mode}"
        file: BinaryIO = self._backend.open_file(self.url)
        return file

    def read_bytes(self) -> bytes:
        """Returns the whole content."""
        with self.open() as file:
            return file.read()

    def read_range(self, start: int, stop: int) -> bytes:
        """Returns the bytes [start, stop)."""
        content = buckets.read_range(self.url, start, stop)
        if len(content) != stop - start:
            raise OSError(f"{self.url} has fewer than {stop:,} bytes")
        return content

    def sizes(self) -> dict[str, int]:
        """Returns the sizes in bytes of the files in this folder, by name, with one request."""
        return buckets.sizes(self.url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Checks that the bucket responds; a folder of a bucket needs no creation.

        Raises:
          OSError: if the bucket does not respond.
        """
        self.is_file()

    def unlink(self, missing_ok: bool = False) -> None:
        """Deletes the file."""
        buckets.delete(self.url, missing_ok)

    @property
    def _backend(self) -> Any:
        """The module `web`, `buckets` or `hub`, depending on the scheme."""
        return _SCHEMES[self.url.partition(":")[0]]


AnyPath = Path | Url
"""A local path or a URL."""


def to_path(name: str | AnyPath) -> AnyPath:
    """Converts a text to a path or URL; a leading `~` is the home folder.

    Raises:
      ConfigError: if the scheme of the URL is not supported.
    """
    if isinstance(name, Url):
        return name
    scheme = scheme_of(name)
    if not scheme:
        return Path(name).expanduser()
    if scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ConfigError(f"{name}: only {known} and local paths are supported")
    return Url(str(name))


def find_files(pattern: str) -> list[AnyPath]:
    """Returns the files that match a path or URL, sorted by name.

    `*`, `?`, `[...]` and `**` match as in a shell, except on web servers, which cannot list files.

    Raises:
      ConfigError: if a server does not respond, the scheme of the URL is not supported, or a URL of
        a web server contains `*`.
    """
    path = to_path(pattern)
    if isinstance(path, Url):
        try:
            return [*_find_urls(path.url)]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error})") from error
    return [*find_local_files(path)]


def find_local_files(path: Path) -> list[Path]:
    """Returns the local files that match a path with wildcards (`find_files`), sorted by name."""
    if path.is_file() or not glob.has_magic(str(path)):
        return [path] if path.is_file() else []
    matches = map(Path, glob.glob(str(path), recursive=True))
    return sorted(match for match in matches if match.is_file())


def list_ahead(start: str) -> None:
    """Lists all files of the hub whose URLs have a common start, with few requests, so that
    `find_files` sends no request for each of many languages. Does nothing for other paths.

    Raises:
      ConfigError: if the server does not respond.
    """
    if scheme_of(start) == "hf":
        try:
            hub.list_ahead(start)
        except OSError as error:
            raise ConfigError(f"{start}... cannot be read ({error})") from error


def _find_urls(url: str) -> list[Url]:
    """Returns the files that match a URL, sorted by name, with the size and version of each."""
    backend = _SCHEMES[url.partition(":")[0]]
    if backend is web:
        if "*" in url:
            raise ConfigError(f"{url}: a web server does not list its files; name each file")
    elif backend is hub or glob.has_magic(url):
        return [Url(match, Stat(*stat)) for match, stat in backend.find_objects(url).items()]
    try:
        return [Url(url, Url(url).stat())]
    except FileNotFoundError:
        return []


def find_files_below(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """Returns the files below a folder whose relative paths match a pattern, sorted by name."""
    if isinstance(folder, Url):
        return [*_find_urls(f"{folder}/{pattern}")]
    return [*sorted(folder.glob(pattern))]


def identity(path: AnyPath) -> list[str | int]:
    """Returns values that identify a text file without reading it.

    For a local file, these are its absolute path, its size in bytes, and its modification time in
    ns. For a URL, these are the URL, its size in bytes, and its version on the server. If
    `find_files` has listed the URL, size and version come from the listing, so that one listing
    serves many reads.
    """
    if isinstance(path, Url):
        return [str(path), *(path.listed or path.stat())]
    stat = path.stat()
    return [f"{path.absolute()}", stat.st_size, stat.st_mtime_ns]


def size(path: AnyPath) -> int:
    """Returns the size in bytes of a text file; for a URL, as `find_files` listed it."""
    return path.stat().st_size if isinstance(path, Path) else int(identity(path)[1])


def last_modified(path: AnyPath) -> float:
    """Returns the time of the last change of a local file or an object, in seconds since 1970."""
    return path.stat().st_mtime if isinstance(path, Path) else buckets.last_modified(path.url)


def can_seek(path: AnyPath) -> bool:
    """Whether a file can be read from any position; some web servers do not support this."""
    return isinstance(path, Path) or path._backend.can_seek(path.url)


def memory_map(path: AnyPath, dtype: np.dtype | str) -> np.ndarray:
    """Memory-maps the records of a local file, or reads those of a URL to memory: [records]."""
    if isinstance(path, Url):
        return np.frombuffer(path.read_bytes(), dtype)
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))


def exists(path: AnyPath) -> bool:
    """Whether a file or folder exists; a folder of a bucket exists if it contains a file."""
    return path.exists() or (isinstance(path, Url) and bool(buckets.list_below(path.url)))


def move_folder(path: AnyPath, target: AnyPath, first: str) -> None:
    """Moves a folder within a disk or a bucket.

    In a bucket, all files are first copied and then deleted, and the process may be killed at any
    point. If the old folder still has the file `first`, the folder is complete, because this file
    is deleted before all other files.

    Args:
      path: the old folder.
      target: the new folder.
      first: the name of a file in the folder.
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


def upload(file: Path, url: Url) -> None:
    """Uploads a local file; the object at `url` appears only when it is complete."""
    buckets.upload(file, url.url)


@contextlib.contextmanager
def lock(folder: AnyPath, name: str = ".lock", wait: bool = True) -> Iterator[None]:
    """Holds the lock of a folder during the block.

    The lock also ends when the process ends. If the process is killed, a lock in a bucket ends up
    to a minute later.

    Args:
      folder: the folder.
      name: name of the lock file or object in the folder.
      wait: what to do if another process holds the lock: True prints a message and waits; False
        raises `BlockingIOError`.

    Raises:
      BlockingIOError: if `wait` is False and another process holds the lock.
      ConfigError: if the lock of a folder in a bucket cannot be created.
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
            print(f"another process is using {folder}; waiting until it ends", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK_ERRORS = (errno.EIO, errno.ESTALE, errno.EROFS, errno.EREMOTEIO)
_FILE_OR_SOCKET_ERRORS = (
    errno.EACCES,
    errno.EPERM,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.ENOTCONN,
)
"""Errors that files and sockets can raise; only errors of files have a `filename`."""


def what_is_there(path: str | AnyPath) -> str:
    """Returns a hint for the error about a local file that is missing, such as `; there is
    corpus/yo.txt.gz`. The text is empty if nothing there has a similar name.

    Args:
      path: the path of the file. Wildcards, URLs and sources such as `phrasebook:sw` get no
        hint.
    """
    file = Path(str(path)).expanduser()
    if ":" in str(path) or file.exists() or glob.has_magic(str(file)):
        return ""
    try:
        names = sorted(entry.name for entry in file.parent.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return f"; there is no folder {file.parent}"
    except OSError:  # a folder that this user may not read
        return ""
    start = file.name.partition(".")[0] + "."
    same = [name for name in names if name.startswith(start)]
    near = same[:3] or difflib.get_close_matches(file.name, names, n=1, cutoff=0.75)
    shown = [str(Path(str(path)).parent / name) for name in near]
    return f"; there is {' and '.join(shown)}" if shown else ""


def describe_storage_error(error: OSError) -> str:
    """Describes an unhandled storage error in one line that names the file.

    Returns:
      The description; an empty string if the error is not a storage error, and thus a bug of xlj.
    """
    if error.errno in _DISK_FULL:
        return f"cannot write {error.filename or 'the output'}: {error.strerror}"
    if error.errno in _DISK_ERRORS or (error.errno in _FILE_OR_SOCKET_ERRORS and error.filename):
        return f"{error.filename or 'storage'}: {error.strerror}"
    return ""
