"""Which option to take: the least disruptive that is worth it, where each step up has to pay for itself.

"Least disruptive with any benefit at all" would let a re-routing that gains a cent stand in the way of a change that
gains a hundred dollars: so an option replaces a less disruptive one only where it nets more within the horizon, by a
margin. Carrying the load comes before all money.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.documents.problem import LOADS
from sutler.service.translation.mapping import mapped
from sutler.solver.plan import Plan
from sutler.solver.replanning import Considered, OptionKind, ReplanOption, StepLimits, Switching
from sutler.solver.units import SECONDS_PER_HOUR

_HEADROOM_SLACK = 0.02  # chosen: nothing is rented for so little of what is wanted, as rates are not known better
_WORDS: Final[dict[OptionKind, str]] = {
    "keep": "what runs",
    "reroute": "re-routing",
    "relayout": "other replicas on the same machines",
    "refleet": "another fleet",
}
Level = Literal[0, 1, 2]
"""0: the load is not carried; 1: it is, without its headroom; 2: with it. Always 2 where only the mix counts."""
FREE_USD_PER_RPS: Final = 1.0
"""What capacity of a fleet that costs nothing is worth, $/h for each request/s.

Chosen: with none, losing such a fleet would cost nothing either. It only weighs options against each other.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done: `chosen` (keep: nothing), how well that carries the load, and the reason, priced."""

    chosen: ReplanOption
    level: Level
    reason: str


def decide(
    considered: Considered,
    policy: PolicyDocument,
    *,
    headroom_fraction: float | None,
    moved: bool,
    part: float = 1.0,
) -> Decision:
    """Chooses among the options.

    `headroom_fraction` None: there is no load to carry. `moved`: the facts have, so that headroom is restored. `part`
    of the load is what they are options for.
    """
    levels = {option.kind: _level(option, headroom_fraction) for option in considered.options}
    wanted = _wanted(levels, considered.options, moved=moved)
    least_usd = margin_usd(policy, considered.keep.cost_usd_per_hour)
    best = considered.keep
    for option in considered.options[1:]:
        if option.plan is None:
            continue
        has, had = min(levels[option.kind], wanted), min(levels[best.kind], wanted)
        if has > had or (has == had and option.net_usd - best.net_usd > least_usd):
            best = option
    if best.kind == "keep":
        reason = _why_kept(considered, levels, least_usd, within_h=policy.horizon_s / SECONDS_PER_HOUR)
    else:
        reason = _why_changed(considered.keep, best, levels, wanted, headroom_fraction, part)
        reason += "; no larger step is allowed at once (policy.most_...)" if best.is_step else ""
    return Decision(best, levels[best.kind], reason)


def _level(option: ReplanOption, headroom_fraction: float | None) -> Level:
    if option.plan is None or not option.is_valid or not option.carries:
        return 0
    if headroom_fraction is None or option.load_multiple is None:
        return 2
    return 2 if option.load_multiple >= (1 + headroom_fraction) * (1 - _HEADROOM_SLACK) else 1


def _wanted(levels: dict[OptionKind, Level], options: Sequence[ReplanOption], *, moved: bool) -> Level:
    """The level that the load calls for, as far as any option gives it."""
    reachable: Level = max(levels.values())
    if moved or levels[options[0].kind] == 0:
        return reachable
    return min(reachable, levels[options[0].kind])


def _why_changed(
    keep: ReplanOption,
    best: ReplanOption,
    levels: dict[OptionKind, Level],
    wanted: Level,
    headroom: float | None,
    part: float,
) -> str:
    what = _what(keep, best)
    if part < 1:
        running = _carried(replace(keep, load_multiple=(keep.load_multiple or 0.0) * part))
        return f"no fleet on this market carries the load, {what} {part:.0%} of it: {running}{_more(keep, best)}"
    if min(levels["keep"], wanted) < min(levels[best.kind], wanted):
        return f"{what}: {_carried(keep)}{_wanted_too(levels[best.kind], headroom)}{_more(keep, best)}"
    return f"{what} gains {best.benefit_usd_per_hour:.2f} $/h{_change(best)}"


def _what(keep: ReplanOption, best: ReplanOption) -> str:
    if _runs_nothing(keep):
        return "a fleet that serves"
    if best.plan is not None and not best.plan.rentals:
        return "no machine at all"
    if best.change.is_of_caps:
        return "other power caps on what runs"
    if best.change.is_of_phases:
        return "other phases for what runs, by routing alone,"
    return "fewer of these machines" if best.kind == "relayout" and best.change.stopped else _WORDS[best.kind]


def _wanted_too(level: Level, headroom_fraction: float | None) -> str:
    """What is wanted beyond the load, where the change is for headroom."""
    return f", {1 + headroom_fraction:.0%} are wanted" if level == 2 and headroom_fraction else ""


def _more(keep: ReplanOption, best: ReplanOption) -> str:
    """What carrying the load costs more, and the change to the option that does."""
    more, once = best.cost_usd_per_hour - keep.cost_usd_per_hour, best.change.usd
    word = "more" if more > 0 else "less"
    parts = [f"{abs(more):.2f} $/h {word} than what stands"] if abs(more) >= 0.005 else []
    parts += [f"{once:.2f} $ for the change"] if once > 0 else []
    return f"; it costs {' and '.join(parts)}" if parts else ""


def _why_kept(considered: Considered, levels: dict[OptionKind, Level], least_usd: float, *, within_h: float) -> str:
    if levels["keep"] == 0:
        rest = "nothing runs" if _runs_nothing(considered.keep) else "what runs is kept"
        what = "has the reserve" if (considered.keep.load_multiple or 0.0) >= 1 else "carries the load"
        return f"no fleet on this market {what}: {rest}"
    most, found = considered.most_net_usd, considered.options[1:]
    if not considered.searched:
        if most == float("inf"):
            return "what runs carries the load, and within the cool-down no change is made for money"
        proven = f"no change can net more than {max(most, 0.0):.2f} $ in {within_h:.3g} h, which is proven"
        if most < least_usd:
            return f"{proven}: {least_usd:.2f} $ is the least that is worth it"
        return f"{proven}; within the cool-down none is made for money, and none is sought twice for the same promise"
    if not found:
        return "no change was found that is better than what runs"
    best = max(option.net_usd for option in found)
    nets = f"the best change nets {best:.2f} $ in {within_h:.3g} h"
    return f"{nets}, and {least_usd:.2f} $ is the least that is worth it"


def _carried(keep: ReplanOption) -> str:
    if _runs_nothing(keep):
        return "nothing runs"
    if not keep.load_multiple:
        return "what runs does not serve every kind of request"
    asked = [loss for loss in keep.plan.losses if loss.routing] if keep.plan else []
    if keep.load_multiple >= 1 and asked and not keep.carries:
        worst = min(asked, key=lambda loss: loss.carried_fraction)
        return f"without {worst.kind} {worst.name} what runs would carry {worst.carried_fraction:.0%} of the load"
    return f"what runs carries {keep.load_multiple:.0%} of the load"


def _runs_nothing(keep: ReplanOption) -> bool:
    return (keep.plan is None or not keep.plan.replicas) and keep.cost_usd_per_hour == 0


def _change(option: ReplanOption) -> str:
    if option.change.usd <= 0:
        return ""
    pays = "" if option.break_even_s is None else f" and pays after {option.break_even_s / 60:.0f} min"
    return f"; the change costs {option.change.usd:.2f} ${pays}"


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


def step_limits(policy: PolicyDocument, *, is_replacing: bool) -> StepLimits:
    """How much one plan may change; what is lost is replaced at once."""
    limits = StepLimits(policy.most_stopped_fraction, policy.most_started_machines, policy.most_started_usd_per_hour)
    return limits.of_stops() if is_replacing else limits


def margin_usd(policy: PolicyDocument, cost_usd_per_hour: float) -> float:
    """What a change has to net within the horizon."""
    return policy.least_gain_fraction * cost_usd_per_hour * policy.horizon_s / SECONDS_PER_HOUR
