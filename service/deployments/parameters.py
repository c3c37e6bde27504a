"""The parts of paths that all of a deployment's endpoints share."""

from typing import Annotated

from fastapi import Path

from sutler.service.deployments.schemas import NAME_PATTERN

Name = Annotated[str, Path(pattern=NAME_PATTERN, max_length=63, description="Name of the deployment.")]
Revision = Annotated[int, Path(ge=1, le=2**31 - 1, description="Counts the deployment's plans.")]
