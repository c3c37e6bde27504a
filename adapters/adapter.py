"""What a cloud's module is to the rest: it fetches through `HttpClient` and parses what came with pure functions."""

from typing import Protocol

from sutler.adapters.base import Poll
from sutler.adapters.http import HttpClient


class Adapter(Protocol):
    """One cloud's API, with the caller's settings for it."""

    def fetch(self, http: HttpClient) -> Poll:
        """Asks the cloud once and parses what it says. Raises FetchError when there is no answer to parse."""
        ...
