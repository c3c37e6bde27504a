"""What all processes share, gathered from the database when Prometheus asks: any API process tells the whole.

Few and cheap questions, and their answers are kept for a while: the longer, the longer they took.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, get_args

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from psycopg.errors import LockNotAvailable, QueryCanceled
from sqlalchemy import Row, TextClause, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.auth.projects import RetentionKind
from sutler.service.db.asynchronous import reading
from sutler.service.db.errors import DatabaseError
from sutler.service.db.queue import DELIVERIES, LOOKS, QUICK_SOLVES, SOLVES, URGENT_LOOKS
from sutler.service.deployments.watch_schema import DecisionResource, Status
from sutler.service.offline.resources import OFFLINE_STATUSES
from sutler.service.plans.resources import PlanStatus
from sutler.service.settings import ServiceSettings

logger = logging.getLogger("sutler.metrics")

FRESH_S: Final = 5.0  # chosen: below usual scrape intervals (15 s), so that each scrape of one Prometheus asks anew
MOST_LOAD_FRACTION: Final = 0.05  # of the time, the database is busy with this
QUESTION_LIMIT_S: Final = 3.0  # chosen: one slow question leaves time for the others
PATIENCE_S: Final = 8.0  # chosen: below the 10 s after which Prometheus gives up
SOLVE_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
GAP_BUCKETS: Final = (0.0, 0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
QUEUES: Final = (SOLVES, QUICK_SOLVES, DELIVERIES, LOOKS, URGENT_LOOKS)
DELIVERY_STATUSES: Final = ("pending", "delivered", "failed")
FEED_STATES: Final = ("ok", "failing", "none")


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """What the database says; `is_up`: whether it said anything."""

    is_up: bool
    gathered: tuple[Metric, ...] = ()

    def families(self) -> Iterator[Metric]:
        """Yields everything as Prometheus has it."""
        up = "1: the database answers in time; 0: it does not."
        yield gauge("sutler_database_up", up, (), {(): float(self.is_up)})
        yield from self.gathered


def gauge(
    name: str,
    documentation: str,
    labels: Sequence[str],
    values: Mapping[tuple[str, ...], float],
    family: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """A gauge, or a counter, with its values by the values of its labels."""
    made = family(name, documentation, labels=labels)
    for of_labels, value in values.items():
        made.add_metric(of_labels, value)
    return made


def histogram(name: str, documentation: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """How often a figure was at most each bound, the last count without bound; and the sum of all."""
    made = HistogramMetricFamily(name, documentation)
    made.add_metric((), list(zip((*map(str, bounds), "+Inf"), counts, strict=True)), total)
    return made


@dataclass(frozen=True, slots=True)
class _Question:
    """One gauge or counter: a row is its labels, then its value. `always`: labels that are 0 rather than absent."""

    name: str
    documentation: str
    labels: tuple[str, ...]
    statement: TextClause
    always: tuple[tuple[str, ...], ...] = ()
    family: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily

    def answered(self, rows: Sequence[Row[Any]]) -> Metric:
        found = dict.fromkeys(self.always, 0.0) | {tuple(row[:-1]): float(row[-1]) for row in rows}
        return gauge(self.name, self.documentation, self.labels, found, self.family)


_QUESTIONS: Final = (
    _Question(
        "sutler_offers",
        "Offers held as for rent, by provider and contract; how old that is says sutler_market_age_seconds.",
        ("provider", "contract"),
        text("""
            SELECT p.name, o.contract, count(*) FROM offer o JOIN provider p ON p.id = o.provider_id
            WHERE upper(o.valid) IS NULL GROUP BY p.name, o.contract ORDER BY p.name, o.contract
        """),
    ),
    _Question(
        "sutler_market_age_seconds",
        "Since a provider's last answer that says what is for rent; +Inf: there never was one.",
        ("provider",),
        text("""
            SELECT p.name, coalesce((
                SELECT greatest(extract(epoch FROM CAST(:now AS timestamptz) - ended_at), 0)::float8 FROM poll
                WHERE provider_id = p.id AND outcome IN ('ok', 'partial') ORDER BY at DESC LIMIT 1),
                'Infinity'::float8)
            FROM provider p ORDER BY p.name
        """),
    ),
    _Question(
        "sutler_last_poll_timestamp_seconds",
        "When a provider was polled last, whatever came of it.",
        ("provider",),
        text("""
            SELECT p.name, extract(epoch FROM last.ended_at) FROM provider p JOIN LATERAL (
                SELECT ended_at FROM poll WHERE provider_id = p.id ORDER BY at DESC LIMIT 1) last ON true
            ORDER BY p.name
        """),
    ),
    _Question(
        "sutler_polls",
        "Polls of the last 24 hours, by provider and outcome.",
        ("provider", "outcome"),
        text("""
            SELECT p.name, polls.outcome, polls.number FROM provider p JOIN LATERAL (
                SELECT outcome, count(*) AS number FROM poll
                WHERE provider_id = p.id AND at > CAST(:now AS timestamptz) - interval '24 hours'
                GROUP BY outcome) polls ON true
            ORDER BY p.name, polls.outcome
        """),
    ),
    _Question(
        "sutler_plans",
        "Plans in the store, by status.",
        ("status",),
        text("SELECT status, count(*) FROM plan GROUP BY status"),
        always=tuple((status,) for status in get_args(PlanStatus)),
    ),
    _Question(
        "sutler_offline_plans",
        "Plans of offline applications in the store, by status.",
        ("status",),
        text("SELECT status, count(*) FROM offline_plan GROUP BY status"),
        always=tuple((status,) for status in OFFLINE_STATUSES),
    ),
    _Question(
        "sutler_retention_deleted",
        "Rows deleted because they were older than the project's operator said that they are kept, by kind.",
        ("kind",),
        text("SELECT kind, deleted FROM retention"),
        always=tuple((kind,) for kind in get_args(RetentionKind)),
        family=CounterMetricFamily,
    ),
    _Question(
        "sutler_deployments",
        "Deployments in the store.",
        (),
        text("SELECT count(*) FROM deployment"),
    ),
    _Question(
        "sutler_deployments_watched",
        "Deployments by what the last look at them found; none: there was no look yet.",
        ("status",),
        text("""
            SELECT coalesce(w.state ->> 'status', 'none'), count(*)
            FROM deployment d LEFT JOIN watch w ON w.deployment_id = d.id GROUP BY 1
        """),
        always=tuple((status,) for status in (*get_args(Status), "none")),
    ),
    _Question(
        "sutler_plan_usd_per_hour",
        "Cost of a deployment's current plan.",
        ("deployment",),
        text("""
            SELECT d.name, p.cost_usd_per_hour FROM deployment d JOIN plan p ON p.id = d.plan_id
            WHERE p.cost_usd_per_hour IS NOT NULL ORDER BY d.name
        """),
    ),
    _Question(
        "sutler_held_machines",
        "Machines that were last reported as held, where that was ever reported.",
        ("deployment",),
        text("""
            SELECT d.name, coalesce(sum(h.count), 0)
            FROM deployment d JOIN watch w ON w.deployment_id = d.id
            LEFT JOIN LATERAL jsonb_to_recordset(
                CASE WHEN jsonb_typeof(w.holdings) = 'array' THEN w.holdings ELSE '[]' END) AS h(count int) ON true
            WHERE jsonb_typeof(w.holdings) = 'array' GROUP BY d.name ORDER BY d.name
        """),
    ),
    _Question(
        "sutler_load_carried",
        "How many times its load a deployment carried at the last look; below 1 it falls short.",
        ("deployment",),
        text("""
            SELECT d.name, CAST(w.state ->> 'load_multiple' AS float8)
            FROM deployment d JOIN watch w ON w.deployment_id = d.id
            WHERE w.state ->> 'load_multiple' IS NOT NULL ORDER BY d.name
        """),
    ),
    _Question(
        "sutler_slo_attainment",
        "Share of the requests that kept a latency limit of their model, by what engines counted in 5 minutes.",
        ("deployment", "model", "limit"),
        text("""
            SELECT d.name, o.model, left(kept.key, - length('_kept_fraction')),
                sum(o.requests * CAST(kept.value AS float8)) / sum(o.requests)
            FROM (SELECT DISTINCT deployment_id, model FROM feed) f JOIN deployment d ON d.id = f.deployment_id
            JOIN observation o ON o.deployment_id = f.deployment_id AND o.model = f.model
                AND o.ended_at > CAST(:now AS timestamptz) - interval '5 minutes' AND o.requests > 0
            CROSS JOIN LATERAL jsonb_each_text(o.latencies) AS kept
            WHERE kept.key LIKE '%\\_kept\\_fraction' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        """),
    ),
    _Question(
        "sutler_feeds",
        "URLs that traffic is read from, by how the last reading went; none: there was none yet.",
        ("state",),
        text("""
            SELECT CASE WHEN error IS NOT NULL THEN 'failing' WHEN read_at IS NULL THEN 'none' ELSE 'ok' END, count(*)
            FROM feed GROUP BY 1
        """),
        always=tuple((state,) for state in FEED_STATES),
    ),
    _Question(
        "sutler_decisions",
        "Decisions of the last 24 hours about plans that hold, by what was chosen.",
        ("chosen",),
        text("""
            SELECT chosen, count(*) FROM decision
            WHERE at > CAST(:now AS timestamptz) - interval '24 hours' GROUP BY chosen
        """),
        always=tuple((chosen,) for chosen in get_args(DecisionResource.model_fields["chosen"].annotation)),
    ),
    _Question(
        "sutler_queue_depth",
        "Jobs in the queue: todo, also those that wait for a later attempt, and doing.",
        ("queue", "status"),
        text("""
            SELECT queue_name, status::text, count(*) FROM procrastinate_jobs
            WHERE status IN ('todo', 'doing') GROUP BY queue_name, status
        """),
        always=tuple((queue, status) for queue in QUEUES for status in ("todo", "doing")),
    ),
    _Question(
        "sutler_queue_oldest_seconds",
        "For how long the oldest job that could be done has been waiting; 0: there is none.",
        ("queue",),
        text("""
            SELECT j.queue_name, extract(epoch FROM now() - min(coalesce(j.scheduled_at, e.at)))
            FROM procrastinate_jobs j LEFT JOIN procrastinate_events e ON e.job_id = j.id AND e.type = 'deferred'
            WHERE j.status = 'todo' AND coalesce(j.scheduled_at, e.at) <= now() GROUP BY j.queue_name
        """),
        always=tuple((queue,) for queue in QUEUES),
    ),
    _Question(
        "sutler_workers",
        "Takers of jobs that gave a sign of life lately: a worker process is five, one per queue.",
        (),
        text("""
            SELECT count(*) FROM procrastinate_workers
            WHERE last_heartbeat >= now() - :worker_silent_s * interval '1 second'
        """),
    ),
    _Question(
        "sutler_deliveries",
        "Webhook deliveries in the store, by status.",
        ("status",),
        text("SELECT status, count(*) FROM delivery GROUP BY status"),
        always=tuple((status,) for status in DELIVERY_STATUSES),
    ),
)

# Bounds belong to their bucket, which width_bucket counts from the other end.
_FINISHED: Final = text("""
    SELECT width_bucket(-solve_seconds, CAST(:solve_bounds AS float8[])) AS solve,
        width_bucket(-relative_gap, CAST(:gap_bounds AS float8[])) AS gap,
        count(*) AS number, sum(solve_seconds) AS seconds, sum(relative_gap) AS gaps
    FROM plan WHERE solve_seconds IS NOT NULL GROUP BY 1, 2
