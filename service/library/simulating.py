"""A plan and traffic in, what its users would see out."""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument

if TYPE_CHECKING:
    from sutler.service.documents.traces import RequestTrace
    from sutler.service.simulation.schemas import SimulationResource


def simulate(
    plan: PlanDocument | Mapping[str, Any] | str | Path,
    *,
    traces: "Mapping[str, str | Path | RequestTrace] | None" = None,
    lengths: "Mapping[str, str | Path | RequestTrace] | None" = None,
    duration_s: float | None = None,
    load_multiple: float = 1.0,
    at_rated_load: bool = False,
    routing: Literal["round_robin", "random", "least_loaded"] = "round_robin",
    roles: Literal["fixed", "mixed_pool", "opportunistic"] = "fixed",
    scheduling: Literal["chunked", "prefill_first"] = "chunked",
    max_batched_tokens: int = 2048,
    warm_up_s: float | None = None,
    seed: int = 0,
    lose: str | None = None,
    detection_s: float | None = None,
) -> "SimulationResource":
    """Sends requests through a plan one by one: rates, latencies, goodput and how busy each replica is.

    `traces`, by model, are replayed: CSV files with TIMESTAMP, ContextTokens and GeneratedTokens, or read already;
    without them requests arrive at random at the plan's rates for `duration_s` (unset: 600), with `lengths` drawn
    from recorded requests where they are given. `load_multiple`: that many times the requests/s; `at_rated_load`:
    traces faster or slower, at the plan's own rate. `roles`: when prefill and decode replicas serve whole requests:
    never, where their own queue is long (`mixed_pool`), or where one is idle (`opportunistic`). `lose`: what is
    lost on the way, as `provider=vastai@120`, and `detection_s` until requests are sent elsewhere (unset: as the plan
    says, else 60).

    Raises DocumentError where plan, traffic or an option is wrong, or the plan runs nothing.
    """
    from sutler.service.simulation.losing import losing_of
    from sutler.service.simulation.simulated import Choices, simulated
    from sutler.service.simulation.traffic import DEFAULT_DURATION_S, PoissonTraffic, TraceTraffic

    if traces and (lengths or duration_s is not None):
        raise DocumentError.of("traces", "have lengths and a duration of their own: leave lengths and duration_s out")
    for field, recorded in (("traces", traces), ("lengths", lengths)):
        if recorded is not None and not isinstance(recorded, Mapping):
            raise DocumentError.of(field, "must be a mapping from each model to its requests", value=recorded)
    for field, number in (("duration_s", duration_s), ("load_multiple", load_multiple)):
        if number is not None and not (isinstance(number, int | float) and 0 < number < inf):
            raise DocumentError.of(field, "must be a number above 0", value=number)
    traffic: PoissonTraffic | TraceTraffic
    if traces:
        traffic = TraceTraffic(_read(traces, "traces"), at_rated_load, load_multiple)
    else:
        seconds = DEFAULT_DURATION_S if duration_s is None else duration_s
        traffic = PoissonTraffic(seconds, load_multiple, seed, _read(lengths or {}, "lengths"))
    losing = None if lose is None else losing_of(lose, detection_s)
    choices = Choices(routing, scheduling, max_batched_tokens, seed, warm_up_s, losing, roles)
    return simulated(plan_document(plan), traffic, choices).resource


def plan_document(given: PlanDocument | Mapping[str, Any] | str | Path) -> PlanDocument:
    """A plan as it is, of its file, or of its content. Raises DocumentError."""
    from sutler.service.documents.reading import read_document
    from sutler.service.documents.validation import of_json

    if isinstance(given, PlanDocument):
        return given
    data = given if isinstance(given, Mapping) else read_document(Path(given), field="PLAN")
    if not isinstance(data, Mapping):
        raise DocumentError.of("PLAN", "must hold a plan (`sutler plan PROBLEM --json`)", value=data)
    return of_json(PlanDocument, data)


def _read(given: "Mapping[str, str | Path | RequestTrace]", field: str) -> "dict[str, RequestTrace]":
    from sutler.service.documents.traces import RequestTrace, read_trace_file

    return {
        model: one if isinstance(one, RequestTrace) else read_trace_file(Path(one), field=field)
        for model, one in given.items()
    }
