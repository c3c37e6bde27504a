"""How soon every deployment has been looked at again after a poll: many small ones on the fake clouds' market.

The clouds' clock stands still until the benchmark moves it, so that one poll at a time changes the market; at the end
it runs, and the scheduler polls all clouds at their default pace.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypedDict

from benchmarks.replanning_latency_deployments import SETUP_PATIENCE_S, carry_out, set_up
from benchmarks.replanning_latency_service import Meter, Service, Tell, environment_on, played_clouds, started
from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud

POLLED: Final = "vastai"
BEGINS: Final = datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp()
MOVES_S: Final = (60.0, 3600.0, 6 * 3600.0)
"""By how much the market moves before each of the polls, one after the other."""
PACE_SPEED: Final = 10.0
"""Times as fast as ours: 300 machines are fewer than there are, and a poll of theirs would often find nothing new."""
SAMPLE_S: Final = 0.2
STALE_POLL_S: Final = 3600.0
Outcome = Literal["calm", "considered", "searched", "replanned", "blind"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("calm", "considered", "searched", "replanned", "blind")

_OUTCOMES: Final = """
    SELECT CASE WHEN EXISTS (SELECT 1 FROM decision c WHERE c.deployment_id = w.deployment_id
                             AND c.revision IS NOT NULL AND c.at >= :since) THEN 'replanned'
                WHEN w.state ->> 'status' = 'blind' THEN 'blind'
                WHEN (w.memory ->> 'searched_at')::timestamptz >= :since THEN 'searched'
                WHEN w.state ->> 'load_multiple' IS NOT NULL THEN 'considered'
                ELSE 'calm' END AS outcome, count(*)
    FROM watch w GROUP BY 1
"""


class Round(TypedDict):
    """A poll and the looks that followed it. Seconds from its landing until half and all have been looked at.

    `changed`: offers that began or ended. `outcomes` of the deployments, and `revisions` issued before the last was
    looked at. `cpu_s` by role, meanwhile.
    """

    moved_s: float
    changed: int
    half_s: float
    all_s: float
    outcomes: dict[str, int]
    revisions: int
    cpu_s: dict[str, float]


class Pace(TypedDict):
    """The scheduler's own polls of all clouds for a while: of each that changed anything, seconds until all
    deployments had been looked at with it or a later one; None where that was not reached before the end.
    """

    seconds: float
    lags_s: list[float | None]
    revisions: int
    cpu_s: dict[str, float]


class Fleet(TypedDict):
    """`setup_s`: until every deployment had its first plan."""

    deployments: int
    holding: int
    observed: int
    offers: int
    setup_s: float
    rounds: list[Round]
    pace: Pace


NO_PACE: Final = Pace(seconds=0.0, lags_s=[], revisions=0, cpu_s={})


@dataclass
class Clock:
    """Stands still until it is moved or let run."""

    now_s: float = BEGINS
    runs_since_s: float | None = None
    speed: float = 1.0

    def __call__(self) -> float:
        ran_s = 0.0 if self.runs_since_s is None else time.time() - self.runs_since_s
        return self.now_s + self.speed * ran_s


def measured_fleet(folder: Path, *, deployments: int, machines: int, pace_s: float, tell: Tell) -> Fleet:
    """Set up, one poll at a time, and then the scheduler's own pace."""
    folder.mkdir()
    folder.chmod(0o755)
    clock = Clock()
    with FakeCloud(Market(seed=1, machines=machines), clock=clock) as cloud:
        settings = environment_on(folder, **played_clouds(cloud.base_url))
        rarely = {"SUTLER_POLL_INTERVAL_S": f"{STALE_POLL_S:.0f}"}
        with started(folder, {**settings, **rarely, "SUTLER_SOLVES_AT_ONCE": "2"}) as service:
            began_at = time.monotonic()
            holding, observed = set_up(service, deployments, tell)
            setup_s = time.monotonic() - began_at
        with started(folder, {**settings, **rarely}) as service:
            offers = service.one("SELECT count(*) FROM offer WHERE upper_inf(valid)")
            rounds = []
            for moved_s in MOVES_S:
                rounds.append(_round(service, clock, moved_s, deployments))
                tell(f"{moved_s:.0f} s later: all after {rounds[-1]['all_s']:.1f} s, {rounds[-1]['outcomes']}")
                carry_out(service, tell)
            service.change("UPDATE provider SET next_poll_at = NULL")
        pace = NO_PACE
        if pace_s:
            with started(folder, settings) as service:
                pace = _pace(service, clock, pace_s, tell)
    return Fleet(
        deployments=deployments,
        holding=holding,
        observed=observed,
        offers=offers,
        setup_s=setup_s,
        rounds=rounds,
        pace=pace,
    )


