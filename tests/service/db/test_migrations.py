"""The tables come from the migrations: from nothing, back and forth, by several at once, and as the models say."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from sutler.service.db.errors import SchemaError
from sutler.service.db.queue_schema import NEWEST_SCRIPT, is_ours
from sutler.service.db.store import HEAD, open_store, schema_version
from sutler.service.db.tables import Base
from sutler.service.db.upgrade import OLDEST, config, downgrade, upgrade
from sutler.service.settings import StoreSettings
from tests.postgres import a_server, opened

INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
COLUMNS = """SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity
             FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'
             ORDER BY 1, 2"""
CONSTRAINTS = """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
                 WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
                 ORDER BY 1, 2"""
STORED = "SELECT {}, CAST(problem AS text) FROM {}"
COMPARED = {"compare_type": True, "compare_server_default": True, "include_name": is_ours}
PATIENCE_S = 90.0


def found(engine: Engine, question: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(question))]


def tables(engine: Engine) -> set[object]:
    return {name for (name,) in found(engine, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def set_version(engine: Engine, version: str, *, oldest: str = "9999") -> None:
    """`oldest`: the version whose sutler the tables say that they work with too."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
        connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{oldest}'"))


def test_the_version_in_the_code_is_that_of_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(config()).get_heads() == [HEAD]


def test_the_migrations_make_every_table_of_the_models_from_nothing(new_database: StoreSettings) -> None:
    with opened(new_database) as engine:
        assert schema_version(engine) is None
        upgrade(engine)
        assert schema_version(engine) == HEAD
        assert tables(engine) == {*Base.metadata.tables, "alembic_version"}


def test_down_to_nothing_and_up_again_makes_the_same_tables(new_database: StoreSettings) -> None:
    questions = (COLUMNS, INDEXES, CONSTRAINTS)
    with opened(new_database) as engine:
        upgrade(engine)
        first = [found(engine, question) for question in questions]
        downgrade(engine, "base")
        assert tables(engine) == {"alembic_version"}
        assert schema_version(engine) is None
        upgrade(engine)
        assert [found(engine, question) for question in questions] == first


def test_the_queue_has_no_script_that_the_migrations_do_not_know() -> None:
    scripts = resources.files("procrastinate") / "sql" / "migrations"
    newest = max(script.name for script in scripts.iterdir() if script.name.endswith(".sql"))
    assert newest == NEWEST_SCRIPT, "write a migration that applies the newer scripts to databases made before"


def test_alembic_finds_no_difference_between_models_and_migrations(engine: Engine) -> None:
    assert differences(engine) == []


def test_models_and_migrations_agree_to_the_letter(engine: Engine, new_database: StoreSettings) -> None:
    """On what Alembic does not compare too: conditions and methods of indexes, identities, defaults."""
    with opened(new_database) as from_models:
        Base.metadata.create_all(from_models)
        assert found(from_models, COLUMNS) == found(engine, COLUMNS)
        assert found(from_models, CONSTRAINTS) == found(engine, CONSTRAINTS)
        ours = [row for row in found(engine, INDEXES) if row[0] != "alembic_version_pkc"]
        assert found(from_models, INDEXES) == ours
    assert any("USING gist (valid)" in str(definition) for _, definition in ours)
    conditions = {name for name, definition in ours if " WHERE " in str(definition)}
    assert {"uq_offer_open", "uq_rejected_row_open"} <= conditions


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(engine: Engine) -> None:
    before = found(engine, "SELECT max(xmin::text::bigint) FROM pg_class")
    upgrade(engine)
    assert found(engine, "SELECT max(xmin::text::bigint) FROM pg_class") == before


