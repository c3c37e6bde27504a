"""What both clients say to httpx: where the service is, who asks, and for how long an answer is waited for."""

from typing import Any, Final

import httpx

from sutler.service.client.calls import Call
from sutler.service.client.errors import UnreachableError
from sutler.service.settings import caller_settings

# Chosen: a service that is there connects in milliseconds, and its slowest answers take seconds.
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 60.0
LOOPBACK: Final = ("http://127.", "http://localhost", "http://[::1]")


def options_of(url: str | None, key: str | None) -> dict[str, Any]:
    """Of an httpx client. What is not given is in SUTLER_URL and SUTLER_KEY. Raises SettingsError."""
    base, secret = ("" if url is None else url.rstrip("/")), key
    if url is None:  # the environment's key is for the environment's service alone
        settings = caller_settings()
        base, secret = settings.url, settings.key if key is None else key
    return {
        "base_url": base,
        "headers": {} if secret is None else {"Authorization": f"Bearer {secret}"},
        "trust_env": not base.startswith(LOOPBACK),  # no proxy for this machine
    }


def request_of(call: Call[Any]) -> dict[str, Any]:
    """Arguments of httpx for a call."""
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params),
        "content": call.content,
        "headers": dict(call.headers),
    }


def timeout_of(call: Call[Any]) -> httpx.Timeout:
    """How long its answer is waited for, beyond what the service may keep it waiting."""
    return httpx.Timeout(ANSWER_TIMEOUT_S + call.wait_s, connect=CONNECT_TIMEOUT_S)


def unreachable(url: httpx.URL, error: httpx.HTTPError) -> UnreachableError:
    """What went wrong on the way, in words that show no secret."""
    if isinstance(error, httpx.TimeoutException):
        reason = "it took too long"
    elif isinstance(error, httpx.TransportError):
        reason = "it cannot be reached"
    else:
        reason = type(error).__name__
    return UnreachableError(f"{str(url).rstrip('/')}: {reason}")
