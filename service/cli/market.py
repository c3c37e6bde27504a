"""`sutler market`: poll clouds into the store, look at what is for rent, now, then and over time.

What is slow to import is imported when a command runs, so that --help is instant.
"""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from sutler.service.cli.terminal.background import telling
from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import AsJson, prints
from sutler.service.cli.terminal.output import show_or_json
from sutler.service.errors import Exit

market = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Gpus = Annotated[list[str] | None, typer.Option("--gpu", metavar="GPU", help="Only this GPU; may be repeated.")]
Providers = Annotated[
    list[str] | None, typer.Option("--provider", metavar="PROVIDER", help="Only this provider; may be repeated.")
]


@market.command(short_help="Ask clouds what is for rent, and store it.")
@guarded
def poll(
    providers: Annotated[
        list[str] | None, typer.Argument(help="Clouds to ask; none: those that are set up (see `providers`).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask clouds what is for rent, and store what changed.

    A cloud that asked for patience is left alone until then, unless it is named here. Exit status: 0 every cloud gave
    a usable answer (unnamed: at least one did), 4 otherwise, 2 bad input.
    """
    from sutler.service.cli.views.market import poll_records, poll_view
    from sutler.service.main import opened_market

    with opened_market() as service:
        chosen = service.providers(providers or ())
        with telling(f"asking {', '.join(provider.title for provider in chosen)}"):
            reports = service.poll(chosen, insist=bool(providers))
    show_or_json(poll_view(reports), poll_records(reports), as_json=as_json)
    usable = [report.poll.is_usable for report in reports]
    raise typer.Exit(Exit.PLANNED if (all(usable) if providers else any(usable)) else Exit.NO_MARKET_DATA)


@market.command(short_help="List what is for rent, now or as of a past instant.")
@guarded
def offers(
    gpu: Gpus = None,
    provider: Providers = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Only this region: US finds US-TX; may be repeated.")
    ] = None,
    contract: Annotated[
        list[str] | None,
        typer.Option("--contract", help="on_demand, interruptible (spot) or reserved; may be repeated."),
    ] = None,
    most_usd_per_gpu_hour: Annotated[
        float | None, typer.Option("--max-price", metavar="USD", help="At most this per GPU and hour.")
    ] = None,
    max_age_s: Annotated[float | None, typer.Option(help="Last seen at most this many seconds ago.")] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="The market as of then: 2026-11-20T12:00:00Z, or 2h, 3d ago.")
    ] = None,
    search: Annotated[
        str, typer.Option(metavar="WORDS", help="All words are part of its provider, id, GPU, region or machine.")
    ] = "",
    sort: Annotated[
        str, typer.Option(metavar="NAME", help="usd_per_hour, gpu, region, seen, ...; largest first: -usd_per_hour.")
    ] = "usd_per_gpu_hour",
    list_prices: Annotated[
        bool, typer.Option("--list-prices", help="Also list prices with nothing known to be for rent.")
    ] = False,
    most: Annotated[int, typer.Option("--limit", help="Rows of the table at most; --json has all.")] = 40,
    as_json: Annotated[bool, prints("a market snapshot (`sutler schema market`)")] = False,
) -> None:
    """List what is for rent, now or as of a past instant; cheapest GPU-hour first unless --sort says otherwise.

    Exit status: 0, 4 when no cloud has answered yet, 2 bad input.
    """
    from sutler.service.cli.views.market import offers_view, snapshot_record
    from sutler.service.main import opened_market
    from sutler.service.market.listing import listed
    from sutler.service.market.selection import OfferFilter

    wanted = OfferFilter(
        gpus=gpu or (),
        providers=provider or (),
        regions=region or (),
        contracts=contract or (),
        most_usd_per_gpu_hour=most_usd_per_gpu_hour,
        max_age_s=max_age_s,
        list_prices=list_prices,
    )
    at = _instant(as_of, "--as-of")
    with opened_market() as service:
        found = service.read(as_of=at, providers=wanted.providers)
    chosen = replace(found, offers=listed(found, wanted, words=search, order=sort).offers)
    view = offers_view(chosen, most=most, cheapest_first=sort == "usd_per_gpu_hour")
    show_or_json(view, snapshot_record(chosen), as_json=as_json)
    raise typer.Exit(Exit.PLANNED if found.last_seen else Exit.NO_MARKET_DATA)


@market.command(short_help="Show the price and number of a GPU over time.")
@guarded
def history(
    gpu: Annotated[str, typer.Argument(help="GPU, as `sutler catalog gpus` or a cloud calls it.")],
    provider: Providers = None,
    contract: Annotated[str, typer.Option(help="on_demand, interruptible (spot) or reserved.")] = "on_demand",
    since: Annotated[str, typer.Option(metavar="TIME", help="Start: 2026-11-20T12:00:00Z, or 24h, 7d ago.")] = "24h",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End; unset: now.")] = None,
    points: Annotated[int, typer.Option(min=2, max=2000, help="Instants to look at.")] = 48,
    as_json: AsJson = False,
) -> None:
    """Show how many GPUs of a type were for rent, and at which price, over time.

    Exit status: 0, 4 when the store knows nothing of it in that time, 2 bad input.
    """
    from sutler.service.cli.views.market import history_view
    from sutler.service.main import opened_market
    from sutler.service.market.selection import contract_named, gpu_slug, provider_names

    slug, kind, names = gpu_slug(gpu), contract_named(contract), provider_names(provider or ())
    start = _instant(since, "--since") or datetime.now(UTC)
    end = _instant(until, "--until") or datetime.now(UTC)
    with opened_market() as service:
        found = service.history(slug, contract=kind, since=start, until=end, points=points, providers=names)
    show_or_json(history_view(slug, kind, found), [asdict(point) for point in found], as_json=as_json)
    raise typer.Exit(Exit.PLANNED if any(point.gpus is not None for point in found) else Exit.NO_MARKET_DATA)


@market.command(short_help="Say how likely offers are still there when you come, and how long they last.")
@guarded
def outlook(
    gpu: Annotated[
        str | None, typer.Argument(help="GPU, as `sutler catalog gpus` or a cloud calls it; unset: all.")
    ] = None,
    provider: Providers = None,
    contract: Annotated[
        list[str] | None,
        typer.Option("--contract", help="on_demand, interruptible (spot) or reserved; may be repeated."),
    ] = None,
    within: Annotated[str, typer.Option(metavar="TIME", help="When you come: 90s, 10m, 2h.")] = "10m",
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it is to last: 2h, 3d.")] = "24h",
    as_json: AsJson = False,
) -> None:
    """Say how likely an offer is still there when you come for it, and how long it lasts, from the last two weeks.

    Exit status: 0, 4 when the store has not watched any such machine, 2 bad input.
    """
    from sutler.service.cli.views.market import outlook_view
    from sutler.service.main import opened_market
    from sutler.service.market.kinds import KindFilter, outlook_page
    from sutler.service.market.selection import duration_s

    wanted = KindFilter(gpus=[gpu] if gpu else (), providers=provider or (), contracts=contract or ())
    within_s, for_s = duration_s(within, field="--within"), duration_s(lasting, field="--for")
    with opened_market() as service:
        found = outlook_page(service.outlook(), wanted, within_s=within_s, for_s=for_s)
    show_or_json(outlook_view(found), found.model_dump(mode="json"), as_json=as_json)
    raise typer.Exit(Exit.PLANNED if found.items else Exit.NO_MARKET_DATA)


@market.command(short_help="Say how often rented machines are taken away.")
@guarded
def interruptions(
    gpu: Annotated[
        str | None, typer.Argument(help="GPU, as `sutler catalog gpus` or a cloud calls it; unset: all.")
    ] = None,
    provider: Providers = None,
    contract: Annotated[
        list[str] | None,
        typer.Option("--contract", help="on_demand, interruptible (spot) or reserved; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how often rented machines are taken away, as deployments have reported what they hold.

    Problems count it with `objective: {count_interruptions: true}`. Exit status: 0, 2 bad input.
    """
    from sutler.service.cli.views.market import interruptions_view
    from sutler.service.main import opened_market
    from sutler.service.market.kinds import KindFilter, interruptions_page

    wanted = KindFilter(gpus=[gpu] if gpu else (), providers=provider or (), contracts=contract or ())
    with opened_market() as service:
        found = interruptions_page(service.interruptions(), wanted)
    show_or_json(interruptions_view(found), found.model_dump(mode="json"), as_json=as_json)


@market.command(short_help="Show each cloud's last poll: age, what was kept, what was rejected and why.")
@guarded
def providers(as_json: AsJson = False) -> None:
    """Show each cloud's last poll: its age, what was kept, what was rejected and why, and what to do."""
    from sutler.service.cli.views.market import provider_records, providers_view
    from sutler.service.main import opened_market

    with opened_market() as service:
        found = service.provider_reports()
    show_or_json(providers_view(found, now=datetime.now(UTC)), provider_records(found), as_json=as_json)


def _instant(text: str | None, option: str) -> datetime | None:
    from sutler.service.market.selection import instant

    return None if text is None else instant(text, field=option, now=datetime.now(UTC))
