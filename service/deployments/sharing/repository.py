"""Plans and holdings of all deployments, as far as they take machines from each other. SQL lives here only.

There is one market, so these statements look across all projects, also from within one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from math import fsum, inf
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.sharing.taken import OfferKey, Rented, Tenancy, Tenant
from sutler.service.documents.validation import validate
from sutler.service.plans.resources import SERVES

_LOCK: Final = 0x5E71_0002  # any number that no other advisory lock has
_CLEARING: Final = 0x5E71_0003
MOST_CARRIED: Final = 0.99  # of its load, by what is short nevertheless
MOST_PLANS: Final = 10_000  # chosen: a plan's rentals take a kilobyte
MOMENT_S: Final = 2.0  # chosen: what a look misses it would have missed so much earlier; who issues a plan reads anew
READINGS: Final = 10  # chosen: where reading takes seconds it is kept for so many times as long
LATELY: Final = timedelta(hours=1)  # several times as long as a market may be old, which still shows what is held
# What plans on a snapshot of its own has its own market.
_TENANTS: Final = text("""
    SELECT d.id, d.plan_id, p.finished_at, d.policy, w.holdings,
        (SELECT jsonb_agg(to_jsonb(l)) FROM public.rental_life l
            WHERE l.deployment_id = d.id AND l.ended_at IS NULL AND l.began_at > :since) AS young,
        d.project, d.name, d.version, d.created_at, p.cost_usd_per_hour, p.status,
        CASE w.state ->> 'status' WHEN 'short' THEN coalesce((w.state ->> 'load_multiple')::float, 0) END AS carried,
        (d.problem -> 'market' -> 'offers') IS NULL AS is_shared,
        EXISTS (SELECT 1 FROM public.plan q
            WHERE q.deployment_id = d.id AND q.status IN ('queued', 'running')) AS is_pending
    FROM public.deployment d JOIN public.plan p ON p.id = d.plan_id
    LEFT JOIN public.watch w ON w.deployment_id = d.id
    ORDER BY p.finished_at, d.id
""")
_RENTALS: Final = text("""
    SELECT p.id, r ->> 'provider', r ->> 'offer_id', r ->> 'contract', (r ->> 'gpus')::int, (r ->> 'count')::int,
        r ->> 'machine_id'
    FROM public.plan p CROSS JOIN LATERAL jsonb_array_elements(p.document::jsonb -> 'rentals') r
    WHERE p.id = ANY(:plans)
""")

_HELD_BY_OTHERS: Final = text("""
    SELECT h.provider, h.offer_id, h.contract, mine.name, h.gpus * h.count
    FROM public.watch w JOIN public.deployment d ON d.id = w.deployment_id LEFT JOIN deployment mine ON mine.id = d.id
        CROSS JOIN LATERAL
        jsonb_to_recordset(w.holdings) AS h(provider text, offer_id text, contract text, gpus int, count int)
    WHERE d.id <> :me AND (h.provider, h.offer_id, h.contract) IN (
        SELECT * FROM unnest(CAST(:providers AS text[]), CAST(:offers AS text[]), CAST(:contracts AS text[])))
    ORDER BY mine.name
""")
_PLANS_AND_HOLDINGS: Final = text("""
    SELECT count(*), sum(d.version + d.revision), max(w.holdings_at),
        count(*) FILTER (WHERE w.state ->> 'status' = 'short')
    FROM public.deployment d LEFT JOIN public.watch w ON w.deployment_id = d.id
""")
_IS_PLANNING: Final = text("""
    SELECT EXISTS (SELECT 1 FROM public.plan WHERE deployment_id IS NOT NULL
        AND status IN ('queued', 'running') AND created_at > :since)
