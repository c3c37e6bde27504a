"""Plans which GPUs to rent, how to deploy LLMs on them and where to route each workload, with proof.

    import sutler

    plan = sutler.plan("problem.yaml", changes={"budget_usd_per_hour": 20})

`plan`, `what_if`, `estimate` and `simulate` do what the commands of these names do, in this process; `solve` takes a
`Problem` of the planner itself. `Client` and `AsyncClient` ask a running service. What they need is imported with the
first use of each.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sutler.service.client.asynchronous import AsyncClient
    from sutler.service.client.errors import AnswerError, RefusedError, ServiceError, UnreachableError
    from sutler.service.client.synchronous import Client
    from sutler.service.documents.errors import DocumentError, NoMarketDataError
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.problem import ProblemDocument
    from sutler.service.errors import SutlerError
    from sutler.service.library.estimating import estimate
    from sutler.service.library.planning import plan
    from sutler.service.library.simulating import simulate
    from sutler.service.library.what_if import what_if
    from sutler.solver.errors import InvalidProblemError, UnknownNameError
    from sutler.solver.plan import Plan
    from sutler.solver.planner import solve
    from sutler.solver.problem import Problem

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Client",
    "DocumentError",
    "InvalidProblemError",
    "NoMarketDataError",
    "Plan",
    "PlanDocument",
    "Problem",
    "ProblemDocument",
    "RefusedError",
    "ServiceError",
    "SutlerError",
    "UnknownNameError",
    "UnreachableError",
    "estimate",
    "plan",
    "simulate",
    "solve",
    "what_if",
]

_HOMES = {
    "AnswerError": "service.client.errors",
    "AsyncClient": "service.client.asynchronous",
    "Client": "service.client.synchronous",
    "RefusedError": "service.client.errors",
    "ServiceError": "service.client.errors",
    "UnreachableError": "service.client.errors",
    "DocumentError": "service.documents.errors",
    "InvalidProblemError": "solver.errors",
    "NoMarketDataError": "service.documents.errors",
    "Plan": "solver.plan",
    "PlanDocument": "service.documents.plan",
    "Problem": "solver.problem",
    "ProblemDocument": "service.documents.problem",
    "SutlerError": "service.errors",
    "UnknownNameError": "solver.errors",
    "estimate": "service.library.estimating",
    "plan": "service.library.planning",
    "simulate": "service.library.simulating",
    "solve": "solver.planner",
    "what_if": "service.library.what_if",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"sutler.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
