"""Reads and writes objects of buckets, gs:// and s3://, through fsspec.

Errors of the libraries are converted to `OSError`s; a missing library is a `ConfigError`. An object
appears when its last byte has been sent, so writing is atomic. A bucket has no folders: a "folder"
here is a common prefix of object names."""

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
from xlj.io.range_reader import open_ranges

_LIBRARIES = {
    "gs": ("gcsfs", "GCSFileSystem"),
    "s3": ("s3fs", "S3FileSystem"),
}
_HEARTBEAT = 10
"""Seconds between two writes of a lock by its holder."""
_STALE_AFTER = 6 * _HEARTBEAT
"""Seconds without a write after which another process takes over a lock."""


def stat(url: str) -> tuple[int, str]:
    """Returns the size of an object in bytes, and a tag that changes with the content.

    Raises:
      FileNotFoundError: if the object does not exist.
      OSError: if the server does not respond.
    """
    info = _call(url, "info", url)
    if info.get("type") != "file":
        raise FileNotFoundError(url)
    return _stat_of(info)


def last_modified(url: str) -> float:
    """Returns the time of the last write of an object, in seconds since 1970."""
    return _call(url, "modified", url).timestamp()


def can_seek(url: str) -> bool:
    """Returns True: all objects can be read from any position."""
    return True


def find_objects(pattern: str) -> dict[str, tuple[int, str]]:
    """Returns the URLs of all objects that match, sorted, with the size and the tag of each."""
    scheme = pattern.partition("://")[0]
    objects = sorted(_call(pattern, "glob", pattern, detail=True).items())
    return {
        f"{scheme}://{name}": _stat_of(info) for name, info in objects if info["type"] == "file"
    }


def _stat_of(info: dict[str, Any]) -> tuple[int, str]:
    tag = info.get("etag") or info.get("ETag") or info.get("generation") or ""
    return int(info["size"]), str(tag).strip('"')


def sizes(folder: str) -> dict[str, int]:
    """Returns the size in bytes of each object in a folder, by name."""
    try:
        objects = _call(folder, "ls", folder, detail=True)
    except FileNotFoundError:
        return {}
    return {
        info["name"].rpartition("/")[2]: int(info["size"])
        for info in objects
        if info["type"] == "file"
    }


def read_range(url: str, start: int, stop: int) -> bytes:
    """Returns the bytes [start, stop) of an object; fewer bytes if the object is shorter."""
    return _call(url, "cat_file", url, start=start, end=stop) if stop > start else b""


def delete(url: str, missing_ok: bool) -> None:
    """Deletes an object."""
    try:
        _call(url, "rm_file", url)
    except FileNotFoundError:
        if not missing_ok:
            raise


def list_below(url: str) -> list[str]:
    """Returns the names of all objects below a folder, as BUCKET/PATH."""
    return list(_call(url, "find", url.rstrip("/") + "/"))


def delete_below(url: str) -> None:
    """Deletes all objects below a folder."""
    if names := list_below(url):
        with contextlib.suppress(FileNotFoundError):  # another process deleted an object first
            _call(url, "rm", names)


def open_file(url: str) -> io.BufferedReader:
    """Opens an object for reading, one range per request."""
    return open_ranges(stat(url)[0], functools.partial(read_range, url))


def make(url: str, content: bytes) -> None:
    """Creates an object; if several processes try to create it, only one of them succeeds.

    Raises:
      FileExistsError: if the object exists.
    """
    _call(url, "pipe_file", url, content, mode="create")


def upload(file: Path, url: str) -> None:
    """Uploads a local file as an object."""
    _call(url, "put_file", str(file), url)


def move_below(url: str, target: str, first: str) -> None:
    """Moves all objects of a folder to another folder, on the server.

    All objects are copied before any old object is deleted. The old object with the name `first` is
    deleted before all other old objects.
    """
    source = url.partition("://")[2].rstrip("/")
    for name in list_below(url):
        _call(url, "cp_file", name, target.rstrip("/") + name.removeprefix(source))
    delete(f"{url}/{first}", missing_ok=True)
    delete_below(url)


