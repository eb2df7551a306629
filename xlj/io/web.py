"""Files of web servers, read as they come, and on from where a connection broke.

A server that knows ranges is read from anywhere; from others a file is read from its start to its
end, or not at all."""

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
"""Seconds for which a server may say nothing."""
ATTEMPTS = 5
"""How often it is asked, without a byte in between."""
_PAUSE = 0.5  # seconds before it is asked again, twice as many each time
_REMEMBERED = 10  # seconds


class _Told(NamedTuple):
    """What a server tells of a file: its size in bytes, a tag that changes with it, whether it is
    read from anywhere."""

    size: int
    version: str
    ranges: bool


def stat(url: str) -> tuple[int, str]:
    """The size of a file and its server's tag of it, or the time of its last change, or nothing.

    Raises:
      FileNotFoundError: if the server has none.
      OSError: if it does not answer, or does not say how long the file is.
    """
    told = _ask(url)
    return told.size, told.version


def can_seek(url: str) -> bool:
    """Whether the file is read from anywhere; raises as `stat`."""
    return _remembered(url, int(time.monotonic()) // _REMEMBERED).ranges


class Reader(io.RawIOBase):
    """A file that is being read. `read` raises an `OSError` where its server does not answer, says
    less than the file is long, or has another file by now."""

    def __init__(self, url: str):
        super().__init__()
        self._url, self._told = url, _ask(url)
        self._place = 0
        self._answer: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._told.ranges

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + (0, self._place, self._told.size)[whence]
        if place != self._place:
            if not self._told.ranges:
                raise io.UnsupportedOperation(f"{self._url}: its server knows no ranges")
            self._hang_up()
            self._place = place
        return place

    def readinto(self, buffer: Any) -> int:
        if self._place >= self._told.size:
            return 0
        reason: Exception | str = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                if self._answer is None:
                    self._answer = self._ask_on()
                count = self._answer.readinto(buffer)
            except (OSError, http.client.HTTPException) as error:
                count, reason = 0, error
                if isinstance(error, _Changed):
                    raise
            if count:
                self._place += count
                return count
            self._hang_up()
            if self._place and not self._told.ranges:
                break  # from the start again is of no use
        said = reason or "the connection ended"
        raise OSError(f"after {self._place:,} of {self._told.size:,} bytes: {said}")

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _ask_on(self) -> Any:
        """What the server answers from the place on."""
        headers = {}
        if self._told.ranges:
            headers["Range"] = f"bytes={self._place}-"
        answer = _request(self._url, headers)
        if self._place and answer.status != 206 or _version(answer.headers) != self._told.version:
            answer.close()
            raise _Changed("it changed while it was read")
        return answer

    def _hang_up(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class _Changed(OSError):
    """The file is another one by now."""


def _ask(url: str) -> _Told:
    """Asks for the first byte: unlike HEAD, that shows whether ranges are known."""
    for attempt in range(ATTEMPTS):
        try:
            with _request(url, {"Range": "bytes=0-0"}) as answer:
                return _read_headers(answer.status, answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # an empty file has no first byte
                    return _Told(0, _version(error.headers), False)
                if error.code in (404, 410):
                    raise FileNotFoundError(f"{url}: there is no such file") from None
                if error.code < 500 and error.code != 429 or attempt == ATTEMPTS - 1:
                    raise OSError(f"its server answers {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS - 1:
                raise OSError(shortened(f"its server does not answer: {error}")) from None
        time.sleep(_PAUSE * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


@functools.lru_cache(maxsize=4096)
def _remembered(url: str, now: int) -> _Told:
    return _ask(url)


def _request(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "xlj", **headers})
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _read_headers(status: int, headers: email.message.Message) -> _Told:
    found = headers.get("Content-Range", "") if status == 206 else headers.get("Content-Length", "")
    total = found.rpartition("/")[2]
    if not total.isdigit():
        raise OSError("its server does not say how long it is")
    return _Told(int(total), _version(headers), status == 206)


def _version(headers: email.message.Message) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""
