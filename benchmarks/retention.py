"""What a year of plans takes: `python -m benchmarks.retention` (`make retention-bench`) writes results/retention.md.

First, what one plan, decision, observation and audit record take in the store, by a service that replans on a market
of 500 offers, and how much of a plan is the same in the next. Then a store of the version before with as many plans
as `--rows` is migrated, its lists are read over HTTP, and what is older than eleven months is deleted.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml
from sqlalchemy import Engine, text

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from benchmarks.retention_store import DOCUMENT_EVERY, fill, vacuumed
from benchmarks.scratch import scratch_folder, tell
from sutler.service.db import embedded
from sutler.service.db.asynchronous import open_async_engine
from sutler.service.db.engine import open_engine
from sutler.service.db.store import HEAD
from sutler.service.db.upgrade import OLDEST, upgrade
from sutler.service.settings import StoreSettings
from sutler.service.web.paging import encode_cursor
from sutler.service.workers.retention import delete_old
from tests.service.faults.versions import SUTLER, Versions, the_version_before
from tests.service.running import PYTHON, ROOT, Running, answers, serving, settings, until

ROWS: Final = 1_000_000
REPLANS: Final = 5
TIMES: Final = 20
BEFORE_S: Final = 10.0  # of requests before the upgrade, beside which those during it are seen
KEPT_DAYS: Final = 330
MS: Final = 1e3
MB: Final = 1e6
KB: Final = 1e3
# What rows of the generated store are copies of: one that the service wrote.
TEMPLATES: Final = {
    "problem": "SELECT problem::text FROM plan WHERE revision IS NOT NULL ORDER BY created_at DESC LIMIT 1",
    "document": "SELECT document FROM plan WHERE revision IS NOT NULL ORDER BY created_at DESC LIMIT 1",
    "drifts": "SELECT drifts::text FROM decision ORDER BY at DESC LIMIT 1",
    "options": "SELECT options::text FROM decision ORDER BY at DESC LIMIT 1",
    "buckets": "SELECT buckets::text FROM observation LIMIT 1",
}
STORED: Final = """
    SELECT count(*), avg({size})::float8 FROM {table}
"""
COLUMNS: Final = """
    SELECT string_agg(format('coalesce(pg_column_size(%I), 0)', attname), ' + ') FROM pg_attribute
    WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 AND NOT attisdropped
