"""A search that needs a fraction of the memory, for problems whose whole search ran out of it.

It leaves out pipelines of several kinds of GPU and of more than two stages, prefill and decode apart, power caps, and
all but the cheapest offers of each kind. What it finds keeps every limit of the whole problem, which is all that is
known of it: nothing is proven of the plans that were not sought.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sutler.solver.plan import Plan, Replica
from sutler.solver.problem import Offer, Problem
from sutler.solver.replanning import Considered

MOST_OFFERS: Final = 1_000  # chosen: of a hundred kinds of offers ten each
MOST_STAGES: Final = 2  # chosen: what one machine does not hold, two may


def smaller(problem: Problem, standing: Sequence[Replica] = ()) -> Problem:
    """The problem with a smaller search and without alternatives; `standing`: what runs, which stays within it."""
    asked = problem.search
    has_roles = asked.disaggregation == "only" or any(replica.role != "aggregated" for replica in standing)
    is_mixed = any(len({stage.gpu for stage in replica.stages}) > 1 for replica in standing)
    is_capped = any(stage.power_cap_watts is not None for replica in standing for stage in replica.stages)
    stages = max([MOST_STAGES, *(len(replica.stages) for replica in standing)])
    search = replace(
        asked,
        max_pipeline_stages=min(asked.max_pipeline_stages, stages),
        mixed_gpu_pipelines=asked.mixed_gpu_pipelines if is_mixed else False,
        disaggregation=asked.disaggregation if has_roles else "off",
        power_caps_fraction=asked.power_caps_fraction if is_capped else (),
    )
    options = replace(problem.options, alternatives=False)
    return replace(problem, search=search, options=options, offers=_cheapest(problem.offers))


def unproven(plan: Plan, why: str) -> Plan:
    """The plan of a smaller search as one of the whole problem, of which it proves nothing. `why` there was one."""
    told = f"{why}: a smaller search found this plan, and proves nothing"
    return replace(plan, status="feasible", bound=None, relative_gap=None, warnings=(*plan.warnings, told))


def all_unproven(considered: Considered, why: str) -> Considered:
    """As `unproven`, of each option; that none carries the load is not proven either. Something was sought, so that
    nobody is told of a proof that nothing better is there."""
    options = tuple(
        option if option.plan is None else replace(option, plan=unproven(option.plan, why))
        for option in considered.options
    )
    return replace(considered, options=options, most_net_usd=float("inf"), searched=True, conflicts=())


def _cheapest(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """As many of each kind; what is held stays."""
    kinds: dict[tuple[object, ...], list[Offer]] = defaultdict(list)
    for offer in offers:
        kinds[offer.provider, offer.gpu, offer.gpus, offer.contract, offer.held].append(offer)
    of_each = max(1, MOST_OFFERS // max(1, len(kinds)))
    kept = {
        id(offer)
        for alike in kinds.values()
        for offer in (alike if alike[0].held else sorted(alike, key=lambda one: one.price_usd_per_hour)[:of_each])
    }
    return tuple(offer for offer in offers if id(offer) in kept)
