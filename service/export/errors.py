"""What can keep a plan from being exported, beside the wrong fields of a DocumentError.

SutlerError
└── NothingToRunError   the plan runs nothing: make another plan
"""

from sutler.service.errors import Exit, Kind, RemediedError


class NothingToRunError(RemediedError):
    """The plan has no replicas."""

    kind = Kind(409, "nothing-to-run", "The plan runs nothing")
    exit_status = Exit.INFEASIBLE