""")


class Tenants:
    """What deployments take; the rentals of a plan, which never change, are read once, as is each version of a
    policy."""

    def __init__(self) -> None:
        self._rentals: dict[UUID, tuple[Rented, ...]] = {}
        self._policies: dict[UUID, tuple[int, PolicyDocument]] = {}
        self._known, self._lasts_until, self._reading = Tenancy(), -inf, asyncio.Lock()

    async def lately(self, connection: AsyncConnection, now: datetime) -> Tenancy:
        """All as they were a moment ago, read once for the looks that a poll brings: each reads little otherwise."""
        async with self._reading:
            if time.monotonic() > self._lasts_until:
                return await self.all(connection, now)
            return self._known

    async def all(self, connection: AsyncConnection, now: datetime) -> Tenancy:
        """All that have a plan, the earliest plan first."""
        began_at = time.monotonic()
        rows = (await connection.execute(_TENANTS, {"since": now - LATELY})).all()
        if len(self._policies) > 2 * len(rows):  # most are of deployments that are gone
            self._policies.clear()
        await self._read(connection, {row.plan_id for row in rows})
        self._known, now_at = Tenancy(map(self._tenant, rows)), time.monotonic()
        self._lasts_until = now_at + max(MOMENT_S, READINGS * (now_at - began_at))
        return self._known

    async def _read(self, connection: AsyncConnection, plans: Collection[UUID]) -> None:
        if len(self._rentals) > max(MOST_PLANS, 2 * len(plans)):
            self._rentals.clear()
        missing = [plan for plan in plans if plan not in self._rentals]
        found: dict[UUID, list[Rented]] = {plan: [] for plan in missing}
        if missing:
            for plan, provider, offer_id, contract, gpus, count, machine in (
                await connection.execute(_RENTALS, {"plans": missing})
            ).all():
                found[plan].append(Rented((provider, offer_id, contract), gpus, count, machine))
        self._rentals |= {plan: tuple(rentals) for plan, rentals in found.items()}

    def _policy(self, row: Any) -> PolicyDocument:
        version, policy = self._policies.get(row.id, (-1, None))
        if policy is None or version != row.version:
            policy = validate(PolicyDocument, row.policy)
            self._policies[row.id] = row.version, policy
        return policy

    def _tenant(self, row: Any) -> Tenant:
        held: Counter[tuple[OfferKey, int]] = Counter()
        for one in row.holdings or ():
            held[_kind(one)] += one["count"]
        grown: dict[tuple[OfferKey, int], list[tuple[datetime, int]]] = {}
        for life in row.young or ():
            grown.setdefault(_kind(life), []).append((datetime.fromisoformat(life["began_at"]), life["count"]))
        policy = self._policy(row)
        lack_fraction = 0.0 if row.carried is None else 1 - min(row.carried, MOST_CARRIED)
        return Tenant(
            row.id,
            row.finished_at,
            row.finished_at + timedelta(seconds=policy.carry_out_s),
            self._rentals[row.plan_id],
            held,
            grown,
            project=row.project,
            name=row.name,
            version=row.version,
            plan_id=row.plan_id,
            policy=policy,
            created_at=row.created_at,
            planned_usd_per_hour=row.cost_usd_per_hour or 0.0,
            held_usd_per_hour=None if row.holdings is None else _usd_per_hour(row.holdings),
            lack_fraction=lack_fraction if row.status in SERVES else 1.0,
            is_shared=row.is_shared,
            is_planned_anew=row.is_pending,
        )


def _usd_per_hour(holdings: Iterable[dict[str, Any]]) -> float:
    return fsum(one["price_usd_per_hour"] * one["count"] for one in holdings)


def _kind(machines: dict[str, Any]) -> tuple[OfferKey, int]:
    return (machines["provider"], machines["offer_id"], machines["contract"]), machines["gpus"]


async def held_by_others(
    connection: AsyncConnection, me: UUID, keys: Iterable[OfferKey]
) -> dict[OfferKey, list[tuple[str | None, int]]]:
    """Who else reports machines of these offers, by name, and how many GPUs; those of other projects have none."""
    wanted = sorted(set(keys))
    columns = dict(zip(("providers", "offers", "contracts"), map(list, zip(*wanted, strict=True)), strict=False))
    found: dict[OfferKey, list[tuple[str | None, int]]] = {}
    if wanted:
        for provider, offer_id, contract, name, gpus in (
            await connection.execute(_HELD_BY_OTHERS, {"me": me, **columns})
        ).all():
            found.setdefault((provider, offer_id, contract), []).append((name, gpus))
    return found


async def lock(connection: AsyncConnection) -> None:
    """Nobody else takes anything until the end of the transaction: to be asked for after the deployment's row."""
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


async def plans_and_holdings(connection: AsyncConnection) -> tuple[Any, ...]:
    """What is another whenever a plan, a policy or what is held is, at little cost."""
    return tuple((await connection.execute(_PLANS_AND_HOLDINGS)).one())


async def is_planning(connection: AsyncConnection, since: datetime) -> bool:
    """Whether a plan of a deployment is being made that was asked for since."""
    return bool(await connection.scalar(_IS_PLANNING, {"since": since}))


async def is_only_one(connection: AsyncConnection) -> bool:
    """Whether nobody else clears the market; nobody does until the end of the transaction."""
    return bool(await connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _CLEARING}))
