"""Event simulation of a plan: replicas under continuous batching, request by request.

Flow: a plan's replicas -> replicas.py, step_times.py -> fleet.py (engine.py, roles.py, routing.py) -> outcome.py ->
summary.py.
"""

from sutler.solver.simulation.engine import EngineSettings, Scheduling
from sutler.solver.simulation.fleet import KvRoute, SimulatedReplica, closed_loop, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.replicas import Lengths, lengths_of, simulated_replicas
from sutler.solver.simulation.requests import Kind, Requests, joined, poisson, requests_of, sampled
from sutler.solver.simulation.routing import RoutingPolicy
from sutler.solver.simulation.step_times import StepTimes, step_times
from sutler.solver.simulation.summary import PERCENTILES, Summary, TrafficSummary, group_results, summarise

__all__ = [
    "PERCENTILES",
    "EngineSettings",
    "Kind",
    "KvRoute",
    "Lengths",
    "Outcome",
    "Requests",
    "RoutingPolicy",
    "Scheduling",
    "SimulatedReplica",
    "StepTimes",
    "Summary",
    "TrafficSummary",
    "closed_loop",
    "group_results",
    "joined",
    "lengths_of",
    "poisson",
    "requests_of",
    "sampled",
    "simulate",
    "simulated_replicas",
    "step_times",
    "summarise",
]