"""
LISTS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("/v1/plans", {}),
    ("/v1/plans", {"limit": 200, "cursor": "of the middle"}),
    ("/v1/plans", {"status": "failed"}),
    ("/v1/plans", {"status": "running"}),
    ("/v1/plans", {"deployment": "chat-7"}),
    ("/v1/deployments/chat-7/plans", {}),
    ("/v1/deployments/chat-7/decisions", {}),
    ("/v1/deployments/chat-7/costs", {}),
    ("/v1/deployments/chat-7/traffic/history", {}),
    ("/v1/deployments/chat-7", {}),
    ("/v1/deployments", {}),
    ("/v1/offline-plans", {}),
    ("/v1/offline-plans", {"name": "app-7"}),
    ("/v1/what-ifs", {}),
    ("/v1/simulations", {}),
    ("/v1/costs", {}),
    ("/v1/audit", {}),
    ("/v1/audit", {"target": "deployment/chat-7"}),
    ("/v1/audit", {"action": "key.create"}),
    ("/v1/deliveries", {}),
    ("/v1/deliveries", {"status": "failed"}),
    ("/metrics", {}),
)


def of_a_service(folder: Path, templates: dict[str, str]) -> Iterator[str]:
    """Bytes of rows that a service writes, of which one each is kept as a template."""
    problem = yaml.safe_load((ROOT / "examples" / "vast_like.yaml").read_text("utf-8"))
    problem["market"].pop("offers")
    problem["solver"] = {"time_limit_s": 3, "relative_gap": 0.05}
    market = json.loads((ROOT / "examples" / "vast_like_market.json").read_text("utf-8"))
    environment = settings(folder)
    path = Path(environment["SUTLER_FILE_PATH"])
    path.write_text(json.dumps({**market, "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}), "utf-8")
    with serving(folder, environment, sutler=PYTHON) as running:
        until(lambda: running.get("/readyz").ok)
        assert running.put("/v1/deployments/chat", {"problem": problem}).ok
        plan = until(lambda: found if (found := running.get("/v1/deployments/chat/plan")).ok else None).json()
        for _ in range(REPLANS):
            bucket = {"input_tokens": 1000, "output_tokens": 200, "requests": 90}
            seen = {
                "model": "chat",
                "window_s": 15,
                "buckets": [{**bucket, "output_tokens": n} for n in range(50, 500, 50)],
            }
            running.post(
                "/v1/deployments/chat/observations", {**seen, "observed_at": f"{datetime.now(UTC).isoformat()}"}
            )
            assert running.post("/v1/deployments/chat/replan").ok
            asked = {"after": plan["revision"], "wait_s": 30}
            plan = running.get("/v1/deployments/chat/plan", params=asked).json()
        engine = open_engine(StoreSettings(Path(environment["SUTLER_DATA_DIR"])))
        yield from _bytes(engine)
        given = {**problem, "market": {**problem["market"], "offers": market}, "solver": {"time_limit_s": 3}}
        answer = running.post("/v1/plans", given)
        assert answer.ok, answer.text
        with engine.connect() as connection:
            sizes = text("SELECT pg_column_size(problem), length(problem::text) FROM plan WHERE id = :id")
            stored, written = connection.execute(sizes, {"id": answer.json()["id"]}).one()
        told = f"a problem with a market of {len(market['offers'])} offers in it"
        yield f"| {told} | {stored:,} | ({written:,} as text) |"
        yield from _repeated(engine)
        with engine.connect() as connection:
            templates.update({name: connection.scalar(text(asked)) for name, asked in TEMPLATES.items()})
        engine.dispose()
    embedded.stop(Path(environment["SUTLER_DATA_DIR"]))


def _bytes(engine: Engine) -> Iterator[str]:
    yield "| row | bytes, as stored | of which |"
    yield "|---|---|---|"
    with engine.connect() as connection:
        for table in ("plan", "decision", "observation", "audit", "cost", "delivery"):
            size = connection.scalar(text(COLUMNS), {"name": table})
            number, stored = connection.execute(text(STORED.format(size=size, table=table))).one()
            parts = ""
            if table == "plan":
                asked = "document", "problem", "diff"
                sizes = ", ".join(
                    f"avg(pg_column_size({each}))::int, avg(length({each}::text))::int" for each in asked
                )
                found = connection.execute(text(f"SELECT {sizes} FROM plan WHERE document IS NOT NULL")).one()
                parts = "; ".join(
                    f"{each} {found[2 * i] or 0:,} ({found[2 * i + 1] or 0:,} as text)"
                    for i, each in enumerate(asked)
                )
            if number:
                yield f"| {table} | {stored + 28:,.0f} | {parts} |"


def _repeated(engine: Engine) -> Iterator[str]:
    """How much of a plan's document is the same in the next of the deployment, part by part."""
    with engine.connect() as connection:
        asked = "SELECT document FROM plan WHERE document IS NOT NULL AND revision IS NOT NULL ORDER BY revision"
        plans = [json.loads(document) for document in connection.scalars(text(asked))]
    whole = sum(len(json.dumps(plan)) for plan in plans[1:])
    sizes: dict[str, int] = {}
    same = 0
    for earlier, later in pairwise(plans):
        for name, part in later.items():
            sizes[name] = sizes.get(name, 0) + len(json.dumps(part))
            same += len(json.dumps(part)) if earlier.get(name) == part else 0
    most = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    told = ", ".join(f"{name} {size / len(plans[1:]) / KB:.1f}" for name, size in most)
    yield ""
    yield (
        f"A document has {whole / len(plans[1:]) / KB:.1f} kB, of which what it says of the market is "
        f"{sizes['market'] / len(plans[1:]) / KB:.1f} kB and {same / whole:.0%} are parts that the plan before has "
        f"to the letter. The largest parts, kB: {told}."
    )


