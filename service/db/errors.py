"""What can be wrong with the database, by what the operator can do.

DatabaseError
├── DatabaseUnreachableError    it does not answer, or refuses work (full, shutting down): correct that, run again
│   └── DatabaseBusyError       it answers, but not in time: ask again
└── SchemaError                 its tables are of another version: run `sutler db upgrade`, or a newer sutler
"""

from sqlalchemy.exc import DBAPIError

from sutler.service.errors import Exit, Kind, SutlerError


class DatabaseError(SutlerError):
    """Root of what the database brings about; the message names the remedy and never a password."""

    kind = Kind(503, "database-away", "The database cannot be used now")
    exit_status = Exit.NO_MARKET_DATA


class DatabaseUnreachableError(DatabaseError):
    """The database does not answer or cannot work now; what was stored before is untouched."""


class DatabaseBusyError(DatabaseUnreachableError):
    """The database is at work, but this took too long; nothing of it was stored."""

    kind = Kind(503, "database-busy", "The database took too long")
    retry_after_s = 1.0


class SchemaError(DatabaseError):
    """The tables are of another version than this sutler."""


def unreachable(error: DBAPIError | OSError) -> DatabaseUnreachableError:
    """Returns the error without the statement and its parameters, and without the URL."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    said = " ".join(str(cause).split())[:300]
    return DatabaseUnreachableError(
        f"the database cannot be used now: {said}; check that it runs and has room (SUTLER_DATABASE_URL, or the "
        "private one in SUTLER_DATA_DIR), then run the same command again: nothing stored before is lost"
    )
