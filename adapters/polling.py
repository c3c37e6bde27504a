"""One poll of one cloud: whatever goes wrong becomes an outcome, so that a caller always has something to store."""

import logging
import traceback

from sutler.adapters.base import Poll
from sutler.adapters.bodies import blanked_text
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import FetchError
from sutler.adapters.http import REAL_CLOCK, USUAL_POLICY, Clock, HttpClient, HttpPolicy
from sutler.adapters.time_limit import session_for

_LOG = logging.getLogger("sutler.adapters")


def poll(
    provider: Provider, config: ProviderConfig, *, policy: HttpPolicy = USUAL_POLICY, clock: Clock = REAL_CLOCK
) -> Poll:
    """Asks the cloud once, retries included. Never raises for what a cloud, a network, a setting or an adapter does.

    A defect of an adapter is recorded and backed off like an answer of another shape, and logged with its traceback.
    """
    with session_for(policy.poll_time_limit_s) as session:
        http = HttpClient("", policy=policy, clock=clock, session=session)
        try:
            http.base_url = config.checked_base_url()
            http.secrets = tuple(secret for name in provider.secrets if (secret := config.secret(name)))
            http.headers = provider.headers(config)
            return provider.fetch(config, http)
        except FetchError as error:
            return failed(error, requests_sent=http.requests_sent)
        except Exception as error:  # one cloud's parser must not end the polling of all
            _log_defect(provider.name, http.secrets)
            return _defect(error, requests_sent=http.requests_sent)


def failed(error: FetchError, *, requests_sent: int = 0) -> Poll:
    """The poll that a failure amounts to: it speaks of no offer at all."""
    return Poll(
        outcome=error.outcome,
        detail=str(error),
        http_status=error.http_status,
        wait_s=error.wait_s,
        wait_is_stated=error.wait_is_stated,
        requests=requests_sent,
    )


def _defect(error: Exception, *, requests_sent: int) -> Poll:
    """The message of the error may hold anything, so only its type is told."""
    detail = f"the answer could not be read ({type(error).__name__}): the log has the traceback; report it"
    return Poll(outcome="bad_shape", detail=detail, requests=requests_sent)


def _log_defect(provider: str, secrets: tuple[str, ...]) -> None:
    """The traceback as text: as an exception's own it could not be blanked."""
    _LOG.error("%s: an adapter failed\n%s", provider, blanked_text(traceback.format_exc(), secrets))