def of_a_migration(engine: Engine, rows: int, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """While the version before answers one request after the other."""
    versions = Versions()
    with the_version_before() as before:
        old = {**environment, "PYTHONPATH": str(before)}
        with serving(folder, old, sutler=SUTLER) as versions.of["old"]:
            until(lambda: versions.of["old"].get("/readyz").ok)
            with versions.asked_all_the_time("old"):
                time.sleep(BEFORE_S)
                usual, versions.answers, versions.slowest_s = versions.slowest_s, 0, 0.0
                began = time.perf_counter()
                upgrade(engine)
                took_s = time.perf_counter() - began
    vacuumed(engine)
    size = "SELECT pg_database_size(current_database()), pg_total_relation_size('plan')"
    with engine.connect() as connection:
        database, plans = connection.execute(text(size)).one()
    yield "| what | measured |"
    yield "|---|---|"
    yield f"| {OLDEST} → {HEAD}, with {rows:,} plans, costs, studies, audit records each | {took_s:.1f} s |"
    told = f"answers of {OLDEST} meanwhile (plans made and read, lists), of which errors; the slowest, and before"
    yield (
        f"| {told} | {versions.answers}, {len(versions.errors)}; {versions.slowest_s * MS:.0f} ms, "
        f"{usual * MS:.0f} ms |"
    )
    yield from (f"| | {error} |" for error in versions.errors[:3])
    told = f"the database, of which plans with one document in {DOCUMENT_EVERY}"
    yield f"| {told} | {database / MB:,.0f}, {plans / MB:,.0f} MB |"


def of_lists(engine: Engine, running: Running) -> Iterator[str]:
    with engine.connect() as connection:
        middle = connection.execute(
            text(
                "SELECT created_at, id FROM plan WHERE created_at < now() - interval "
                "'182 days' ORDER BY created_at DESC LIMIT 1"
            )
        ).one()
    cursor = encode_cursor(middle.created_at.isoformat(), str(middle.id))
    yield "| list | median, ms | slowest, ms |"
    yield "|---|---|---|"
    for path, params in LISTS:
        given = {**params, **({"cursor": cursor} if "cursor" in params else {})}
        took = [_seconds(running, path, given) for _ in range(TIMES if path != "/metrics" else 1)]
        shown = "&".join(f"{name}={value}" for name, value in params.items())
        yield f"| `{path}{'?' if shown else ''}{shown}` | {MS * statistics.median(took):.0f} | {MS * max(took):.0f} |"


def _seconds(running: Running, path: str, params: Mapping[str, Any]) -> float:
    began = time.perf_counter()
    answer = running.get(path, params=params)
    assert answer.ok, answer.text
    return time.perf_counter() - began


def of_deletion(engine: Engine, running: Running) -> Iterator[str]:
    keep = "INSERT INTO retention (project, kind, kept_s) SELECT 'default', unnest(CAST(:kinds AS text[])), :kept_s"
    kinds = ["plans", "jobs", "decisions", "audit"]
    with engine.begin() as connection:
        connection.execute(text(keep), {"kinds": kinds, "kept_s": KEPT_DAYS * 86_400})

    async def delete() -> Mapping[tuple[str, str], int]:
        store = open_async_engine(engine)
        try:
            return await delete_old(store, datetime.now(UTC))
        finally:
            await store.dispose()

    yield "| what | measured |"
    yield "|---|---|"
    for when in ("at first", "once more"):
        began = time.perf_counter()
        gone = asyncio.run(delete())
        took_s = time.perf_counter() - began
        told = ", ".join(f"{number:,} {kind}" for (_, kind), number in sorted(gone.items())) or "nothing"
        rate = f", {sum(gone.values()) / took_s:,.0f} rows/s" if gone else ""
        yield f"| what is older than {KEPT_DAYS} days, {when}: {told} | {took_s:.1f} s{rate} |"
    with engine.connect() as connection:
        older = "SELECT id FROM plan WHERE created_at < now() - interval '100 days' ORDER BY created_at DESC LIMIT :n"
        plans = [*connection.scalars(text(older), {"n": TIMES})]
    took = []
    for plan_id in plans:
        began = time.perf_counter()
        assert running.delete(f"/v1/plans/{plan_id}").status_code == 204
        took.append(time.perf_counter() - began)
    yield f"| `DELETE` of a plan: median, slowest | {MS * statistics.median(took):.0f}, {MS * max(took):.0f} ms |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("retention", __doc__)
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="plans, and as much of the rest (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    machine = describe_machine()
    lines = [
        "# A year of plans",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; sutler {machine['sutler']}, "
        f"{machine['date']}. How: benchmarks/retention.py.",
        "",
    ]

    def put(found: Iterator[str]) -> None:
        for line in found:
            tell(line)
            lines.append(line)
        lines.append("")

    templates: dict[str, str] = {}
    with scratch_folder() as folder:
        put(of_a_service(folder, templates))
    with scratch_folder() as folder:
        environment = settings(folder, SUTLER_PROVIDERS="")
        engine = open_engine(StoreSettings(Path(environment["SUTLER_DATA_DIR"])))
        upgrade(engine, OLDEST)
        tell(f"{options.rows:,} plans are made: some minutes")
        fill(engine, options.rows, **templates)
        put(of_a_migration(engine, options.rows, folder, environment))
        with serving(folder, environment, "--role", "api") as running:
            until(lambda: answers(running))
            put(of_lists(engine, running))
            put(of_deletion(engine, running))
        engine.dispose()
        embedded.stop(Path(environment["SUTLER_DATA_DIR"]))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "retention.md").write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
