"""Splitwise's cluster designs (Patel et al., arXiv 2311.18677, section IV.D and Table V) on any market.

A design names two machine types, one for the prompt pool and one for the token pool, and searches how many of each
are best: sutler's own search, prefill on one GPU type, decode on one, nothing aggregated. Splitwise's mixed pool, in
which machines change sides under bursts, is not modelled. On a market of DGX-H100 and DGX-A100 they are the paper's:

    H   the GPU type with the most bf16 TFLOPS
    A   of all other types the one with the most memory bandwidth per $, or per W for min_power

counted among the types at sites with a network, which is what keys and values go over. A lone type is A. HHcap caps
token GPUs to half of their TDP, as the paper does; no other design caps any.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sutler.solver.arrays import BoolArray
from sutler.solver.candidates.dominance import prune_dominated
from sutler.solver.candidates.enumerate import DECODE, PREFILL, Candidates, enumerate_candidates, paired
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.polytope.preparation import of_possible
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan
from sutler.solver.strategies.straight_line import optimum, started

Letter = Literal["A", "H"]

_HALF_OF_TDP = 0.5  # section IV.D
_REMEDY = "it puts all prompts on one GPU type and all answers on one: use sutler with search.disaggregation auto"


@dataclass(frozen=True, slots=True)
class Design:
    """Machine types of the prompt and the token pool."""

    name: str
    prefill: Letter
    decode: Letter
    decode_cap_fraction: float = 1.0

    def title(self, problem: Problem) -> str:
        """Names the design with the GPUs that the letters stand for on this market, as far as they do."""
        try:
            types = machine_types(problem)
        except NotApplicableError:
            types = {}
        prefill, decode = (types.get(letter, f"type {letter}") for letter in (self.prefill, self.decode))
        capped = "" if self.decode_cap_fraction == 1 else f" at {self.decode_cap_fraction:.0%} of its TDP"
        return f"prefill on {prefill} alone, decode on {decode} alone{capped}"


DESIGNS = (
    Design("splitwise/aa", "A", "A"),
    Design("splitwise/hh", "H", "H"),
    Design("splitwise/ha", "H", "A"),
    Design("splitwise/hhcap", "H", "H", _HALF_OF_TDP),
)


def plan(design: Design, problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The best pools of a design. Raises NotApplicableError."""
    types = machine_types(problem)
    if design.prefill not in types:
        raise NotApplicableError("needs two GPU types at sites with a network: one is splitwise/aa")
    own = _with_settings(design, problem)
    run, supply = started(own, seconds_left), build_supply(own)
    enumerated = enumerate_candidates(own, supply)
    pools = enumerated.take(
        _on(types[design.prefill], PREFILL, 1.0, enumerated, supply)
        | _on(types[design.decode], DECODE, design.decode_cap_fraction, enumerated, supply)
    )
    polytope = of_possible(own, supply, prune_dominated(paired(pools, supply)))
    return optimum(run, polytope, design.name, remedy=_REMEDY)


def machine_types(problem: Problem) -> Mapping[Letter, str]:
    """The GPU types that A and H stand for; A alone where there is one. Raises NotApplicableError."""
    usd_per_hour: dict[str, float] = {}
    for offer in problem.offers:
        if offer.site is not None and offer.inter_machine_gb_per_s:
            price = offer.price_usd_per_hour / offer.gpus
            usd_per_hour[offer.gpu] = min(price, usd_per_hour.get(offer.gpu, np.inf))
    gpus = sorted(usd_per_hour)
    if not gpus:
        raise NotApplicableError("hands keys and values over a network: offer sites with inter_machine_gb_per_s")
    if len(gpus) == 1:
        return {"A": gpus[0]}
    h = max(gpus, key=lambda gpu: _known(problem, gpu, "peak_tflops_bf16_dense"))
    others = [gpu for gpu in gpus if gpu != h]
    if len(others) == 1:
        return {"A": others[0], "H": h}
    if problem.objective.kind == "min_power":
        expense = {gpu: _known(problem, gpu, "tdp_watts") for gpu in others}
    else:
        expense = {gpu: usd_per_hour[gpu] for gpu in others}

    def value(gpu: str) -> float:
        bandwidth = _known(problem, gpu, "memory_bandwidth_gb_per_s")
        return bandwidth / expense[gpu] if expense[gpu] > 0 else np.inf

    return {"A": max(others, key=value), "H": h}


def _known(problem: Problem, gpu: str, fact: str) -> float:
    found: float | None = getattr(problem.gpus[gpu], fact)
    if found is None:
        raise NotApplicableError(f"tells GPU types apart by their facts: state gpus.{gpu}.{fact}")
    return found


def _with_settings(design: Design, problem: Problem) -> Problem:
    """The problem with what the design needs, and no more. Raises NotApplicableError."""
    caps: tuple[float, ...] = ()
    if design.decode_cap_fraction < 1:
        if problem.objective.kind != "min_power" and problem.limits.max_power_watts is None:
            raise NotApplicableError(
                "caps save watts alone: set the objective to min_power, or limits.max_power_watts"
            )
        if problem.measured_only or any(model.spec is None for model in problem.models):
            raise NotApplicableError("measured rates say nothing of capped GPUs: allow estimates and name the models")
        caps = (design.decode_cap_fraction,)
    return replace(problem, search=replace(problem.search, disaggregation="only", power_caps_fraction=caps))


def _on(gpu: str, role: int, cap: float, candidates: Candidates, supply: Supply) -> BoolArray:
    """[C] whether all GPUs of a candidate are of that type, and it has that role and cap."""
    of_type = np.array([pool.gpu == gpu for pool in supply.pools] + [True])
    is_alike = (candidates.role == role) & (candidates.power_cap_fraction == cap)
    chosen: BoolArray = is_alike & of_type[candidates.pool].all(axis=1)
    return chosen
