"""Real PostgreSQL servers for tests: private ones, as the service starts them, that may also be mistreated."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Engine, make_url

from sutler.service.db import embedded
from sutler.service.db.engine import open_engine
from sutler.service.db.store import open_store
from sutler.service.settings import StoreSettings

PATIENCE_S: Final = 60.0
# Durability costs time and means nothing to a server that lives as long as a test run.
QUICK: Final = ("fsync = off", "synchronous_commit = off", "full_page_writes = off", "autovacuum = off")


@dataclass(frozen=True)
class Server:
    """A private server in a folder of its own."""

    data_dir: Path

    @property
    def folder(self) -> Path:
        return self.data_dir / embedded.FOLDER

    @property
    def postmaster(self) -> int:
        return int((self.folder / "postmaster.pid").read_text().split()[0])

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str | None = None) -> str:
        """As an operator writes it in SUTLER_DATABASE_URL, with sutler's driver. Starts the server if need be."""
        url = make_url(embedded.start(self.data_dir)).set(database=database, username=user, password=password)
        return url.render_as_string(hide_password=False)

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Each statement in a transaction of its own."""
        with psycopg.connect(self.url(database).replace("+psycopg", ""), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create(self, database: str) -> None:
        """With all tables and no rows: a copy of one that the migrations made."""
        self.run(f"CREATE DATABASE {database} TEMPLATE {_with_tables(self)}")

    def kill(self) -> None:
        """What the kernel does to a server when memory runs out."""
        os.kill(self.postmaster, signal.SIGKILL)

    def stop_at_once(self) -> None:
        """Without a checkpoint, sessions cut off; the next start has to recover."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        """Again, once what a kill has left has gone; returns when it answers."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.run("SELECT 1")
            except Exception:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)
            else:
                return

    def _control(self, *arguments: str) -> None:
        program = embedded._pgserver().get_server(self.folder).bin_path / "pg_ctl"
        owner = self.folder.stat().st_uid
        as_owner = {} if owner == os.getuid() else {"user": owner, "group": self.folder.stat().st_gid}
        subprocess.run(
            [str(program), "-w", "-D", str(self.folder), *arguments],
            check=True, capture_output=True, timeout=PATIENCE_S, **as_owner,  # type: ignore[call-overload]
        )  # fmt: skip


@cache
def _with_tables(server: Server) -> str:
    """A database that nobody is connected to, else it could not be copied."""
    server.run("CREATE DATABASE with_tables")
    open_store(StoreSettings(data_dir=server.data_dir, database_url=server.url("with_tables"))).dispose()
    return "with_tables"


@contextmanager
def a_folder() -> Iterator[Path]:
    """A folder that a server's own user can reach, gone with all its servers' data at the end.

    pytest's folders are closed to others whenever a session of the same user begins, and kept for three sessions.
    """
    folder = Path(tempfile.mkdtemp(prefix="sutler-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def a_server(*, is_quick: bool = True) -> Iterator[Server]:
    """Started, and stopped at the end. `is_quick`: may lose data in a crash."""
    with a_folder() as folder:
        server = Server(folder)
        if is_quick:
            server.run(*(f"ALTER SYSTEM SET {setting}" for setting in QUICK), "SELECT pg_reload_conf()")
        try:
            yield server
        finally:
            server.start()
            embedded.stop(folder)


@contextmanager
def opened(settings: StoreSettings) -> Iterator[Engine]:
    """A store as it is, without any upgrade."""
    engine = open_engine(settings)
    try:
        yield engine
    finally:
        engine.dispose()
