"""The market as of an instant, as a market snapshot document: what the planner sees, and what people are shown.

A provider that fails to answer keeps its last offers, which grow older; `observed_at` says how old each is.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row

from sutler.adapters.base import LONGEST_NAME
from sutler.service.db.engine import connected
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.market import repository
from sutler.service.market.history import kept_in_full_since
from sutler.service.market.interruptions import interruptions_at
from sutler.service.market.repository import SeenPoll
from sutler.service.translation.stored_market import StoredMarket

logger = logging.getLogger("sutler.market")

Fields = dict[str, Any]


def read_market(
    engine: Engine, *, now: datetime, as_of: datetime | None = None, providers: Sequence[str] = ()
) -> StoredMarket:
    """The market now, or as the store had it at `as_of`.

    Raises DatabaseError, and DocumentError for an instant whose offers were rolled up and deleted.
    """
    with connected(engine, isolation_level="REPEATABLE READ") as connection:
        _check_is_kept(connection, as_of)
        polls = repository.polls_before(connection, as_of)
        rows = repository.offers_at(connection, as_of, providers)
        for name in {row.provider for row in rows if _observed_at(row, polls.get(row.provider, ())) is None}:
            oldest = min((poll.at for poll in polls.get(name, ())), default=now)
            polls.setdefault(name, []).extend(repository.earlier_coverage(connection, name, before=oldest))
        taken_at = now if as_of is None else as_of
        interruptions = interruptions_at(connection, taken_at)
    seen = {name: found[0].ended_at for name, found in polls.items() if found}
    wanted = {name: at for name, at in seen.items() if not providers or name in providers}
    return StoredMarket(taken_at, tuple(_documents(_described(rows, polls))), wanted, interruptions=interruptions)


def _check_is_kept(connection: Connection, as_of: datetime | None) -> None:
    kept_since = None if as_of is None else kept_in_full_since(connection)
    if as_of is not None and kept_since is not None and as_of < kept_since:
        remedy = (
            f"single offers are kept since {kept_since:%Y-%m-%dT%H:%M:%SZ}; `sutler market history` goes further back"
        )
        raise DocumentError.of("as_of", remedy, value=f"{as_of:%Y-%m-%dT%H:%M:%SZ}")


def _documents(described: Iterable[Fields]) -> Iterator[OfferDocument]:
    """Makes documents; one row that breaks the contract must not cost the market: the log says what is left out."""
    for fields in described:
        try:
            yield OfferDocument(**fields)
        except ValidationError as error:
            broken = ", ".join(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
            logger.error("%s/%s is left out: wrong %s", fields["provider"], fields["offer_id"], broken)


def _described(rows: Sequence[Row[Any]], polls: Mapping[str, Sequence[SeenPoll]]) -> Iterable[Fields]:
    """Yields the documents' fields, with what no single row knows: its machine's free GPUs, when it was last seen."""
    machines = _machines(rows)
    known = OfferDocument.model_fields
    for row in rows:
        fields: Fields = {name: value for name, value in row._mapping.items() if name in known}
        fields["observed_at"] = _observed_at(row, polls.get(row.provider, ())) or row.since
        if row.machine_id is not None:
            by_gpu = machines[row.provider, row.machine_id]
            fields["machine_gpus"] = by_gpu[row.gpu]
            if len(by_gpu) > 1:
                fields["machine_id"] = _half_of(row.machine_id, row.gpu)
        yield fields


def _half_of(machine_id: str, gpu: str) -> str:
    """Names a machine's cards of one type; a digest where the machine's own name leaves no room."""
    name = f"{machine_id}/{gpu}"
    return name if len(name) <= LONGEST_NAME else f"{blake2b(machine_id.encode(), digest_size=16).hexdigest()}/{gpu}"


def _machines(rows: Iterable[Row[Any]]) -> dict[tuple[str, str], dict[str, int]]:
    """Counts, by machine and GPU type, the GPUs that can be rented: distinct cards over all offers, never their sum.

    A number that the provider states for the machine holds where it is smaller; where an offer does not name its
    cards, the machine has the most that any of its offers states. Cards of two types in one machine count as
    two machines, since a machine's offers are alternative slices of the same cards.
    """
    offers: dict[tuple[str, str], dict[str, list[Row[Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.machine_id is not None:
            offers[row.provider, row.machine_id][row.gpu].append(row)
    return {machine: {gpu: _gpus_of(slices) for gpu, slices in by_gpu.items()} for machine, by_gpu in offers.items()}


def _gpus_of(offers: Sequence[Row[Any]]) -> int:
    cards = {card for offer in offers for card in offer.gpu_ids or ()}
    if all(offer.gpu_ids for offer in offers):
        return min([len(cards), *(int(offer.machine_gpus) for offer in offers if offer.machine_gpus is not None)])
    return max(len(cards), *(int(offer.machine_gpus or offer.gpus) for offer in offers))


def _observed_at(row: Row[Any], polls: Iterable[SeenPoll]) -> datetime | None:
    """Returns when the last poll that spoke of this offer ended; None where these polls do not go back far enough."""
    since: datetime = row.since
    for poll in polls:
        if poll.at < since:
            return since
        if poll.at == since or any(_speaks_of(row, c.feed_prefix, c.up_to_usd_per_hour) for c in poll.covered):
            return poll.ended_at
    return None


def _speaks_of(row: Row[Any], feed_prefix: str, up_to_usd_per_hour: float | None) -> bool:
    within = up_to_usd_per_hour is None or row.price_usd_per_hour <= up_to_usd_per_hour
    return bool(row.feed.startswith(feed_prefix)) and within