def test_what_stands_keeps_the_contracts_of_before_and_the_order_of_its_keys(new_database: StoreSettings) -> None:
    """Written by a version whose default was on_demand alone and which judged no fitness; plans that are made already
    are left as they are."""
    unsaid = {"objective": {"kind": "min_cost"}, "market": {"live": True}, "models": [], "catalog": "default"}
    said: dict[str, Any] = {"market": {"filter": {"contracts": []}}}
    kept = {**unsaid, "market": {"live": True, "filter": {"contracts": ["on_demand"], "fit": "off"}}}
    with opened(new_database) as engine:
        upgrade(engine)
        downgrade(engine, "0005")
        with engine.begin() as connection:
            for name, problem in (("unsaid", unsaid), ("said", said), ("empty", {})):
                values = {"id": uuid4(), "name": name, "problem": json.dumps(problem)}
                connection.execute(
                    text("INSERT INTO deployment (id, name, problem, policy) VALUES (:id, :name, :problem, '{}')"),
                    values,
                )
            for status in ("queued", "optimal"):
                values = {"id": uuid4(), "status": status, "problem": json.dumps(unsaid)}
                connection.execute(
                    text(
                        "INSERT INTO plan (id, status, problem, objective, created_by) "
                        "VALUES (:id, :status, :problem, 'min_cost', 'me')"
                    ),
                    values,
                )
        upgrade(engine)
        stored = {str(name): str(problem) for name, problem in found(engine, STORED.format("name", "deployment"))}
        assert json.dumps(kept) == stored["unsaid"]
        assert json.loads(stored["said"]) == {"market": {"filter": {"contracts": [], "fit": "off"}}}
        assert json.loads(stored["empty"]) == {"market": {"filter": {"contracts": ["on_demand"], "fit": "off"}}}
        plans = {str(status): str(problem) for status, problem in found(engine, STORED.format("status", "plan"))}
        assert (plans["queued"], plans["optimal"]) == (json.dumps(kept), json.dumps(unsaid))
        downgrade(engine, "0007")
        before = {str(name): str(problem) for name, problem in found(engine, STORED.format("name", "deployment"))}
        assert json.loads(before["said"]) == said


def test_offers_of_a_filled_store_live_through_both_directions(new_database: StoreSettings) -> None:
    """A storage price that is unknown now counted as 0 before; what only the newer version states is lost with it."""
    columns = "disk_usd_per_gb_month, ram_gb, host_id"
    prices = "SELECT offer_id, disk_usd_per_gb_month FROM offer ORDER BY offer_id"
    with opened(new_database) as engine:
        upgrade(engine)
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO provider (name) VALUES ('acme')"))
            for name, values in (("unknown", "NULL, 64, 'h9'"), ("stated", "0.12, NULL, NULL")):
                connection.execute(
                    text(f"""
                    INSERT INTO offer (provider_id, valid, state, offer_id, contract, feed, gpu, gpus, available,
                                       availability_basis, price_usd_per_hour, divisible, disk_included_gb, {columns})
                    SELECT id, tstzrange(now(), NULL), '', '{name}', 'on_demand', '', 't4', 1, 1, 'count', 1,
                           false, 0, {values} FROM provider""")
                )
        downgrade(engine, "0007")
        assert found(engine, prices) == [("stated", 0.12), ("unknown", 0.0)]
        upgrade(engine)
        assert found(engine, f"SELECT {columns} FROM offer ORDER BY offer_id") == [
            (0.12, None, None),
            (0.0, None, None),
        ]


