"""Event simulation of a plan: replicas under continuous batching, request by request.

Flow: a plan's replicas -> replicas.py, step_times.py -> fleet.py (engine.py, roles.py, routing.py) -> outcome.py ->
summary.py.
"""

from solver.simulation.engine import EngineSettings, Scheduling
from solver.simulation.fleet import KvRoute, SimulatedReplica, closed_loop, simulate
from solver.simulation.outcome import Outcome
from solver.simulation.replicas import Lengths, lengths_of, simulated_replicas
from solver.simulation.requests import Kind, Requests, joined, poisson, requests_of, sampled
from solver.simulation.routing import RoutingPolicy
from solver.simulation.step_times import StepTimes, step_times
from solver.simulation.summary import PERCENTILES, Summary, TrafficSummary, group_results, summarise

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
