"""The market: what is for rent, at what price, how that moved, and whether the clouds still tell."""

import asyncio
import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import repository
from sutler.service.documents.fields import PRINTABLE_OR_NONE
from sutler.service.documents.market import OfferDocument
from sutler.service.market.endpoints import provider_resources
from sutler.service.market.history import HistoryPoint
from sutler.service.market.listing import ORDERS, Listing, listed
from sutler.service.market.selection import OfferFilter, contract_named, gpu_slug, instant, usd_per_gpu_hour
from sutler.service.market.service import MarketService
from sutler.service.pages.charts import Chart, over_time
from sutler.service.pages.fleet import colour_of
from sutler.service.pages.rendering import rendered, with_query
from sutler.service.pages.route import Looking, Page, Service
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.web.state import Services

router = APIRouter(prefix="/ui/market", route_class=Page, include_in_schema=False)
ROWS: Final = 200  # of a page of the table
MOST_LINES: Final = 4  # chosen: GPUs that a chart shows where nobody has chosen any
EARLIEST: Final = datetime(2020, 1, 1, tzinfo=UTC)  # before there was anything to read
POINTS: Final = 49  # chosen: half an hour apart over a day
PALETTE: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b3a600", "#7f7f7f")
DASHES: Final = ("solid", "dashed", "dotted")
Choice = Annotated[str, Query(max_length=200, pattern=PRINTABLE_OR_NONE)]
RANGES: Final = ("6h", "24h", "7d", "30d")


@dataclass(frozen=True, slots=True)
class Sought:
    """What of the market is asked for, as the page's address says it."""

    q: Choice = ""
    gpu: Choice = ""
    provider: Choice = ""
    region: Choice = ""
    contract: Choice = ""
    sort: Choice = "usd_per_gpu_hour"
    list_prices: bool = False
    as_of: Choice = ""

    def listed(self, services: Services) -> tuple[StoredMarket, Listing]:
        """The market then, and what is wanted of it. Raises DocumentError, UnknownNameError."""
        wanted = OfferFilter(
            gpus=[self.gpu] if self.gpu else [],
            providers=[self.provider] if self.provider else [],
            regions=[self.region] if self.region else [],
            contracts=[self.contract] if self.contract else [],
            most_usd_per_gpu_hour=None,
            max_age_s=None,
            list_prices=self.list_prices,
        )
        at = instant(self.as_of, field="as_of", now=services.now()) if self.as_of else None
        market = services.part(MarketService).looked_through(as_of=at)
        return market, listed(market, wanted, words=self.q, order=self.sort, facets=True)


@router.get("")
async def show_market(
    request: Request,
    services: Service,
    looking: Looking,
    sought: Annotated[Sought, Depends()],
    begin: Annotated[int, Query(alias="from", ge=0, le=10_000_000)] = 0,
) -> Response:
    """The page, 200 offers of it at a time."""
    market, found = await asyncio.to_thread(sought.listed, services)
    providers = await asyncio.to_thread(provider_resources, services)
    rows, total = found.offers[begin : begin + ROWS], len(found.offers)
    return rendered(
        request,
        "market.html",
        session=looking,
        rows=rows,
        begin=begin,
        total=total,
        everything=len(market.offers),
        taken_at=market.taken_at,
        facets=found.facets,
        sought=sought,
        orders=_orders(request, sought.sort),
        per_gpu={offer.key: usd_per_gpu_hour(offer) for offer in rows},
        rented_by=await rented_by(services),
        providers=providers,
        before=with_query(request, **{"from": str(max(0, begin - ROWS)) if begin > ROWS else None}),
        after=with_query(request, **{"from": str(begin + ROWS)}) if begin + ROWS < total else None,
        csv=with_query(request, **{"from": None}).replace("/ui/market", "/ui/market/offers.csv", 1),
        lines=lines_for(found, sought.gpu),
    )


def _orders(request: Request, sort: str) -> Mapping[str, tuple[str, str]]:
    """By column: where a click on its heading leads, and how it is sorted now."""
    found = {}
    for name in ORDERS:
        is_up, is_down = sort == name, sort == f"-{name}"
        address = with_query(request, sort=f"-{name}" if is_up else name, **{"from": None})
        found[name] = (address, "ascending" if is_up else "descending" if is_down else "none")
    return found


