"""A plan as people read it, from its document alone: one idea per table."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from sutler.service.cli.views.headline import headline
from sutler.service.cli.views.layout import lines, listed, section, table_of
from sutler.service.documents.plan import (
    AlternativeDocument,
    BindingDocument,
    ChanceDocument,
    ComboDocument,
    ConflictDocument,
    EvidenceDocument,
    FitRule,
    KvTransferDocument,
    LossDocument,
    PlanDocument,
    PlannedInterruptions,
    PrecisionAlternativeDocument,
    RentalDocument,
    ReplicaDocument,
    RobustAlternativeDocument,
    RobustnessDocument,
    SleepingDocument,
    TriedPlan,
    UnfitOffer,
    ValidationDocument,
)
from sutler.service.wording.words import (
    age,
    constraint_words,
    contract_words,
    engine_words,
    fleet,
    layout,
    machine,
    number,
    objective_unit,
    parallelism,
    percent,
    place,
    price,
    span,
    unit_words,
)
from sutler.solver.units import SECONDS_PER_HOUR

MOST_MATRIX_COLUMNS = 8  # with the width below: what fits beside the names of workloads into 100 columns
MOST_MATRIX_WIDTH = 70
MOST_BINDINGS = 8  # chosen: weaker ones are rarely worth a change
MOST_RUNS = 3  # chosen: more ids would fold the column
MOST_HAND_OVERS = 30  # chosen: what a screen holds
MOST_LOSSES = 6  # chosen: of each kind
WITHOUT_RESILIENCE = "resilience"


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas of one model with the same layout and precision; `name` is how the tables call the group."""

    name: str
    model: str
    role: str
    layout: str
    replicas: tuple[ReplicaDocument, ...]


def plan_view(plan: PlanDocument, *, calls_replicas_by_id: bool = False) -> Iterator[RenderableType]:
    """The parts to print, in order: what, proof, rent, run, route, why, what else, how sure.

    `calls_replicas_by_id`: as a deployment's other documents call them, which have no letters for groups of them.
    """
    yield headline(plan)
    if plan.conflicts:
        yield from section("What has to give", conflicts_table(plan.conflicts))
    if plan.rentals:
        several = [model.name for model in plan.models if model.more_precisions]
        groups = group_replicas(plan.replicas, by_id=calls_replicas_by_id, at_precisions=several)
        yield from section("Rent", _rentals(plan.rentals))
        if any(rental.spares for rental in plan.rentals):
            yield from section("If it is gone, rent instead, in this order", _spares(plan.rentals))
        yield from section("Run", _replicas(groups))
        yield from section("Route", *_routing(plan, groups))
        if plan.kv_transfers:
            names = {replica.id: group.name for group in groups for replica in group.replicas}
            yield from section("Hand over", hand_overs(plan.kv_transfers, names))
        if plan.combos:
            yield from section("Combos", combos(plan.combos))
        names = {replica.id: group.name for group in groups for replica in group.replicas}
        survived = [loss for loss in plan.losses if loss.routing]
        if survived:
            yield from section("If it is lost, routed anew", losses_table(survived, names))
        yield from listed("If something is lost", _worst_losses(plan.losses))
        yield from listed("How often machines are taken away", map(_interruption_words, plan.interruptions))
    yield from listed("Asleep, since there are no requests", map(_sleeping_words, plan.sleeping))
    yield from listed("What limits it (at the margin of the relaxed plan)", _bindings(plan))
    others = [alternative for alternative in plan.alternatives if alternative.without != WITHOUT_RESILIENCE]
    otherwise: list[RenderableType] = [_alternatives(plan, others)] if others else []
    otherwise += [
        lines([_survival_words(plan, one)]) for one in plan.alternatives if one.without == WITHOUT_RESILIENCE
    ]
    if plan.precision_alternative is not None:
        otherwise.append(lines([_precision_words(plan, plan.precision_alternative)]))
    if otherwise:
        yield from section("Otherwise", *otherwise)
    if plan.validation is not None:
        yield from listed("Replayed", _validation(plan.validation, plan.objective.kind))
    if plan.evidence:
        yield from listed("How sure the rates are", [*_evidence_words(plan), *robust_lines(plan)])
    if any(rule.left_out or rule.left_out_for_some for rule in plan.market.fit):
        yield from section("Left out as unfit (market.filter.fit)", unfit_table(plan.market.fit))
    yield from listed("Warnings", plan.warnings)
    yield from listed("Notes", plan.notes)


