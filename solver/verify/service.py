"""What the replicas sustain and what is routed to them, from the throughput layer's rates."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sutler.solver.answer.engine_args import checkpoint_of, engine_args, engine_env
from sutler.solver.arrays import FloatArray
from sutler.solver.candidates.power import power_cap_fraction
from sutler.solver.catalog.entries import Precision
from sutler.solver.catalog.power_caps import capped
from sutler.solver.plan import Evidence, Replica, Route
from sutler.solver.problem import Role, ServedModel
from sutler.solver.throughput import ceilings, counted, stated_ceiling, stated_rates
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.verify.numbers import RATE_TOLERANCE, agrees
from sutler.solver.verify.view import PlacedPiece, PlanView


@dataclass(frozen=True, slots=True)
class Sustained:
    """Rates of one replica by workload name with all its sequences busy, and the load up to which what it is given
    keeps its limits; `rps` is what counts, `stated_rps` the rate."""

    rps: dict[str, float]
    stated_rps: dict[str, float]
    low_rps: dict[str, float]
    high_rps: dict[str, float]
    most_load_fraction: float
    is_measured: bool
    fits: bool


def wrong_service(view: PlanView, sustained: dict[str, Sustained]) -> Iterator[str]:
    """Routing, throughput, utilisation, batch, arguments and evidence that do not follow from the rates."""
    fractions: dict[tuple[str, str, str], float] = defaultdict(float)
    for route in view.plan.routing:
        for share in route.shares:
            fractions[share.replica, route.model, route.workload] = share.fraction
    for transfer in view.plan.kv_transfers:
        fractions[transfer.decode, transfer.model, transfer.workload] += transfer.fraction
    yield from _wrong_routing(view, sustained)
    for number, replica in enumerate(view.plan.replicas):
        yield from _wrong_links(view, number, replica)
        routed = {
            workload.name: fractions[replica.id, replica.model, workload.name]
            * view.rates_rps.get((replica.model, workload.name), 0.0)
            for workload in view.models[replica.model].workloads
            if (replica.id, replica.model, workload.name) in fractions
        }
        yield from _wrong_load(view, replica, routed, sustained[replica.id])
        yield from _wrong_engine(view, replica, sustained[replica.id])
    yield from _wrong_evidence(view, sustained)


def sustained_rates(view: PlanView) -> dict[str, Sustained]:
    """Rates by replica id; one call of the throughput layer per model, precision, role and power cap."""
    found: dict[str, Sustained] = {}
    alike: dict[tuple[str, Precision, Role, float], list[int]] = defaultdict(list)
    for number, replica in enumerate(view.plan.replicas):
        model, cap = view.served(replica), power_cap_fraction(replica, view.problem)
        alike[model.name, model.precision, replica.role, cap].append(number)
    for numbers in alike.values():
        found.update(_rates_of_model(view, view.served(view.plan.replicas[numbers[0]]), numbers))
    return found


def _rates_of_model(view: PlanView, model: ServedModel, numbers: list[int]) -> dict[str, Sustained]:
    layouts = layouts_of_replicas(view, numbers)
    caps = np.array([view.plan.replicas[number].max_batch or MAX_SEQUENCES for number in numbers], dtype=np.int64)
    answer, measured = stated_rates(view.problem, model, layouts, caps=caps)
    counts = counted(view.problem, answer)
    names = [workload.name for workload in model.workloads]
    given = [{rate.workload: rate.rps for rate in view.plan.replicas[number].throughput_rps} for number in numbers]
    asked = np.array([[each.get(name, 0.0) for name in names] for each in given])
    most = ceilings(view.problem, model, layouts, caps=caps, rps=asked)

    def by_name(values: FloatArray, row: int) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, values[row], strict=True)}

    return {
        view.plan.replicas[number].id: Sustained(
            rps=by_name(counts.rps, row),
            stated_rps=by_name(answer.rps, row),
            low_rps=by_name(answer.low_rps, row),
            high_rps=by_name(answer.high_rps, row),
            most_load_fraction=float(most[row]),
            is_measured=bool(measured[row]),
            fits=bool(answer.fits[row]),
        )
        for row, number in enumerate(numbers)
    }


def layouts_of_replicas(view: PlanView, numbers: list[int]) -> Layouts:
    """The replicas as the throughput layer reads them, padded to the longest pipeline; alike in role and cap."""
    replicas = [view.plan.replicas[number] for number in numbers]
    role, cap = replicas[0].role, power_cap_fraction(replicas[0], view.problem)
    slugs = sorted({stage.gpu for replica in replicas for stage in replica.stages})
    shape = (len(replicas), max(len(replica.stages) for replica in replicas))
    gpu, tensor_parallel = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    layers, intra = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    hop, cross = np.full(shape, np.inf), np.zeros(shape, dtype=np.bool_)
    kv = np.full(shape, np.inf)
    for row, (number, replica) in enumerate(zip(numbers, replicas, strict=True)):
        hops = _hops(view, view.pieces[number])
        for column, stage in enumerate(replica.stages):
            gpu[row, column] = slugs.index(stage.gpu)
            tensor_parallel[row, column] = stage.tensor_parallel
            layers[row, column] = stage.layers or 0
            intra[row, column] = view.pools[stage.rental].intra_gb_per_s
            kv[row, column] = view.pools[stage.rental].kv_gb_per_s(stage.tensor_parallel)
            if column < len(hops):
                hop[row, column], cross[row, column] = hops[column]
    known = all(stage.layers is not None for replica in replicas for stage in replica.stages)
    gpus = tuple(capped(view.problem.gpus[slug], cap) for slug in slugs)
    shared = None if role == "aggregated" else kv
    ranks = np.array([replica.data_parallel for replica in replicas], dtype=np.int64)
    return Layouts(gpus, gpu, tensor_parallel, intra, hop, cross, layers if known else None, role, shared, cap, ranks)


def _hops(view: PlanView, pieces: tuple[PlacedPiece, ...]) -> list[tuple[float, bool]]:
    """Returns (10^9 bytes/s, leaves the machine) from each stage to the next."""
    hops: list[tuple[float, bool]] = []
    for piece, following in zip(pieces, (*pieces[1:], None), strict=True):
        pool = view.pools[piece.rental]
        hops.extend([(pool.intra_gb_per_s, False)] * (len(piece.stages) - 1))
        if following is not None:
            arriving = view.pools[following.rental].hop_gb_per_s(following.size)
            hops.append((min(pool.hop_gb_per_s(piece.size), arriving), True))
    return hops


def _wrong_links(view: PlanView, number: int, replica: Replica) -> Iterator[str]:
    """Bandwidths that are not those of the machines that the stages are on."""
    hops = [gb_per_s for gb_per_s, _ in _hops(view, view.pieces[number])]
    for index, stage in enumerate(replica.stages):
        path = f"replica {replica.id!r} stages[{index}]"
        intra = view.pools[stage.rental].intra_gb_per_s
        hop = hops[index] if index < len(hops) else 0.0
        for name, stated, known in (
            ("intra_gb_per_s", stage.intra_gb_per_s, intra),
            ("hop_gb_per_s", stage.hop_gb_per_s, hop),
        ):
            expected = known if 0 < known < float("inf") else None
            if (stated is None) != (expected is None) or not agrees(stated or 0.0, expected or 0.0):
                yield f"{path}.{name}: {stated!r}, expected {expected!r}"


def _wrong_routing(view: PlanView, sustained: dict[str, Sustained]) -> Iterator[str]:
    expected = [(model.name, workload.name) for model in view.problem.models for workload in model.workloads]
    routed = [(route.model, route.workload) for route in view.plan.routing]
    if sorted(routed) != sorted(expected):
        yield f"routing: entries for {sorted(routed)}, expected one each for {sorted(expected)}"
        return
    models = {replica.id: replica.model for replica in view.plan.replicas if replica.role != "decode"}
    for route in view.plan.routing:
        idle = view.rates_rps.get((route.model, route.workload)) == 0 and not route.shares
        if not idle:
            yield from _wrong_route(route, models, sustained)


def _wrong_route(route: Route, models: dict[str, str], sustained: dict[str, Sustained]) -> Iterator[str]:
    path = f"routing of {route.model}/{route.workload}"
    targets = [share.replica for share in route.shares]
    if len(set(targets)) != len(targets):
        yield f"{path}: replicas {targets}, expected each once"
    for target in targets:
        if models.get(target) != route.model:
            yield f"{path}: share for {target!r}, expected an aggregated or a prefill replica of {route.model!r}"
        elif sustained[target].rps[route.workload] <= 0:
            yield f"{path}: share for {target!r}, expected none where its rate is 0"
    total = sum(share.fraction for share in route.shares)
    if not agrees(total, 1.0):
        yield f"{path}: fractions sum to {total!r}, expected 1"


def _wrong_load(view: PlanView, replica: Replica, routed: dict[str, float], sustained: Sustained) -> Iterator[str]:
    """Checks the load; `routed`: requests/s by workload, as routing and the objective's value imply."""
    path = f"replica {replica.id!r}"
    expected = {name: rps for name, rps in routed.items() if rps > 0}
    named = [rate.workload for rate in replica.throughput_rps]
    if not expected and not view.is_standing and not view.problem.keeps_reserve:
        yield f"{path}: nothing is routed to it, expected every replica to serve something"
    if named != list(expected):
        yield f"{path}.throughput_rps: workloads {named}, expected {list(expected)}"
        return
    for rate in replica.throughput_rps:
        if not agrees(rate.rps, expected[rate.workload]):
            yield f"{path}.throughput_rps of {rate.workload!r}: {rate.rps!r}, expected {expected[rate.workload]!r}"
    if any(sustained.rps[name] <= 0 for name in expected):
        return
    utilisation = sum(rps / sustained.rps[name] for name, rps in expected.items())
    if not agrees(replica.utilisation_fraction, utilisation):
        yield f"{path}.utilisation_fraction: {replica.utilisation_fraction!r}, expected {utilisation!r}"
    yield from _wrong_ceiling(view, replica, utilisation, sustained)
    yield from _wrong_sustained(view, replica, sustained)


