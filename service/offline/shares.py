"""What the GPUs of a plan do all the time: compute, load, idle."""

from sutler.service.offline.outcome_schema import GpuShares
from sutler.service.offline.plan_schema import OfflinePlanDocument


def gpu_shares(plan: OfflinePlanDocument) -> GpuShares:
    """Returns the shares of all its GPUs, from the start of the first stage to the end of the last."""
    gpus = 0 if plan.hardware is None else sum(len(island.gpus) for island in plan.hardware.islands)
    start_s = min((stage.start_s for stage in plan.stages), default=0.0)
    total_gpu_s = gpus * (max((stage.end_s for stage in plan.stages), default=0.0) - start_s)
    if total_gpu_s <= 0:
        return GpuShares(busy_fraction=0.0, loading_fraction=0.0, idle_fraction=1.0)
    busy, loading = (
        min(1.0, sum(getattr(stage, name) for stage in plan.stages) / total_gpu_s)
        for name in ("busy_gpu_s", "loading_gpu_s")
    )
    idle = max(0.0, 1.0 - busy - loading)
    return GpuShares(busy_fraction=busy, loading_fraction=loading, idle_fraction=idle)