def _sleeping_words(one: SleepingDocument) -> str:
    return f"{one.model}: served about {age(one.starts_in_s)} after it wakes"


def _interruption_words(kind: PlannedInterruptions) -> str:
    where = kind.provider and f"at {kind.provider}"
    machines = " ".join(filter(None, (contract_words(kind.contract), kind.gpu, where)))
    rate = "never" if not kind.per_hour else f"once in {age(SECONDS_PER_HOUR / kind.per_hour)} each"
    if kind.basis == "stated":
        return f"{machines}: {rate}, as stated"
    interval = f"{kind.low_per_hour:.2g} to {kind.high_per_hour:.2g} an hour"
    if kind.basis == "assumed":
        return f"{machines}: {rate} is assumed ({interval}): none was held yet; market.interruptions can state it"
    return f"{machines}: {rate} ({interval}; {kind.losses:,} lost in {kind.machine_hours:,.0f} machine-hours)"


def group_replicas(
    replicas: Iterable[ReplicaDocument], *, by_id: bool = False, at_precisions: Collection[str] = ()
) -> list[ReplicaGroup]:
    """Groups in the order of their first replica, named A, B, ... AA, or by the ids of their replicas.

    `at_precisions`: models that have several, so that the layout says which.
    """
    members: dict[tuple[str, str, str], list[ReplicaDocument]] = defaultdict(list)
    for replica in replicas:
        role = "" if replica.role == "aggregated" else f", {replica.role}"
        words = layout(replica.stages, replica.data_parallel) + role
        words += f", {replica.precision}" if replica.model in at_precisions else ""
        members[replica.model, replica.role, words].append(replica)
    return [
        ReplicaGroup(_ids_of(found) if by_id else _letters(i), model, role, words, tuple(found))
        for i, ((model, role, words), found) in enumerate(members.items())
    ]


def unfit_table(rules: Iterable[FitRule]) -> Table:
    """Which rule left out how many offers, and what the cheapest of them would have saved."""
    numbers = ("at least", "offers", "not stated", "would save $/h")
    table = table_of(texts=("rule",), numbers=numbers, notes=("cheapest left out",))
    for rule in rules:
        if rule.left_out or rule.left_out_for_some:
            some = f" (+{rule.left_out_for_some} for some models)" if rule.left_out_for_some else ""
            saved = "" if rule.would_save_usd_per_hour is None else price(rule.would_save_usd_per_hour)
            counts = (f"{rule.left_out}{some}", str(rule.not_stated))
            table.add_row(rule.rule, rule.at_least, *counts, saved, _unfit_words(rule.cheapest))
    return table


def _unfit_words(offer: UnfitOffer | None) -> str:
    if offer is None:
        return ""
    return f"{offer.gpus} × {offer.gpu} for {price(offer.price_usd_per_hour)} $/h, {offer.provider}/{offer.offer_id}"


def conflicts_table(conflicts: Iterable[ConflictDocument]) -> Table:
    """What has to give, by how much, and what to change."""
    table = table_of(texts=("constraint",), numbers=("needed", "available"), notes=("", "what to change"))
    for conflict in conflicts:
        needed, available = (_amount(value, conflict.unit) for value in (conflict.needed, conflict.available))
        name, unit = constraint_words(conflict.constraint), unit_words(conflict.unit)
        table.add_row(name, needed, available, unit, conflict.remedy)
    return table