def _wrong_sustained(view: PlanView, replica: Replica, sustained: Sustained) -> Iterator[str]:
    """Rates of a replica's own, which say what it could serve instead."""
    stated = [(rate.workload, rate.rps) for rate in replica.sustained_rps]
    expected = [(name, rps) for name, rps in sustained.rps.items() if rps > 0]
    if view.is_standing and not stated:
        return
    agree = (given[0] == due[0] and agrees(given[1], due[1]) for given, due in zip(stated, expected, strict=False))
    if len(stated) != len(expected) or not all(agree):
        yield f"replica {replica.id!r}.sustained_rps: {dict(stated)!r}, expected {dict(expected)!r}"


def _wrong_ceiling(view: PlanView, replica: Replica, utilisation: float, sustained: Sustained) -> Iterator[str]:
    """The largest load at which the requests that it is given keep their limits, and no more than that."""
    path, stated, most = f"replica {replica.id!r}", replica.max_load_fraction, sustained.most_load_fraction
    expected = stated_ceiling(view.problem, most * (1 + RATE_TOLERANCE), utilisation)
    if utilisation > expected * (1 + RATE_TOLERANCE):
        yield f"{path}.utilisation_fraction: {utilisation!r}, expected at most {expected!r}"
    if stated is None and view.is_standing:
        return
    if stated is None or not (agrees(stated, expected) or agrees(stated, most)):
        yield f"{path}.max_load_fraction: {stated!r}, expected {expected!r}"


