"""Short ways to say what a cloud sends and when: time that passes when told, clients, polls, rows of Vast.ai."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sutler.adapters import vastai
from sutler.adapters.base import USUAL_PRICE_BAND, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.http import Clock, HttpClient, HttpPolicy
from sutler.adapters.polling import poll
from sutler.adapters.vastai_searches import SearchAnswer, SearchedContract
from sutler.service.documents.market import MarketDocument, OfferDocument

DELETE: Final = object()
NOON_EPOCH_S: Final = 1_795_348_800.0  # 2026-11-22 12:00:00 UTC
KEY: Final = "canary-0123456789abcdef"


@dataclass(slots=True)
class ToldTime:
    """Time that passes only in `sleep` and `pass_s`; `chance` is every draw."""

    monotonic_s: float = 1000.0
    epoch_s: float = NOON_EPOCH_S
    chance: float = 0.5
    slept: list[float] = field(default_factory=list)

    def pass_s(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.epoch_s += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_s(seconds)

    @property
    def clock(self) -> Clock:
        return Clock(
            sleep=self.sleep,
            monotonic=lambda: self.monotonic_s,
            epoch_s=lambda: self.epoch_s,
            chance=lambda: self.chance,
        )


@contextmanager
def a_client(
    base_url: str,
    *,
    time: ToldTime | None = None,
    policy: HttpPolicy | None = None,
    headers: Mapping[str, str] | None = None,
    secrets: tuple[str, ...] = (),
) -> Iterator[HttpClient]:
    client = HttpClient(
        base_url, headers or {}, secrets, policy=policy or HttpPolicy(), clock=(time or ToldTime()).clock
    )
    with client.session:
        yield client


def a_poll(
    base_url: str,
    provider: Provider = vastai.PROVIDER,
    *,
    time: ToldTime | None = None,
    policy: HttpPolicy | None = None,
    key: str = KEY,
    secrets: Mapping[str, str] | None = None,
    **options: str,
) -> Poll:
    """A poll of a server on this machine, in no real time; `key` is its API key unless `secrets` say more."""
    config = ProviderConfig(base_url, secrets or {"api_key": key}, options)
    return poll(provider, config, policy=policy or HttpPolicy(), clock=(time or ToldTime()).clock)


def vast_row(offer_id: object = 501, **changes: Any) -> dict[str, Any]:
    """A row of a search, for rent; DELETE leaves a field out."""
    row = {
        "id": offer_id,
        "machine_id": 7_100,
        "host_id": 88,
        "cluster_id": None,
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "gpu_ids": [60_001],
        "gpu_ram": 24_564,
        "gpu_max_power": 450.0,
        "bw_nvlink": 0.0,
        "pci_gen": 4.0,
        "gpu_lanes": 16,
        "pcie_bw": 21.5,
        "cuda_max_good": 12.8,
        "disk_space": 640.0,
        "storage_cost": 0.18,
        "inet_down": 1600.0,
        "direct_port_count": 120,
        "dph_base": 0.33,
        "dph_total": 0.332,
        "min_bid": 0.15,
        "is_bid": False,
        "reliability": 0.991,
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "geolocation": "Norway, NO",
        "end_date": NOON_EPOCH_S + 86_400.0,
        "duration": 86_400.0,
        **changes,
    }
    return {name: value for name, value in row.items() if value is not DELETE}


def vast_poll(
    *rows: object,
    contract: SearchedContract = "on_demand",
    is_cut: bool = False,
    price_band: PriceBand = USUAL_PRICE_BAND,
) -> Poll:
    """What one search that brings these rows amounts to."""
    return vastai.parse([SearchAnswer(contract, rows, is_cut)], price_band=price_band, now_s=NOON_EPOCH_S)


def only_offer(found: Poll) -> Offer:
    (offer,) = found.offers
    return offer


def only_reason(found: Poll) -> str:
    (row,) = found.rejected
    return row.reason


def prices(found: Poll) -> dict[tuple[str, str], float]:
    """USD per hour by (offer_id, contract)."""
    return {offer.key: offer.price_usd_per_hour for offer in found.offers}


def as_document(offer: Offer, *, provider: str = "vastai") -> OfferDocument:
    """The offer in a market snapshot; pydantic's ValidationError where it does not fit."""
    shared = {name: getattr(offer, name) for name in OfferDocument.model_fields if hasattr(offer, name)}
    return OfferDocument(provider=provider, **shared)


def as_market(found: Poll) -> MarketDocument:
    """The offers of a poll as a market snapshot; ValidationError where they cannot be one."""
    taken_at = datetime.fromtimestamp(NOON_EPOCH_S, UTC)
    return MarketDocument(taken_at=taken_at, offers=tuple(as_document(offer) for offer in found.offers))
