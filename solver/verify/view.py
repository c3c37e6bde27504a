"""A plan joined with its problem: what every check looks up, built once its references are known to hold."""

from dataclasses import dataclass
from itertools import groupby

from sutler.solver.market.pools import Pool, checkpoint_disk_gb, group_offers, reserved_gpus
from sutler.solver.plan import Plan, Rental, Replica, Stage
from sutler.solver.problem import Contract, MeasuredStage, Offer, Problem, ServedModel

OfferKey = tuple[str, str, Contract, int]


@dataclass(frozen=True, slots=True)
class PlacedPiece:
    """Stages of one replica that share a machine. `gpus` is what they use, `size` what they reserve."""

    replica: int
    number: int
    rental: int
    machine: int
    gpus: int
    size: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan and its problem; `offers` and `pools` go by rental, `pieces` and `disk_needed_gb` by replica.

    `is_standing`: the fleet was not chosen for this problem, so parts of it may idle and stand anywhere.
    """

    problem: Problem
    plan: Plan
    models: dict[str, ServedModel]
    offers: tuple[Offer, ...]
    pools: tuple[Pool, ...]
    pieces: tuple[tuple[PlacedPiece, ...], ...]
    disk_needed_gb: tuple[float, ...]
    rates_rps: dict[tuple[str, str], float]
    is_standing: bool = False

    def joint(self, rental: int, machine: int) -> object:
        """What joins a machine with those that its replicas may hand over to: its network, or only itself."""
        return self.pools[rental].network or (rental, machine)

    @property
    def handing_over(self) -> frozenset[tuple[int, int]]:
        """Machines (rental, machine) without a network inside of which keys and values are handed over."""
        return frozenset(
            (stage.rental, stage.machine)
            for replica in self.plan.replicas
            for stage in replica.stages
            if replica.role != "aggregated" and self.pools[stage.rental].network is None
        )

    def all_pieces(self) -> list[PlacedPiece]:
        return [piece for pieces in self.pieces for piece in pieces]

    def served(self, replica: Replica) -> ServedModel:
        """Returns the served model of a replica, at the precision that the replica runs."""
        return self.models[replica.model].at(replica.precision)

    def path(self, piece: PlacedPiece) -> str:
        return f"replicas[{piece.replica}] piece {piece.number}"


def offers_by_key(problem: Problem) -> dict[OfferKey, int]:
    """Offer index by identity."""
    return {offer_key(offer): index for index, offer in enumerate(problem.offers)}


def offer_key(offered: Offer | Rental) -> OfferKey:
    """(provider, offer_id, contract, GPUs if it is held): what is for rent may be rented in slices."""
    size = offered.gpus if offered.held else 0
    return offered.provider, offered.offer_id, offered.contract, size


def view_of(problem: Problem, plan: Plan, *, is_standing: bool = False) -> PlanView:
    """Needs a plan without unknown rentals and broken replicas."""
    index_of = offers_by_key(problem)
    indices = [index_of[offer_key(rental)] for rental in plan.rentals]
    pools, pool_of_offer = group_offers(problem)
    models = {model.name: model for model in problem.models}
    return PlanView(
        problem=problem,
        plan=plan,
        models=models,
        offers=tuple(problem.offers[index] for index in indices),
        pools=tuple(pools[pool_of_offer[index]] for index in indices),
        pieces=tuple(pieces_of(plan, number, replica) for number, replica in enumerate(plan.replicas)),
        disk_needed_gb=tuple(checkpoint_disk_gb(models[r.model].at(r.precision)) for r in plan.replicas),
        rates_rps=offered_rates_rps(problem, plan),
        is_standing=is_standing,
    )


def pieces_of(plan: Plan, number: int, replica: Replica) -> tuple[PlacedPiece, ...]:
    """The pieces of a replica in order; consecutive stages with one piece number form one."""
    groups = [tuple(stages) for _, stages in groupby(replica.stages, key=lambda stage: stage.piece)]
    return tuple(
        PlacedPiece(
            replica=number,
            number=stages[0].piece,
            rental=stages[0].rental,
            machine=stages[0].machine,
            gpus=sum(stage.gpus for stage in stages),
            size=reserved_gpus(sum(stage.gpus for stage in stages), plan.rentals[stages[0].rental].gpus),
            stages=stages,
        )
        for stages in groups
    )


def offered_rates_rps(problem: Problem, plan: Plan) -> dict[tuple[str, str], float]:
    """The requests/s of every (model, workload) that the plan's value implies; empty without a usable value."""
    demand = {(m.name, w.name): w.demand for m in problem.models for w in m.workloads}
    total = sum(demand.values())
    if plan.objective in ("min_cost", "min_power"):
        factor = 1.0
    elif not plan.value or total <= 0:
        return {}
    else:
        factor = plan.value / total if plan.objective == "max_throughput" else 1 / plan.value
    return {key: factor * requests for key, requests in demand.items()}


def is_measured(problem: Problem, replica: Replica) -> bool:
    """The caller's table has a row for exactly these stages of this model, at this precision where it says one."""
    stages = tuple(MeasuredStage(stage.gpu, stage.tensor_parallel) for stage in replica.stages)
    return replica.data_parallel == 1 and any(
        (row.model, row.role, row.stages) == (replica.model, replica.role, stages)
        and (row.precision or replica.precision) == replica.precision
        for row in problem.measured
    )
