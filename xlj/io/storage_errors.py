"""Describes storage errors in one line with the file, for errors that the user can fix."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)
_BROKEN = (errno.EIO, errno.ESTALE, errno.EROFS, errno.EREMOTEIO)
_OF_A_FILE = (errno.EACCES, errno.EPERM, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN)
"""Errors that may also concern things other than files, such as sockets."""


def describe(error: OSError) -> str:
    """Describes an unhandled storage error; empty for other errors, which are bugs of xlj."""
    if error.errno in _FULL:
        return f"cannot write {error.filename or 'the output'}: {error.strerror}"
    if error.errno in _BROKEN or (error.errno in _OF_A_FILE and error.filename):
        return f"{error.filename or 'storage'}: {error.strerror}"
    return ""
