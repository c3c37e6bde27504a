"""Keys that are missing or refused: the message names the settings to correct, never their values."""

from sutler.adapters.config import ProviderConfig
from sutler.adapters.errors import FetchError, SetupError
from sutler.adapters.http import Classify, Refusal, message_of


def require(config: ProviderConfig, provider: str, *names: str) -> None:
    """Raises SetupError (auth_error) when one of these secrets is not set, before anything is asked."""
    missing = [name for name in names if config.secret(name) is None]
    if missing:
        raise SetupError("auth_error", f"{provider} answers nobody without a key: set {settings(provider, *missing)}")


def refused(provider: str, *names: str, statuses: frozenset[int] = frozenset({401, 403})) -> Classify:
    """Reads these statuses as a refusal of the key; others keep their usual meaning."""

    def classify(refusal: Refusal) -> FetchError | None:
        if refusal.status not in statuses:
            return None
        said = f"{provider} answers {refusal.status}: {message_of(refusal)}"
        return SetupError("auth_error", f"{said}; check {settings(provider, *names)}", http_status=refusal.status)

    return classify


def settings(provider: str, *names: str) -> str:
    """The environment's names for these secrets."""
    return " and ".join(f"SUTLER_{provider}_{name}".upper() for name in names)
