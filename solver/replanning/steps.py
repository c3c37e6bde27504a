"""How much one plan may change at once, of what runs and of what is for rent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sutler.solver.plan import Plan, Replica


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a plan stops and starts at most; None: as much as is best.

    `stopped_fraction`: of the GPUs whose engines run, be it that their machines go or that they start anew; what runs
    on one machine, or is one replica, may in any case. The others are of machines that are newly rented.
    """

    stopped_fraction: float | None = None
    started_machines: int | None = None
    started_usd_per_hour: float | None = None

    def allow(self, running: Sequence[Replica], plan: Plan) -> bool:
        """Whether the plan is within them, for these replicas that run."""
        stay = {replica.id for replica in plan.replicas}
        stopped = sum(gpus_of(replica) for replica in running if replica.id not in stay)
        new = [rental for rental in plan.rentals if not rental.held]
        machines, usd = sum(r.count for r in new), sum(r.price_usd_per_hour * r.count for r in new)
        return (
            stopped <= self.most_stopped_gpus(running)
            and (self.started_machines is None or machines <= self.started_machines)
            and (self.started_usd_per_hour is None or usd <= self.started_usd_per_hour)
        )

    def most_stopped_gpus(self, running: Sequence[Replica]) -> float:
        """GPUs whose engines may be stopped."""
        total = sum(map(gpus_of, running))
        if self.stopped_fraction is None:
            return total
        together: Counter[tuple[int, int]] = Counter()
        for replica in running:
            together.update({(stage.rental, stage.machine): stage.gpus for stage in replica.stages})
        return max(self.stopped_fraction * total, *together.values(), *map(gpus_of, running), 0)

    def of_stops(self) -> "StepLimits":
        """Those of what is stopped alone."""
        return replace(self, started_machines=None, started_usd_per_hour=None)


UNLIMITED: Final = StepLimits()


def gpus_of(replica: Replica) -> int:
    return sum(stage.gpus for stage in replica.stages)