def test_what_is_held_is_held_since_its_report_and_may_be_lost(new_database: StoreSettings) -> None:
    kind = {"provider": "acme", "offer_id": "1", "gpu": "t4", "gpus": 1, "contract": "on_demand"}
    reported = [{**kind, "count": 2, "price_usd_per_hour": 1.0}, {**kind, "count": 1, "price_usd_per_hour": 2.0}]
    with opened(new_database) as engine:
        upgrade(engine)
        downgrade(engine, "0009")
        with engine.begin() as connection:
            for name, holdings, at in (("told", json.dumps(reported), "2026-11-25T12:00:00Z"), ("never", None, None)):
                values = {"id": uuid4(), "name": name, "holdings": holdings, "at": at}
                connection.execute(
                    text("""
                    INSERT INTO deployment (id, name, problem, policy, version, revision)
                    VALUES (:id, :name, '{}', '{}', 1, 0)"""),
                    values,
                )
                connection.execute(
                    text("""
                    INSERT INTO watch (deployment_id, holdings, holdings_at)
                    VALUES (:id, CAST(:holdings AS jsonb), CAST(:at AS timestamptz))"""),
                    values,
                )
        upgrade(engine)
        lives = "SELECT provider, offer_id, contract, gpu, gpus, count, began_at, ended_at FROM rental_life"
        since = datetime(2026, 11, 25, 12, tzinfo=UTC)
        assert found(engine, lives) == [("acme", "1", "on_demand", "t4", 1, 3, since, None)]


def test_what_stands_orders_for_the_traffic_that_is_there_as_before(new_database: StoreSettings) -> None:
    policies = "SELECT CAST(policy AS text) FROM deployment"
    before, new = (
        '{"window_s": 60, "automatic": false}',
        '{"avoid_lost_s": 0, "calendar": [], "automatic": false, "lead_quantile": 0.9, "sleep": {}, "season": false, '
        '"most_stopped_fraction": 0.2, "most_started_machines": 1, "most_started_usd_per_hour": 1.0, "priority": 1}',
    )
    with opened(new_database) as engine:
        upgrade(engine)
        downgrade(engine, "0009")
        with engine.begin() as connection:
            connection.execute(
                text("INSERT INTO deployment (id, name, problem, policy) VALUES (:id, 'old', '{}', :policy)"),
                {"id": uuid4(), "policy": before},
            )
        upgrade(engine)
        assert found(engine, policies) == [('{"window_s": 60, "automatic": false, "lead_quantile": null}',)]
        with engine.begin() as connection:
            connection.execute(text("UPDATE deployment SET policy = :policy"), {"policy": new})
        downgrade(engine, "0009")
        assert found(engine, policies) == [('{"automatic": false}',)]


def test_what_deployments_cost_is_put_together_from_plans_and_reports(new_database: StoreSettings) -> None:
    """chat was deleted at 2 and made again at 4; of two statements at once, that of the smaller id came first."""
    stands, given_up = uuid4(), uuid4()
    plans = [
        (None, "chat", 1, 0, "optimal", 4.0),
        (None, "chat", 2, 1, "infeasible", 0.0),
        (None, "chat", 3, 1.5, "feasible", 5.0),
        (None, "chat", 4, 9, "optimal", 7.0),  # stored when the second had gone too, by a clock that is late
        (stands, "docs", 1, 4, "optimal", 8.0),
        (stands, "docs", 2, 5, "feasible", 9.0),
        (given_up, "idle", 1, 4, "optimal", 3.0),
        (given_up, "idle", 2, 6, "infeasible", 0.0),
    ]
    told = [
        ("holdings", "chat", 0.5, 5.0),
        ("delete", "chat", 2, None),
        ("ack", "docs", 4.5, 8.5),
        ("replan", "docs", 4.75, None),
        ("holdings", "docs", 5, 9.5),
        ("holdings", "late", 2, 1.0),
        ("delete", "late", 1.999, None),
    ]
    with opened(new_database) as engine:
        upgrade(engine)
        downgrade(engine, "0013")
        with engine.begin() as connection:
            for id_, name in ((stands, "docs"), (given_up, "idle")):
                connection.execute(
                    text("INSERT INTO deployment (id, name, problem, policy) VALUES (:id, :name, '{}', '{}')"),
                    {"id": id_, "name": name},
                )
            for of, name, revision, hour, status, usd in plans:
                values = {"id": uuid4(), "of": of, "name": name, "revision": revision, "at": noon(hour)}
                connection.execute(
                    text("""
                    INSERT INTO plan (id, deployment_id, deployment_name, revision, finished_at, status,
                                      cost_usd_per_hour, problem, objective, created_by)
                    VALUES (:id, :of, :name, :revision, :at, :status, :usd, '{}', 'min_cost', 'me')"""),
                    {**values, "status": status, "usd": usd},
                )
            last = "SELECT id FROM plan WHERE deployment_id = d.id ORDER BY revision DESC LIMIT 1"
            connection.execute(text(f"UPDATE deployment d SET plan_id = ({last})"))
            for action, name, hour, rented in told:
                values = {"at": noon(hour), "action": f"deployment.{action}", "target": f"deployment/{name}"}
                connection.execute(
                    text("""
                    INSERT INTO audit (at, actor, action, target, detail)
                    VALUES (:at, 'me', :action, :target, CAST(:detail AS jsonb))"""),
                    {**values, "detail": json.dumps({} if rented is None else {"usd_per_hour": rented})},
                )
        upgrade(engine)
        columns = "deployment_name, deployment_id, began_at, ended_at, usd_per_hour"
        of_plans = found(engine, f"SELECT {columns} FROM cost WHERE plan_id IS NOT NULL ORDER BY began_at, 1")
        assert of_plans == [
            ("chat", None, noon(0), noon(1.5), 4.0),
            ("chat", None, noon(1.5), noon(2), 5.0),
            ("docs", stands, noon(4), noon(5), 8.0),
            ("idle", given_up, noon(4), noon(6), 3.0),
            ("docs", stands, noon(5), None, 9.0),
        ]
        assert found(engine, f"SELECT {columns} FROM cost WHERE plan_id IS NULL ORDER BY began_at") == [
            ("chat", None, noon(0.5), noon(2), 5.0),
            ("docs", None, noon(4.5), noon(5), 8.5),
            ("docs", stands, noon(5), None, 9.5),
        ]


