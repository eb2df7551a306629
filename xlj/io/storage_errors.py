"""Describes storage errors, which the user can fix, in one line that names the file."""

import errno

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


def describe(error: OSError) -> str:
    """Describes an unhandled storage error in one line that names the file.

    Returns:
      The description; an empty string if the error is not a storage error, and thus a bug of xlj.
    """
    if error.errno in _DISK_FULL:
        return f"cannot write {error.filename or 'the output'}: {error.strerror}"
    if error.errno in _DISK_ERRORS or (error.errno in _FILE_OR_SOCKET_ERRORS and error.filename):
        return f"{error.filename or 'storage'}: {error.strerror}"
    return ""
