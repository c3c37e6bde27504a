"""Models that sleep: nothing is rented for them while reports say that there are no requests. Pure.

What sleeps goes on to, since engines that are not there report nothing. It wakes with the first request that is
reported, when it is asked to, and in time for an event of the calendar.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta

from sutler.service.deployments.calendar import expected
from sutler.service.deployments.replanning.drift import Drift
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.documents.plan import SleepingDocument
from sutler.service.documents.problem import ProblemDocument


def with_sleep(facts: Facts) -> Facts:
    """The facts with the models that are to sleep now, and what the plan was made for without those that slept."""
    planned = without(facts.planned, {one.model for one in facts.plan.sleeping})
    return replace(facts, planned=planned, asleep=frozenset(_asleep(facts)))


def without(problem: ProblemDocument, names: Collection[str]) -> ProblemDocument:
    """The problem without these models; it may be left with none, unlike what callers send."""
    models = tuple(model for model in problem.models if model.name not in names)
    table = tuple(row for row in problem.throughput.table if row.model not in names)
    throughput = problem.throughput.model_copy(update={"table": table})
    return problem.model_copy(update={"models": models, "throughput": throughput}) if names else problem


def whole(problem: ProblemDocument, facts: Facts) -> ProblemDocument:
    """The problem with the models that sleep, at the rates that they wake to: as it is kept beside its plan."""
    awake = {model.name: model for model in problem.models}
    models = tuple(awake.get(model.name, model) for model in facts.problem.models)
    update = {"models": models, "throughput": facts.problem.throughput}
    return problem.model_copy(update=update) if facts.asleep else problem


def sleepers(facts: Facts) -> tuple[SleepingDocument, ...]:
    """The models that a plan of now lets sleep."""
    return tuple(SleepingDocument(model=name, starts_in_s=facts.lead_s) for name in sorted(facts.asleep))


def sleep_drifts(facts: Facts) -> Iterator[Drift]:
    """Models that are served and may sleep now, and models that sleep and are to be served."""
    for model in facts.planned.models:
        if model.name in facts.asleep and facts.policy.sleep is not None:
            told_s = facts.traffic[model.name].quiet.told.total_seconds()
            detail = f"{model.name} may sleep: no requests for {told_s:.0f} s"
            yield Drift("sleep", detail, told_s, facts.policy.sleep.after_s)
    for name in sorted(facts.waking):
        yield Drift("wake", f"{name} wakes: {_stays_awake(facts, name)}", 1.0, 0.0)


def _asleep(facts: Facts) -> Iterator[str]:
    sleep, slept = facts.policy.sleep, {one.model for one in facts.plan.sleeping}
    if sleep is None or facts.is_asked:
        return
    for model in facts.problem.models:
        traffic = facts.traffic.get(model.name)
        is_quiet = traffic is not None and traffic.quiet.told >= timedelta(seconds=sleep.after_s)
        if (is_quiet or model.name in slept) and not _stays_awake(facts, model.name):
            yield model.name


def _stays_awake(facts: Facts, name: str) -> str:
    """Why a model is not to sleep, however long there were no requests; empty: nothing speaks against it."""
    sleep = facts.policy.sleep
    if sleep is None or (sleep.models is not None and name not in sleep.models):
        return "policy.sleep does not let it sleep"
    since, traffic = facts.now - timedelta(seconds=sleep.after_s), facts.traffic.get(name)
    if traffic is not None and traffic.quiet.asked_at is not None and traffic.quiet.asked_at > since:
        return "there are requests again"
    if facts.woken.get(name, since) > since:
        return "it was asked for"
    event = expected(facts.policy.calendar, name, facts.now, facts.now + facts.ahead)
    return "" if event is None else f"{event.name} of the calendar"
