"""Errors of the operating system that mean a shortage of room or of file descriptors."""

import errno
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_TOO_MANY_FILES: Final = "Too many open files"


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether `error` means that the process can open no more files.

    A library that cannot be loaded raises `ImportError` without an `errno`.
    """
    if isinstance(error, ImportError):
        return _TOO_MANY_FILES in str(error)
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTOR
