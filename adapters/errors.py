"""What can go wrong with a cloud, by what the caller can do about it; no message shows a secret.

AdapterError
├── RowError            one row is unusable: it is kept raw with a reason code, the others live on
└── FetchError          the poll, or one of its requests, failed
    ├── TryLaterError       the cloud asks for patience or does not answer: poll again after `wait_s`
    │   └── QuotaError          a quota is spent; nothing but its reset helps
    ├── AnswerError         what came is no answer: `bad_body` (not JSON, cut short) or `bad_shape` (API changed)
    └── SetupError          `auth_error` or `config_error`: the operator has to correct a key or a setting
"""

from typing import Literal

Outcome = Literal[
    "ok", "partial", "prices_only", "retry", "bad_body", "bad_shape", "auth_error", "config_error", "quota"
]
Reason = Literal[
    "unknown_gpu",
    "bad_number",
    "no_on_demand_price",
    "price_nonpositive",
    "price_too_low",
    "price_too_high",
    "bad_shape",
]


class AdapterError(Exception):
    """Root of everything adapters raise."""


class RowError(AdapterError):
    """One row cannot become an offer."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason: Reason = reason
        super().__init__(detail)


class FetchError(AdapterError):
    """No usable answer. The message names what came and the remedy; never a secret.

    A wait that is given is the cloud's own word; where the HTTP client adds its backoff, `wait_is_stated` is False.
    """

    def __init__(
        self, outcome: Outcome, detail: str, *, http_status: int | None = None, wait_s: float | None = None
    ) -> None:
        self.outcome: Outcome = outcome
        self.http_status = http_status
        self.wait_s = wait_s
        self.wait_is_stated = wait_s is not None
        super().__init__(detail)


class TryLaterError(FetchError):
    """The cloud is busy, throttles or cannot be reached. `wait_s` is None where it did not say for how long."""

    kind: Outcome = "retry"

    def __init__(self, detail: str, *, http_status: int | None = None, wait_s: float | None = None) -> None:
        super().__init__(self.kind, detail, http_status=http_status, wait_s=wait_s)


class QuotaError(TryLaterError):
    """A quota is spent until its reset, `wait_s` from now; asking earlier is useless."""

    kind = "quota"


class AnswerError(FetchError):
    """The answer cannot be read: not JSON, cut short, too large (`bad_body`), or of another shape (`bad_shape`)."""


class SetupError(FetchError):
    """The cloud refuses the key (`auth_error`) or the request (`config_error`); asking again does not help."""