def _letters(index: int) -> str:
    last = chr(ord("A") + index % 26)
    return last if index < 26 else _letters(index // 26 - 1) + last


def _ids_of(replicas: Sequence[ReplicaDocument]) -> str:
    """`chat-0`, `chat-0–3`, `chat-0–3, 7`, or, of many apart, the first ones and how many there are more."""
    runs: list[list[tuple[str, int, str]]] = []
    for prefix, position, digits in sorted(_numbered(replica.id) for replica in replicas):
        if runs and digits and (runs[-1][-1][0], runs[-1][-1][1] + 1) == (prefix, position):
            runs[-1].append((prefix, position, digits))
        else:
            runs.append([(prefix, position, digits)])
    words, last = [], None
    for run in runs[:MOST_RUNS]:
        prefix, _, digits = run[0]
        first = digits if prefix == last else f"{prefix}{digits}"
        words.append(first if len(run) == 1 else f"{first}–{run[-1][2]}")
        last = prefix
    more = sum(len(run) for run in runs[MOST_RUNS:])
    return ", ".join([*words, *([f"+{more}"] if more else [])])


def _numbered(replica_id: str) -> tuple[str, int, str]:
    prefix = replica_id.rstrip("0123456789")
    digits = replica_id[len(prefix) :]
    return prefix, int(digits or 0), digits


def _rentals(rentals: Sequence[RentalDocument]) -> Table:
    table = table_of(texts=("offer", "machine", "where", "contract"), numbers=("count", "$/h each", "$/h"))
    for rental in rentals:
        each, count = rental.price_usd_per_hour, rental.count
        what = (machine(rental.gpu, rental.gpus), place(rental.site, rental.provider))
        contract = contract_words(rental.contract)
        table.add_row(rental.offer_id, *what, contract, str(count), price(each), price(each * count))
    return table


def _spares(rentals: Sequence[RentalDocument]) -> Table:
    table = table_of(texts=("offer",), numbers=("still there",), notes=("spares",))
    for rental in (one for one in rentals if one.spares or one.outlook):
        words = (
            f"{spare.provider}/{spare.offer_id} {price(spare.price_usd_per_hour)} $/h" for spare in rental.spares
        )
        table.add_row(rental.offer_id, _chance_words(rental.outlook), ", ".join(words) or "none")
    return table


def _chance_words(outlook: ChanceDocument | None) -> str:
    """The chance and the low end of its interval, which is far off where little was seen."""
    if outlook is None:
        return ""
    chance, low = outlook.chance_of_still_there_fraction, outlook.low_fraction
    return f"{percent(chance)}, at least {percent(low)}"


def _replicas(groups: Sequence[ReplicaGroup]) -> Table:
    table = table_of(texts=("", "model", "layout"), numbers=("copies", "batch", "busy", "at most", "req/s"))
    for group in groups:
        batches = sorted({replica.max_batch for replica in group.replicas if replica.max_batch is not None})
        batch = "–" if not batches else "–".join(str(b) for b in dict.fromkeys((batches[0], batches[-1])))
        busy = span([replica.utilisation_fraction for replica in group.replicas])
        ceilings = [r.max_load_fraction for r in group.replicas if r.max_load_fraction is not None]
        most = span(ceilings) if ceilings else "–"
        rps = sum(sum(replica.throughput_rps.values()) for replica in group.replicas)
        copies = str(len(group.replicas))
        table.add_row(group.name, group.model, group.layout, copies, batch, busy, most, number(rps))
    return table


def _routing(plan: PlanDocument, groups: Sequence[ReplicaGroup]) -> Iterator[Table]:
    """Per model: a matrix of workload x group, or where it would be too wide, the groups in words."""
    group_of = {replica.id: group.name for group in groups for replica in group.replicas}
    for model in dict.fromkeys(route.model for route in plan.routing):
        names = [group.name for group in groups if group.model == model and group.role != "decode"]
        is_matrix = len(names) <= MOST_MATRIX_COLUMNS and sum(len(n) + 2 for n in names) <= MOST_MATRIX_WIDTH
        table = table_of(texts=(model,), numbers=names if is_matrix else ())
        if not is_matrix:
            table.add_column("to", overflow="fold")
        for route in plan.routing:
            if route.model == model:
                shares: dict[str, float] = defaultdict(float)
                for replica, fraction in route.fractions.items():
                    shares[group_of[replica]] += fraction
                table.add_row(route.workload, *_route_cells(shares, names, is_matrix=is_matrix))
        yield table


def _route_cells(shares: dict[str, float], names: Sequence[str], *, is_matrix: bool) -> list[str]:
    if is_matrix:
        return [percent(shares[name]) if shares.get(name) else "·" for name in names]
    return [", ".join(f"{name} {percent(share)}" for name, share in shares.items() if share > 0)]


def _bindings(plan: PlanDocument) -> Iterator[str]:
    """The strongest few; supply last, since a market of single hosts has one constraint per kind of host."""
    by_strength = sorted(plan.binding, key=lambda b: (b.constraint.startswith("supply/"), -abs(b.shadow_price)))
    for binding in by_strength[:MOST_BINDINGS]:
        yield _binding_words(binding, plan.objective.kind)
    if len(by_strength) > MOST_BINDINGS:
        yield f"weaker ones: {len(by_strength) - MOST_BINDINGS} (--json lists all)"


def _binding_words(binding: BindingDocument, kind: str) -> str:
    """`budget: one more $/h would bring 0.41 req/s`; of a network, what having no end to it would bring."""
    gained, is_unlimited, _ = binding.unit.partition(" for ")
    gained, _, per = gained.partition(" per ")
    more = "an unlimited network between prefill and decode" if is_unlimited else f"one more {unit_words(per)}"
    is_less_better = kind != "max_throughput"
    rises, falls = ("cost", "save") if is_less_better else ("bring", "take away")
    verb = rises if binding.shadow_price >= 0 else falls
    amount = f"{number(abs(binding.shadow_price))} {unit_words(gained)}"
    return f"{constraint_words(binding.constraint)}: {more} would {verb} {amount}"


def losses_table(losses: Sequence[LossDocument], group_of: Mapping[str, str]) -> Table:
    """What falls with what, and what of the load the others carry; of each kind the worst."""
    table = table_of(texts=("kind", "what", "falls"), numbers=("still carried",))
    shown = Counter[str]()
    for loss in losses:
        shown[loss.kind] += 1
        if shown[loss.kind] <= MOST_LOSSES:
            counts = Counter(group_of[replica] for replica in loss.replicas)
            fallen = ", ".join(f"{name} × {count}" if count > 1 else name for name, count in counts.items())
            table.add_row(loss.kind, loss.name, fallen or "nothing", percent(loss.carried_fraction))
    for kind, count in shown.items():
        if count > MOST_LOSSES:
            table.add_row(kind, f"and {count - MOST_LOSSES} more (--json lists all)", "", "")
    return table


def _worst_losses(losses: Sequence[LossDocument]) -> Iterator[str]:
    """One line for the kinds that nobody asked to survive."""
    words = {"provider": "provider", "place": "region", "machine": "machine"}
    worst = [
        f"{percent(loss.carried_fraction)} without a {words[loss.kind]} ({loss.name})"
        if loss.kind in words
        else f"{percent(loss.carried_fraction)} without all that is {contract_words('interruptible')}"
        for loss in losses
        if not loss.routing and not loss.name.endswith("/?")
    ]
    if worst:
        yield f"of the load is carried at worst: {', '.join(worst)} (resilience.survive plans for it)"


def _survival_words(plan: PlanDocument, free: AlternativeDocument) -> str:
    """What the same problem would come to if nothing were to be survived."""
    if free.value is None:
        return "what surviving costs is not known: no plan without it was found in the time that was left"
    unit, value = objective_unit(plan.objective.kind), plan.objective.value or 0.0
    difference = abs(value - free.value)
    share = "" if not value else f", {percent(difference / value)} of this plan's"
    return f"without resilience: {number(free.value)} {unit}; surviving costs {number(difference)} {unit}{share}"


def _alternatives(plan: PlanDocument, others: Iterable[AlternativeDocument]) -> Table:
    unit = objective_unit(plan.objective.kind)
    cost = () if unit == "$/h" else ("$/h",)
    table = table_of(texts=("without", "rent instead"), numbers=(unit, "worse by", *cost))
    for alternative in others:
        cells = [
            alternative.without,
            fleet(alternative.rentals),
            "no plan" if alternative.value is None else number(alternative.value),
            _worse_by(plan.objective.value, alternative.value),
            price(alternative.cost_usd_per_hour),
        ]
        table.add_row(*cells[: 4 + len(cost)])
    return table


def _precision_words(plan: PlanDocument, found: PrecisionAlternativeDocument) -> str:
    """`fp8 (org/model-FP8) would cost 7.44 $/h, 38 % less: set models[0].precision to [bf16, fp8] or fp8; ...`."""
    places = [f"models[{i}].precision" for i, model in enumerate(plan.models) if model.name in found.checkpoints]
    first = next((model.precision for model in plan.models if model.name in found.checkpoints), "bf16")
    loaded = ", ".join(dict.fromkeys(checkpoint or "made by the engine" for checkpoint in found.checkpoints.values()))
    kind = plan.objective.kind
    verb = {"max_throughput": "bring", "min_makespan": "take", "min_cost": "cost", "min_power": "draw"}[kind]
    more = "more" if kind == "max_throughput" else "less"
    return (
        f"{found.precision} ({loaded}) would {verb} {number(found.value)} {objective_unit(kind)}, "
        f"{percent(found.better_by_fraction)} {more}: set {', '.join(places)} to [{first}, {found.precision}] or "
        f"{found.precision}; quality is yours to judge"
    )


def _worse_by(best: float | None, other: float | None) -> str:
    if best == other:
        return percent(0.0)
    if not best or other is None:
        return "–"
    return percent(abs(other - best) / abs(best))


def _validation(found: ValidationDocument, kind: str) -> Iterator[str]:
    verdict = "every limit is met" if found.meets_all_limits else "limits are missed"
    verdict = verdict if found.limits else "there is no limit to meet"
    plans = "this plan" if found.rounds == 1 else f"after {found.rounds} plans"
    yield f"{found.requests:,} requests, {found.traffic}: {verdict} ({plans})"
    for limit in found.limits:
        yield (
            f"{limit.owner}: {limit.metric} p{limit.percentile} of {number(limit.seconds)} s is kept by "
            f"{100 * limit.within_fraction:.2f} %"
        )
    for one in found.derated:
        stages = " → ".join(f"{s.gpu} {parallelism(s.tensor_parallel, one.data_parallel)}" for s in one.stages)
        phase = "" if one.role == "aggregated" else f", {one.role},"
        owner = one.model if one.workload is None else f"{one.model}/{one.workload}"
        yield f"{owner}{phase} on {stages} is counted on for {percent(one.fraction)} of its estimated rate"
    if len(found.tried) > 1:
        yield f"tried: {'; '.join(_tried(one, kind) for one in found.tried)}; the best of them is this plan"


def _tried(one: TriedPlan, kind: str) -> str:
    """`round 1, of the first configurations: 9.000 $/h, every limit met`."""
    which = f"round {one.round}" if one.round else "as planned at first"
    of = ", of the first configurations" if one.fleet == "same" else ""
    missed = f"short of a limit by {100 * one.most_missed_fraction:.2f} % of the requests"
    verdict = "every limit met" if one.meets_all_limits else missed
    return f"{which}{of}: {number(one.value)} {objective_unit(kind)}, {verdict}"


def _evidence_words(plan: PlanDocument) -> Iterator[str]:
    if plan.calibration is not None:
        own = plan.calibration
        revision = f" (revision {own.revision})" if own.revision else ""
        changed = "`evidence` in the JSON says what they change"
        yield f"by calibration {own.name}{revision}: {own.runs:,} runs of {engine_words(own)}; {changed}"
    by_source: dict[str, list[EvidenceDocument]] = defaultdict(list)
    for entry in plan.evidence:
        by_source[entry.source].append(entry)
    for source, entries in by_source.items():
        low = min((e.low_rps / e.rps - 1 for e in entries if e.rps > 0), default=0.0)
        high = max((e.high_rps / e.rps - 1 for e in entries if e.rps > 0), default=0.0)
        band = f"true within {100 * low:+.0f} % to {100 * high:+.0f} %" if low or high else "taken as given"
        yield f"{source}: {len(entries)} rate{'s' * (len(entries) > 1)}, {band}"


def _amount(value: float, unit: str) -> str:
    if unit == "usd_per_hour":
        return price(value)
    return f"{value:,.0f}" if value == round(value) else number(value)


def robust_lines(plan: PlanDocument) -> Iterator[str]:
    """The sentences; none where nothing is known, or where every rate is taken as given."""
    found = plan.robustness
    if found is None or found.low_fraction == 1:
        return
    own = _worth(plan, found)
    other = found.reason if found.alternative is None else _other(plan, found.alternative, found.reason)
    yield f"at the low end of every band: {'; '.join(words for words in (own, other) if words)}"
    near, fraction = found.near_optimum, found.near_optimum_fraction
    if near is not None and fraction is not None:
        yield (
            f"for {_price(plan, near)}: {_worth(plan, near)} there, the most within {percent(fraction)} "
            f"(--give-up {fraction:g} takes it)"
        )


def _price(plan: PlanDocument, near: RobustAlternativeDocument) -> str:
    """`12.09 $/h (+0.4 %)`, `8.84 req/s (-0.5 %)`: what a fleet comes to, and what of the plan's own it gives up."""
    value = plan.objective.value
    given_up = "" if not value else f" ({'+' if near.value >= value else '-'}{percent(abs(near.value / value - 1))})"
    return f"{number(near.value)} {objective_unit(plan.objective.kind)}{given_up}"


def _worth(plan: PlanDocument, found: RobustnessDocument | RobustAlternativeDocument) -> str:
    """What matters there: the value, or under cost and power, which do not change, what is carried."""
    if found.load_multiple_at_low is not None:
        return f"{number(found.load_multiple_at_low)} × the load"
    return f"{number(found.value_at_low)} {objective_unit(plan.objective.kind)}"


def _other(plan: PlanDocument, other: RobustAlternativeDocument, reason: str | None) -> str:
    rents = "the same machines, laid out otherwise," if other.rentals == plan.rentals else fleet(other.rentals)
    cost = f"for {price(other.cost_usd_per_hour)} $/h"
    limit = "" if reason is None else f"; {reason}"
    return f"{_worth(plan, other)} with {rents} {cost} (robust alternative{limit})"


def hand_overs(transfers: Iterable[KvTransferDocument], group_of: Mapping[str, str]) -> Table:
    """A row per workload and pair of groups; `group_of`: how the tables call a replica."""
    rows: dict[tuple[str, str, str, str], list[KvTransferDocument]] = defaultdict(list)
    for one in transfers:
        rows[one.model, one.workload, group_of[one.prefill], group_of[one.decode]].append(one)
    table = table_of(
        texts=("model", "workload", "from", "to"), numbers=("of its requests", "KV GB each", "exposed ms")
    )
    for names, found in list(rows.items())[:MOST_HAND_OVERS]:
        exposed_s = max((one.exposed_s for one in found if one.exposed_s is not None), default=None)
        table.add_row(
            *names,
            percent(sum(one.fraction for one in found)),
            number(found[0].kv_gb, digits=3),
            number(None if exposed_s is None else 1000 * exposed_s, digits=3),
        )
    if len(rows) > MOST_HAND_OVERS:
        table.add_row(f"... {len(rows) - MOST_HAND_OVERS} more (--json lists all)")
    return table


def combos(found: Iterable[ComboDocument]) -> Table:
    """A row per model and network: `1 × h800 → 2 × h20`, and what a dollar buys."""
    table = table_of(
        texts=("model", "network", "prefill → decode"), numbers=("replicas", "tokens per $", "at peak rates")
    )
    for combo in found:
        table.add_row(
            combo.model,
            combo.network,
            f"{_gpus(combo.prefill_gpus)} → {_gpus(combo.decode_gpus)}",
            f"{combo.prefill_replicas}:{combo.decode_replicas}",
            number(combo.tokens_per_usd),
            number(combo.peak_tokens_per_usd),
        )
    return table


def _gpus(gpus: Mapping[str, int]) -> str:
    return " + ".join(f"{count} × {gpu}" for gpu, count in gpus.items())
