"""Replicas one by one: names, references, stages, layers and what a piece may be made of."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from sutler.solver.candidates.engines import (
    ABILITIES,
    ANY_LAYOUT,
    guesses,
    has_pipelines,
    shares_experts,
    spreads_experts,
)
from sutler.solver.candidates.power import power_cap_fraction
from sutler.solver.market.pools import MOST_GPUS_OF_PIECE, PIECE_SIZES
from sutler.solver.plan import Plan, Replica, Stage
from sutler.solver.problem import Problem, ServedModel
from sutler.solver.verify.numbers import agrees, at_most
from sutler.solver.verify.totals import cap_fractions
from sutler.solver.verify.view import PlacedPiece, PlanView, is_measured

_ROLES = {
    "off": ("aggregated",),
    "auto": ("aggregated", "prefill", "decode"),
    "only": ("prefill", "decode"),
}


def broken_replicas(problem: Problem, plan: Plan, *, is_standing: bool = False) -> Iterator[str]:
    """What keeps a replica from being looked at further: unknown model, dangling reference, scattered piece.

    Replicas that run on keep their names, so that those of a standing fleet need only be unique.
    """
    models = {model.name: model for model in problem.models}
    if is_standing and len({replica.id for replica in plan.replicas}) < len(plan.replicas):
        yield f"replicas: ids {[replica.id for replica in plan.replicas]}, expected each once"
    counted: Counter[str] = Counter()
    for index, replica in enumerate(plan.replicas):
        path = f"replicas[{index}]"
        if replica.model not in models:
            yield f"{path}.model: {replica.model!r}, expected one of {sorted(models)}"
            continue
        expected = f"{replica.model}-{counted[replica.model]}"
        counted[replica.model] += 1
        if replica.id != expected and not is_standing:
            yield f"{path}.id: {replica.id!r}, expected {expected!r} (replicas of a model count from 0)"
        if replica.role not in _ROLES[problem.search.disaggregation]:
            expected = " or ".join(map(repr, _ROLES[problem.search.disaggregation]))
            yield f"{path}.role: {replica.role!r}, expected {expected}"
        listed = models[replica.model].precisions
        if replica.precision not in listed and not is_standing:
            yield f"{path}.precision: {replica.precision!r}, expected {' or '.join(map(repr, listed))}"
        if not replica.stages:
            yield f"{path}.stages: none, expected at least one"
        for number, stage in enumerate(replica.stages):
            yield from _broken_stage(plan, stage, replica.data_parallel, f"{path}.stages[{number}]")
        yield from _broken_pieces(replica, path)


def _broken_stage(plan: Plan, stage: Stage, ranks: int, path: str) -> Iterator[str]:
    if stage.rental >= len(plan.rentals):
        yield f"{path}.rental: {stage.rental}, expected an index below {len(plan.rentals)}"
        return
    rental = plan.rentals[stage.rental]
    if stage.machine >= rental.count:
        yield f"{path}.machine: {stage.machine}, expected an index below the rental's count {rental.count}"
    if stage.gpu != rental.gpu:
        yield f"{path}.gpu: {stage.gpu!r}, expected its rental's {rental.gpu!r}"
    if stage.gpus != stage.tensor_parallel * ranks:
        expected = f"{stage.tensor_parallel * ranks} (tensor_parallel x data_parallel)"
        yield f"{path}.gpu_indices: {stage.gpu_indices}, expected {expected}"


def _broken_pieces(replica: Replica, path: str) -> Iterator[str]:
    if replica.stages and replica.stages[0].piece != 0:
        yield f"{path}.stages[0].piece: {replica.stages[0].piece}, expected 0"
    for number, (before, after) in enumerate(pairwise(replica.stages), start=1):
        if after.piece not in (before.piece, before.piece + 1):
            yield f"{path}.stages[{number}].piece: {after.piece}, expected {before.piece} or {before.piece + 1}"
        together = (before.rental, before.machine) == (after.rental, after.machine)
        if after.piece == before.piece and not together:
            yield (
                f"{path}.stages[{number}]: on machine {after.machine} of rental {after.rental}, expected machine "
                f"{before.machine} of rental {before.rental} like the rest of piece {after.piece}"
            )


def unfit_pieces(view: PlanView) -> Iterator[str]:
    """Pieces that are too large, lack a network or disk, and replicas outside the search or with wrong layers."""
    for replica, pieces in zip(view.plan.replicas, view.pieces, strict=True):
        for piece in pieces:
            yield from _unfit_piece(view, replica, piece)
        networks = {view.pools[piece.rental].network for piece in pieces}
        if len(pieces) > 1 and (len(networks) > 1 or None in networks):
            named = sorted(network or "none" for network in networks)
            yield f"replica {replica.id!r}: pieces on networks {named}, expected one network for all {len(pieces)}"
        yield from _wrong_caps(view, replica)
        yield from _wrong_layers(view.problem, view.models[replica.model], replica)
        yield from _wrong_ranks(view.problem, replica)
        yield from _outside_search(view.problem, replica)
        if not view.is_standing:  # what runs already can be run
            yield from _beyond_engine(view.problem, view.models[replica.model], replica)


def _wrong_caps(view: PlanView, replica: Replica) -> Iterator[str]:
    """One of the caps that the problem allows, the same for all stages; GPUs that run already have what they have."""
    problem = view.problem
    caps = cap_fractions(problem)
    first = power_cap_fraction(replica, problem)
    for number, stage in enumerate(replica.stages):
        tdp_watts = problem.gpus[stage.gpu].tdp_watts
        allowed = [tdp_watts * cap for cap in caps if tdp_watts]
        path = f"replica {replica.id!r} stages[{number}].power_cap_watts: {stage.power_cap_watts!r}"
        if stage.power_cap_watts is None:
            if first < 1:
                yield f"{path}, expected {first!r} of the TDP like the first stage"
        elif not view.is_standing and not any(agrees(stage.power_cap_watts, watts) for watts in allowed):
            yield f"{path}, expected None or one of {allowed}"
        elif tdp_watts and not agrees(stage.power_cap_watts, tdp_watts * first):
            yield f"{path}, expected {tdp_watts * first!r} like the first stage"


def _unfit_piece(view: PlanView, replica: Replica, piece: PlacedPiece) -> Iterator[str]:
    fills = piece.size == view.plan.rentals[piece.rental].gpus and len(view.pieces[piece.replica]) == 1
    if piece.size not in PIECE_SIZES and not (fills and piece.size <= MOST_GPUS_OF_PIECE):
        expected = f"at most {PIECE_SIZES[-1]} in one machine, or all of one of {MOST_GPUS_OF_PIECE} at most"
        yield f"{view.path(piece)}: {piece.gpus} GPUs, expected {expected}"
        return
    if not view.offers[piece.rental].serves(view.served(replica)):
        yield f"{view.path(piece)}: an offer that is unfit for {replica.model!r}, expected one that is not"
    needed = view.disk_needed_gb[piece.replica]
    if not view.pools[piece.rental].holds_checkpoint(needed, piece.size):
        yield (
            f"{view.path(piece)}: {needed:.1f} GB of disk needed for {replica.model!r}, expected at most "
            f"{view.pools[piece.rental].disk_gb_per_gpu:.1f} GB for each of {piece.size} GPUs"
        )


def overfull_disks(view: PlanView) -> Iterator[str]:
    """Machines whose disk is too small for the checkpoints that it has to hold, each model's once per precision.

    Of measured replicas nobody knows what they keep where.
    """
    kept: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for replica, pieces in zip(view.plan.replicas, view.pieces, strict=True):
        checkpoint = f"{replica.model} at {view.served(replica).precision}"
        for piece in () if is_measured(view.problem, replica) else pieces:
            kept[piece.rental, piece.machine][checkpoint] = view.disk_needed_gb[piece.replica]
    for (rental, machine), needed in kept.items():
        offer = view.offers[rental]
        if offer.disk_gb is None:
            continue
        there_gb = offer.disk_gb * view.plan.rentals[rental].gpus / offer.gpus
        total_gb = sum(needed.values())
        if not at_most(total_gb, there_gb):
            yield (
                f"rentals[{rental}]: machine {machine} keeps {sorted(needed)}, {total_gb:.1f} GB, expected at most "
                f"the {there_gb:.1f} GB of its disk"
            )


def _wrong_layers(problem: Problem, model: ServedModel, replica: Replica) -> Iterator[str]:
    layers = [stage.layers for stage in replica.stages]
    if problem.measured_only or model.spec is None:
        if any(count is not None for count in layers):
            yield f"replica {replica.id!r}: layers {layers}, expected None where no architecture is used"
    elif None in layers or sum(count or 0 for count in layers) != model.spec.layers:
        yield f"replica {replica.id!r}: layers {layers}, expected a split of the model's {model.spec.layers}"


def _wrong_ranks(problem: Problem, replica: Replica) -> Iterator[str]:
    """Attention on several ranks goes with experts spread over all GPUs of a replica of one stage."""
    ranks, path = replica.data_parallel, f"replica {replica.id!r}"
    gpus = sum(stage.gpus for stage in replica.stages)
    if replica.expert_parallel != (gpus if ranks > 1 else 1):
        yield f"{path}.expert_parallel: {replica.expert_parallel}, expected {gpus if ranks > 1 else 1}"
    if ranks > 1 and (len(replica.stages) > 1 or not shares_experts(problem, gpus)):
        yield f"{path}.data_parallel: {ranks}, expected 1 for {gpus} GPUs in {len(replica.stages)} stages"
    if ranks > 1 and not problem.search.expert_parallel:
        yield f"{path}.data_parallel: {ranks}, expected 1 without search.expert_parallel"


def _outside_search(problem: Problem, replica: Replica) -> Iterator[str]:
    if is_measured(problem, replica):
        return
    search = problem.search
    for number, stage in enumerate(replica.stages):
        if stage.tensor_parallel not in search.tensor_parallel:
            yield (
                f"replica {replica.id!r} stages[{number}].tensor_parallel: {stage.tensor_parallel}, "
                f"expected one of {search.tensor_parallel}"
            )
    if len(replica.stages) > search.max_pipeline_stages:
        yield f"replica {replica.id!r}: {len(replica.stages)} stages, expected at most {search.max_pipeline_stages}"
    gpus = {stage.gpu for stage in replica.stages}
    if len(gpus) > 1 and search.mixed_gpu_pipelines is False:
        yield f"replica {replica.id!r}: stages on {sorted(gpus)}, expected one GPU type without mixed pipelines"


def _beyond_engine(problem: Problem, model: ServedModel, replica: Replica) -> Iterator[str]:
    """Layouts that the model's engine cannot run, or is not asked to; those that were measured ran on some engine."""
    able, path = ABILITIES[model.engine], f"replica {replica.id!r}"
    degrees, gpus = ([getattr(stage, name) for stage in replica.stages] for name in ("tensor_parallel", "gpu"))
    beyond = []
    if not able.unequal_degrees and min(degrees) != max(degrees):
        beyond.append(f"tensor parallel {degrees}, expected one degree for all stages")
    if len(degrees) > 1 and not has_pipelines(model, replica.role):
        guessing = " that guesses tokens" if guesses(model, replica.role) else ""
        beyond.append(f"{len(degrees)} stages, expected one for a {replica.role} replica{guessing}")
    expected = ANY_LAYOUT if beyond and is_measured(problem, replica) else model.engine
    if replica.engine != expected:
        yield f"{path}.engine: {replica.engine!r}, expected {expected!r}"
    if is_measured(problem, replica):
        return
    if not able.mixed_gpus and problem.search.mixed_gpu_pipelines is None and len({*gpus}) > 1:
        beyond.append(f"stages on {sorted({*gpus})}, expected one GPU type unless search.mixed_gpu_pipelines is true")
    if replica.data_parallel > 1 and not spreads_experts(problem, model, replica.role):
        beyond.append(f"data parallel {replica.data_parallel}, expected 1")
    yield from (f"{path}: {what} with {model.engine}" for what in beyond)
