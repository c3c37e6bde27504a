"""All tables. An interval `valid` is [first poll that saw it so, first poll that no longer did)."""

from datetime import datetime
from types import NoneType
from typing import Any, get_args, get_type_hints
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TSTZRANGE, Range
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from sutler.adapters.base import Offer

NOW = func.now()
NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Every table of sutler."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012
        datetime: DateTime(timezone=True),
        float: Double,
        str: Text,
        bytes: LargeBinary,
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
    }


class ProviderRow(Base):
    """A cloud, and when it may be polled next: the state of its backoff outlives a restart.

    `changes` counts the polls that changed its offers; `stale_since` is set while it is known to be silent.
    """

    __tablename__ = "provider"

    id: Mapped[int] = mapped_column(SmallInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    next_poll_at: Mapped[datetime | None]
    asked_to_wait_until: Mapped[datetime | None]
    failures_in_a_row: Mapped[int] = mapped_column(server_default=text("0"))
    suspected_feeds: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    changes: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stale_since: Mapped[datetime | None]


class PollRow(Base):
    """One poll, whatever came of it.

    `at` is when it took effect, in the order of the provider's polls; `ended_at` what the clock said, which is the
    same unless that clock had been set back. `covered` lists [feed prefix, USD per hour up to which, or null] of the
    offers of which it speaks.
    """

    __tablename__ = "poll"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    provider_id: Mapped[int] = mapped_column(SmallInteger, ForeignKey("provider.id"))
    at: Mapped[datetime]
    ended_at: Mapped[datetime]
    seconds: Mapped[float]
    outcome: Mapped[str]
    http_status: Mapped[int | None]
    requests: Mapped[int]
    kept: Mapped[int]
    rejected: Mapped[dict[str, Any]]
    not_available: Mapped[dict[str, Any]]
    flags: Mapped[dict[str, Any]]
    covered: Mapped[list[Any]]
    opened: Mapped[int]
    closed: Mapped[int]
    retry_at: Mapped[datetime | None]
    detail: Mapped[str]

    __table_args__ = (Index("ix_poll_provider_id_at", "provider_id", "at"),)


class OfferRow(Base):
    """An offer as long as it stayed the same in what planning reads; `state` is the digest of that.

    It has a column for every field of an adapter's `Offer`; those that no statement names are added below.
    """

    __tablename__ = "offer"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    provider_id: Mapped[int] = mapped_column(SmallInteger, ForeignKey("provider.id"))
    valid: Mapped[Range[datetime]] = mapped_column(TSTZRANGE)
    state: Mapped[bytes]
    offer_id: Mapped[str]
    contract: Mapped[str]
    feed: Mapped[str]
    available: Mapped[int]
    price_usd_per_hour: Mapped[float]
    gpu_ids: Mapped[list[int] | None] = mapped_column(ARRAY(BigInteger))


_TYPES: dict[Any, TypeEngine[Any]] = {
    int: Integer(),
    float: Double(),
    bool: Boolean(),
    datetime: DateTime(timezone=True),
}
for _name, _hint in get_type_hints(Offer).items():
    if _name not in OfferRow.__table__.c:
        _kinds = (_hint, *get_args(_hint))
        _type = next((_TYPES[kind] for kind in _kinds if kind in _TYPES), Text())
        setattr(OfferRow, _name, mapped_column(_type, nullable=NoneType in _kinds))

# "As of t" asks three indexes: what has no end yet, of which there is one per key, what was over within the hour, and
# what lasted longer (`OFFERED_AT`). In one index over all intervals the few long ones would stretch every page, and
# versions of rows from before they ended would stay in it until the next vacuum: it takes four times as long.
LONGEST_BRIEF = "interval '1 hour'"
_IS_BRIEF = f"upper(valid) - lower(valid) <= {LONGEST_BRIEF}"
_IS_LASTING = f"upper(valid) - lower(valid) > {LONGEST_BRIEF}"
_KEY = (OfferRow.provider_id, OfferRow.offer_id, OfferRow.contract)
Index("ix_offer_brief", func.lower(OfferRow.valid), func.upper(OfferRow.valid), postgresql_where=text(_IS_BRIEF))
Index("ix_offer_lasting", OfferRow.valid, postgresql_using="gist", postgresql_where=text(_IS_LASTING))
Index("uq_offer_open", *_KEY, unique=True, postgresql_where=func.upper(OfferRow.valid).is_(None))
# What an offer was when it was last for rent. By the day, not the instant: rows of one key and day share an entry,
# which makes it a fifth of the size, and of an offer that changes all the time there is still only a day to look at.
DAY_BEGUN = "((lower(valid) AT TIME ZONE 'UTC')::date)"
Index("ix_offer_past", *_KEY, text(DAY_BEGUN), postgresql_where=func.upper(OfferRow.valid).is_not(None))

# Conditions on offers as of {at}, one per index and in its words; every row meets at most one.
OFFERED_AT = (
    "upper(valid) IS NULL AND lower(valid) <= {at}",
    f"{_IS_BRIEF} AND lower(valid) > {{at}} - {LONGEST_BRIEF} AND lower(valid) <= {{at}} AND upper(valid) > {{at}}",
    f"{_IS_LASTING} AND valid @> {{at}}",
)


class RejectedRowRow(Base):
    """A row that no offer could be made of, as it came, for as long as the cloud kept sending it."""

    __tablename__ = "rejected_row"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    provider_id: Mapped[int] = mapped_column(SmallInteger, ForeignKey("provider.id"))
    valid: Mapped[Range[datetime]] = mapped_column(TSTZRANGE)
    row_key: Mapped[str]
    reason: Mapped[str]
    offer_id: Mapped[str | None]
    detail: Mapped[str]
    raw: Mapped[str]

    __table_args__ = (
        Index(
            *("uq_rejected_row_open", "provider_id", "row_key", "reason"),
            unique=True,
            postgresql_where=text("upper(valid) IS NULL"),
        ),
    )


class PolledHourRow(Base):
    """An hour of the history that was rolled up: at how many of its samples a provider's market was known."""

    __tablename__ = "polled_hour"

    provider_id: Mapped[int] = mapped_column(SmallInteger, ForeignKey("provider.id"), primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    samples: Mapped[int]


class MarketHourRow(Base):
    """An hour of the history that is too old to keep in full: what was for rent, over its known samples.

    No row for an hour that a provider's `polled_hour` knows: there was none of it.
    """

    __tablename__ = "market_hour"

    provider_id: Mapped[int] = mapped_column(SmallInteger, ForeignKey("provider.id"), primary_key=True)
    gpu: Mapped[str] = mapped_column(primary_key=True)
    contract: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    gpus_mean: Mapped[float]
    gpus_least: Mapped[int]
    gpus_most: Mapped[int]
    least_usd_per_gpu_hour: Mapped[float]
    median_usd_per_gpu_hour: Mapped[float]
