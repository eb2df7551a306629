"""A binary file that reads one range of bytes per request."""

import io
from collections.abc import Callable
from typing import Any

_BLOCK_BYTES = 8 << 20  # how many bytes a request reads at most


def open_ranges(size: int, read_range: Callable[[int, int], bytes]) -> io.BufferedReader:
    """Opens a file of which each request reads one range of bytes (`RangeReader`)."""
    return io.BufferedReader(RangeReader(size, read_range), _BLOCK_BYTES)


class RangeReader(io.RawIOBase):
    """A binary file of known size.

    `read` raises an `OSError` if a request fails, or returns fewer bytes than it asked for.

    Args:
      size: size in bytes.
      read_range: (start, stop) -> the bytes [start, stop) of the file.
    """

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]):
        super().__init__()
        self._position, self._size, self._read_range = 0, size, read_range

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readall(self) -> bytes:
        pieces = []
        while piece := self.read(_BLOCK_BYTES):  # the base class requests 8 KiB at a time
            pieces.append(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        if stop <= self._position:
            return 0
        content = self._read_range(self._position, stop)
        if len(content) != stop - self._position:
            end = self._position + len(content)
            raise OSError(f"the object ends after {end:,} of {self._size:,} bytes")
        buffer[: len(content)] = content
        self._position = stop
        return len(content)
