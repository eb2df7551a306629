"""Reads and writes objects of buckets, gs:// and s3://, through fsspec; all errors are `OSError`s.

An object appears when its last byte is sent, so writing it is atomic. There are no folders, only
names with a common beginning."""

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
"""Bytes of one request."""
_LIBRARIES = {
    "gs": ("gcsfs", "GCSFileSystem"),
    "s3": ("s3fs", "S3FileSystem"),
}
_BEAT = 10  # seconds between two writes of a lock by its holder
_STALE = 6 * _BEAT  # a lock that was not written for so long is taken over: its holder was killed


def stat(url: str) -> tuple[int, str]:
    """Returns the size of an object, and a tag that changes with its content.

    Raises:
      FileNotFoundError: if it does not exist.
      OSError: if its server does not respond.
    """
    info = _ask(url, "info", url)
    if info.get("type") != "file":
        raise FileNotFoundError(url)
    return _stat_of(info)


def last_modified(url: str) -> float:
    """Returns when an object was last written, in seconds since 1970."""
    return _ask(url, "modified", url).timestamp()


def can_seek(url: str) -> bool:
    """Returns True: all objects can be read from any position."""
    return True


def matching(pattern: str) -> dict[str, tuple[int, str]]:
    """Returns the URLs of all matching objects, in order, with the result of `stat` for each."""
    scheme = pattern.partition("://")[0]
    objects = sorted(_ask(pattern, "glob", pattern, detail=True).items())
    return {
        f"{scheme}://{name}": _stat_of(info) for name, info in objects if info["type"] == "file"
    }


def _stat_of(info: dict[str, Any]) -> tuple[int, str]:
    tag = info.get("etag") or info.get("ETag") or info.get("generation") or ""
    return int(info["size"]), str(tag).strip('"')


def sizes(folder: str) -> dict[str, int]:
    """Returns the bytes of each object in a folder, by name."""
    try:
        objects = _ask(folder, "ls", folder, detail=True)
    except FileNotFoundError:
        return {}
    return {
        info["name"].rpartition("/")[2]: int(info["size"])
        for info in objects
        if info["type"] == "file"
    }


def read_range(url: str, start: int, stop: int) -> bytes:
    """Returns the bytes [start, stop) of an object, or fewer if it is shorter."""
    return _ask(url, "cat_file", url, start=start, end=stop) if stop > start else b""


def delete(url: str, missing_ok: bool) -> None:
    """Deletes an object."""
    try:
        _ask(url, "rm_file", url)
    except FileNotFoundError:
        if not missing_ok:
            raise


def list_below(url: str) -> list[str]:
    """Returns the names, with the bucket, of all objects below a folder."""
    return list(_ask(url, "find", url.rstrip("/") + "/"))


def delete_below(url: str) -> None:
    """Deletes all objects below a folder."""
    if names := list_below(url):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            _ask(url, "rm", names)


class Reader(io.RawIOBase):
    """Reads an object, one range at a time."""

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
        content = read_range(self._url, self._place, stop)
        if len(content) != stop - self._place:
            raise OSError(f"it ended after {self._place + len(content):,} of {self._size:,} bytes")
        buffer[: len(content)] = content
        self._place = stop
        return len(content)


def make(url: str, content: bytes) -> None:
    """Creates an object; raises `FileExistsError` if it exists.

    Only one of several callers succeeds.
    """
    _ask(url, "pipe_file", url, content, mode="create")


def send(file: Path, url: str) -> None:
    """Uploads a file as an object."""
    _ask(url, "put_file", str(file), url)


def move_below(url: str, target: str, first: str) -> None:
    """Moves all objects of a folder to another folder, on the server.

    The old objects are deleted after all are copied, the object named `first` before the others.
    """
    source = url.partition("://")[2].rstrip("/")
    for name in list_below(url):
        _ask(url, "cp_file", name, target.rstrip("/") + name.removeprefix(source))
    delete(f"{url}/{first}", missing_ok=True)
    delete_below(url)


@contextlib.contextmanager
def lock(url: str, wait: bool = True) -> Iterator[None]:
    """Holds a lock during the block; waits while another process holds it.

    With `wait=False`, raises `BlockingIOError` as soon as the other holder proves to be active.

    The lock is an object that a server lets only one process create. Its holder writes it again
    every `_BEAT` seconds. A waiting process takes it over if it has not changed for `_STALE`
    seconds of its own clock. A holder that pauses for longer loses the lock and continues beside
    the new holder. Two processes may also take over a lock at the same moment. In both cases each
    object is still written completely by one of them.
    """
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
            with contextlib.suppress(OSError):  # the next write may succeed
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
        with contextlib.suppress(OSError):  # the lock then becomes stale; keep the block's error
            if _holder(url) == own:
                delete(url, missing_ok=True)


def _holder(url: str) -> str:
    """Returns the holder of a lock; empty if there is none, or the object is not a lock of xlj."""
    try:
        return str(json.loads(_ask(url, "cat_file", url))["holder"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def _acquire(url: str, own: str, wait: bool) -> None:
    seen, since, announced = None, time.monotonic(), False
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
        if not announced:
            holder = _holder(url).rpartition(" ")[0] or "unknown"
            doing = "waiting for it" if wait else f"waiting up to {_STALE} s to see if it is active"
            print(f"another process holds the lock ({holder}: {url}); {doing}", file=sys.stderr)
            announced = True
        time.sleep(_BEAT / 10)


def _content(own: str, number: int) -> bytes:
    return json.dumps({"holder": own, "beat": number}).encode()


def _ask(url: str, what: str, *arguments: Any, **named: Any) -> Any:
    """Calls a method of the bucket's file system, and converts its errors to `OSError`."""
    system = _system(url.partition(":")[0])
    try:
        return getattr(system, what)(*arguments, **named)
    except OSError as error:
        if "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
            raise FileExistsError(url) from None
        raise
    except Exception as error:  # each library raises its own types, none of them an OSError
        raise OSError(shortened(f"{type(error).__name__}: {error}")) from error


@functools.lru_cache(maxsize=8)
def _system(scheme: str) -> Any:
    """Returns the file system of a kind of bucket.

    It finds credentials as the provider's tools do.
    """
    library, name = _LIBRARIES[scheme]
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise ConfigError(
            f"{scheme}:// URLs need {library} ({error}): pip install 'xlj[cloud]'"
        ) from None
    logging.getLogger(library).setLevel(logging.CRITICAL)  # problems are raised as errors
    return getattr(module, name)(use_listings_cache=False, skip_instance_cache=True)
