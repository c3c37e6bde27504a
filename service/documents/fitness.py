"""What an offer must state to be newly rented for serving: rules with their thresholds, each of which can be off."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from sutler.service.documents.fields import Document

Off = Literal["off"]
Auto = Literal["auto"]
LARGEST: Final = 1e9  # far beyond any threshold


def _number_or(*words: str) -> Callable[[Any], Any]:
    """Checks for a number from 0 or one of these words; false is `off`, as YAML reads the bare word."""

    def checked(value: Any) -> Any:
        if value is False:
            return "off"
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST
        if not is_number and value not in words:
            raise PydanticCustomError(
                "sutler_choice", f"must be a number from 0 to {LARGEST:g}, or {' or '.join(words)}"
            )
        return value

    return checked


def _on_or_off(value: Any) -> Any:
    """Takes true and false for the words, as YAML does."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


_Number = Annotated[float, Field(ge=0, le=LARGEST)]
Least = Annotated[_Number | Off, BeforeValidator(_number_or("off"))]
LeastOrAuto = Annotated[_Number | Auto | Off, BeforeValidator(_number_or("auto", "off"))]


class FitDocument(Document):
    """Rules that an offer must meet to be newly rented. A rule judges only what the offer states: what it does not
    state passes, and the plan says so. Machines that are held already are never judged. Each rule can be `off`."""

    min_open_ports: Least = 1.0
    """Ports reachable from outside: a server that nobody reaches serves nobody."""
    min_cuda: LeastOrAuto = "auto"
    """CUDA version that the driver runs, such as 12.8; auto: what the engine's current release is built for."""
    min_compute_capability: LeastOrAuto = "auto"
    """CUDA compute capability, such as 8.9; auto: what the engine needs at the precision of the weights. What an
    offer does not state is that of its GPU type."""
    min_ram_per_weights: Least = 1.1
    """RAM over the weights that the machine loads: those of the model, or as much as its GPUs hold, if less."""
    min_cpu_cores_per_gpu: Least = 1.0
    """CPU cores for each GPU: engines run a process for each."""
    min_download_gb_per_s: Least = 0.025
    """10^9 bytes/s from the internet, over which the weights come when the machine starts; 0.025 are 200 Mb/s."""
    min_lifetime_s: Least = 86_400.0
    """Seconds until the listing ends."""
    verified: Annotated[Literal["on", "off"], BeforeValidator(_on_or_off)] = "on"
    """Hosts that the provider has checked."""


RULES: Final = tuple(FitDocument.model_fields)
ALL_ON: Final = FitDocument()
ALL_OFF: Final = FitDocument.model_validate(dict.fromkeys(RULES, "off"))


def _kind_of_fit(value: Any) -> str | None:
    if isinstance(value, bool | str):
        return "word"
    return "rules" if isinstance(value, dict | Document) else None


FitChoice = Annotated[
    Annotated[Literal["on", "off"], BeforeValidator(_on_or_off), Tag("word")] | Annotated[FitDocument, Tag("rules")],
    Discriminator(
        _kind_of_fit,
        custom_error_type="sutler_choice",
        custom_error_message=f"must be on, off, or rules with their values: {', '.join(RULES)}",
    ),
]


def rules_of(fit: Literal["on", "off"] | FitDocument) -> FitDocument:
    """The rules that a choice stands for."""
    if isinstance(fit, FitDocument):
        return fit
    return ALL_ON if fit == "on" else ALL_OFF
