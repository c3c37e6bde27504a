"""The most that replicas carry between them, by a program of its own and another solver than plans are made with."""

from collections import Counter
from collections.abc import Collection, Mapping

from ortools.linear_solver import pywraplp

from sutler.solver.throughput import max_load_fraction
from sutler.solver.verify.view import PlanView


def most_carried(
    view: PlanView,
    rates: Mapping[str, Mapping[str, float]],
    demand: Mapping[tuple[str, str], float],
    *,
    without: Collection[str] = (),
) -> float:
    """The largest multiple of a demand by (model, workload) that some routing carries; `without`: replicas left out.

    `rates`: by replica and workload, of replicas that serve whole requests up to the loads that the caller allows,
    latency limits aside, since they depend on the routing. Replicas alike count as one.
    """
    replicas = (replica for replica in view.plan.replicas if replica.id not in without)
    alike = Counter((replica.model, tuple(rates[replica.id].items())) for replica in replicas)
    program, scale = pywraplp.Solver.CreateSolver("GLOP"), max(demand.values())
    multiple = program.NumVar(0.0, program.infinity(), "")
    served = {key: program.Constraint(0.0, 0.0) for key in demand}
    for key, requests in demand.items():
        served[key].SetCoefficient(multiple, -requests / scale)
    for (model, own), count in alike.items():
        works = program.Constraint(0.0, count * max_load_fraction(view.problem, view.models[model]))
        for workload, rps in own:
            if rps > 0:
                share = program.NumVar(0.0, program.infinity(), "")
                works.SetCoefficient(share, 1.0)
                served[model, workload].SetCoefficient(share, rps / scale)
    program.Objective().SetCoefficient(multiple, 1.0)
    program.Objective().SetMaximization()
    return float(multiple.solution_value()) if program.Solve() == program.OPTIMAL else 0.0
