"""Replicas one by one: names, references, stages, layers and what a piece may be made of."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from solver.plan import Plan, Replica, Stage
from solver.pools import PIECE_SIZES
from solver.power import power_cap_fraction
from solver.problem import Problem, ServedModel
from solver.verify.numbers import agrees
from solver.verify.totals import cap_fractions
from solver.verify.view import Piece, View, is_measured

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
        if not replica.stages:
            yield f"{path}.stages: none, expected at least one"
        for number, stage in enumerate(replica.stages):
            yield from _broken_stage(plan, stage, f"{path}.stages[{number}]")
        yield from _broken_pieces(replica, path)


def _broken_stage(plan: Plan, stage: Stage, path: str) -> Iterator[str]:
    if stage.rental >= len(plan.rentals):
        yield f"{path}.rental: {stage.rental}, expected an index below {len(plan.rentals)}"
        return
    rental = plan.rentals[stage.rental]
    if stage.machine >= rental.count:
        yield f"{path}.machine: {stage.machine}, expected an index below the rental's count {rental.count}"
    if stage.gpu != rental.gpu:
        yield f"{path}.gpu: {stage.gpu!r}, expected its rental's {rental.gpu!r}"
    if len(stage.gpu_indices) != stage.tensor_parallel:
        yield f"{path}.gpu_indices: {stage.gpu_indices}, expected {stage.tensor_parallel} (tensor_parallel)"


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


def unfit_pieces(view: View) -> Iterator[str]:
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
        yield from _outside_search(view.problem, replica)


def _wrong_caps(view: View, replica: Replica) -> Iterator[str]:
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


def _unfit_piece(view: View, replica: Replica, piece: Piece) -> Iterator[str]:
    if piece.size not in PIECE_SIZES:
        yield f"{view.path(piece)}: {piece.gpus} GPUs, expected at most {PIECE_SIZES[-1]} in one machine"
        return
    needed = view.disk_needed_gb[replica.model]
    if not view.pools[piece.rental].holds_checkpoint(needed, piece.size):
        yield (
            f"{view.path(piece)}: {needed:.1f} GB of disk needed for {replica.model!r}, expected at most "
            f"{view.pools[piece.rental].disk_gb_per_gpu:.1f} GB for each of {piece.size} GPUs"
        )


def _wrong_layers(problem: Problem, model: ServedModel, replica: Replica) -> Iterator[str]:
    layers = [stage.layers for stage in replica.stages]
    if problem.measured_only or model.spec is None:
        if any(count is not None for count in layers):
            yield f"replica {replica.id!r}: layers {layers}, expected None where no architecture is used"
    elif None in layers or sum(count or 0 for count in layers) != model.spec.layers:
        yield f"replica {replica.id!r}: layers {layers}, expected a split of the model's {model.spec.layers}"


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
    if len(gpus) > 1 and not search.mixed_gpu_pipelines:
        yield f"replica {replica.id!r}: stages on {sorted(gpus)}, expected one GPU type without mixed pipelines"
