"""Describes storage errors in one line with the file, for errors that the user can fix."""

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
    """Describes a storage error that no code handled, and the file of the error.

    Returns:
      The description; an empty string if the error is not a storage error, and thus a bug of xlj.
    """
    if error.errno in _DISK_FULL:
        return f"cannot write {error.filename or 'the output'}: {error.strerror}"
    if error.errno in _DISK_ERRORS or (error.errno in _FILE_OR_SOCKET_ERRORS and error.filename):
        return f"{error.filename or 'storage'}: {error.strerror}"
    return ""