def _wrong_engine(view: PlanView, replica: Replica, sustained: Sustained) -> Iterator[str]:
    path = f"replica {replica.id!r}"
    if view.is_standing:
        return  # an engine that runs on keeps the arguments that it was started with
    if not sustained.fits:
        context = view.models[replica.model].max_context_tokens or "any request"
        yield f"{path}: memory for less, expected a KV cache that holds {context} (max_context_tokens)"
    if (replica.max_batch is None) != sustained.is_measured:
        expected = "None for a measured rate" if sustained.is_measured else "the sequences that the rates assume"
        yield f"{path}.max_batch: {replica.max_batch!r}, expected {expected}"
    if replica.max_batch is not None and not 1 <= replica.max_batch <= MAX_SEQUENCES:
        yield f"{path}.max_batch: {replica.max_batch!r}, expected 1 to {MAX_SEQUENCES}"
    checkpoint = checkpoint_of(view.served(replica))
    if replica.checkpoint != checkpoint:
        yield f"{path}.checkpoint: {replica.checkpoint!r}, expected {checkpoint!r}"
    arguments, earlier = (
        engine_args(
            view.served(replica),
            tensor_parallel=tuple(stage.tensor_parallel for stage in replica.stages),
            max_batch=replica.max_batch,
            role=replica.role,
            data_parallel=replica.data_parallel,
            bends=bends,
        )
        for bends in (True, False)  # plans of versions before name one phase
    )
    with_its_own = tuple((name, dict(earlier).get(name) if name == "max_num_seqs" else v) for name, v in arguments)
    environment = engine_env(tuple(stage.layers or 0 for stage in replica.stages))
    if replica.engine_env != environment:
        yield f"{path}.engine_env: {replica.engine_env!r}, expected {environment!r}"
    known = (arguments, earlier, with_its_own)  # the last: for either phase, with the sequences of its own
    if [*map(_typed, replica.engine_args)] not in [[*map(_typed, one)] for one in known]:
        yield f"{path}.engine_args: {replica.engine_args!r}, expected {arguments!r}"


def _typed(argument: tuple[str, object]) -> tuple[str, type, object]:
    """True equals 1 in Python, but an engine reads them differently."""
    return argument[0], type(argument[1]), argument[1]


def _wrong_evidence(view: PlanView, sustained: dict[str, Sustained]) -> Iterator[str]:
    """Every rate that is used has one piece of evidence with the same figures."""
    given: dict[tuple[str, str], list[Evidence]] = defaultdict(list)
    for evidence in view.plan.evidence:
        given[evidence.replica, evidence.workload].append(evidence)
    used = {(r.id, rate.workload) for r in view.plan.replicas for rate in r.throughput_rps}
    for pair in sorted(used | set(given)):
        if pair not in used or len(given[pair]) != 1:
            found = len(given[pair])
            yield f"evidence for {pair}: {found} entries, expected {1 if pair in used else 'none: nothing is routed'}"
            continue
        yield from _wrong_figures(given[pair][0], sustained)


def _wrong_figures(evidence: Evidence, sustained: dict[str, Sustained]) -> Iterator[str]:
    figures = sustained[evidence.replica]
    if evidence.workload not in figures.rps:
        yield f"evidence for {evidence.replica!r}: workload {evidence.workload!r}, expected one of {[*figures.rps]}"
        return
    for name, known in (("rps", figures.stated_rps), ("low_rps", figures.low_rps), ("high_rps", figures.high_rps)):
        expected = known[evidence.workload]
        if not agrees(getattr(evidence, name), expected):
            yield (
                f"evidence for {(evidence.replica, evidence.workload)}.{name}: {getattr(evidence, name)!r}, "
                f"expected {expected!r}"
            )
