"""What can keep a deployment's plan from being carried out.

SutlerError
└── NothingToServeError   the current plan runs nothing: change the problem, or wait for a better market
"""

from sutler.service.errors import Kind, SutlerError


class NothingToServeError(SutlerError):
    """The current plan is infeasible or unknown: handing it on as an empty fleet would tear everything down."""

    kind = Kind(409, "nothing-to-serve", "The current plan serves nothing")

    def __init__(self, deployment: str, status: str, remedy: str) -> None:
        self.deployment, self.status, self.remedy = deployment, status, remedy
        super().__init__(f"the current plan of {deployment} is {status} and runs nothing: {remedy}")
