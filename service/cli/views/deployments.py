"""Deployments, what was decided about them and what they have rented, as people read it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import listed, section, table_of
from sutler.service.cli.views.traffic import thin_words
from sutler.service.deployments.holdings.schemas import HoldingDocument, HoldingsResource
from sutler.service.deployments.schemas import CurrentPlanResource, DeploymentResource, DeploymentSummary
from sutler.service.deployments.traffic.schemas import TrafficResource
from sutler.service.deployments.watch_schema import CarryOutResource, DecisionResource, WatchResource
from sutler.service.plans.resources import SERVES
from sutler.service.wording.words import ago, contract_words, counted, machine, moment, price


def list_view(found: Sequence[DeploymentSummary], now: datetime) -> Iterator[RenderableType]:
    """One line per deployment."""
    table = table_of(texts=("name",), numbers=("revision",))
    table.add_column("status")
    table.add_column("$/h", justify="right", no_wrap=True)
    table.add_column("traffic")
    table.add_column("issued")
    for deployment in found:
        plan, watch = deployment.plan, deployment.watch
        cost = None if plan is None else plan.cost_usd_per_hour
        table.add_row(
            deployment.name,
            "–" if plan is None else str(plan.revision),
            _status(deployment),
            price(cost),
            "–" if watch is None else watch.feed,
            "–" if plan is None else ago(plan.issued_at, now),
        )
    yield table


def _status(deployment: DeploymentSummary) -> str:
    """What the last look found, where there is a plan that could be looked at."""
    if deployment.plan is None:
        return "no plan yet"
    if deployment.plan.status not in SERVES:
        return deployment.plan.status
    return "not looked at yet" if deployment.watch is None else deployment.watch.status


def deployment_view(
    deployment: DeploymentResource, traffic: TrafficResource | None, now: datetime
) -> Iterator[RenderableType]:
    """What it is, which plan holds, what is under way and what went wrong. `traffic` is given where it is thin."""
    issues = "plans are issued without being asked for" if deployment.policy.automatic else "watched only"
    yield Text(f"{deployment.name}: version {deployment.version}, {issues}", style="bold")
    yield from listed("Plan", _plan_words(deployment, now))
    if deployment.watch is not None:
        yield from listed("Watch", _watch_words(deployment, deployment.watch, traffic))


def _plan_words(deployment: DeploymentResource, now: datetime) -> Iterator[str]:
    plan, latest, failure = deployment.plan, deployment.latest, deployment.last_failure
    yield "there is none yet" if plan is None else f"{_issued(plan)} holds, issued {ago(plan.issued_at, now)}"
    if deployment.watch is not None and deployment.watch.carry_out is not None:
        yield from _carry_out_words(deployment.name, deployment.watch.carry_out)
    if latest is not None and plan is not None and latest.id != plan.id:
        yield f"{_issued(latest)} is newer and serves nothing, so it does not hold"
    if deployment.pending is not None:
        yield f"the next one is {deployment.pending.status}"
    if failure is not None and failure.problem is not None:
        yield f"the last attempt came to nothing: {failure.problem.get('detail', failure.status)}"


def _carry_out_words(name: str, found: CarryOutResource) -> Iterator[str]:
    """What runs against what is planned."""
    if found.missing_machines:
        begin, still = ("ATTENTION: ", "still ") if found.state == "overdue" else ("", "")
        missing, of = found.missing_machines, counted(found.planned_machines, "machine")
        yield (
            f"{begin}revision {found.revision} is {still}not carried out: {missing} of {of} "
            f"{'is' if missing == 1 else 'are'} missing (`sutler deployments holdings {name}` says which, "
            "`diff` what to do; `ack` when they run)"
        )
    elif found.state == "met":
        yield f"it is carried out: {counted(found.planned_machines, 'machine')}, as reported"
    if found.held_machines_not_planned:
        more = counted(found.held_machines_not_planned, "machine")
        verb = "is" if found.held_machines_not_planned == 1 else "are"
        yield f"{more} {verb} held that it does not rent (`sutler deployments holdings {name}` says which)"


def _issued(plan: CurrentPlanResource) -> str:
    cost = "" if plan.cost_usd_per_hour is None else f", {price(plan.cost_usd_per_hour)} $/h"
    return f"revision {plan.revision} ({plan.status}{cost})"


def _watch_words(
    deployment: DeploymentResource, watch: WatchResource, traffic: TrafficResource | None
) -> Iterator[str]:
    yield f"{watch.status}: {watch.detail}"
    yield from (f"{drift.kind}: {drift.detail}" for drift in watch.drifts if drift.detail not in watch.detail)
    if watch.budget:
        yield watch.budget
    for one in watch.avoided:
        lost = f"{counted(one.machines, 'machine')} {'was' if one.machines == 1 else 'were'} lost"
        yield f"avoided until {moment(one.until)} UTC: {one.place}, where {lost}"
    if deployment.plan is None or deployment.plan.status not in SERVES:
        return  # nothing runs that could be seen or not
    if watch.load_multiple is not None:
        missing = watch.carry_out is None or watch.carry_out.state != "met"
        runs = "what of the plan is held or still for rent" if missing else "what runs"
        yield f"{runs} carries {watch.load_multiple:.2f} times the load"
    yield from _blind_spots(deployment, watch, traffic)


def _blind_spots(
    deployment: DeploymentResource, watch: WatchResource, traffic: TrafficResource | None
) -> Iterator[str]:
    """What cannot be seen, and what to do about it."""
    name = deployment.name
    if watch.feed == "none":
        yield (
            f"its traffic was never reported, so changes of it cannot be seen: `sutler deployments observe {name} "
            f"FILE` sends it, `sutler deployments feeds {name} --file FILE` has it read"
        )
    elif watch.feed == "silent":
        yield (
            f"its traffic is no longer reported: `sutler deployments traffic {name}` says since when, "
            f"`sutler deployments feeds {name}` how it was read"
        )
    elif watch.feed == "thin":
        yield from thin_words(traffic, window_s=deployment.policy.window_s)
    if watch.holdings == "never":
        yield f"what is rented was never reported: `sutler deployments ack {name}` once the plan is carried out"


def decisions_view(found: Sequence[DecisionResource]) -> Iterator[RenderableType]:
    """One line per decision, the newest first as they come."""
    table = table_of(texts=("decided (UTC)", "revision", "moved", "chosen", "reason"))
    for decision in found:
        basis, revision = decision.basis_revision, decision.revision
        became = f"{'–' if basis is None else basis}" + ("" if revision is None else f" → {revision}")
        moved = ", ".join(dict.fromkeys(drift.kind for drift in decision.drifts)) or "–"
        table.add_row(moment(decision.at), became, moved, decision.chosen, decision.reason)
    for column in table.columns[:2]:
        column.no_wrap = True
    yield table


def acknowledged_view(found: HoldingsResource) -> Iterator[RenderableType]:
    """What a plan that is carried out has left rented."""
    yield Text(f"{found.deployment}: revision {found.revision} is carried out; stored as rented: {_total(found)}")
    if found.holdings:
        yield _holdings(found.holdings)
    if found.lost:
        yield from section("No longer held", _holdings(found.lost))


def holdings_view(found: HoldingsResource) -> Iterator[RenderableType]:
    """What is rented, and how that differs from the plan that holds."""
    if not found.reported:
        name = found.deployment
        yield Text(
            f"{name}: nobody has said yet what is rented: `sutler deployments ack {name}` once its plan is carried "
            f"out, or `sutler deployments holdings {name} FILE`"
        )
        return
    yield Text(f"{found.deployment}: {_total(found)}", style="bold")
    if found.holdings:
        yield _holdings(found.holdings)
    plan = "" if found.revision is None else f" (revision {found.revision})"
    for title, machines in (
        ("Lost since the report before", found.lost),
        (f"Missing: the plan{plan} rents it", found.missing),
        (f"Unplanned: the plan{plan} does not rent it", found.unplanned),
    ):
        if machines:
            yield from section(title, _holdings(machines))


def _total(found: HoldingsResource) -> str:
    machines = sum(holding.count for holding in found.holdings)
    return f"{counted(machines, 'machine')}, {price(found.usd_per_hour)} $/h" if machines else "nothing is rented"


def _holdings(holdings: Iterable[HoldingDocument]) -> Table:
    table = table_of(texts=("offer", "machine", "contract"), numbers=("count", "$/h each", "$/h"))
    for holding in holdings:
        each, count = holding.price_usd_per_hour, holding.count
        offer, contract = f"{holding.provider} {holding.offer_id}", contract_words(holding.contract)
        words = machine(holding.gpu, holding.gpus)
        table.add_row(offer, words, contract, str(count), price(each), price(each * count))
    return table
