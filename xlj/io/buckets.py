"""Objects of buckets, gs:// and s3://, through fsspec; what its libraries raise are `OSError`s.

An object appears whole, when the last of its bytes was sent, so writing it is atomic. There are no
folders: only names that begin alike."""

import contextlib
import functools
import importlib
import io
import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xlj.config import ConfigError
from xlj.io.quoting import shortened

BLOCK_BYTES = 8 << 20
"""What is asked for at a time."""
_LIBRARIES = {
    "gs": ("gcsfs", "GCSFileSystem"),
    "s3": ("s3fs", "S3FileSystem"),
}
_BEAT = 10  # seconds after which the holder of a lock writes it again
_STALE = 6 * _BEAT  # after so many without a beat whoever waits takes it: the holder was killed


def stat(url: str) -> tuple[int, str]:
    """The size of an object, and a tag that changes with it.

    Raises:
      FileNotFoundError: if there is none.
      OSError: if its server cannot be asked.
    """
    found = _ask(url, "info", url)
    if found.get("type") != "file":
        raise FileNotFoundError(url)
    return _told(found)


def changed(url: str) -> float:
    """When an object was last written, in seconds since 1970."""
    return _ask(url, "modified", url).timestamp()


def can_seek(url: str) -> bool:
    """True: objects are read from anywhere."""
    return True


def matching(pattern: str) -> dict[str, tuple[int, str]]:
    """The URLs of all objects that match, in order, and of each what `stat` returns."""
    scheme = pattern.partition("://")[0]
    found = sorted(_ask(pattern, "glob", pattern, detail=True).items())
    return {f"{scheme}://{name}": _told(of) for name, of in found if of["type"] == "file"}


def _told(found: dict[str, Any]) -> tuple[int, str]:
    tag = found.get("etag") or found.get("ETag") or found.get("generation") or ""
    return int(found["size"]), str(tag).strip('"')


def sizes(folder: str) -> dict[str, int]:
    """Bytes of each object in a folder, by name."""
    try:
        found = _ask(folder, "ls", folder, detail=True)
    except FileNotFoundError:
        return {}
    return {of["name"].rpartition("/")[2]: int(of["size"]) for of in found if of["type"] == "file"}


def read_range(url: str, start: int, stop: int) -> bytes:
    """The bytes [start, stop) of an object, fewer if it ends before."""
    return _ask(url, "cat_file", url, start=start, end=stop) if stop > start else b""


def delete(url: str, missing_ok: bool) -> None:
    """Deletes an object."""
    try:
        _ask(url, "rm_file", url)
    except FileNotFoundError:
        if not missing_ok:
            raise


def listed(url: str) -> list[str]:
    """Names of all objects that go on from a folder's, with the bucket's."""
    return list(_ask(url, "find", url.rstrip("/") + "/"))


def delete_below(url: str) -> None:
    """Deletes all objects whose names go on from a folder's."""
    if names := listed(url):
        with contextlib.suppress(FileNotFoundError):  # somebody else was faster
            _ask(url, "rm", names)


class Reader(io.RawIOBase):
    """An object that is being read, a range at a time."""

    def __init__(self, url: str):
        super().__init__()
        self._url, self._place, self._size = url, 0, stat(url)[0]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + len(buffer), self._size)
        if stop <= self._place:
            return 0
        found = read_range(self._url, self._place, stop)
        if len(found) != stop - self._place:
            raise OSError(f"it ended after {self._place + len(found):,} of {self._size:,} bytes")
        buffer[: len(found)] = found
        self._place = stop
        return len(found)


def make(url: str, content: bytes) -> None:
    """Makes an object; a `FileExistsError` if there is one: of several who try one does."""
    _ask(url, "pipe_file", url, content, mode="create")


def send(file: Path, url: str) -> None:
    """Makes an object of a file."""
    _ask(url, "put_file", str(file), url)


def move_below(url: str, target: str, first: str) -> None:
    """Moves all objects of a folder into another, on the server. Of the old ones that with the name
    `first` is deleted before others, and after all were copied."""
    source = url.partition("://")[2].rstrip("/")
    for name in listed(url):
        _ask(url, "cp_file", name, target.rstrip("/") + name.removeprefix(source))
    delete(f"{url}/{first}", missing_ok=True)
    delete_below(url)


@contextlib.contextmanager
def lock(url: str, wait: bool = True) -> Iterator[None]:
    """Nobody else is in such a block meanwhile; who comes waits. Without `wait` it is a
    `BlockingIOError` as soon as the holder shows that it is at work.

    The lock is an object that a server lets only one make. Its holder writes it again every
    `_BEAT` seconds, and who waits takes it once it has not changed for `_STALE` seconds by the own
    clock. So who stands still for longer loses it, and goes on beside the other; and so do two that
    take it at the same moment: what they write appears whole, by one or the other."""
    own = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"
    try:
        _acquire(url, own, wait)
    except BlockingIOError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write {url}: {error}") from error
    ended = threading.Event()

    def beat() -> None:
        number = 0
        while not ended.wait(_BEAT):
            number += 1
            with contextlib.suppress(OSError):  # the next one may get through
                if _holder(url) != own:
                    return
                _ask(url, "pipe_file", url, _content(own, number))

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join(_BEAT)
        with contextlib.suppress(OSError):  # it goes stale by itself; what ended the block is told
            if _holder(url) == own:
                delete(url, missing_ok=True)


def _holder(url: str) -> str:
    """Who holds a lock; empty if nobody does, or what is there is no lock of xlj's."""
    try:
        return str(json.loads(_ask(url, "cat_file", url))["holder"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def _acquire(url: str, own: str, wait: bool) -> None:
    seen, since, told = None, time.monotonic(), False
    while True:
        try:
            return make(url, _content(own, 0))
        except FileExistsError:
            pass
        try:
            now = _ask(url, "cat_file", url)
        except FileNotFoundError:
            continue
        if now != seen:
            if seen is not None and not wait:
                raise BlockingIOError(url)
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _STALE:
            delete(url, missing_ok=True)
            continue
        if not told:
            holder = _holder(url).rpartition(" ")[0] or "somebody"
            doing = "waiting for it" if wait else f"waiting {_STALE} s at most for a sign of it"
            print(f"another process is at work ({holder}: {url}); {doing}", file=sys.stderr)
            told = True
        time.sleep(_BEAT / 10)


def _content(own: str, number: int) -> bytes:
    return json.dumps({"holder": own, "beat": number}).encode()


def _ask(url: str, what: str, *arguments: Any, **named: Any) -> Any:
    """What a method of the bucket's file system returns."""
    system = _system(url.partition(":")[0])
    try:
        return getattr(system, what)(*arguments, **named)
    except OSError as error:
        if "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
            raise FileExistsError(url) from None
        raise
    except Exception as error:  # each library has its own kinds, none of which is an OSError
        raise OSError(shortened(f"{type(error).__name__}: {error}")) from error


@functools.lru_cache(maxsize=8)
def _system(scheme: str) -> Any:
    """The file system of a kind of buckets; credentials are found as the provider's tools do."""
    library, name = _LIBRARIES[scheme]
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise ConfigError(
            f"{scheme}:// URLs need {library} ({error}): pip install 'xlj[cloud]'"
        ) from None
    logging.getLogger(library).setLevel(logging.CRITICAL)  # what is wrong is told as an error
    return getattr(module, name)(use_listings_cache=False, skip_instance_cache=True)
