"""The tables of what users measured: runs of engines, times of single layers, and calibrations fitted to them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from sutler.service.db.api_tables import Owned
from sutler.service.db.tables import NOW, Base


class Imported(Owned):
    """What the tables of measurements have in common; `digest`, of a row and its project, tells rows apart: a file
    can be imported twice."""

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    digest: Mapped[bytes] = mapped_column(unique=True)
    imported_at: Mapped[datetime] = mapped_column(server_default=NOW)
    imported_from: Mapped[str]
    gpu: Mapped[str]
    model: Mapped[str]
    precision: Mapped[str]


class ProfileRunRow(Imported, Base):
    """One benchmark run that passed the checks.

    Runs of the same GPU, model, precisions, engine and version are one profile.
    """

    __tablename__ = "profile_run"

    kv_precision: Mapped[str]
    engine: Mapped[str]
    engine_version: Mapped[str]
    tensor_parallel: Mapped[int]
    pipeline_parallel: Mapped[int]
    input_tokens: Mapped[float]
    output_tokens: Mapped[float]
    concurrency: Mapped[float]
    req_per_s: Mapped[float]
    ttft_s: Mapped[float]
    tpot_s: Mapped[float]
    completed: Mapped[int | None] = mapped_column(BigInteger)
    duration_s: Mapped[float | None]
    measured_at: Mapped[datetime | None]
    request_rate_rps: Mapped[float | None]
    length_spread_fraction: Mapped[float | None]

    __table_args__ = (Index("ix_profile_run_gpu_model", "gpu", "model"),)


class ProfileLayerRow(Imported, Base):
    """The time of one layer, as `sutler profile` measured it."""

    __tablename__ = "profile_layer"

    row: Mapped[dict[str, Any]]

    __table_args__ = (Index("ix_profile_layer_gpu_model", "gpu", "model"),)


class CalibrationRow(Owned, Base):
    """A calibration by its name; the newest revision is the one that problems get. None is ever changed."""

    __tablename__ = "calibration"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str]
    revision: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    document: Mapped[dict[str, Any]]

    __table_args__ = (UniqueConstraint("project", "name", "revision", name="uq_calibration_project_name_revision"),)
