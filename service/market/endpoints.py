"""`/v1/offers` with its history, outlook and interruptions, `/v1/providers`: the market as stored, as of any time.

Reading a market makes thousands of documents: these endpoints run in threads, beside the event loop.
"""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from sutler.service.auth.dependency import Reader, Service
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE, PRINTABLE_OR_NONE
from sutler.service.market.kinds import KindFilter, interruptions_page, outlook_page
from sutler.service.market.listing import ORDERS, listed
from sutler.service.market.repository import ProviderReport
from sutler.service.market.resources import (
    HistoryPage,
    HistoryResource,
    HistorySeries,
    InterruptionsPage,
    OffersPage,
    OutlookPage,
    PollResource,
    ProviderResource,
)
from sutler.service.market.selection import (
    OfferFilter,
    contract_named,
    duration_s,
    gpu_slug,
    instant,
    provider_names,
    utc_of,
)
from sutler.service.market.service import MarketService
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import STORE_MAX_AGE_S
from sutler.service.web.paging import Cursor, Limit, Page, bad_cursor, decode_cursor, encode_cursor
from sutler.service.web.problems import responses
from sutler.service.web.state import Services

router = APIRouter(prefix="/v1", tags=["market"])

Word = Annotated[str, Query(min_length=1, max_length=200, pattern=PRINTABLE)]
AsOf = Annotated[
    str | None,
    Query(max_length=40, description="A time in RFC 3339, or how long ago: 90s, 30m, 2h, 3d; unset: now."),
]
SEARCHED = "Words that all are part of its provider, id, GPU, region, contract, machine or site, in any case."
SORTED = f"{', '.join(ORDERS)}; the largest first: `-gpus`. What is alike: the cheapest GPU-hour first."
Length = Annotated[str, Query(min_length=2, max_length=20)]
MOST_POINTS = 1_000  # of all GPUs; chosen: more than a plot shows; each point is a question to the store
MOST_OFFERS = 1_000  # of a page; chosen: large enough for scripts, small enough to be written at once


@router.get("/offers", responses=responses(401, 403, 422, 429, 503))
def list_offers(
    services: Service,
    _reader: Reader,
    gpu: Annotated[list[Word], Query(max_length=50, description="Slugs or usual spellings.")] = [],  # noqa: B006
    provider: Annotated[list[Word], Query(max_length=50)] = [],  # noqa: B006
    region: Annotated[list[Word], Query(max_length=50, description="`US` shows `US-TX` too.")] = [],  # noqa: B006
    contract: Annotated[list[Word], Query(max_length=3)] = [],  # noqa: B006
    max_usd_per_gpu_hour: Annotated[float | None, Query(gt=0, le=1e7, allow_inf_nan=False)] = None,
    max_age_s: Annotated[float | None, Query(gt=0, le=1e9, allow_inf_nan=False)] = None,
    list_prices: Annotated[bool, Query(description="Also prices with nothing known to be for rent.")] = False,
    q: Annotated[str, Query(max_length=200, pattern=PRINTABLE_OR_NONE, description=SEARCHED)] = "",
    sort: Annotated[str, Query(max_length=40, description=SORTED)] = "usd_per_gpu_hour",
    facets: Annotated[bool, Query(description="Also count offers by GPU, cloud, region and contract.")] = False,
    as_of: AsOf = None,
    limit: Annotated[int, Query(ge=1, le=MOST_OFFERS)] = 100,
    cursor: Cursor = None,
) -> OffersPage:
    """What is for rent, now or at any past time; the cheapest GPU-hour first unless `sort` says otherwise."""
    wanted = OfferFilter(
        gpus=gpu,
        providers=provider,
        regions=region,
        contracts=contract,
        most_usd_per_gpu_hour=max_usd_per_gpu_hour,
        max_age_s=max_age_s,
        list_prices=list_prices,
    )
    at = None if as_of is None else instant(as_of, field="as_of", now=services.now())
    at, position = _where(cursor, at)
    market = services.part(MarketService).looked_through(as_of=at)
    found = listed(market, wanted, words=q, order=sort, facets=facets)
    total, kept = len(found.offers), found.offers[position : position + limit]
    following = position + len(kept)
    following_cursor = encode_cursor(market.taken_at.isoformat(), following) if following < total else None
    counts = {name: dict(values) for name, values in found.facets.items()}
    return OffersPage(taken_at=market.taken_at, items=list(kept), next=following_cursor, total=total, facets=counts)


def _where(cursor: str | None, at: datetime | None) -> tuple[datetime | None, int]:
    """Returns the instant and the position: later pages show the instant of the first."""
    if cursor is None:
        return at, 0
    taken_at, position = decode_cursor(cursor, parts=2)
    if not position.isdecimal() or int(position) > 10_000_000:
        raise bad_cursor()
    return _instant_in(taken_at), int(position)


def _instant_in(text: str) -> datetime:
    """Of a cursor. Raises BadParameterError."""
    try:
        return utc_of(text)
    except ValueError:
        raise bad_cursor() from None


