"""What one row of RunPod says, in either API: a GPU type in one cloud, and how its words for stock are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from sutler.adapters.base import PriceBand
from sutler.adapters.errors import RowError, SetupError
from sutler.adapters.gpu_names import identify, is_known_name
from sutler.adapters.values import Row, checked_price, flag, nonnegative, optional_identifier, short, stated, text

Cloud = Literal["SECURE", "COMMUNITY"]
Cause = Literal["no_stock", "unknown_stock", "not_offered"]

SOMEWHERE: Final = ""
LONGEST_TYPE_ID: Final = 100  # chosen with LONGEST_DATA_CENTER_ID: ids of both stay within a name
_IN_STOCK: Final = frozenset({"LOW", "MEDIUM", "HIGH"})
_OUT_OF_STOCK: Final = frozenset({"NONE", "OUT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one row says of a GPU type in one cloud.

    `gpus_at`: the GPUs that one machine has free at least, by data centre (SOMEWHERE: none is named); where nothing
    is for rent, `cause` says why. `is_silent`: nothing is known of its stock, not even that there is none.
    `most_gpus`: the largest machine. Cores and RAM are the least that comes with a GPU; without a
    `spot_usd_per_gpu_hour` the type is not for rent as interruptible.
    """

    type_id: str
    gpu: str
    usd_per_gpu_hour: float | None = None
    gpus_at: Mapping[str, int] = field(default_factory=dict)
    cause: Cause | None = None
    is_silent: bool = False
    most_gpus: int | None = None
    is_divisible: bool = True
    is_price_contradicted: bool = False
    spot_usd_per_gpu_hour: float | None = None
    cpu_cores_per_gpu: float | None = None
    ram_gb_per_gpu: float | None = None
    cuda_max: float | None = None


def type_id_of(row: object) -> str | None:
    """The type's id, repeated blanks collapsed: one card comes with both spellings."""
    return " ".join((optional_identifier(row, "id") or "").split()) or None


def identified(row: Row, *, memory_field: str) -> tuple[str, str]:
    """The type's id, blanks collapsed, and its slug. A memory of 0 is not stated. Raises RowError."""
    type_id = type_id_of(row)
    if type_id is None:
        raise RowError("bad_shape", f"id: {short(row.get('id'))} is no id")
    memory_gb = nonnegative(row, memory_field) or None
    gpu = identify(type_id, provider="runpod", memory_gb=memory_gb)
    if len(type_id) > LONGEST_TYPE_ID:
        raise RowError("unknown_gpu", f"id: {short(type_id)} is longer than the id of any GPU type")
    return type_id, gpu


def may_have_offers(type_id: str) -> bool:
    """Whether a GPU of the name table is called so; of other types no poll can have brought an offer."""
    return is_known_name(type_id, provider="runpod")


def list_price(price: float | None, name: str, band: PriceBand) -> float:
    """Returns USD per GPU and hour. Raises RowError where the field of this name holds none that can be."""
    return checked_price(stated(price, name, "no_on_demand_price"), gpus=1, band=band, name=name)


def if_readable(price: Callable[[], float]) -> float | None:
    """The price of what is not for rent, which does not need one."""
    try:
        return price()
    except RowError:
        return None


def why_not_in_stock(row: Row, name: str) -> Cause | None:
    """Returns None for the words that mean stock, in any case; words that nobody documented never do."""
    word = (text(row, name) or "").upper()
    if word in _IN_STOCK:
        return None
    return "no_stock" if word in _OUT_OF_STOCK else "unknown_stock"


def why_not_offered(row: Row, name: str) -> Cause | None:
    """Whether the cloud has the type at all; a field that is absent says nothing."""
    offered = flag(row, name)
    if offered is None and row.get(name) is not None:
        return "unknown_stock"
    return "not_offered" if offered is False else None


def key_refused(said: str, *, http_status: int) -> SetupError:
    """What 401 and 403 mean here."""
    detail = f"RunPod refuses the key: {said}; set SUTLER_RUNPOD_API_KEY to a key that is valid"
    return SetupError("auth_error", detail, http_status=http_status)
