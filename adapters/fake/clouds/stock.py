"""What clouds that sell sizes instead of machines can tell: how many pods or instances of a size fit now."""

from collections.abc import Callable, Iterable
from typing import Final

from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.gpus import GPUS, SOLD_BY, GpuModel
from sutler.adapters.fake.market import FakeMachine, MachineState
from sutler.adapters.fake.places import Place

INSTANCE_SIZES: Final = (1, 2, 4, 8)
# Invented, as RunPod does not say what its words mean in numbers.
FEW_PODS: Final = 3
MANY_PODS: Final = 12


def sold(provider: str) -> tuple[GpuModel, ...]:
    """The GPUs of a cloud's price list, for rent now or not."""
    return tuple(GPUS[slug] for slug in SOLD_BY[provider])


def machines_with(
    view: MarketInstant, provider: str, gpu: GpuModel, wanted: Callable[[FakeMachine], bool] = lambda _: True
) -> tuple[MachineState, ...]:
    """The machines on line with this GPU that are wanted."""
    states = view.states(provider)
    return tuple(state for state in states if state.machine.gpu.slug == gpu.slug and wanted(state.machine))


def machines_at(view: MarketInstant, provider: str, gpu: GpuModel, place: Place) -> tuple[MachineState, ...]:
    """The machines on line with this GPU in one place."""
    return machines_with(view, provider, gpu, lambda machine: machine.place == place)


def fitting(states: Iterable[MachineState], gpus: int) -> int:
    """How many pods of this many GPUs fit on the free cards, none across machines."""
    return sum(len(state.free) // gpus for state in states)


def word(pods: int) -> str:
    """The stock word for a true count."""
    if pods == 0:
        return "None"
    return "Low" if pods <= FEW_PODS else "Medium" if pods < MANY_PODS else "High"