@router.get("/offers/history", responses=responses(401, 403, 422, 429, 503))
def get_history(
    services: Service,
    _reader: Reader,
    gpu: Annotated[list[Word], Query(min_length=1, max_length=12, description="Slugs or usual spellings.")],
    contract: Word = "on_demand",
    provider: Annotated[list[Word], Query(max_length=50)] = [],  # noqa: B006
    since: Annotated[str, Query(max_length=40)] = "1d",
    until: Annotated[str | None, Query(max_length=40)] = None,
    points: Annotated[int, Query(ge=2, le=MOST_POINTS)] = 60,
) -> HistoryPage:
    """How many GPUs of a type, or of several, were for rent, and at which price, over time."""
    now = services.now()
    begin = instant(since, field="since", now=now)
    end = now if until is None else instant(until, field="until", now=now)
    wanted, names = contract_named(contract), provider_names(provider)
    slugs = list(dict.fromkeys(map(gpu_slug, gpu)))
    if points * len(slugs) > MOST_POINTS:
        raise DocumentError.of("points", f"at most {MOST_POINTS // len(slugs)} of {len(slugs)} GPUs", value=points)
    found = services.part(MarketService).histories(
        slugs, contract=wanted, since=begin, until=end, points=points, providers=names
    )
    series = [
        HistorySeries(gpu=slug, contract=wanted, items=[mapped(HistoryResource, point) for point in found[slug]])
        for slug in slugs
    ]
    first, several = series[0], series if len(series) > 1 else []
    return HistoryPage(items=first.items, next=None, gpu=first.gpu, contract=wanted, series=several)


@router.get("/offers/outlook", responses=responses(401, 403, 422, 429, 503))
def get_outlook(
    services: Service,
    _reader: Reader,
    gpu: Annotated[list[Word], Query(max_length=50, description="Slugs or usual spellings.")] = [],  # noqa: B006
    provider: Annotated[list[Word], Query(max_length=50)] = [],  # noqa: B006
    contract: Annotated[list[Word], Query(max_length=3)] = [],  # noqa: B006
    within: Annotated[Length, Query(description="When you come: a length of time, such as 10m.")] = "10m",
    for_: Annotated[Length, Query(alias="for", description="How long it is to last: 90s, 30m, 2h, 3d.")] = "24h",
) -> OutlookPage:
    """How likely an offer is still there when you come for it, and how long it lasts."""
    within_s, for_s = duration_s(within, field="within"), duration_s(for_, field="for")
    wanted = KindFilter(gpus=gpu, providers=provider, contracts=contract)
    return outlook_page(services.part(MarketService).outlook(), wanted, within_s=within_s, for_s=for_s)


@router.get("/offers/interruptions", responses=responses(401, 403, 422, 429, 503))
def get_interruptions(
    services: Service,
    _reader: Reader,
    gpu: Annotated[list[Word], Query(max_length=50, description="Slugs or usual spellings.")] = [],  # noqa: B006
    provider: Annotated[list[Word], Query(max_length=50)] = [],  # noqa: B006
    contract: Annotated[list[Word], Query(max_length=3)] = [],  # noqa: B006
) -> InterruptionsPage:
    """How often rented machines are taken away, learnt from what deployments have reported."""
    wanted = KindFilter(gpus=gpu, providers=provider, contracts=contract)
    return interruptions_page(services.part(MarketService).interruptions(), wanted)


@router.get("/providers", responses=responses(401, 403, 422, 429, 503))
def list_providers(services: Service, _reader: Reader) -> Page[ProviderResource]:
    """Each cloud that is set up: its last poll, how old its market is, when it is due."""
    return Page(items=provider_resources(services), next=None)


def provider_resources(services: Services) -> list[ProviderResource]:
    """The same, for pages."""
    now = services.now()
    return [_provider(report, now) for report in services.part(MarketService).provider_reports()]


@router.get("/providers/{name}/polls", responses=responses(401, 403, 404, 422, 429, 503))
def list_polls(
    services: Service,
    _reader: Reader,
    name: Annotated[str, Path(min_length=1, max_length=100, pattern=PRINTABLE)],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[PollResource]:
    """The polls of a cloud, the newest first: what was asked, and what came of it."""
    before = None if cursor is None else _instant_in(decode_cursor(cursor, parts=1)[0])
    found = services.part(MarketService).polls(name, limit=limit + 1, before=before)
    # One instant is enough of a cursor: no two polls of a cloud take effect at the same one.
    following = encode_cursor(found[limit - 1].at.isoformat()) if len(found) > limit else None
    return Page(items=found[:limit], next=following)


def _provider(report: ProviderReport, now: datetime) -> ProviderResource:
    age_s = None if report.last_seen_at is None else max(0.0, (now - report.last_seen_at).total_seconds())
    return mapped(ProviderResource, report, age_s=age_s, fresh=age_s is not None and age_s <= STORE_MAX_AGE_S)
