"""Reads files of web servers, and resumes after a broken connection.

If the server supports range requests, a file can be read from any position. Otherwise the file can
only be read from start to end."""

import email.message
import functools
import http.client
import io
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from xlj.io.quoting import shortened

_BLOCK_BYTES = 1 << 20
TIMEOUT = 60
"""Seconds to wait for a server."""
ATTEMPTS = 5
"""Reading fails after this number of consecutive requests that return no byte."""
_PAUSE = 0.5  # seconds before the second request; each later pause is twice as long
_CACHE_SECONDS = 10  # how long the facts about a file are cached


class _FileFacts(NamedTuple):
    """What a server reports about a file.

    Attributes:
      size: size of the file in bytes.
      version: the ETag, or else the time of the last change, or else an empty string.
      ranges: whether the server supports range requests.
    """

    size: int
    version: str
    ranges: bool


def stat(url: str) -> tuple[int, str]:
    """Returns the size of a file in bytes, and its version.

    The version is the ETag, or else the time of the last change, or else an empty string.

    Raises:
      FileNotFoundError: if the file does not exist.
      OSError: if the server does not respond or does not report the size.
    """
    facts = _request_facts(url)
    return facts.size, facts.version


def can_seek(url: str) -> bool:
    """Whether the file can be read from any position.

    Raises:
      FileNotFoundError: if the file does not exist.
      OSError: if the server does not respond or does not report the size.
    """
    return _cached_facts(url, int(time.monotonic()) // _CACHE_SECONDS).ranges


class Reader(io.RawIOBase):
    """A binary file at a URL.

    `read` raises an `OSError` if the server does not respond, if the server sends fewer bytes than
    it reported, or if the file has changed since it was opened.
    """

    def __init__(self, url: str):
        super().__init__()
        self._url, self._facts = url, _request_facts(url)
        self._position = 0
        self._response: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._facts.ranges

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + (0, self._position, self._facts.size)[whence]
        if position != self._position:
            if not self._facts.ranges:
                raise io.UnsupportedOperation(
                    f"{self._url}: its server does not support range requests; copy the file to a "
                    "local folder"
                )
            self._disconnect()
            self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._facts.size:
            return 0
        reason: Exception | str = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                if self._response is None:
                    self._response = self._request_rest()
                count = self._response.readinto(buffer)
            except (OSError, http.client.HTTPException) as error:
                count, reason = 0, error
                if isinstance(error, _FileChanged):
                    raise
            if count:
                self._position += count
                return count
            self._disconnect()
            if self._position and not self._facts.ranges:
                break  # without ranges, a new request would return the file from its start
        cause = reason or "the connection ended"
        raise OSError(f"after {self._position:,} of {self._facts.size:,} bytes: {cause}")

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _request_rest(self) -> Any:
        """Requests the content of the file from the current position to its end."""
        headers = {}
        if self._facts.ranges:
            headers["Range"] = f"bytes={self._position}-"
        response = _request(self._url, headers)
        is_rest = not self._position or response.status == 206
        if not is_rest or _version(response.headers) != self._facts.version:
            response.close()
            raise _FileChanged("the file changed while it was read; run the command again")
        return response

    def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()


def open_file(url: str) -> io.BufferedReader:
    """Opens a file for reading."""
    return io.BufferedReader(Reader(url), _BLOCK_BYTES)


class _FileChanged(OSError):
    """The file changed while it was read."""


def _request_facts(url: str) -> _FileFacts:
    """Requests the first byte of a file; unlike HEAD, this shows whether ranges are supported."""
    for attempt in range(ATTEMPTS):
        try:
            with _request(url, {"Range": "bytes=0-0"}) as response:
                return _read_headers(response.status, response.headers)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # an empty file has no first byte
                    return _FileFacts(0, _version(error.headers), False)
                if error.code in (404, 410):
                    raise FileNotFoundError(f"{url}: no such file") from None
                if error.code < 500 and error.code != 429 or attempt == ATTEMPTS - 1:
                    raise OSError(f"its server responds {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS - 1:
                raise OSError(shortened(f"its server does not respond: {error}")) from None
        time.sleep(_PAUSE * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


@functools.lru_cache(maxsize=4096)
def _cached_facts(url: str, period: int) -> _FileFacts:
    """Requests the facts about a file once in each period of `_CACHE_SECONDS`."""
    return _request_facts(url)


def _request(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "xlj", **headers})
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _read_headers(status: int, headers: email.message.Message) -> _FileFacts:
    length = headers.get("Content-Range" if status == 206 else "Content-Length", "")
    total = length.rpartition("/")[2]
    if not total.isdigit():
        raise OSError(
            "its server does not report the size of the file; copy the file to a local folder"
        )
    return _FileFacts(int(total), _version(headers), status == 206)


def _version(headers: email.message.Message) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""
