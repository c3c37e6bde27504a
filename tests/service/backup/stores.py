"""Stores with something of every kind in them, and what is in a store."""

from typing import Any, Final

from sqlalchemy import Engine, text

from sutler.service.backup import tables
from sutler.service.db.engine import connected, transaction

SECRET: Final = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY="
AWKWARD: Final = "tab\tline\nfeed\\back \\. \\N 'quoted' \"twice\" ümläut 🚚 \x01"
_ROWS: Final = (
    "INSERT INTO project (name, most_stored_plans) VALUES ('ours', 7)",
    "INSERT INTO api_key (id, name, scope, secret_sha256, project) VALUES ('k1', :awkward, 'admin', :bytes, 'ours')",
    "INSERT INTO web_session (token_sha256, key_id, ends_at) VALUES (:bytes, 'k1', 'infinity')",
    "INSERT INTO provider (name) VALUES ('acme')",
    "INSERT INTO deployment (id, name, problem, policy, project) VALUES (gen_random_uuid(), 'chat', "
    """CAST('{"z":  1, "a": [1e400, null]}' AS json), '{}', 'ours')""",
    "INSERT INTO watch (deployment_id, holdings) SELECT id, CAST('[{\"a\": 0.1}]' AS jsonb) FROM deployment",
    "INSERT INTO observation (deployment_id, model, started_at, ended_at, digest, requests, buckets) "
    "SELECT id, 'm', '2026-11-28 12:00:00.000001+05:30', 'infinity', :bytes, 0.1 + 0.2, '[]' FROM deployment",
    "INSERT INTO offline_plan (id, objective, created_by, first_id, revision, name, application) "
    "SELECT i, 'o', 'me', i, 1, 'a', '{}' FROM (SELECT gen_random_uuid() AS i) n",
    "INSERT INTO webhook (id, url, events, secret, created_by) "
    "VALUES (gen_random_uuid(), 'https://a.example/', ARRAY['plan.issued', :awkward], :secret, 'me')",
    "INSERT INTO delivery (id, webhook_id, event, body) "
    "SELECT gen_random_uuid(), id, 'plan.issued', :awkward FROM webhook",
    "INSERT INTO audit (actor, action, target) SELECT 'me', 'test', i::text FROM generate_series(1, 500) i",
    "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES ('deliveries', 'deliver_webhook', '{}')",
)


def nobody(_: str) -> None:
    """Is told of progress."""


def fill(engine: Engine) -> None:
    """One of every kind of value, and characters that a format may trip over."""
    values = {"awkward": AWKWARD, "bytes": bytes(range(256)), "secret": SECRET}
    with transaction(engine) as connection:
        for row in _ROWS:
            statement = text(row)
            connection.execute(statement, {name: values[name] for name in statement._bindparams})


def held(engine: Engine) -> dict[str, Any]:
    """All rows by table, and what each sequence gives next."""
    with connected(engine) as connection:
        there = tables.found(connection)
        rows = {
            table.path: [*connection.scalars(text(f"SELECT t::text FROM {table.path} t ORDER BY 1"))]
            for table in there
        }
        return {**rows, "sequences": tables.sequences(connection, there)}
