"""Reads files of web servers, and resumes after a broken connection.

If a server supports range requests, a file can be read from any position; otherwise only from start
to end."""

import email.message
import functools
import http.client
import io
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from xlj.io.quoting import shortened

BLOCK_BYTES = 1 << 20
TIMEOUT = 60
"""Seconds to wait for a server."""
ATTEMPTS = 5
"""Number of requests without receiving a byte before giving up."""
_PAUSE = 0.5  # seconds before the second request; doubled each time
_REMEMBERED = 10  # seconds


class _FileFacts(NamedTuple):
    """Facts about a file from its server.

    Attributes:
      size: bytes.
      version: a tag that changes with the content.
      ranges: whether the server supports range requests.
    """

    size: int
    version: str
    ranges: bool


def stat(url: str) -> tuple[int, str]:
    """Returns the size of a file, and its ETag, its time of last change, or an empty text.

    Raises:
      FileNotFoundError: if it does not exist.
      OSError: if the server does not respond or does not report the size.
    """
    facts = _ask(url)
    return facts.size, facts.version


def can_seek(url: str) -> bool:
    """Whether the file can be read from any position; raises as `stat`."""
    return _remembered(url, int(time.monotonic()) // _REMEMBERED).ranges


class Reader(io.RawIOBase):
    """Reads a file.

    `read` raises an `OSError` if the server does not respond, sends fewer bytes than it reported,
    or has another version of the file by now.
    """

    def __init__(self, url: str):
        super().__init__()
        self._url, self._facts = url, _ask(url)
        self._place = 0
        self._answer: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._facts.ranges

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + (0, self._place, self._facts.size)[whence]
        if place != self._place:
            if not self._facts.ranges:
                raise io.UnsupportedOperation(f"{self._url}: its server does not support ranges")
            self._disconnect()
            self._place = place
        return place

    def readinto(self, buffer: Any) -> int:
        if self._place >= self._facts.size:
            return 0
        reason: Exception | str = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                if self._answer is None:
                    self._answer = self._request_rest()
                count = self._answer.readinto(buffer)
            except (OSError, http.client.HTTPException) as error:
                count, reason = 0, error
                if isinstance(error, _Changed):
                    raise
            if count:
                self._place += count
                return count
            self._disconnect()
            if self._place and not self._facts.ranges:
                break  # it could only be read from the start again
        cause = reason or "the connection ended"
        raise OSError(f"after {self._place:,} of {self._facts.size:,} bytes: {cause}")

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _request_rest(self) -> Any:
        """Requests the file from the current position on."""
        headers = {}
        if self._facts.ranges:
            headers["Range"] = f"bytes={self._place}-"
        answer = _request(self._url, headers)
        if self._place and answer.status != 206 or _version(answer.headers) != self._facts.version:
            answer.close()
            raise _Changed("it changed while it was read")
        return answer

    def _disconnect(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class _Changed(OSError):
    """The file changed while it was read."""


def _ask(url: str) -> _FileFacts:
    """Requests the first byte: unlike HEAD, this shows whether ranges are supported."""
    for attempt in range(ATTEMPTS):
        try:
            with _request(url, {"Range": "bytes=0-0"}) as answer:
                return _read_headers(answer.status, answer.headers)
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
def _remembered(url: str, now: int) -> _FileFacts:
    return _ask(url)


def _request(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "xlj", **headers})
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _read_headers(status: int, headers: email.message.Message) -> _FileFacts:
    length = headers.get("Content-Range" if status == 206 else "Content-Length", "")
    total = length.rpartition("/")[2]
    if not total.isdigit():
        raise OSError("its server does not report the size of the file")
    return _FileFacts(int(total), _version(headers), status == 206)


def _version(headers: email.message.Message) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""
