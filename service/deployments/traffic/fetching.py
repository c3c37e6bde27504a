"""One GET from an engine or a Prometheus: guarded as webhooks are, and bounded in time and size.

Redirects are not followed, proxies not asked, and no error shows anything of the answer.
"""

import http.client
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.calling import CallLimits, Connector, said_by_the_system
from sutler.service.outgoing.destinations import DestinationError
from sutler.service.outgoing.wire import CHUNK_BYTES, Deadline, NoConnectionError

# Chosen: the shortest `every_s`; a reading that takes longer comes too late
LIMITS: Final = CallLimits(connect_s=5.0, whole_s=5.0)
# Chosen: far above what an engine tells; a hostile answer must not fill the memory
MOST_BYTES: Final = 5_000_000


class ScrapeError(Exception):
    """The server gave no answer that could be read. The message is one short line."""


@dataclass(frozen=True, slots=True)
class Fetcher(Connector):
    """Reads over the same checked connections as events are sent."""

    limits: CallLimits = LIMITS
    most_bytes: int = MOST_BYTES

    def get(self, url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes:
        """The body of a 200; blocks. Raises ScrapeError."""
        status, body = self._answer(url, accept, allowed)
        if status != HTTPStatus.OK:
            raise ScrapeError(_objection(status))
        return body

    def _answer(self, url: str, accept: str, allowed: tuple[Network, ...]) -> tuple[int, bytes]:
        try:
            return self._got(url, accept, allowed)
        except NoConnectionError:
            raise ScrapeError(f"no connection within {self.limits.connect_s:g} s") from None
        except TimeoutError:
            raise ScrapeError(f"no whole answer within {self.limits.whole_s:g} s") from None
        except (DestinationError, OSError, http.client.HTTPException, ValueError) as error:
            raise ScrapeError(_said(error)) from None

    def _got(self, url: str, accept: str, allowed: tuple[Network, ...]) -> tuple[int, bytes]:
        deadline = Deadline(self.limits.whole_s)
        with self.called(url, allowed=allowed, deadline=deadline) as (connection, target):
            headers = {"Accept": accept, "User-Agent": "sutler", "Connection": "close"}
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                return response.status, self._body(response)

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        body = bytearray()
        while chunk := response.read(CHUNK_BYTES):
            body += chunk
            if len(body) > self.most_bytes:
                raise ScrapeError(f"the answer is larger than {self.most_bytes:,} bytes")
        if response.length:  # of a body that is cut, what is missing would look like counters that went back
            raise ScrapeError("the answer ended early")
        return bytes(body)


def _objection(status: int) -> str:
    if 300 <= status < 400:
        return f"answers {status}: redirects are not followed; give the URL that is meant"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"answers {status}: give a URL that asks for no credentials"
    return f"answers {status}"


def _said(error: Exception) -> str:
    if isinstance(error, DestinationError):
        return str(error)
    if isinstance(error, OSError):
        return said_by_the_system(error)
    return f"no HTTP answer ({type(error).__name__})"


USUAL_FETCHER: Final = Fetcher()