""")


async def gather(
    connection: AsyncConnection,
    now: datetime,
    *,
    worker_silent_s: float = ServiceSettings().worker_silent_s,
) -> StoreMetrics:
    """Asks everything; a question that takes longer than its limit is left out. Raises SQLAlchemyError."""
    limit = text("SELECT set_config('statement_timeout', :limit, true)")
    await connection.execute(limit, {"limit": f"{1000 * QUESTION_LIMIT_S:.0f}ms"})
    parameters = {"now": now, "worker_silent_s": worker_silent_s}
    gauges = [
        question.answered(rows)
        for question in _QUESTIONS
        if (rows := await _asked(connection, question.name, question.statement, parameters)) is not None
    ]
    bounds = {"solve_bounds": _from_the_end(SOLVE_BUCKETS_S), "gap_bounds": _from_the_end(GAP_BUCKETS)}
    finished = await _asked(connection, "sutler_solve_seconds", _FINISHED, bounds)
    return StoreMetrics(True, (*gauges, *(() if finished is None else _distributions(finished))))


async def _asked(
    connection: AsyncConnection, name: str, statement: TextClause, parameters: dict[str, Any]
) -> Sequence[Row[Any]] | None:
    """Returns the rows, None where they take too long; the next question can be asked all the same."""
    try:
        async with connection.begin_nested():
            return (await connection.execute(statement, parameters)).all()
    except OperationalError as error:
        if not isinstance(error.orig, QueryCanceled | LockNotAvailable):
            raise
        logger.warning("%s takes too long to gather: it is left out", name)
        return None


def _distributions(rows: Sequence[Row[Any]]) -> tuple[Metric, ...]:
    solves = [(row.solve, row.number, row.seconds) for row in rows]
    gaps = [(row.gap, row.number, row.gaps) for row in rows if row.gap is not None]
    return (
        _distribution("sutler_solve_seconds", "Seconds that finished plans took to solve.", SOLVE_BUCKETS_S, solves),
        _distribution("sutler_relative_gap", "How far finished plans may be from the best.", GAP_BUCKETS, gaps),
    )


def _from_the_end(bounds: Sequence[float]) -> list[float]:
    return [-bound for bound in reversed(bounds)]


def _distribution(
    name: str, documentation: str, bounds: tuple[float, ...], rows: Sequence[tuple[int, int, float]]
) -> Metric:
    """Sums rows (how many bounds are not below it, number, sum) up to one histogram."""
    counts = tuple(
        sum(number for reached, number, _ in rows if len(bounds) - reached <= index)
        for index in range(len(bounds) + 1)
    )
    return histogram(name, documentation, bounds, counts, sum(total for *_, total in rows))


class StoreMetricsCache:
    """Gathers once for all of a project who ask at the same time or soon after, also when the database is away."""

    def __init__(
        self,
        *,
        worker_silent_s: float = ServiceSettings().worker_silent_s,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker_silent_s, self._monotonic = worker_silent_s, monotonic
        self._gathering: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._kept: dict[str, tuple[float, StoreMetrics]] = {}

    async def get(self, engine: AsyncEngine, project: str) -> StoreMetrics:
        """Returns what the store says to the project that the engine is of; where the database is away it says so,
        and nothing is raised."""
        async with self._gathering[project]:
            good_until_s, kept = self._kept.get(project, (0.0, None))
            if kept is None or self._monotonic() >= good_until_s:
                began_s = self._monotonic()
                kept = await self._gathered(engine)
                ended_s = self._monotonic()
                good_until_s = ended_s + max(FRESH_S, (ended_s - began_s) / MOST_LOAD_FRACTION)
                self._kept[project] = good_until_s, kept
            return kept

    async def _gathered(self, engine: AsyncEngine) -> StoreMetrics:
        try:
            async with asyncio.timeout(PATIENCE_S), reading(engine) as connection:
                return await gather(connection, datetime.now(UTC), worker_silent_s=self._worker_silent_s)
        except (DatabaseError, TimeoutError) as error:
            logger.warning("the store's metrics are left out: %s", error or "no answer in time")
        except SQLAlchemyError:
            logger.exception("the store's metrics are left out: a defect of sutler")
        return StoreMetrics(is_up=False)
