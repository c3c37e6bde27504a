"""The tables of profiles and calibrations. What is imported twice is kept once; calibrations are only added."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert

from sutler.service.db.profile_tables import CalibrationRow, ProfileLayerRow, ProfileRunRow
from sutler.service.db.projects import project_of
from sutler.service.profiles.layer_rows import LayerRow, digest_of, row_fields
from sutler.service.profiles.runs import ProfileKey, ProfileRun
from sutler.service.settings import DEFAULT_PROJECT

KEY: Final = tuple(field.name for field in fields(ProfileKey))
NUMBERS: Final = tuple(field.name for field in fields(ProfileRun) if field.name != "key")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are meant; None: any."""

    gpu: str | None = None
    model: str | None = None
    precision: str | None = None
    engine: str | None = None
    engine_version: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs of one key in short; degrees and concurrency from the least to the most."""

    key: ProfileKey
    runs: int
    tensor_parallel: tuple[int, ...]
    least_concurrency: float
    most_concurrency: float
    newest_at: datetime
    imported_from: tuple[str, ...]


def add_runs(connection: Connection, runs: Sequence[ProfileRun], imported_from: str) -> int:
    """Stores the runs. Returns how many of them are new."""
    rows = [
        {**asdict(run.key), **{name: getattr(run, name) for name in NUMBERS}, "digest": run.digest} for run in runs
    ]
    return _added(connection, ProfileRunRow, rows, imported_from)


def add_layers(connection: Connection, layers: Sequence[LayerRow], imported_from: str) -> int:
    """Stores the layer times. Returns how many of them are new."""
    rows = [
        {
            **{name: getattr(layer, name) for name in ("gpu", "model", "precision")},
            "digest": digest_of(layer),
            "row": row_fields(layer),
        }
        for layer in layers
    ]
    return _added(connection, ProfileLayerRow, rows, imported_from)


def _added(
    connection: Connection,
    table: type[ProfileRunRow] | type[ProfileLayerRow],
    rows: Iterable[dict[str, Any]],
    imported_from: str,
) -> int:
    project = project_of(connection)
    values = [{**row, "imported_from": imported_from, "digest": _digest_in(project, row["digest"])} for row in rows]
    if not values:
        return 0
    statement = upsert(table).on_conflict_do_nothing().returning(table.id)
    return len(connection.execute(statement, values).all())


def _digest_in(project: str, digest: bytes) -> bytes:
    """What two projects measure alike is not the same. In the first it is as it was before there were projects."""
    return digest if project == DEFAULT_PROJECT else hashlib.sha256(f"{project} ".encode() + digest).digest()


def profiles(connection: Connection, wanted: RunFilter) -> list[Profile]:
    """What is stored, in the order of the keys."""
    columns = [getattr(ProfileRunRow, name) for name in KEY]
    found = connection.execute(
        select(
            *columns,
            func.count(),
            func.array_agg(ProfileRunRow.tensor_parallel.distinct()),
            func.min(ProfileRunRow.concurrency),
            func.max(ProfileRunRow.concurrency),
            func.max(ProfileRunRow.imported_at),
            func.array_agg(ProfileRunRow.imported_from.distinct()),
        )
        .where(*_conditions(ProfileRunRow, wanted))
        .group_by(*columns)
        .order_by(*columns)
    )
    return [_profile(row) for row in found]


def runs_of(connection: Connection, wanted: RunFilter) -> list[ProfileRun]:
    """The runs themselves, in the order of configuration, lengths and concurrency."""
    order = (*KEY, "tensor_parallel", "pipeline_parallel", "input_tokens", "output_tokens", "concurrency", "id")
    statement = select(*ProfileRunRow.__table__.columns).where(*_conditions(ProfileRunRow, wanted))
    rows = connection.execute(statement.order_by(*(getattr(ProfileRunRow, name) for name in order)))
    return [_run(row) for row in rows]


def layers_of(connection: Connection, wanted: RunFilter) -> list[dict[str, Any]]:
    """The rows by column, as `sutler profile` wrote them. Engines have no say in them."""
    conditions = _conditions(ProfileLayerRow, RunFilter(wanted.gpu, wanted.model, wanted.precision))
    return list(connection.scalars(select(ProfileLayerRow.row).where(*conditions).order_by(ProfileLayerRow.id)))


def delete_profile(connection: Connection, key: ProfileKey) -> int:
    """Deletes the runs of a profile. Returns how many are gone."""
    conditions = [getattr(ProfileRunRow, name) == getattr(key, name) for name in KEY]
    return connection.execute(delete(ProfileRunRow).where(*conditions)).rowcount


def add_calibration(connection: Connection, name: str, document: dict[str, Any]) -> int:
    """Stores a calibration. Returns its revision, which the document gets too.

    Writers of one name wait for each other.
    """
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"calibration/{name}"))))
    newest = connection.scalar(select(func.max(CalibrationRow.revision)).where(CalibrationRow.name == name)) or 0
    values = {"name": name, "revision": newest + 1, "document": {**document, "revision": newest + 1}}
    connection.execute(insert(CalibrationRow).values(values))
    return int(newest + 1)


def newest_calibration(name: str) -> Select[tuple[dict[str, Any]]]:
    """Asks for the newest revision of a name; for either kind of connection."""
    rows = select(CalibrationRow.document).where(CalibrationRow.name == name)
    return rows.order_by(CalibrationRow.revision.desc()).limit(1)


def calibrations() -> Select[tuple[dict[str, Any]]]:
    """Asks for the newest revision of every name, by name."""
    return (
        select(CalibrationRow.document)
        .ext(distinct_on(CalibrationRow.name))
        .order_by(CalibrationRow.name, CalibrationRow.revision.desc())
    )


def _conditions(table: type[ProfileRunRow] | type[ProfileLayerRow], wanted: RunFilter) -> list[ColumnElement[bool]]:
    return [
        getattr(table, name) == value for name in RunFilter.__slots__ if (value := getattr(wanted, name)) is not None
    ]


def _profile(row: Sequence[Any]) -> Profile:
    runs, degrees, least, most, newest, files = row[len(KEY) :]
    key = ProfileKey(*row[: len(KEY)])
    return Profile(key, runs, tuple(sorted(degrees)), least, most, newest, tuple(sorted(files)))


def _run(row: Row[Any]) -> ProfileRun:
    key = ProfileKey(*(getattr(row, name) for name in KEY))
    return ProfileRun(key, **{name: getattr(row, name) for name in NUMBERS})