def _round(service: Service, clock: Clock, moved_s: float, deployments: int) -> Round:
    """Before it, every cloud is polled without any news, so that none counts as silent."""
    for name in CLOUDS:
        service.land(name)
    service.until_at_rest(patience_s=SETUP_PATIENCE_S)
    clock.now_s += moved_s
    report = service.land(POLLED)
    meter = Meter(service)
    version, half_s = service.version, 0.0
    while True:
        looked = service.one("SELECT count(*) FROM watch WHERE market_version >= :version", version=version)
        after_s = time.time() - report.at.timestamp()
        if not half_s and 2 * looked >= deployments:
            half_s = after_s
        if looked == deployments:
            break
        if after_s > SETUP_PATIENCE_S:
            raise RuntimeError(f"only {looked} of {deployments} were looked at within {SETUP_PATIENCE_S:.0f} s")
        time.sleep(SAMPLE_S)
    return Round(
        moved_s=moved_s,
        changed=report.opened + report.closed,
        half_s=half_s,
        all_s=after_s,
        outcomes={str(outcome): int(many) for outcome, many in service.rows(_OUTCOMES, since=report.at)},
        revisions=_revisions_since(service, report.at),
        cpu_s=meter.seconds(),
    )


def _pace(service: Service, clock: Clock, seconds: float, tell: Tell) -> Pace:
    service.until_at_rest(patience_s=SETUP_PATIENCE_S)
    began_at, polled_before = datetime.now(UTC), service.version
    clock.speed, clock.runs_since_s = PACE_SPEED, time.time()
    meter = Meter(service)
    reached: list[tuple[float, int]] = []
    tell(f"{seconds:.0f} s at the scheduler's own pace ...")
    while (elapsed_s := (datetime.now(UTC) - began_at).total_seconds()) < seconds:
        looked = int(service.one("SELECT coalesce(min(market_version), 0) FROM watch"))
        reached.append((time.time(), looked))
        time.sleep(SAMPLE_S)
    cpu_s, revisions = meter.seconds(), _revisions_since(service, began_at)
    landed = service.rows(
        "SELECT at FROM poll WHERE at >= :since AND opened + closed > 0 ORDER BY at", since=began_at
    )
    landed_s = [at.timestamp() for (at,) in landed]
    return Pace(
        seconds=elapsed_s, lags_s=lags(landed_s, reached, first=polled_before + 1), revisions=revisions, cpu_s=cpu_s
    )


def lags(landed_s: list[float], reached: list[tuple[float, int]], *, first: int) -> list[float | None]:
    """Of polls that made the market's versions from `first` on; `reached`: times, and the version all had then."""
    found: list[float | None] = []
    for version, at_s in enumerate(landed_s, start=first):
        found.append(next((time_s - at_s for time_s, all_have in reached if all_have >= version), None))
    return found


def _revisions_since(service: Service, since: datetime) -> int:
    wanted = "SELECT count(*) FROM decision WHERE revision IS NOT NULL AND at >= :since"
    return int(service.one(wanted, since=since))