def noon(hour: float) -> datetime:
    """So many hours after it."""
    return datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(hours=hour)


# As the version before writes them: no column is named that it does not know.
WRITTEN_BEFORE = (
    "INSERT INTO api_key (id, name, scope, secret_sha256) VALUES ('{id}', 'ci', 'plan', 'x')",
    "INSERT INTO audit (actor, action, target) VALUES ('cli', 'key.create', 'key/{id}')",
    "INSERT INTO deployment (id, name, problem, policy) VALUES ('{uuid}', '{id}', '{{}}', '{{}}')",
    "INSERT INTO plan (id, objective, created_by, problem, deployment_id) "
    "VALUES ('{uuid}', 'min_cost', 'local', '{{}}', '{uuid}')",
    "INSERT INTO cost (deployment_id, deployment_name, began_at, usd_per_hour) VALUES ('{uuid}', '{id}', now(), 1)",
    "INSERT INTO webhook (id, url, events, secret, created_by) VALUES ('{uuid}', 'https://x', '{{}}', 'x', 'local')",
    "INSERT INTO calibration (name, revision, document) VALUES ('{id}', 1, '{{}}')",
    "INSERT INTO study (id, objective, created_by, kind, asked, digest) "
    "VALUES ('{uuid}', 'min_cost', 'local', 'what-if', '{{}}', 'x')",
    "INSERT INTO offline_plan (id, first_id, objective, created_by, revision, name, application) "
    "VALUES ('{uuid}', '{uuid}', 'min_makespan', 'local', 1, '{id}', '{{}}')",
    "INSERT INTO profile_layer (digest, imported_from, gpu, model, precision, row) "
    "VALUES ('{id}', 'f', 'g', 'm', 'bf16', '{{}}')",
)


