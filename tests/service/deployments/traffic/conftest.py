"""A deployment in the application."""

import pytest

from tests.service.deployments.traffic.site import Deployed
from tests.service.webhooks.api import Api


@pytest.fixture
def chat(api: Api) -> Deployed:
    """20 questions/s and 2 documents/s are planned."""
    return Deployed.of(api)
