"""Errors of storage in a line: what its owner has to mend, wherever a file is touched."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)
_BROKEN = (errno.EIO, errno.ESTALE, errno.EROFS, errno.EREMOTEIO)
_OF_A_FILE = (errno.EACCES, errno.EPERM, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN)
"""Which other things than files have as well, such as sockets."""


def line(error: OSError) -> str:
    """What to say of an error of storage that nobody has looked at; empty for any other error,
    which is one of xlj's own."""
    if error.errno in _FULL:
        return f"cannot write {error.filename or 'the output'}: {error.strerror}"
    if error.errno in _BROKEN or (error.errno in _OF_A_FILE and error.filename):
        return f"{error.filename or 'storage'}: {error.strerror}"
    return ""
