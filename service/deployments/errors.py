"""What can keep a deployment's plan from being carried out, by what the caller can do about it.

DeploymentError
└── NothingToServeError   the current plan runs nothing: change the problem, or wait for a better market
"""


class DeploymentError(Exception):
    """Root of everything that service.deployments raises on its own."""


class NothingToServeError(DeploymentError):
    """The current plan is infeasible or unknown: handing it on as an empty fleet would tear everything down."""

    def __init__(self, deployment: str, status: str, remedy: str) -> None:
        self.deployment = deployment
        self.status = status
        self.remedy = remedy
        super().__init__(f"the current plan of {deployment} is {status} and runs nothing: {remedy}")
