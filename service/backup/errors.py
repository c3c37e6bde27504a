"""What keeps a store from going into a file, or out of one. Nothing is lost then, neither of the store nor of a file.

SutlerError
└── BackupError     the file is not whole or not for this sutler; the store is in use, not empty, or has no tables
"""

from sutler.service.errors import Exit, RemediedError


class BackupError(RemediedError):
    """Why there is no backup, or why it is not restored."""

    exit_status = Exit.BAD_INPUT