def test_what_there_is_belongs_to_default_and_so_does_what_the_version_before_still_writes(
    new_database: StoreSettings,
) -> None:
    def write(engine: Engine, name: str) -> None:
        uuid = uuid4()
        with engine.begin() as connection:
            for statement in WRITTEN_BEFORE:
                connection.execute(text(statement.format(id=name, uuid=uuid)))

    with opened(new_database) as engine:
        upgrade(engine, "0016")
        write(engine, "before")
        upgrade(engine, "0017")
        write(engine, "after")
        for statement in WRITTEN_BEFORE:
            table = statement.split()[2]
            assert found(engine, f"SELECT project, count(*) FROM {table} GROUP BY 1") == [("default", 2)], table
        downgrade(engine, "0016")
        assert found(engine, "SELECT name FROM deployment ORDER BY 1") == [("after",), ("before",)]


def test_several_upgrades_at_once_all_succeed(new_database: StoreSettings) -> None:
    start = threading.Barrier(3, timeout=PATIENCE_S)

    def run() -> str | None:
        start.wait()
        with closing_engine(new_database) as engine:
            return schema_version(engine)

    with ThreadPoolExecutor(3) as pool:
        assert [done.result(PATIENCE_S) for done in [pool.submit(run) for _ in range(3)]] == [HEAD] * 3


@contextmanager
def closing_engine(settings: StoreSettings) -> Iterator[Engine]:
    """As commands open it: made ready."""
    engine = open_store(settings)
    try:
        yield engine
    finally:
        engine.dispose()


def test_an_empty_server_is_made_ready(new_database: StoreSettings) -> None:
    with closing_engine(new_database) as engine:
        assert schema_version(engine) == HEAD


def test_an_older_server_of_the_operator_is_left_alone_and_the_remedy_named(new_database: StoreSettings) -> None:
    open_store(new_database).dispose()
    with opened(new_database) as engine:
        set_version(engine, "0000")
        with pytest.raises(SchemaError, match=r"version 0000, sutler at .*: run `sutler db upgrade`"):
            open_store(new_database)
        assert schema_version(engine) == "0000"


def test_a_newer_database_is_refused_with_the_remedy(new_database: StoreSettings) -> None:
    open_store(new_database).dispose()
    with opened(new_database) as engine:
        set_version(engine, "9999")
        with pytest.raises(SchemaError, match="9999"):
            open_store(new_database)
        with pytest.raises(SchemaError, match="may be older than the database"):
            upgrade(engine)
        assert schema_version(engine) == "9999"


def test_tables_of_the_version_after_are_worked_with_where_they_say_so(new_database: StoreSettings) -> None:
    """Who is about to be replaced, and dies meanwhile, is started again."""
    open_store(new_database).dispose()
    with opened(new_database) as engine:
        set_version(engine, "9999", oldest=HEAD)
        open_store(new_database).dispose()
        assert schema_version(engine) == "9999"


def test_an_upgrade_says_which_version_goes_on_to_work(new_database: StoreSettings) -> None:
    with opened(new_database) as engine:
        upgrade(engine)
        assert found(engine, "SELECT obj_description('alembic_version'::regclass)") == [(OLDEST,)]
        assert int(OLDEST) < int(HEAD)


def test_an_upgrade_ends_no_transaction_that_is_at_work(new_database: StoreSettings) -> None:
    """One that has a table and wants another, which an upgrade that takes them one by one has meanwhile."""
    with opened(new_database) as engine:
        upgrade(engine, "0016")
        with ThreadPoolExecutor(1) as pool, engine.connect() as busy:
            busy.execute(text("LOCK TABLE plan IN ROW EXCLUSIVE MODE"))
            upgrading = pool.submit(upgrade, engine)
            until_waiting(engine)
            busy.execute(text("INSERT INTO audit (actor, action, target) VALUES ('me', 'a', 't')"))
            busy.commit()
            upgrading.result(PATIENCE_S)
        assert found(engine, "SELECT project FROM audit") == [("default",)]


