"""The traffic that is planned for where more is expected than is seen: what the problem states, where the policy asks
for that and where a model wakes, and events of its calendar, as soon as machines for them have to be ordered; and no
more of a climb that has ended than was seen of it. Pure."""

from dataclasses import replace
from datetime import timedelta
from math import inf

from sutler.service.deployments.calendar import expected
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.load import STATED, as_stated, at_least
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.deployments.traffic.window import ModelTraffic
from sutler.service.documents.problem_parts import ModelDocument


def with_expected(facts: Facts) -> Facts:
    """The facts with the traffic that is expected by the time that what is ordered now serves."""
    stated = {model.name: model for model in facts.problem.models}
    traffic = {name: _expected(facts, seen, stated[name]) for name, seen in facts.traffic.items() if name in stated}
    return replace(facts, traffic=traffic)


def _expected(facts: Facts, seen: ModelTraffic, stated: ModelDocument) -> ModelTraffic:
    policy = facts.policy
    before = facts.memory.before_climb.get(stated.name)
    if before is not None and not facts.is_climbing(stated.name):
        # What was ordered for a climb that has ended is no capacity that a lull would have to prove superfluous.
        seen = replace(seen, peak_work=min(seen.peak_work, max(before, seen.seen_work)))
    event = expected(policy.calendar, stated.name, facts.now, facts.now + facts.ahead)
    is_waking, woken_at = stated.name in facts.waking, facts.woken.get(stated.name)
    if woken_at is not None and facts.now < woken_at + timedelta(seconds=policy.shrink_after_s):
        seen = replace(seen, peak_work=inf)  # what came while it slept is no measure of what comes
    usual = 1.0 if policy.at_least_stated or is_waking else 0.0
    times, why = usual, STATED
    if event is not None and event.times > usual:
        times, why = event.times, f"{event.name} of the calendar, {event.times:g} x what is stated"
    if is_waking and seen.state != "live":
        return as_stated(seen, stated, times=times, why=why)
    if seen.state == "live":
        return at_least(seen, stated, times=times, why=why) if times > 0 else seen
    is_in_calendar = any(one.models is None or stated.name in one.models for one in policy.calendar)
    if seen.state == "never" and is_in_calendar:
        return as_stated(seen, stated, times=max(1.0, times), why=why)
    # What was planned for is kept in silence; only an event brings more.
    planned_rps = next((stated_rps(model) for model in facts.planned.models if model.name == stated.name), 0.0)
    brings_more = event is not None and times * stated_rps(stated) > planned_rps
    return as_stated(seen, stated, times=times, why=why) if brings_more else seen