@contextlib.contextmanager
def lock(url: str, wait: bool = True) -> Iterator[None]:
    """Holds a lock during the block.

    The lock is an object, which the server lets only one process create. The holder rewrites the
    object every `_HEARTBEAT` seconds. A waiting process takes over the lock if it sees no change of
    the object for `_STALE_AFTER` seconds.

    In two cases, two processes may hold the lock at the same time: a holder pauses for longer than
    `_STALE_AFTER`, or two processes take over a lock at the same moment. Each object that they
    write is still complete, because writing an object is atomic.

    Args:
      wait: what to do if another process holds the lock. True waits. False raises
        `BlockingIOError` when the holder rewrites the object, which shows that it is active.

    Raises:
      BlockingIOError: if `wait` is False and another process holds the lock.
      ConfigError: if the object cannot be created.
    """
    this_holder = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"
    try:
        _acquire(url, this_holder, wait)
    except BlockingIOError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write {url}: {error}") from error
    ended = threading.Event()

    def rewrite_lock() -> None:
        number = 0
        while not ended.wait(_HEARTBEAT):
            number += 1
            with contextlib.suppress(OSError):  # the next write may succeed
                if _read_holder(url) != this_holder:
                    return
                _call(url, "pipe_file", url, _content(this_holder, number))

    heartbeat = threading.Thread(target=rewrite_lock, daemon=True)
    heartbeat.start()
    try:
        yield
    finally:
        ended.set()
        heartbeat.join(_HEARTBEAT)
        # A lock that cannot be deleted becomes stale. An error here would hide one of the block.
        with contextlib.suppress(OSError):
            if _read_holder(url) == this_holder:
                delete(url, missing_ok=True)


def _read_holder(url: str) -> str:
    """Returns the holder of a lock; empty if the object does not exist or is not a lock of xlj."""
    try:
        return str(json.loads(_call(url, "cat_file", url))["holder"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def _acquire(url: str, this_holder: str, wait: bool) -> None:
    last_content, last_change, is_announced = None, time.monotonic(), False
    while True:
        try:
            return make(url, _content(this_holder, 0))
        except FileExistsError:
            pass
        try:
            content = _call(url, "cat_file", url)
        except FileNotFoundError:
            continue
        if content != last_content:
            if last_content is not None and not wait:
                raise BlockingIOError(url)
            last_content, last_change = content, time.monotonic()
        elif time.monotonic() - last_change > _STALE_AFTER:
            delete(url, missing_ok=True)
            continue
        if not is_announced:
            holder = _read_holder(url).rpartition(" ")[0] or "unknown"
            action = (
                "waiting until it ends"
                if wait
                else f"waiting up to {_STALE_AFTER} s to see whether that process is active"
            )
            print(f"another process holds the lock ({holder}: {url}); {action}", file=sys.stderr)
            is_announced = True
        time.sleep(_HEARTBEAT / 10)


def _content(holder: str, number: int) -> bytes:
    return json.dumps({"holder": holder, "beat": number}).encode()


def _call(url: str, method: str, *arguments: Any, **keywords: Any) -> Any:
    """Calls a method of a bucket's file system, and converts errors of libraries to `OSError`."""
    system = _system(url.partition(":")[0])
    try:
        return getattr(system, method)(*arguments, **keywords)
    except OSError as error:
        if "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
            raise FileExistsError(url) from None
        raise
    except Exception as error:  # the libraries also raise types that are no OSErrors
        raise OSError(shortened(f"{type(error).__name__}: {error}")) from error


@functools.lru_cache(maxsize=8)
def _system(scheme: str) -> Any:
    """Returns the file system of a scheme, which finds credentials as the provider's tools do."""
    library, name = _LIBRARIES[scheme]
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise ConfigError(
            f"{scheme}:// URLs need {library} ({error}): pip install -e '.[cloud]'"
        ) from None
    logging.getLogger(library).setLevel(logging.CRITICAL)  # it logs errors that it also raises
    return getattr(module, name)(use_listings_cache=False, skip_instance_cache=True)
