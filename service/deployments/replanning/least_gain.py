"""What changes have to bring under a deployment's policy."""

from typing import Final

from sutler.service.deployments.replanning.load import LOADS
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.translation.mapping import mapped
from sutler.solver.plan import Plan
from sutler.solver.replanning import Switching
from sutler.solver.units import SECONDS_PER_HOUR

FREE_USD_PER_RPS: Final = 1.0
"""What capacity of a fleet that costs nothing is worth, $/h for each request/s.

Chosen: with none, losing such a fleet would cost nothing either. It only weighs options against each other.
"""


def switching(policy: PolicyDocument, plan: Plan, *, is_urgent: bool) -> Switching:
    """What changes cost under the policy; capacity is worth what the plan pays for it.

    What cannot wait changes as little as it can; what is better in the long run is sought when there is calm. Where
    there is no load, nothing is beyond the need: capacity that is lost is worth what it was.
    """
    usual = max(1.0, policy.horizon_s / policy.payback_s)
    urgent = max(1.0, policy.horizon_s / policy.urgent_payback_s) if plan.objective in LOADS else usual
    cost, rate = plan.cost_usd_per_hour or 0.0, plan.throughput_rps or 0.0
    return mapped(
        Switching,
        policy,
        weight=urgent if is_urgent else usual,
        needed_weight=urgent,
        usd_per_rps=cost / rate if cost > 0 and rate > 0 else FREE_USD_PER_RPS,
    )


def margin_usd(policy: PolicyDocument, cost_usd_per_hour: float) -> float:
    """What a change has to net within the horizon."""
    return policy.least_gain_fraction * cost_usd_per_hour * policy.horizon_s / SECONDS_PER_HOUR
