"""Which GPUs RunPod has in its two clouds, and how many pods of a size fit."""

from typing import Final

from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.clouds.stock import fitting, machines_with
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.market import FakeMachine

TIERS: Final = ("secure", "community")


def is_sold(view: MarketInstant, gpu: GpuModel, tier: str) -> bool:
    """Whether that cloud has any machine of this type, free or not."""
    return any(m.gpu.slug == gpu.slug and m.place.tier == tier for m in view.market.of("runpod"))


def pods(
    view: MarketInstant,
    gpu: GpuModel,
    count: int,
    *,
    tier: str | None = None,
    region: str | None = None,
    country: str | None = None,
) -> int:
    """How many pods of `count` GPUs fit there now; what is None is anywhere."""

    def wanted(machine: FakeMachine) -> bool:
        place = machine.place
        given = ((tier, place.tier), (region, place.region), (country, place.country))
        return all(asked is None or asked == own for asked, own in given)

    return fitting(machines_with(view, "runpod", gpu, wanted), count)
