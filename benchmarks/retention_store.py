"""A store of the version before with a year of plans in it, made with INSERT ... SELECT generate_series.

A thousand deployments replan a thousand times each; what comes with that (costs, decisions, audit records) is there
too. Documents are those of a real plan in one row of DOCUMENT_EVERY: lists never read them, and all of them would be
ten times the disk.
"""

from typing import Any, Final

from sqlalchemy import Engine, text

DEPLOYMENTS: Final = 1_000
DOCUMENT_EVERY: Final = 50
_AGE: Final = "now() - (:rows - n) * interval '365 days' / :rows"
# Of each deployment some fail, whatever its number.
_STATUS: Final = """
    CASE (n + n / :deployments) % 25 WHEN 7 THEN 'failed' WHEN 8 THEN 'cancelled' WHEN 9 THEN 'infeasible'
    ELSE 'optimal' END
"""
_MADE: Final = (
    """INSERT INTO deployment (id, name, problem, policy, created_at)
       SELECT gen_random_uuid(), 'chat-' || n, CAST(:problem AS json), '{}', now() - interval '366 days'
       FROM generate_series(0, :deployments - 1) n""",
    f"""INSERT INTO plan (id, status, objective, document, relative_gap, attempt, created_by, created_at, started_at,
                          finished_at, solve_seconds, deployment_id, deployment_name, revision, problem, value,
                          cost_usd_per_hour, reason, failure)
        SELECT gen_random_uuid(), made.status, 'min_cost',
               CASE WHEN made.status <> 'optimal' THEN NULL
                    WHEN n % :document_every = 0 THEN :document ELSE '{{}}' END,
               0.0005, 1, 'key/a', made.at, made.at, made.at, 0.4, d.id, d.name,
               CASE WHEN made.status IN ('optimal', 'infeasible') THEN n / :deployments + 1 END,
               CAST(:problem AS json), 14.96, 14.96, 'the traffic has changed', NULL
        FROM generate_series(1, :rows) n
        CROSS JOIN LATERAL (SELECT {_STATUS} AS status, {_AGE} AS at) made
        JOIN deployment d ON d.name = 'chat-' || n % :deployments""",
    """UPDATE deployment d SET plan_id = p.id, revision = p.revision
       FROM (SELECT DISTINCT ON (deployment_id) deployment_id, id, revision FROM plan WHERE status = 'optimal'
             ORDER BY deployment_id, revision DESC) p
       WHERE p.deployment_id = d.id""",
    """INSERT INTO watch (deployment_id, touches, looked, looked_at, look_at)
       SELECT id, 1, 1, now(), now() + interval '1 day' FROM deployment""",
    """INSERT INTO cost (deployment_id, deployment_name, plan_id, began_at, ended_at, usd_per_hour)
       SELECT deployment_id, deployment_name, id, created_at, created_at + interval '6 hours', 14.96
       FROM plan WHERE status = 'optimal'""",
    """INSERT INTO decision (id, deployment_id, at, basis_revision, revision, chosen, reason, drifts, options)
       SELECT gen_random_uuid(), deployment_id, created_at, revision - 1, revision, 'refleet', 'more traffic',
              CAST(:drifts AS jsonb), CAST(:options AS jsonb)
       FROM plan WHERE revision IS NOT NULL""",
    f"""INSERT INTO audit (at, actor, action, target, request_id)
        SELECT {_AGE}, 'key/' || n % 7, CASE WHEN n % 3 = 0 THEN 'deployment.update' ELSE 'plan.create' END,
               CASE WHEN n % 3 = 0 THEN 'deployment/chat-' || n % :deployments ELSE 'plan/' || gen_random_uuid() END,
               gen_random_uuid()::text
        FROM generate_series(1, :rows) n""",
    """INSERT INTO observation (deployment_id, model, source, started_at, ended_at, digest, requests, buckets,
                                received_at)
       SELECT d.id, 'chat', '', at, at + interval '15 seconds', decode(md5(n::text), 'hex'), 90,
              CAST(:buckets AS jsonb), at
       FROM generate_series(1, :rows) n CROSS JOIN LATERAL (SELECT now() - n * interval '8 days' / :rows AS at) told
       JOIN deployment d ON d.name = 'chat-' || n % :deployments""",
    f"""INSERT INTO study (id, status, objective, document, attempt, created_by, created_at, finished_at, kind, asked,
                           digest)
        SELECT gen_random_uuid(), 'done', 'min_cost', '{{}}', 1, 'key/a', {_AGE}, {_AGE},
               CASE WHEN n % 100 = 0 THEN 'simulation' ELSE 'what-if' END,
               json_build_object('plan', json_build_object('id', gen_random_uuid())), decode(md5(n::text), 'hex')
        FROM generate_series(1, :rows) n""",
    f"""INSERT INTO offline_plan (id, status, objective, document, attempt, created_by, created_at, first_id,
                                  revision, name, application)
        SELECT id, 'optimal', 'min_makespan', '{{}}', 1, 'key/a', {_AGE}, id, 1, 'app-' || n % :deployments, '{{}}'
        FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, :rows) n) made""",
    """INSERT INTO webhook (id, url, events, secret, created_by)
       VALUES ('00000000-0000-0000-0000-000000000001', 'https://receiver.example', '{plan.issued}', 'x', 'key/a')""",
    f"""INSERT INTO delivery (id, webhook_id, event, body, status, attempts, created_at, finished_at)
        SELECT gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'plan.issued', '{{}}', 'delivered', 1,
               {_AGE}, now() FROM generate_series(1, :rows) n""",
)


def fill(engine: Engine, rows: int, **documents: str) -> None:
    """So many plans, audit records, observations, studies, offline plans and deliveries; then what PostgreSQL knows
    of a store that was vacuumed lately."""
    values: dict[str, Any] = {
        **{"rows": rows, "deployments": min(DEPLOYMENTS, rows), "document_every": DOCUMENT_EVERY},
        **documents,
    }
    for statement in _MADE:
        with engine.begin() as connection:
            asked = text(statement)
            connection.execute(asked, {name: values[name] for name in asked._bindparams})
    vacuumed(engine)


def vacuumed(engine: Engine) -> None:
    """As autovacuum leaves it."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE)"))