async def rented_by(services: Services) -> Mapping[tuple[str, str, str], Sequence[str]]:
    """By offer: the deployments whose plans rent it."""
    async with reading(services.engine) as connection:
        every = await repository.every(connection)
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for one in every:
        for rental in one.rentals:
            found[rental.provider, rental.offer_id, rental.contract].append(one.deployment.name)
    return {key: tuple(dict.fromkeys(names)) for key, names in found.items()}


def lines_for(found: Listing, gpu: str) -> list[str]:
    """GPUs for a chart: the one that was chosen, else those with the most offers."""
    return [gpu] if gpu else list(found.facets.get("gpu", {}))[:MOST_LINES]


@router.get("/history")
async def show_history(
    request: Request,
    services: Service,
    looking: Looking,
    gpu: Annotated[list[Annotated[str, Query(max_length=200, pattern=PRINTABLE_OR_NONE)]], Query(max_length=12)] = [],  # noqa: B006
    contract: Choice = "",
    since: Choice = "24h",
) -> Response:
    """Price and supply over time, as charts and as tables."""
    now = services.now()
    begin = instant(since, field="since", now=now)
    gpus = list(dict.fromkeys(map(gpu_slug, gpu)))
    wanted = contract_named(contract or "on_demand")
    series = await asyncio.to_thread(_history, services, gpus, wanted, begin, now)
    return rendered(
        request,
        "history.html",
        session=looking,
        gpus=gpus,
        contract=wanted,
        since=since,
        ranges={choice: with_query(request, since=choice) for choice in RANGES},
        charts=[
            ("Least $/GPU·h", *chart(series, "least_usd_per_gpu_hour")),
            ("GPUs for rent", *chart(series, "gpus")),
        ],
    )


Series = Mapping[str, Sequence[HistoryPoint]]


def _history(services: Services, gpus: Sequence[str], contract: str, since: datetime, until: datetime) -> Series:
    market = services.part(MarketService)
    step = (until - since) / (POINTS - 1)
    rounded = until - timedelta(seconds=until.timestamp() % max(60.0, step.total_seconds() / 4))
    begin = rounded - min(until - since, rounded - EARLIEST)
    return market.histories(gpus, contract=contract, since=begin, until=rounded, points=POINTS)


def chart(series: Series, field: str) -> Chart:
    """A line for each GPU in its colour; those that share one differ by their dashes."""
    seen: Counter[int] = Counter()
    dashes = []
    for gpu in series:
        dashes.append(DASHES[seen[colour_of(gpu)] % len(DASHES)])
        seen[colour_of(gpu)] += 1
    lines = {gpu: [(point.at, getattr(point, field)) for point in points] for gpu, points in series.items()}
    return over_time(lines, colours=[PALETTE[colour_of(gpu)] for gpu in series], dashes=dashes)


@router.get("/offers.csv")
async def get_csv(services: Service, _looking: Looking, sought: Annotated[Sought, Depends()]) -> Response:
    """All offers that the page would show, as a table for other programs."""
    _, found = await asyncio.to_thread(sought.listed, services)
    text = await asyncio.to_thread(_csv, found.offers)
    headers = {"Content-Disposition": 'attachment; filename="offers.csv"', "Cache-Control": "no-store"}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _csv(offers: Sequence[OfferDocument]) -> str:
    columns = tuple(OfferDocument.model_fields)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(getattr(offer, name)) for name in columns] for offer in offers)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Names are clouds' own: what a spreadsheet would take for a formula is marked as text."""
    is_formula = isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@"))
    return f"'{value}" if is_formula else value


@router.get("/clouds/{name}")
async def show_polls(
    request: Request,
    services: Service,
    looking: Looking,
    name: Annotated[str, Path(max_length=100, pattern=PRINTABLE_OR_NONE)],
) -> Response:
    """How the polls of a cloud went."""
    found = await asyncio.to_thread(services.part(MarketService).polls, name, limit=100)
    return rendered(request, "polls.html", session=looking, name=name, polls=found)
