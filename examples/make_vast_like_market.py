"""Writes vast_like_market.json: about 400 invented offers, shaped like those of a marketplace of single hosts.

Every host lists its GPUs as one offer and as slices (halves, quarters, ...), names the cards of each, and has its
own price, disk terms and measured reliability. Some slices are offered to bidders as well, under the same id.
GPU mix, price levels and spreads are plausible for late 2026 and come from no real listing.

Usage: python examples/make_vast_like_market.py  (same seed, same file)
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

SEED = 20261120
OFFERS = 400
TAKEN_AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TARGET = Path(__file__).with_name("vast_like_market.json")
REGIONS = ("US-TX", "US-CA", "US-UT", "CA-QC", "SE", "DE", "FR", "PL", "CZ", "NO", "JP", "KR", "TW")


class Kind(NamedTuple):
    """One GPU type: how common, $/h per GPU, machine sizes, link inside the machine (None: the catalogue's)."""

    gpu: str
    weight: float
    usd_per_hour: float
    machine_sizes: tuple[int, ...]
    link_gb_per_s: tuple[float, ...]


KINDS = (
    Kind("rtx-4090", 26, 0.36, (1, 2, 4, 8), (12.0, 20.0, 24.0)),
    Kind("rtx-5090", 14, 0.52, (1, 2, 4, 8), (24.0, 40.0, 50.0)),
    Kind("rtx-3090", 14, 0.19, (1, 2, 4, 8), (6.0, 12.0, 20.0)),
    Kind("rtx-a6000", 6, 0.45, (1, 2, 4, 8), (12.0, 20.0)),
    Kind("rtx-6000-ada", 5, 0.70, (1, 2, 4, 8), (20.0, 24.0)),
    Kind("l40s", 6, 0.75, (1, 2, 4, 8), (20.0, 24.0)),
    Kind("a40", 3, 0.40, (1, 2, 4), (12.0, 20.0)),
    Kind("rtx-pro-6000-ws", 5, 1.05, (1, 2, 4, 8), (40.0, 50.0)),
    Kind("a100-pcie-80gb", 4, 0.85, (1, 2, 4), (20.0, 24.0)),
    Kind("a100-sxm4-80gb", 6, 1.05, (2, 4, 8), (300.0,)),
    Kind("h100-pcie", 2, 1.75, (1, 2), (40.0,)),
    Kind("h100-nvl", 3, 1.95, (1, 2, 4), (50.0,)),
    Kind("h100-sxm", 8, 2.10, (1, 2, 4, 8), (450.0,)),
    Kind("h200-sxm", 4, 2.60, (1, 2, 4, 8), (450.0,)),
    Kind("b200", 2, 4.20, (1, 2, 8), (900.0,)),
)


def main(target: Path = TARGET) -> None:
    draw = Random(SEED)
    offers: list[dict[str, Any]] = []
    host = 0
    while len(offers) < OFFERS:
        host += 1
        offers.extend(host_offers(draw, host))
    head = f'{{"schema": "sutler/market/v1", "taken_at": "{stamp(TAKEN_AT)}", "offers": [\n'
    lines = (json.dumps(offer, separators=(",", ":")) for offer in offers)
    target.write_text(head + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def host_offers(draw: Random, host: int) -> Iterator[dict[str, Any]]:
    """All offers of one host."""
    kind = draw.choices(KINDS, weights=[kind.weight for kind in KINDS])[0]
    total = draw.choice(kind.machine_sizes)
    smallest = draw.choice([size for size in (1, 2, 4, 8) if size <= total])
    machine = describe_host(draw, kind, host, total)
    per_gpu = kind.usd_per_hour * draw.lognormvariate(0.0, 0.18)
    is_open_to_bids = draw.random() < 0.25
    for size in (8, 4, 2, 1):
        for first in range(0, total, size) if smallest <= size <= total else ():
            offer = slice_offer(machine, size, range(first, first + size), per_gpu)
            yield offer
            if is_open_to_bids:
                bid = round(0.6 * offer["price_usd_per_hour"], 4)
                yield {**offer, "price_usd_per_hour": bid, "contract": "interruptible"}


def describe_host(draw: Random, kind: Kind, host: int, total: int) -> dict[str, Any]:
    """What all slices of a host share; disk is for the whole host."""
    return {
        "provider": "vastai",
        "machine_id": str(40_000 + 17 * host),
        "machine_gpus": total,
        "site": f"vastai/host-{host}",
        "region": draw.choice(REGIONS),
        "gpu": kind.gpu,
        "contract": "on_demand",
        "reliability_fraction": round(1 - min(0.4, draw.expovariate(1 / 0.02)), 4),
        "intra_machine_gb_per_s": draw.choice(kind.link_gb_per_s),
        "disk_gb": total * draw.choice([60, 120, 250, 400, 800]),
        "disk_included_gb": 8,
        "disk_usd_per_gb_month": draw.choice([0.05, 0.1, 0.12, 0.15, 0.2]),
        "inet_down_gb_per_s": round(draw.choice([0.05, 0.1, 0.25, 0.6, 1.2]) * draw.uniform(0.7, 1.0), 3),
        "cuda_max": draw.choice([12.4, 12.8, 12.9, 13.0]),
        "open_ports": draw.choice([10, 50, 100, 250]),
        "observed_at": stamp(TAKEN_AT - timedelta(seconds=draw.randint(0, 90))),
    }


def slice_offer(machine: dict[str, Any], size: int, cards: range, per_gpu: float) -> dict[str, Any]:
    """One slice of a host: its cards, its share of the disk, its price."""
    return {
        **machine,
        "offer_id": f"{machine['machine_id']}-{size}-{cards.start}",
        "gpus": size,
        "available": 1,
        "price_usd_per_hour": round(per_gpu * size, 4),
        "gpu_ids": list(cards),
        "disk_gb": machine["disk_gb"] * size // machine["machine_gpus"],
    }


def stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