def test_an_upgrade_that_waits_for_long_says_for_whom(
    new_database: StoreSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sutler.service.db.upgrade.LONG_TURNS", 1)
    with opened(new_database) as engine:
        upgrade(engine, "0016")
        with ThreadPoolExecutor(1) as pool, engine.connect() as busy:
            busy.execute(text("SET application_name = 'a long dump'"))
            busy.execute(text("SELECT FROM plan"))
            upgrading = pool.submit(upgrade, engine)
            give_up_at = time.monotonic() + PATIENCE_S
            while "the upgrade waits for tables that others use: a long dump (process" not in caplog.text:
                assert time.monotonic() < give_up_at
                time.sleep(0.05)
            busy.rollback()
            upgrading.result(PATIENCE_S)
        assert schema_version(engine) == HEAD


def test_indexes_are_built_while_others_read_and_write_what_they_are_of(
    new_database: StoreSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's long report keeps the building from its end, and nobody from anything."""
    with opened(new_database) as engine:
        upgrade(engine, "0016")
        told: list[str] = []
        with ThreadPoolExecutor(2) as pool, engine.connect() as reporting:
            reporting.execution_options(isolation_level="REPEATABLE READ").execute(text("SELECT 1"))
            upgrading = pool.submit(upgrade, engine, tell=told.append)
            until_waiting(engine)
            assert told[0].startswith("building ix_")
            second = pool.submit(upgrade, engine)
            with engine.begin() as other:
                other.execute(text("SET LOCAL lock_timeout = '2s'"))
                late = {"id": "late", "uuid": uuid4()}
                for statement in WRITTEN_BEFORE:
                    other.execute(text(statement.format(**late)))
            with closing_engine(new_database) as opening:
                assert schema_version(opening) == HEAD
            assert "are not built yet: everything works" in caplog.text
            assert not upgrading.done()
            assert not second.done()
            reporting.rollback()
            upgrading.result(PATIENCE_S)
            second.result(PATIENCE_S)
        assert differences(engine) == []
        caplog.clear()
        with closing_engine(new_database):
            assert "not built" not in caplog.text


def test_an_upgrade_that_was_broken_off_is_ended_by_the_next(new_database: StoreSettings) -> None:
    """As a killed process leaves it: an index that is not there, and one that nobody uses and nobody trusts."""
    with opened(new_database) as engine:
        upgrade(engine)
        whole = [found(engine, question) for question in (INDEXES, CONSTRAINTS)]
        with engine.begin() as connection:
            connection.execute(text("DROP INDEX ix_audit_project"))
            half = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_plan_project_created_at'::regclass"
            connection.execute(text(half))
            connection.execute(text("CREATE INDEX ix_cost_deployment_name ON cost (deployment_name)"))
            connection.execute(text("ALTER TABLE plan DROP CONSTRAINT fk_plan_project_project"))
            key = "FOREIGN KEY (project) REFERENCES project (name) NOT VALID"
            connection.execute(text(f"ALTER TABLE plan ADD CONSTRAINT fk_plan_project_project {key}"))
        upgrade(engine)
        assert [found(engine, question) for question in (INDEXES, CONSTRAINTS)] == whole
        assert found(engine, "SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


def differences(engine: Engine) -> Any:
    """Of the tables from the models."""
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts=COMPARED), Base.metadata)


def until_waiting(engine: Engine) -> None:
    """Until somebody waits for a table, or for a transaction."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not found(engine, "SELECT 1 FROM pg_locks WHERE NOT granted"):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.slow
def test_the_private_database_is_brought_up_without_asking() -> None:
    with a_server() as server:
        settings = StoreSettings(data_dir=server.data_dir)
        with closing_engine(settings) as engine:
            downgrade(engine, "base")
        with closing_engine(settings) as engine:
            assert schema_version(engine) == HEAD
            set_version(engine, "9999")
        with pytest.raises(SchemaError, match="may be older than the database"):
            open_store(settings)


def test_a_migration_that_fails_leaves_nothing_behind(new_database: StoreSettings) -> None:
    with opened(new_database) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE rejected_row (mine int)"))
        with pytest.raises(Exception, match="rejected_row"):
            upgrade(engine)
        assert tables(engine) == {"rejected_row"}
        assert schema_version(engine) is None
